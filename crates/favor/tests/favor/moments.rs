//! Moments are those of the set, however it is cut, weighted or padded.

use crate::common::{cast, normal, pick};
use favor::{Family, Matrix, Moments};
use proptest::prelude::*;

/// Mean and covariance by their definitions.
fn by_definition(rows: &Matrix<f64>, weights: &[f64]) -> (Vec<f64>, Matrix<f64>) {
    let total: f64 = weights.iter().sum();
    let weighted = |f: &dyn Fn(usize) -> f64| -> f64 {
        (0..rows.rows()).map(|i| weights[i] * f(i)).sum::<f64>() / total
    };
    let d = rows.columns();
    let mean: Vec<f64> = (0..d).map(|l| weighted(&|i| rows[(i, l)])).collect();
    let covariance = Matrix::from_fn(d, d, |l, k| {
        weighted(&|i| (rows[(i, l)] - mean[l]) * (rows[(i, k)] - mean[k]))
    });
    (mean, covariance)
}

/// The largest difference of means and covariances, relative to the size of the numbers.
fn distance(a: &Moments, b: &Moments) -> f64 {
    assert_eq!(a.count(), b.count());
    let unit = a.covariance().as_slice().iter().fold(1e-300_f64, |m, v| m.max(v.abs()));
    let means = a.mean().iter().zip(b.mean()).map(|(a, b)| (a - b).abs() / unit.sqrt());
    let weights = (a.weight() - b.weight()).abs() / a.weight();
    let covariances = crate::common::largest_difference(&a.covariance(), &b.covariance()) / unit;
    means.fold(weights.max(covariances), f64::max)
}

