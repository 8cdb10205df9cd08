//! Attention: averages of the visible values and nothing else, whatever the magnitude of the logits.

use crate::common::cases::{Case, any_case, config, positive};
use crate::common::{
    assert_same_bits, cast, largest_difference, log_kernel, moments, normal, pick,
};
use favor::diagnose::{relative_error, uniform_error};
use favor::reference::{Baseline, Mask, baseline_attention, exact_attention, feature_attention};
use favor::{Family, FeatureSpec, Kernel, Matrix, Side};
use proptest::prelude::*;

/// Attention from the logarithms of the weights, by the definition.
fn by_definition(logs: &Matrix<f64>, v: &Matrix<f64>, mask: &Mask<'_>) -> Matrix<f64> {
    let mut out = Matrix::zeros(logs.rows(), v.columns());
    for i in 0..logs.rows() {
        let seen: Vec<usize> = (0..v.rows())
            .filter(|&j| mask.keys.is_none_or(|m| m[j]) && (!mask.causal || j <= i))
            .collect();
        let max = seen.iter().map(|&j| logs[(i, j)]).fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = seen.iter().map(|&j| (logs[(i, j)] - max).exp()).sum();
        for &j in &seen {
            let weight = (logs[(i, j)] - max).exp() / total;
            out.row_mut(i).iter_mut().zip(v.row(j)).for_each(|(o, v)| *o += weight * v);
        }
    }
    out
}

fn kernel_logs(kernel: Kernel, q: &Matrix<f64>, k: &Matrix<f64>) -> Matrix<f64> {
    Matrix::from_fn(q.rows(), k.rows(), |i, j| log_kernel(kernel, q.row(i), k.row(j)))
}

/// `log Σ_m f(ω_m,q) f(ω_m,k)` of every pair.
fn feature_logs(map: &favor::FeatureMap, q: &Matrix<f64>, k: &Matrix<f64>) -> Matrix<f64> {
    let p = map.log_features(Side::Query, q.view()).unwrap();
    let s = map.log_features(Side::Key, k.view()).unwrap();
    Matrix::from_fn(q.rows(), k.rows(), |i, j| {
        let logs: Vec<f64> = p.row(i).iter().zip(s.row(j)).map(|(a, b)| a + b).collect();
        let max = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        max + logs.iter().map(|l| (l - max).exp()).sum::<f64>().ln()
    })
}

/// A case with as many queries as keys.
fn square(mut case: Case) -> Case {
    case.queries = case.keys;
    case
}

