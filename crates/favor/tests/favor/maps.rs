//! Features against their definition, and how kernels, scales and formats act on them.

use crate::common::cases::{Case, any_case, config, positive};
use crate::common::{cast, dot, moments, normal};
use favor::draw::{draw_omega, offsets};
use favor::{Coupling, Family, FeatureSpec, Kernel, Matrix, Parameters, Side};
use proptest::prelude::*;

/// `log f` by the definition: `log D + ωᵀAω + ωᵀB(x+s) + (x+s)ᵀC(x+s) − xᵀl − const`, with
/// `B = (I−4A)^½R` and `C = −½Bᵀ(I−4A)⁻¹B` written out.
fn log_feature(p: &Parameters, side: Side, omega: &[f64], x: &[f64]) -> f64 {
    let (r, shift, linear, constant) = match side {
        Side::Query => {
            let (c, e) = (p.query_shift(), p.key_shift());
            (p.query_transform(), c, e, dot(c, e))
        }
        Side::Key => (p.key_transform(), p.key_shift(), p.query_shift(), 0.0),
    };
    let moved: Vec<f64> = x.iter().zip(shift).map(|(x, s)| x + s).collect();
    let mut log = -dot(x, linear) - constant;
    for (l, (a, w)) in p.quadratic().iter().zip(omega).enumerate() {
        let b = (1.0 - 4.0 * a).sqrt() * dot(r.row(l), &moved);
        log += 0.25 * (1.0 - 4.0 * a).ln() + a * w * w + w * b;
        log -= 0.5 * b * b / (1.0 - 4.0 * a);
    }
    log
}

proptest! {
    #![proptest_config(config(120))]

    #[test]
    fn positive_features_follow_the_definition(case in positive()) {
        let map = case.map();
        let p = map.parameters().unwrap();
        for (side, rows) in [(Side::Query, case.q()), (Side::Key, case.k())] {
            let logs = map.log_features(side, rows.view()).unwrap();
            prop_assert_eq!(logs.shape(), (rows.rows(), case.features));
            let scaled = rows.view().to_f64(map.kernel().scale());
            for i in 0..rows.rows() {
                for m in 0..case.features {
                    let expected = log_feature(p, side, map.omega().unwrap().row(m), scaled.row(i));
                    let size = 1.0 + dot(scaled.row(i), scaled.row(i)) + expected.abs();
                    prop_assert!((logs[(i, m)] - expected).abs() < 1e-10 * size);
                }
            }
        }
    }

    /// `P_m = M^{-1/2} f(ω_m, x)`, and the products of accumulators are sums of these.
    #[test]
    fn scaled_features_are_the_exponentials(case in positive()) {
        let (map, q) = (case.map(), case.q());
        let logs = map.log_features(Side::Query, q.view()).unwrap();
        let found = map.features_of(Side::Query, q.view()).unwrap();
        for i in 0..q.rows() {
            for m in 0..case.features {
                let expected = logs[(i, m)] - 0.5 * (case.features as f64).ln();
                let value = found.values[(i, m)];
                prop_assert!((0.0..=1.0).contains(&value));
                let whole = value * (found.log_scale[i] - expected).exp();
                prop_assert!((whole - 1.0).abs() < 1e-11 || value < 1e-300, "{}", whole);
            }
            prop_assert_eq!(found.values.row(i).iter().copied().fold(0.0, f64::max), 1.0);
        }
    }

    /// Features of `K_α` are those of `K_0` times `exp(α‖·‖²)`; an input scale is a scaling of the
    /// data, fit included.
    #[test]
    fn alpha_and_scale_act_on_the_features(case in positive(), alpha in -1.0..1.0_f64, scale in 0.2..2.0_f64) {
        let (q, k) = (case.q(), case.k());
        let (sq, sk) = (q.view().to_f64(scale), k.view().to_f64(scale));
        let with = |alpha, scale| case.spec(Kernel::new(alpha, scale).unwrap());
        let (mq, mk) = (moments(&q), moments(&k));
        let scaled = with(alpha, scale).fit(&mq, &mk).unwrap();
        let plain = with(0.0, 1.0).with_parameters(scaled.parameters().unwrap().clone()).unwrap();
        for (side, rows, by_hand) in [(Side::Query, &q, &sq), (Side::Key, &k, &sk)] {
            let ours = scaled.log_features(side, rows.view()).unwrap();
            let base = plain.log_features(side, by_hand.view()).unwrap();
            for i in 0..rows.rows() {
                let norm = dot(by_hand.row(i), by_hand.row(i));
                for m in 0..case.features {
                    let expected = base[(i, m)] + alpha * norm;
                    let size = 1.0 + norm + expected.abs();
                    prop_assert!((ours[(i, m)] - expected).abs() < 1e-12 * size);
                }
            }
        }
        // The objective of parameters fitted to scaled data is the same: the fit saw the scale.
        let direct = with(0.0, 1.0).fit(&moments(&sq), &moments(&sk)).unwrap();
        let of = |map: &favor::FeatureMap| {
            map.parameters().unwrap().objective(&moments(&sq), &moments(&sk)).unwrap()
        };
        let size = 1.0 + of(&direct).abs();
        prop_assert!((of(&direct) - of(&scaled)).abs() < 1e-9 * size);
    }

    /// A row's features do not depend on the rows beside it, and formats agree to rounding.
    #[test]
    fn rows_are_independent_and_formats_agree(case in any_case()) {
        let (map, q) = (case.map(), case.q());
        let q = cast::<f64>(&cast::<f32>(&q).view().to_f64(1.0)); // numbers that f32 holds
        let all = map.features_of(Side::Query, q.view()).unwrap();
        let narrow = map.features_of(Side::Query, cast::<f32>(&q).view()).unwrap();
        for i in 0..q.rows() {
            let own = map.features_of(Side::Query, q.view().slice(i, i + 1)).unwrap();
            let size = 1.0 + all.log_scale[i].abs();
            prop_assert!((own.log_scale[0] - all.log_scale[i]).abs() <= 1e-13 * size);
            prop_assert!((narrow.log_scale[i] - all.log_scale[i]).abs() <= 1e-5 * size);
            for m in 0..case.features {
                prop_assert!((own.values[(0, m)] - all.values[(i, m)]).abs() <= 1e-12 * size);
                let off = f64::from(narrow.values[(i, m)]) - all.values[(i, m)];
                prop_assert!(off.abs() <= 1e-5 * size);
            }
        }
    }
}

