//! Kernel products by features: sums over keys, in any pieces, any order, any magnitude.

use crate::common::cases::{Case, any_case, config, positive};
use crate::common::{largest_difference, moments, normal, pick};
use favor::{FeatureMap, Kernel, KeySums, LogScaled, Matrix, Rows, Side, kernel_product};
use proptest::prelude::*;

fn sums(map: &FeatureMap, k: Rows<'_, f64>, v: Rows<'_, f64>) -> KeySums {
    let mut out = KeySums::new(map, v.columns());
    out.add(map, k, v).unwrap();
    out
}

/// The largest difference of two products, relative to the sum of the magnitudes of what was added
/// up: features of either sign cancel, and rounding with them.
fn difference(a: &LogScaled<f64>, b: &LogScaled<f64>, size: &[f64]) -> f64 {
    let mut worst = 0.0_f64;
    for (i, size) in size.iter().enumerate() {
        let factor = (b.log_scale[i] - a.log_scale[i]).exp();
        for (x, y) in a.values.row(i).iter().zip(b.values.row(i)) {
            let off = (x - y * factor).abs() / (size * (-a.log_scale[i]).exp());
            assert!(!off.is_nan());
            worst = worst.max(off);
        }
    }
    worst
}

/// `Σ_m Σ_j |P_m(x) S_m(y_j)| max|c|`, for each query.
fn magnitudes(map: &FeatureMap, case: &Case) -> Vec<f64> {
    let p = map.features_of(Side::Query, case.q().view()).unwrap();
    let s = map.features_of(Side::Key, case.k().view()).unwrap();
    let largest = case.v().as_slice().iter().fold(0.0_f64, |a, v| a.max(v.abs()));
    (0..case.queries)
        .map(|i| {
            let mut total = 0.0;
            for j in 0..case.keys {
                let factor = (p.log_scale[i] + s.log_scale[j]).exp();
                let inner = p.values.row(i).iter().zip(s.values.row(j));
                total += factor * inner.map(|(a, b)| (a * b).abs()).sum::<f64>();
            }
            total * largest
        })
        .collect()
}

proptest! {
    #![proptest_config(config(120))]

    /// `P(SᵀC)` is the double sum over features and keys.
    #[test]
    fn products_equal_the_double_loop(case in any_case()) {
        let (map, q, k, v) = (case.map(), case.q(), case.k(), case.v());
        let p = crate::common::plain_features(&map, Side::Query, &q);
        let s = crate::common::plain_features(&map, Side::Key, &k);
        let found = kernel_product(&map, q.view(), k.view(), v.view()).unwrap();
        let naive = Matrix::from_fn(case.queries, case.columns, |i, c| {
            let mut total = 0.0;
            for j in 0..case.keys {
                let inner = crate::common::dot(p.row(i), s.row(j));
                total += inner / case.features as f64 * v[(j, c)];
            }
            total
        });
        let naive = LogScaled { log_scale: vec![0.0; case.queries], values: naive };
        let off = difference(&naive, &found, &magnitudes(&map, &case));
        prop_assert!(off < 1e-11, "{}", off);
    }

    /// Keys in any order and any pieces, merged in any grouping, are one pass.
    #[test]
    fn pieces_and_order_do_not_matter(
        case in any_case(), mut cuts in prop::collection::vec(0..60_usize, 0..5), left in any::<bool>(),
    ) {
        let (map, q, k, v) = (case.map(), case.q(), case.k(), case.v());
        let size = magnitudes(&map, &case);
        let one = sums(&map, k.view(), v.view()).apply(&map, q.view()).unwrap();

        let order = case.permutation(case.keys);
        let (pk, pv) = (pick(k.view(), &order), pick(v.view(), &order));
        let permuted = sums(&map, pk.view(), pv.view()).apply(&map, q.view()).unwrap();
        prop_assert!(difference(&one, &permuted, &size) < 1e-12);

        cuts.extend([0, case.keys]);
        cuts.iter_mut().for_each(|c| *c = (*c).min(case.keys));
        cuts.sort_unstable();
        cuts.dedup();
        let mut fed = KeySums::new(&map, case.columns);
        let mut parts = vec![];
        for w in cuts.windows(2) {
            let (k, v) = (pk.view().slice(w[0], w[1]), pv.view().slice(w[0], w[1]));
            fed.add(&map, k, v).unwrap();
            parts.push(sums(&map, k, v));
        }
        while parts.len() > 1 {
            let (a, b) = if left { (parts.remove(0), 0) } else { (parts.pop().unwrap(), parts.len() - 1) };
            parts[b].merge(&a).unwrap();
        }
        let fed = fed.apply(&map, q.view()).unwrap();
        let merged = parts[0].apply(&map, q.view()).unwrap();
        prop_assert!(difference(&one, &fed, &size) < 1e-12);
        prop_assert!(difference(&one, &merged, &size) < 1e-12);

        // Queries one by one are queries together.
        let last = case.queries - 1;
        let alone = kernel_product(&map, q.view().slice(last, last + 1), k.view(), v.view()).unwrap();
        let row = LogScaled {
            log_scale: vec![one.log_scale[last]],
            values: pick(one.values.view(), &[last]),
        };
        prop_assert!(difference(&row, &alone, &size[last..]) < 1e-12);
    }

    /// Keys so far apart that one feature's sums span thousands of powers of e: the running maximum
    /// and its rescaling against a sum of logarithms.
    #[test]
    fn magnitudes_far_apart_lose_nothing(case in positive(), power in 0.5..2.2_f64, cut in 1..60_usize) {
        let mut case = case;
        case.scale = 1.0;
        let (map, q) = (case.map(), case.q());
        // One key far away, the rest near: the order decides which maximum is rescaled.
        let grow = |i: usize| if i % 3 == 1 { 10_f64.powf(power) } else { 1e-3 };
        let k = case.k();
        let k = Matrix::from_fn(case.keys, case.d, |i, l| k[(i, l)] * grow(i));
        let v = Matrix::from_fn(case.keys, 1, |i, _| 1.0 + i as f64); // positive: it has logarithms
        let logs_q = map.log_features(Side::Query, q.view()).unwrap();
        let logs_k = map.log_features(Side::Key, k.view()).unwrap();
        let cut = cut.min(case.keys - 1);
        let mut both = sums(&map, k.view().slice(0, cut), v.view().slice(0, cut));
        both.merge(&sums(&map, k.view().slice(cut, case.keys), v.view().slice(cut, case.keys))).unwrap();
        let found = both.apply(&map, q.view()).unwrap();
        for i in 0..case.queries {
            let terms: Vec<f64> = (0..case.keys)
                .flat_map(|j| (0..case.features).map(move |m| (j, m)))
                .map(|(j, m)| logs_q[(i, m)] + logs_k[(j, m)] + v[(j, 0)].ln())
                .collect();
            let max = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = terms.iter().map(|t| (t - max).exp()).sum();
            let expected = max + sum.ln() - (case.features as f64).ln();
            let ours = found.log_scale[i] + found.values[(i, 0)].ln();
            prop_assert!((ours - expected).abs() < 1e-12 * (10.0 + max.abs()), "{} {}", ours, expected);
        }
    }

    /// Scalar formats agree, and the product is linear in the values.
    #[test]
    fn formats_agree_and_values_enter_linearly(case in any_case()) {
        let map = case.map();
        let narrow = |m: &Matrix<f64>| crate::common::cast::<f32>(m);
        let (q, k, v) = (narrow(&case.q()), narrow(&case.k()), narrow(&case.v()));
        let wide = |m: &Matrix<f32>| m.view().to_f64(1.0);
        let size = magnitudes(&map, &case);
        let f32s = kernel_product(&map, q.view(), k.view(), v.view()).unwrap();
        let f64s = kernel_product(&map, wide(&q).view(), wide(&k).view(), wide(&v).view()).unwrap();
        let f32s = LogScaled { log_scale: f32s.log_scale, values: wide(&f32s.values) };
        prop_assert!(difference(&f64s, &f32s, &size) < 1e-5);
        let twice = Matrix::from_fn(case.keys, case.columns, |j, c| -2.0 * wide(&v)[(j, c)]);
        let twice = kernel_product(&map, wide(&q).view(), wide(&k).view(), twice.view()).unwrap();
        for (a, b) in f64s.values.as_slice().iter().zip(twice.values.as_slice()) {
            prop_assert_eq!(-2.0 * a, *b);
        }
    }
}