proptest! {
    #![proptest_config(config(100))]

    /// Exact attention, cross and causal, padded and not, is the definition; its rows are convex
    /// combinations.
    #[test]
    fn exact_attention_follows_the_definition(case in any_case(), causal in any::<bool>(), scale in 0.1..30.0_f64) {
        let mut case = if causal { square(case) } else { case };
        case.scale = scale;
        let (q, k, v) = (case.q(), case.k(), case.v());
        let keys = case.mask(case.keys);
        for mask in [Mask::new(causal, None), Mask::new(causal, Some(&keys))] {
            let kernel = Kernel::attention(case.d);
            let out = exact_attention(kernel, q.view(), k.view(), v.view(), mask).unwrap();
            let expected = by_definition(&kernel_logs(kernel, &q, &k), &v, &mask);
            prop_assert!(largest_difference(&out, &expected) < 1e-12 * (1.0 + 100.0 * scale * scale));
            assert_convex(&out, &v, &mask);
        }
    }

    /// Attention by features is the definition with the estimated kernel in its place.
    #[test]
    fn feature_attention_follows_the_definition(case in positive(), causal in any::<bool>()) {
        let case = if causal { square(case) } else { case };
        let (map, q, k, v) = (case.map(), case.q(), case.k(), case.v());
        let keys = case.mask(case.keys);
        for mask in [Mask::new(causal, None), Mask::new(causal, Some(&keys))] {
            let out = feature_attention(&map, q.view(), k.view(), v.view(), mask).unwrap();
            let expected = by_definition(&feature_logs(&map, &q, &k), &v, &mask);
            prop_assert!(largest_difference(&out, &expected) < 1e-10);
            assert_convex(&out, &v, &mask);
        }
    }

    /// Keys and values in another order give the same; queries in another order give the same rows.
    #[test]
    fn order_does_not_matter(case in positive()) {
        let (map, q, k, v) = (case.map(), case.q(), case.k(), case.v());
        let kernel = map.kernel();
        let (order, rows) = (case.permutation(case.keys), case.permutation(case.queries));
        let (pk, pv, pq) = (pick(k.view(), &order), pick(v.view(), &order), pick(q.view(), &rows));
        let none = Mask::none();
        let ours = feature_attention(&map, q.view(), k.view(), v.view(), none).unwrap();
        let other = feature_attention(&map, pq.view(), pk.view(), pv.view(), none).unwrap();
        prop_assert!(largest_difference(&pick(ours.view(), &rows), &other) < 1e-11);
        let ours = exact_attention(kernel, q.view(), k.view(), v.view(), none).unwrap();
        let other = exact_attention(kernel, pq.view(), pk.view(), pv.view(), none).unwrap();
        prop_assert!(largest_difference(&pick(ours.view(), &rows), &other) < 1e-12);
    }

    /// Padding at the end, filled with anything, changes no bit of any output.
    #[test]
    fn padding_leaves_no_trace(case in positive(), padding in 1..20_usize) {
        let (map, q, k, v) = (case.map(), case.q(), case.k(), case.v());
        let pad = |m: &Matrix<f64>, with: f64| {
            let mut data = m.as_slice().to_vec();
            data.extend(vec![with; padding * m.columns()]);
            Matrix::new(data, m.rows() + padding, m.columns()).unwrap()
        };
        let mut keys = vec![true; case.keys];
        keys.extend(vec![false; padding]);
        let mask = Mask::none().keys(Some(&keys));
        let elu = Baseline::Elu;
        let plain = feature_attention(&map, q.view(), k.view(), v.view(), Mask::none()).unwrap();
        let exact = exact_attention(map.kernel(), q.view(), k.view(), v.view(), Mask::none()).unwrap();
        let base = baseline_attention(&elu, q.view(), k.view(), v.view(), Mask::none()).unwrap();
        for with in [f64::NAN, f64::INFINITY, 0.0, 1e300] {
            let (pk, pv) = (pad(&k, with), pad(&v, with));
            let (pk, pv) = (pk.view(), pv.view());
            let out = feature_attention(&map, q.view(), pk, pv, mask).unwrap();
            assert_same_bits("features", &plain, &out);
            let out = exact_attention(map.kernel(), q.view(), pk, pv, mask).unwrap();
            assert_same_bits("exact", &exact, &out);
            let out = baseline_attention(&elu, q.view(), pk, pv, mask).unwrap();
            assert_same_bits("baseline", &base, &out);
        }
    }

    /// Causal means causal: no bit of an output changes when later tokens do, and each output is
    /// that of the prefix alone.
    #[test]
    fn the_past_does_not_know_the_future(case in positive(), cut in 1..60_usize) {
        let case = square(case);
        let cut = cut.min(case.keys - 1);
        let (map, q, k, v) = (case.map(), case.q(), case.k(), case.v());
        let change = |m: &Matrix<f64>| {
            Matrix::from_fn(m.rows(), m.columns(), |i, l| if i < cut { m[(i, l)] } else { 5.0 - m[(i, l)] })
        };
        let (q2, k2, v2) = (change(&q), change(&k), change(&v));
        let run = |q: &Matrix<f64>, k: &Matrix<f64>, v: &Matrix<f64>| {
            let mask = Mask::causal();
            [
                feature_attention(&map, q.view(), k.view(), v.view(), mask).unwrap(),
                exact_attention(map.kernel(), q.view(), k.view(), v.view(), mask).unwrap(),
                baseline_attention(&Baseline::Elu, q.view(), k.view(), v.view(), mask).unwrap(),
            ]
        };
        let head = |m: &Matrix<f64>| pick(m.view(), &(0..cut).collect::<Vec<_>>());
        let short = run(&head(&q), &head(&k), &head(&v));
        for ((a, b), c) in run(&q, &k, &v).iter().zip(run(&q2, &k2, &v2)).zip(short) {
            assert_same_bits("prefix", &head(a), &head(&b));
            prop_assert!(largest_difference(&head(a), &c) < 1e-11);
        }
        // Token by token, as a decoder would.
        let whole = feature_attention(&map, q.view(), k.view(), v.view(), Mask::causal()).unwrap();
        for i in [0, cut, case.keys - 1] {
            let (q, k, v) = (q.view().slice(i, i + 1), k.view().slice(0, i + 1), v.view().slice(0, i + 1));
            let one = feature_attention(&map, q, k, v, Mask::none()).unwrap();
            prop_assert!(largest_difference(&pick(whole.view(), &[i]), &one) < 1e-11);
        }
    }

    /// Values in `f32` come back within its rounding, and a constant added to all values is a
    /// constant added to all outputs.
    #[test]
    fn formats_agree_and_constants_pass_through(case in positive()) {
        let map = case.map();
        let (q, k, v) =
            (cast::<f32>(&case.q()), cast::<f32>(&case.k()), cast::<f32>(&case.v()));
        let wide = |m: &Matrix<f32>| m.view().to_f64(1.0);
        let none = Mask::none();
        let narrow = feature_attention(&map, q.view(), k.view(), v.view(), none).unwrap();
        let (q, k, v) = (wide(&q), wide(&k), wide(&v));
        let exact = feature_attention(&map, q.view(), k.view(), v.view(), none).unwrap();
        prop_assert!(largest_difference(&wide(&narrow), &exact) < 1e-4);
        let moved = Matrix::from_fn(v.rows(), v.columns(), |j, c| v[(j, c)] + 10.0);
        let moved = feature_attention(&map, q.view(), k.view(), moved.view(), none).unwrap();
        let back = Matrix::from_fn(moved.rows(), moved.columns(), |i, c| moved[(i, c)] - 10.0);
        prop_assert!(largest_difference(&back, &exact) < 1e-11);
    }

    /// ELU and ReLU attention against their formulas.
    #[test]
    fn baselines_follow_their_formulas(case in any_case(), causal in any::<bool>()) {
        let case = if causal { square(case) } else { case };
        let (q, k, v) = (case.q(), case.k(), case.v());
        let keys = case.mask(case.keys);
        let omega = normal(case.seed + 9, case.features, case.d, 0.0, 1.0);
        let elu = |x: f64| if x > 0.0 { x + 1.0 } else { x.exp() };
        let relu = |x: f64| if x > 0.0 { x + 1e-3 } else { 1e-3 };
        let apply = |m: &Matrix<f64>, f: &dyn Fn(f64) -> f64| {
            Matrix::from_fn(m.rows(), m.columns(), |i, l| f(m[(i, l)]))
        };
        let project = |m: &Matrix<f64>| crate::common::matmul(m, &omega.transposed());
        let cases = [
            (Baseline::Elu, apply(&q, &elu), apply(&k, &elu)),
            (Baseline::Relu { epsilon: 1e-3 }, apply(&q, &relu), apply(&k, &relu)),
            (
                Baseline::ReluProjected { omega: omega.clone(), epsilon: 1e-3 },
                apply(&project(&q), &relu),
                apply(&project(&k), &relu),
            ),
        ];
        for (baseline, fq, fk) in cases {
            let inner = crate::common::matmul(&fq, &fk.transposed());
            let logs = Matrix::from_fn(inner.rows(), inner.columns(), |i, j| inner[(i, j)].ln());
            for mask in [Mask::new(causal, None), Mask::new(causal, Some(&keys))] {
                let out = baseline_attention(&baseline, q.view(), k.view(), v.view(), mask).unwrap();
                prop_assert!(largest_difference(&out, &by_definition(&logs, &v, &mask)) < 1e-11);
            }
        }
    }
}

