//! Classes that contain one another have ordered optima, on any data whatever; and the objective
//! from the moments is the mean over all pairs.

use crate::common::sets::{degenerate, excess, ordinary, slack, tolerance};
use crate::common::theory::transformed_sum;
use favor::diagnose::Estimator;
use favor::{Family, Kernel, Parameters};

const FITTED: [Family; 8] = [
    Family::Pos,
    Family::Ge,
    Family::Sade,
    Family::Ade,
    Family::Sde,
    Family::SdeShifted,
    Family::AdeShifted,
    Family::Balanced,
];

/// `(smaller, larger)`: the class of the first contains that of the second.
fn ordered() -> Vec<(Family, Family)> {
    use Family::*;
    let mut pairs =
        vec![(Sde, Ge), (Ge, Pos), (Ade, Sade), (Sade, Ge), (SdeShifted, Sde), (AdeShifted, Ade)];
    pairs.extend(FITTED.map(|family| (Balanced, family)));
    pairs
}

#[test]
fn larger_classes_have_lower_objectives_on_any_data() {
    let all = (0..120).map(ordinary).chain((0..288).map(degenerate));
    for sets in all {
        let (x, y) = sets.moments();
        let fitted: Vec<(Family, Parameters)> =
            FITTED.iter().map(|f| (*f, f.fit(&x, &y).unwrap().unwrap())).collect();
        let of = |family| &fitted.iter().find(|(f, _)| *f == family).unwrap().1;
        let floor = favor::objective_floor(&x, &y);
        for (family, p) in &fitted {
            let over = excess(p, &x, &y);
            assert!(over.is_finite() && over >= -1e-12, "{family}, {}: {over}", sets.name);
            // The objective is the floor and the excess, and never below the floor.
            let objective = p.objective(&x, &y).unwrap();
            let unit = floor.abs() + over.abs() + 1.0;
            assert!((objective - floor - over).abs() <= 1e-12 * unit, "{family}, {}", sets.name);
            assert!(objective >= floor - 1e-15 * unit, "{family}, {}", sets.name);
        }
        for (small, large) in ordered() {
            let (best, other) = (of(small), of(large));
            let fall = excess(best, &x, &y) - excess(other, &x, &y);
            let allowed = tolerance(best, other, &x, &y);
            assert!(fall <= allowed, "{small} above {large} by {fall:e} on {}", sets.name);
        }
    }
}

/// The orderings are not all equalities: on ordinary data each larger class gains.
#[test]
fn larger_classes_gain_on_ordinary_data() {
    for seed in 0..40 {
        let sets = ordinary(seed);
        let (x, y) = sets.moments();
        if x.dim() < 2 {
            continue;
        }
        let of = |f: Family| excess(&f.fit(&x, &y).unwrap().unwrap(), &x, &y);
        for (small, large) in ordered().into_iter().filter(|(a, b)| a != b) {
            assert!(of(small) < of(large) - 1e-9, "{small} no better than {large}: {}", sets.name);
        }
    }
}

/// `L̄` needs the moments alone: it equals the mean of the logarithms over all pairs, and φ the mean
/// of `w²`, by definition and by the library's pairwise form.
#[test]
fn the_objective_is_the_mean_over_all_pairs() {
    for seed in 0..60 {
        let sets = if seed % 3 == 0 { degenerate(9 + seed) } else { ordinary(seed) };
        let largest =
            |m: &favor::Matrix<f64>| m.as_slice().iter().fold(0.0_f64, |a, v| a.max(v.abs()));
        if largest(&sets.x).max(largest(&sets.y)) > 100.0 {
            continue; // the pairwise form cancels there
        }
        let (x, y) = sets.moments();
        for kernel in [Kernel::softmax(), Kernel::gaussian(), Kernel::new(0.2, 0.7).unwrap()] {
            for family in FITTED {
                let what = format!("{family}, {}", sets.name);
                let estimator = Estimator::fit(family, kernel, &x, &y).unwrap();
                let p = estimator.parameters().unwrap();
                let logs = estimator.log_second_moments(sets.x.view(), sets.y.view()).unwrap();
                let pairs = logs.as_slice().len() as f64;
                let mean = logs.as_slice().iter().sum::<f64>() / pairs;
                let objective = estimator.objective(&x, &y).unwrap().unwrap();
                let unit = logs.as_slice().iter().fold(1.0_f64, |a, v| a.max(v.abs()));
                let (sx, sy) = (x.scaled(kernel.scale()), y.scaled(kernel.scale()));
                // Directions without variance have steep transforms, which magnify rounding.
                let rounding = slack(p, &sx, &sy, 1e-14);
                let off = (objective - mean).abs();
                assert!(off <= 1e-11 * unit + rounding, "{what}: {objective}, {mean}");

                let mut squares = vec![0.0; p.dim()];
                for a in sets.x.view().iter() {
                    for b in sets.y.view().iter() {
                        let w = transformed_sum(p, kernel, a, b);
                        squares.iter_mut().zip(w).for_each(|(s, w)| *s += w * w / pairs);
                    }
                }
                let spread = p.spread(&sx, &sy).unwrap();
                let total: f64 = squares.iter().sum();
                for ((a, b), q) in squares.iter().zip(&spread).zip(p.quadratic()) {
                    let allowed = 1e-11 * total + rounding * (1.0 - 8.0 * q);
                    assert!((a - b).abs() <= allowed, "{what}: {a} for {b}");
                }
                let floor = estimator.objective_floor(&x, &y);
                let kernel_logs = kernel.log_matrix(sets.x.view(), sets.y.view()).unwrap();
                let twice = 2.0 * kernel_logs.as_slice().iter().sum::<f64>() / pairs;
                assert!((floor - twice).abs() <= 1e-11 * unit, "{what}: {floor} for {twice}");
            }
        }
    }
}

/// Parameters on degenerate data are finite and leave every map usable.
#[test]
fn degenerate_data_give_finite_maps() {
    for seed in 0..72 {
        let sets = degenerate(seed);
        let (x, y) = sets.moments();
        for family in Family::ALL {
            let spec = favor::FeatureSpec::new(family, 16);
            let map = spec.fit(&x, &y).unwrap();
            let features = map.features_of(favor::Side::Query, sets.x.view()).unwrap();
            let all = features.values.as_slice().iter().chain(&features.log_scale);
            assert!(all.into_iter().all(|v| v.is_finite()), "{family}, {}", sets.name);
        }
    }
}