/// `√2 exp((½+α)‖x‖²) cos(ωᵀx + θ)`, with θ uniform or, for the pair form, 0 and −π/2.
#[test]
fn trigonometric_features_follow_the_definition() {
    let x = normal(1, 6, 3, 0.2, 0.8);
    for (alpha, features) in [(0.0, 8), (-0.5, 7)] {
        let kernel = Kernel::new(alpha, 0.6).unwrap();
        for family in [Family::Trig, Family::TrigPair] {
            let spec = FeatureSpec::new(family, features).kernel(kernel).seed(4);
            let map = spec.fit(&moments(&x), &moments(&x)).unwrap();
            let rows = if family == Family::Trig { features } else { features.div_ceil(2) };
            let omega = draw_omega(Coupling::default(), 4, rows, 3).unwrap();
            let theta = offsets(4, features);
            let found = crate::common::plain_features(&map, Side::Key, &x);
            for i in 0..6 {
                let row: Vec<f64> = x.row(i).iter().map(|v| 0.6 * v).collect();
                let factor = 2_f64.sqrt() * ((0.5 + alpha) * dot(&row, &row)).exp();
                for m in 0..features {
                    let pair = family == Family::TrigPair && m < features / 2 * 2;
                    let angle =
                        dot(omega.row(if pair || rows < features { m / 2 } else { m }), &row);
                    let wave = match (pair, m % 2) {
                        (true, 0) => angle.cos(),
                        (true, _) => angle.sin(),
                        (false, _) => (angle + theta[m]).cos(),
                    };
                    assert!((found[(i, m)] - factor * wave).abs() < 1e-13 * factor, "{family} {m}");
                }
            }
            assert!(map.log_features(Side::Query, x.view()).is_err(), "no logarithms");
        }
    }
}