/// Every output lies between the least and the largest visible value, column by column.
fn assert_convex(out: &Matrix<f64>, v: &Matrix<f64>, mask: &Mask<'_>) {
    for i in 0..out.rows() {
        for c in 0..v.columns() {
            let seen = (0..v.rows())
                .filter(|&j| mask.keys.is_none_or(|m| m[j]) && (!mask.causal || j <= i))
                .map(|j| v[(j, c)]);
            let (low, high) =
                seen.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
            let slack = 1e-12 * (1.0 + low.abs().max(high.abs()));
            assert!((low - slack..=high + slack).contains(&out[(i, c)]));
        }
    }
}

#[test]
fn a_query_that_sees_no_key_gives_zeros() {
    let (q, k, v) =
        (normal(1, 4, 3, 0.0, 1.0), normal(2, 4, 3, 0.0, 1.0), normal(3, 4, 2, 1.0, 1.0));
    let nothing = [false; 4];
    let late = [false, false, true, true];
    for family in Family::ALL {
        let map = FeatureSpec::new(family, 8).fit(&moments(&q), &moments(&k)).unwrap();
        for causal in [false, true] {
            let mask = Mask::new(causal, Some(&nothing));
            let out = feature_attention(&map, q.view(), k.view(), v.view(), mask).unwrap();
            assert_eq!(out, Matrix::zeros(4, 2), "{family}");
        }
        let mask = Mask::causal().keys(Some(&late));
        let out = feature_attention(&map, q.view(), k.view(), v.view(), mask).unwrap();
        assert_eq!((out.row(0), out.row(1)), (&[0.0; 2][..], &[0.0; 2][..]), "{family}");
        if family.is_positive() {
            // The first key that is seen is all there is to see.
            (0..2)
                .for_each(|c| crate::common::assert_close("first", out[(2, c)], v[(2, c)], 1e-14));
        }
    }
    for causal in [false, true] {
        let mask = Mask::new(causal, Some(&nothing));
        let kernel = Kernel::softmax();
        let out = exact_attention(kernel, q.view(), k.view(), v.view(), mask).unwrap();
        assert_eq!(out, Matrix::zeros(4, 2));
        let out = baseline_attention(&Baseline::Elu, q.view(), k.view(), v.view(), mask).unwrap();
        assert_eq!(out, Matrix::zeros(4, 2));
    }
}