proptest! {
    #![proptest_config(crate::common::cases::config(80))]

    #[test]
    fn pieces_in_any_grouping_equal_one_pass(
        seed in 0..1000_u64, d in 1..6_usize, rows in 2..300_usize, offset in -100.0..100.0_f64,
        mut cuts in prop::collection::vec(0..300_usize, 0..6), left in any::<bool>(),
    ) {
        let data = normal(seed, rows, d, offset, 1.0);
        cuts.push(0);
        cuts.push(rows);
        cuts.iter_mut().for_each(|c| *c = (*c).min(rows));
        cuts.sort_unstable();
        let mut parts: Vec<Moments> = cuts
            .windows(2)
            .map(|w| Moments::of(data.view().slice(w[0], w[1])).unwrap())
            .collect();
        let one = Moments::of(data.view()).unwrap();
        // Fed one after the other …
        let mut fed = Moments::new(d);
        for w in cuts.windows(2) {
            fed.add(data.view().slice(w[0], w[1])).unwrap();
        }
        // … or merged two by two, from the left or from the right.
        while parts.len() > 1 {
            let (a, b) = if left { (parts.remove(0), 0) } else { (parts.pop().unwrap(), parts.len() - 1) };
            parts[b].merge(&a).unwrap();
        }
        let rounding = 1e-14 * (1.0 + offset.abs());
        prop_assert!(distance(&one, &fed) < rounding, "{}", distance(&one, &fed));
        prop_assert!(distance(&one, &parts[0]) < rounding, "{}", distance(&one, &parts[0]));
        let (mean, covariance) = by_definition(&data, &vec![1.0; rows]);
        prop_assert!(crate::common::largest_difference(&one.covariance(), &covariance) < 1e-12 * (1.0 + offset.abs()));
        for (a, b) in one.mean().iter().zip(mean) {
            prop_assert!((a - b).abs() < rounding);
        }
    }

    #[test]
    fn weights_are_repetitions(
        seed in 0..1000_u64, d in 1..5_usize, times in prop::collection::vec(0..5_usize, 1..40),
    ) {
        let data = normal(seed, times.len(), d, 1.0, 2.0);
        prop_assume!(times.iter().sum::<usize>() > 0);
        let weights: Vec<f64> = times.iter().map(|&t| t as f64).collect();
        let mut weighted = Moments::new(d);
        weighted.add_weighted(data.view(), &weights).unwrap();
        let repeated: Vec<usize> =
            times.iter().enumerate().flat_map(|(i, &t)| vec![i; t]).collect();
        let repeated = Moments::of(pick(data.view(), &repeated).view()).unwrap();
        crate::common::assert_close("weight", weighted.weight(), repeated.weight(), 1e-15);
        for (a, b) in weighted.mean().iter().zip(repeated.mean()) {
            prop_assert!((a - b).abs() < 1e-13);
        }
        let off = crate::common::largest_difference(&weighted.second_moment(), &repeated.second_moment());
        prop_assert!(off < 1e-12, "{}", off);
        prop_assert_eq!(weighted.count(), times.iter().filter(|t| **t > 0).count() as u64);
        let (_, covariance) = by_definition(&data, &weights);
        prop_assert!(crate::common::largest_difference(&weighted.covariance(), &covariance) < 1e-12);
    }

    /// Padding leaves no trace: not a bit of the moments or of any fitted parameter changes, and
    /// what the padding holds is not looked at.
    #[test]
    fn masked_rows_leave_no_trace(seed in 0..1000_u64, d in 1..5_usize, rows in 1..40_usize, padding in 1..20_usize) {
        let data = normal(seed, rows, d, 0.4, 1.0);
        let case_order = {
            let mut stream = favor::draw::Stream::new(seed, 3);
            let mut mask = vec![true; rows];
            (0..padding).for_each(|_| mask.insert(stream.index(mask.len() + 1), false));
            mask
        };
        let mut next = 0..rows;
        let mut padded = Matrix::from_fn(rows + padding, d, |_, _| f64::NAN);
        for (i, _) in case_order.iter().enumerate().filter(|(_, m)| **m) {
            padded.row_mut(i).copy_from_slice(data.row(next.next().unwrap()));
        }
        let plain = Moments::of(data.view()).unwrap();
        let masked = Moments::of_masked(padded.view(), &case_order).unwrap();
        prop_assert_eq!(&plain, &masked);
        for family in Family::ALL {
            prop_assert_eq!(family.fit(&plain, &plain).unwrap(), family.fit(&masked, &masked).unwrap());
        }
    }

    #[test]
    fn scaling_the_moments_is_scaling_the_data(seed in 0..1000_u64, factor in 0.01..100.0_f64) {
        let data = normal(seed, 12, 3, 0.5, 1.0);
        let scaled = Moments::of(data.view()).unwrap().scaled(factor);
        let other = Moments::of(data.view().to_f64(factor).view()).unwrap();
        prop_assert!(distance(&scaled, &other) < 1e-13);
    }
}

/// More rows than one internal block, in both number formats.
#[test]
fn large_sets_and_number_formats() {
    let data = cast::<f32>(&normal(1, 10_001, 3, 50.0, 1.0));
    let wide = data.view().to_f64(1.0);
    let (narrow, exact) = (Moments::of(data.view()).unwrap(), Moments::of(wide.view()).unwrap());
    assert_eq!(narrow, exact);
    let (mean, covariance) = by_definition(&wide, &vec![1.0; wide.rows()]);
    assert!(crate::common::largest_difference(&exact.covariance(), &covariance) < 1e-11);
    exact.mean().iter().zip(mean).for_each(|(a, b)| assert!((a - b).abs() < 1e-10));
    let second = exact.second_moment();
    let sum: f64 = (0..wide.rows()).map(|i| wide[(i, 0)] * wide[(i, 1)]).sum();
    crate::common::assert_close("second", second[(0, 1)], sum / 10_001.0, 1e-12);
}

#[test]
fn moments_survive_json() {
    let moments = crate::common::moments(&normal(7, 30, 4, 0.1, 1.0));
    let text = serde_json::to_string(&moments).unwrap();
    assert_eq!(serde_json::from_str::<Moments>(&text).unwrap(), moments);
    let damaged = text.replace("\"rows\":4", "\"rows\":3");
    assert!(serde_json::from_str::<Moments>(&damaged).is_err());
}