/// More keys and queries than one internal block.
#[test]
fn long_sets_equal_the_double_loop() {
    let (q, k) = (normal(1, 700, 3, 0.0, 0.5), normal(2, 1500, 3, 0.2, 0.5));
    let v = normal(3, 1500, 2, 0.0, 1.0);
    let spec = favor::FeatureSpec::new(favor::Family::Sde, 24).kernel(Kernel::gaussian());
    let map = spec.fit(&moments(&q), &moments(&k)).unwrap();
    let found = kernel_product(&map, q.view(), k.view(), v.view()).unwrap().to_matrix().unwrap();
    let (p, s) = (
        crate::common::plain_features(&map, Side::Query, &q),
        crate::common::plain_features(&map, Side::Key, &k),
    );
    let naive = crate::common::matmul(&p, &crate::common::matmul(&s.transposed(), &v));
    let naive = naive.view().to_f64(1.0 / 24.0);
    assert!(largest_difference(&naive, &found) < 1e-9);
}

#[test]
fn no_keys_give_zeros_and_parts_go_together_again() {
    let x = normal(1, 5, 3, 0.0, 1.0);
    for family in favor::Family::ALL {
        let map = favor::FeatureSpec::new(family, 6).fit(&moments(&x), &moments(&x)).unwrap();
        let empty = KeySums::new(&map, 2);
        let nothing = empty.apply(&map, x.view()).unwrap();
        assert_eq!(nothing.to_matrix().unwrap(), Matrix::zeros(5, 2));
        let v = normal(2, 5, 2, 0.0, 1.0);
        let full = sums(&map, x.view(), v.view());
        let again = KeySums::from_parts(full.log_scale().to_vec(), full.sums().clone()).unwrap();
        assert_eq!(again, full);
        let text = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<KeySums>(&text).unwrap(), full);
        // Nothing merged into something, and the other way round, is that something.
        let (mut one, mut two) = (full.clone(), empty);
        one.merge(&KeySums::new(&map, 2)).unwrap();
        two.merge(&full).unwrap();
        assert_eq!((&one, &two), (&full, &full));
    }
}