/// Logits of ±80 and ±10 000, in both formats: finite, and not the plain mean of the values, which
/// is what an ε or a single global maximum turns such attention into.
#[test]
fn large_logits_are_neither_nan_nor_the_plain_mean() {
    fn check<T: favor::Float>(logit: f64) {
        // Queries and keys along one direction, half of each way; the values tell which.
        let d = 4;
        let norm = (logit * (d as f64).sqrt()).sqrt() / 2.0; // all four numbers ±norm
        let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        let noise = normal(4, 32, d, 0.0, 1e-3 * norm);
        let rows = Matrix::from_fn(32, d, |i, l| T::from_f64(sign(i) * norm + noise[(i, l)]));
        let v = Matrix::from_fn(32, 1, |j, _| T::from_f64(sign(j) + 0.25));
        let kernel = Kernel::attention(d);
        let logs = kernel.log_matrix(rows.view(), rows.view()).unwrap();
        assert!(
            (logs[(0, 0)] / logit - 1.0).abs() < 0.02 && (logs[(0, 1)] / logit + 1.0).abs() < 0.02
        );
        let (view, values) = (rows.view(), v.view());
        let exact = exact_attention(kernel, view, view, values, Mask::none()).unwrap();
        (0..32).for_each(|i| assert!((exact[(i, 0)].to_f64() - v[(i, 0)].to_f64()).abs() < 1e-6));
        let plain = uniform_error(&exact, values).unwrap();
        let m = moments(&rows);
        for family in Family::ALL.into_iter().filter(|f| f.is_positive()) {
            let map = FeatureSpec::new(family, 64).kernel(kernel).fit(&m, &m).unwrap();
            for mask in [Mask::none(), Mask::causal()] {
                let out = feature_attention(&map, view, view, values, mask).unwrap();
                assert!(out.as_slice().iter().all(|v| v.is_finite()), "{family} {logit}");
                let error = relative_error(&out, &exact);
                let what = format!("{family} {} {logit}", T::NAME);
                assert!(mask.causal || error < 0.5 * plain, "{what}: {error} against {plain}");
            }
        }
    }
    for logit in [80.0, 1e4] {
        check::<f64>(logit);
        check::<f32>(logit);
    }
}

/// The error of attention by M independent features falls as `M^{-1/2}`. The mean squared error over
/// S seeds has a relative standard error of at most √(2/S), whatever its law between one degree of
/// freedom and many, and the slope over the widest pair that over their distance.
#[test]
fn the_error_falls_as_the_root_of_the_features() {
    const SEEDS: u64 = 256;
    let (q, k, v) =
        (normal(1, 6, 4, 0.1, 0.5), normal(2, 9, 4, -0.2, 0.5), normal(3, 9, 2, 0.0, 1.0));
    let kernel = Kernel::attention(4);
    let exact = exact_attention(kernel, q.view(), k.view(), v.view(), Mask::none()).unwrap();
    for family in [Family::Pos, Family::Sade, Family::Sde, Family::Balanced] {
        let error = |features: usize| {
            let spec = FeatureSpec::new(family, features).kernel(kernel);
            let spec = spec.coupling(favor::Coupling::Iid);
            let total: f64 = (0..SEEDS)
                .map(|seed| {
                    let map = spec.seed(seed).fit(&moments(&q), &moments(&k)).unwrap();
                    let none = Mask::none();
                    let out = feature_attention(&map, q.view(), k.view(), v.view(), none).unwrap();
                    relative_error(&out, &exact).powi(2)
                })
                .sum();
            total / SEEDS as f64
        };
        let (few, many) = (error(64), error(4096));
        let slope = (many / few).ln() / 64_f64.ln();
        let standard_error = (2.0 * 2.0 / SEEDS as f64).sqrt() / 64_f64.ln();
        assert!((slope + 1.0).abs() < 4.0 * standard_error, "{family}: {slope}");
        assert!(many.sqrt() < 0.05, "{family}: {}", many.sqrt());
    }
}