/// The pair of the hyperbolic family is ω and −ω whatever the coupling.
#[test]
fn hyperbolic_draws_come_in_opposite_pairs() {
    let x = normal(2, 9, 4, 0.0, 0.5);
    for coupling in Coupling::ALL {
        let spec = FeatureSpec::new(Family::Hyperbolic, 11).coupling(coupling);
        let map = spec.fit(&moments(&x), &moments(&x)).unwrap();
        for pair in 0..5 {
            let (a, b) =
                (map.omega().unwrap().row(2 * pair), map.omega().unwrap().row(2 * pair + 1));
            a.iter().zip(b).for_each(|(a, b)| assert_eq!(*a, -b, "{coupling}"));
        }
        let distinct =
            (1..5).all(|pair| map.omega().unwrap().row(0) != map.omega().unwrap().row(2 * pair));
        assert!(distinct, "{coupling}");
    }
}

/// One map for both sides, decided by its seed.
#[test]
fn a_seed_decides_the_map() {
    let x = normal(3, 20, 4, 0.0, 0.5);
    let m = moments(&x);
    for family in Family::ALL {
        let spec = FeatureSpec::new(family, 9).seed(5);
        assert_eq!(spec.fit(&m, &m).unwrap(), spec.fit(&m, &m).unwrap());
        assert_ne!(
            spec.fit(&m, &m).unwrap().omega().unwrap(),
            spec.seed(6).fit(&m, &m).unwrap().omega().unwrap()
        );
    }
}

#[test]
fn projections_and_transforms_are_two_ways_to_the_same_parameters() {
    for seed in 0..20 {
        let d = 3;
        let g = normal(seed, d, d, 0.0, 1.0);
        let a = vec![-0.3, 0.1, -2.0];
        let shifts = normal(seed + 50, 2, d, 0.0, 1.0);
        let (c, e) = (shifts.row(0).to_vec(), shifts.row(1).to_vec());
        let p = Parameters::new(a.clone(), g, c.clone(), e.clone()).unwrap();
        let project =
            |r: &Matrix<f64>| Matrix::from_fn(d, d, |l, j| (1.0 - 4.0 * a[l]).sqrt() * r[(l, j)]);
        let (b1, b2) = (project(p.query_transform()), project(p.key_transform()));
        let other = Parameters::from_projections(a.clone(), &b1, &b2, c, e).unwrap();
        let size = p.key_transform().as_slice().iter().fold(1.0_f64, |m, v| m.max(v.abs()));
        for (one, two) in [
            (p.query_transform(), other.query_transform()),
            (p.key_transform(), other.key_transform()),
        ] {
            assert!(crate::common::largest_difference(one, two) < 1e-14 * size);
        }
        // C_k = −½B_kᵀ(I−4A)⁻¹B_k, and log D = ¼ Σ log(1−4a).
        let (c1, _) = p.c_matrices();
        for i in 0..d {
            for j in 0..d {
                let sum = |l: usize| b1[(l, i)] * b1[(l, j)] / (1.0 - 4.0 * a[l]);
                let expected = -0.5 * (0..d).map(sum).sum::<f64>();
                assert!((c1[(i, j)] - expected).abs() < 1e-12);
            }
        }
        let log_d: f64 = a.iter().map(|a| 0.25 * (1.0 - 4.0 * a).ln()).sum();
        crate::common::assert_close("log D", p.log_d(), log_d, 1e-14);
    }
}

/// No two families make the same map of a case, so a mix-up of families cannot go unseen.
#[test]
fn cases_cover_the_families() {
    let case = |family| Case {
        seed: 1,
        d: 3,
        queries: 5,
        keys: 6,
        columns: 1,
        features: 4,
        family,
        coupling: Coupling::Iid,
        scale: 0.5,
    };
    let maps = Family::ALL.map(|family| case(family).map());
    for (i, a) in maps.iter().enumerate() {
        for b in &maps[..i] {
            assert_ne!(a, b);
        }
    }
}
