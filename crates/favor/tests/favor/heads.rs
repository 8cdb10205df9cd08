//! Heads from sums of products: designs, ridge, Gaussian processes and logistic regression against plain
//! definitions.

use favor::draw::Stream;
use favor::learn::{
    Basis, Design, DesignSpec, GramSums, Head, KernelShape, Known, LogisticFit, LogisticOptions,
    LogisticPass, Outcome, Penalty, RidgeOptions, Scaling, class_probabilities, exact_ridge,
    fold_of, metrics,
};
use favor::{Error, Family, Matrix, Moments};

fn normal(stream: &mut Stream, rows: usize, columns: usize) -> Matrix<f64> {
    Matrix::from_fn(rows, columns, |_, _| stream.normal())
}

/// A wavy function of three coordinates, with noise.
fn wavy(stream: &mut Stream, rows: &Matrix<f64>, noise: f64) -> Matrix<f64> {
    Matrix::from_fn(rows.rows(), 1, |i, _| {
        let u = rows.row(i);
        (1.5 * u[0]).sin() + u[1] * u[2] + noise * stream.normal()
    })
}

fn fitted(spec: &DesignSpec, rows: &Matrix<f64>) -> Design {
    spec.fit(&Moments::of(rows.view()).unwrap(), rows.view()).unwrap()
}

fn summed(design: &Design, rows: &Matrix<f64>, targets: &Matrix<f64>) -> GramSums {
    let outcome = Outcome::Numbers(vec![Scaling::IDENTITY; targets.columns()]);
    let mut sums = GramSums::new(design, outcome, 4).unwrap();
    sums.add(design, rows.view(), Known::Numbers(targets.view()), None, None).unwrap();
    sums
}

/// The solution of `A x = b` for positive definite `A`, by elimination.
fn solve(mut a: Matrix<f64>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for k in 0..n {
        for i in k + 1..n {
            let factor = a[(i, k)] / a[(k, k)];
            for j in k..n {
                let above = a[(k, j)];
                a[(i, j)] -= factor * above;
            }
            b[i] -= factor * b[k];
        }
    }
    for k in (0..n).rev() {
        let known: f64 = (k + 1..n).map(|j| a[(k, j)] * b[j]).sum();
        b[k] = (b[k] - known) / a[(k, k)];
    }
    b
}

/// Ridge with an intercept by its normal equations: the intercept, then the coefficients.
fn plain_ridge(phi: &Matrix<f64>, y: &[f64], weights: &[f64], penalty: f64) -> Vec<f64> {
    let p = phi.columns() + 1;
    let column = |i: usize, c: usize| if c == 0 { 1.0 } else { phi[(i, c - 1)] };
    let sum = |value: &dyn Fn(usize) -> f64| (0..phi.rows()).map(value).sum::<f64>();
    let a = Matrix::from_fn(p, p, |r, c| {
        let ridge = if r == c && r > 0 { penalty } else { 0.0 };
        sum(&|i| weights[i] * column(i, r) * column(i, c)) + ridge
    });
    solve(a, (0..p).map(|r| sum(&|i| weights[i] * column(i, r) * y[i])).collect())
}

fn readout(phi: &[f64], solution: &[f64]) -> f64 {
    solution[0] + phi.iter().zip(&solution[1..]).map(|(a, b)| a * b).sum::<f64>()
}

#[test]
fn features_estimate_their_kernel() {
    let mut stream = Stream::new(1, 30);
    let rows = normal(&mut stream, 40, 3);
    let count = 20_000;
    for shape in KernelShape::ALL {
        for basis in [Basis::Random(Family::Trig), Basis::Random(Family::TrigPair)] {
            let spec = DesignSpec::new(count).basis(basis).shape(shape).bandwidth(1.3).seed(3);
            let design = fitted(&spec, &rows);
            let phi = design.transform(rows.view()).unwrap();
            let exact = design.kernel_matrix(rows.view(), rows.view()).unwrap();
            for i in 0..40 {
                for j in 0..i {
                    let estimate: f64 = phi.row(i).iter().zip(phi.row(j)).map(|(a, b)| a * b).sum();
                    // 2cos·cos has variance at most 3/2; 780 pairs, so five deviations.
                    let allowed = 5.0 * (1.5 / count as f64).sqrt();
                    let error = (estimate - exact[(i, j)]).abs();
                    assert!(error < allowed, "{basis} {shape}: {error}");
                }
            }
        }
        // Landmarks span their own kernel exactly.
        let design = fitted(&DesignSpec::new(40).shape(shape).bandwidth(1.3), &rows);
        assert_eq!(design.features(), 40);
        let phi = design.transform(rows.view()).unwrap();
        let exact = design.kernel_matrix(rows.view(), rows.view()).unwrap();
        for i in 0..40 {
            for j in 0..=i {
                let estimate: f64 = phi.row(i).iter().zip(phi.row(j)).map(|(a, b)| a * b).sum();
                // A squared distance of 0 is one of rounding, 10⁻¹⁵, and a rough kernel takes its root.
                let allowed = if shape == KernelShape::Laplace { 1e-6 } else { 1e-9 };
                assert!((estimate - exact[(i, j)]).abs() < allowed, "{shape} {i} {j}");
            }
        }
    }
}

#[test]
fn fewer_features_are_the_first_ones() {
    let mut stream = Stream::new(2, 30);
    let rows = normal(&mut stream, 200, 2);
    for shape in [KernelShape::Gaussian, KernelShape::Laplace] {
        let many = fitted(&DesignSpec::new(90).shape(shape), &rows);
        let few = fitted(&DesignSpec::new(37).shape(shape), &rows);
        let (many, few) =
            (many.transform(rows.view()).unwrap(), few.transform(rows.view()).unwrap());
        for i in 0..200 {
            for m in 0..37 {
                assert!((many[(i, m)] - few[(i, m)]).abs() < 1e-9);
            }
        }
    }
}

#[test]
fn landmarks_that_depend_on_others_are_left_out() {
    // Five different rows, and a column that never changes.
    let rows = Matrix::from_fn(300, 2, |i, l| if l == 0 { (i % 5) as f64 } else { 7.0 });
    let design = fitted(&DesignSpec::new(64), &rows);
    assert_eq!(design.features(), 5);
    let y = Matrix::from_fn(300, 1, |i, _| [3.0, 1.0, 4.0, 1.0, 5.0][i % 5]);
    let head =
        summed(&design, &rows, &y).ridge(&RidgeOptions::default().penalty(Penalty::Fixed(1e-9)));
    let found = head.unwrap().head.predict(&design, rows.view()).unwrap();
    (0..300).for_each(|i| assert!((found[(i, 0)] - y[(i, 0)]).abs() < 1e-6));
}

/// Weights, several targets in scalings of their own, a linear part: the normal equations' solution.
#[test]
fn ridge_solves_the_normal_equations() {
    let mut stream = Stream::new(3, 30);
    let rows = normal(&mut stream, 400, 3);
    let targets = Matrix::from_fn(400, 2, |i, t| match t {
        0 => 1e6 + 10.0 * rows[(i, 0)].sin() + stream.normal(),
        _ => rows[(i, 1)] * rows[(i, 2)] + 0.1 * stream.normal(),
    });
    let weights: Vec<f64> = (0..400).map(|_| 2.0 * stream.uniform()).collect();
    for (basis, linear) in [
        (Basis::Random(Family::Trig), true),
        (Basis::Random(Family::Balanced), false),
        (Basis::Nystrom, false),
    ] {
        let spec = DesignSpec::new(30).basis(basis).linear(linear).bandwidth(2.0);
        let design = fitted(&spec, &rows);
        let scalings = vec![Scaling { centre: 1e6, scale: 7.0 }, Scaling::IDENTITY];
        let mut sums = GramSums::new(&design, Outcome::Numbers(scalings), 4).unwrap();
        let known = Known::Numbers(targets.view());
        sums.add(&design, rows.view(), known, Some(&weights), None).unwrap();
        let fit = sums.ridge(&RidgeOptions::default().penalty(Penalty::Fixed(0.3))).unwrap();
        let found = fit.head.predict(&design, rows.view()).unwrap();
        let phi = design.transform(rows.view()).unwrap();
        for t in 0..2 {
            let centre = [1e6, 0.0][t];
            let y: Vec<f64> = (0..400).map(|i| targets[(i, t)] - centre).collect();
            let solution = plain_ridge(&phi, &y, &weights, 0.3);
            for i in 0..400 {
                let plain = centre + readout(phi.row(i), &solution);
                // The condition of these systems is below 10⁶.
                let error = (found[(i, t)] - plain).abs();
                assert!(error < 1e-9 * (1.0 + plain.abs()), "{basis} {t}: {error}");
            }
        }
    }
}

/// The score of the folds is that of models fitted without them, for every number of features.
#[test]
fn folds_are_exact() {
    let mut stream = Stream::new(4, 30);
    let rows = normal(&mut stream, 600, 3);
    let y = wavy(&mut stream, &rows, 0.3);
    let design = fitted(&DesignSpec::new(100).bandwidth(2.0), &rows);
    let sums = summed(&design, &rows, &y);
    let fit = sums.ridge(&RidgeOptions::default()).unwrap();
    let report = &fit.report;
    assert_eq!(report.curve.iter().map(|p| p.features).collect::<Vec<_>>(), [32, 64, 100]);
    let phi = design.transform(rows.view()).unwrap();
    let mut left = 0.0;
    for point in &report.curve {
        let (mut error, mut baseline) = (0.0, 0.0);
        for fold in 0..4 {
            let (held, kept): (Vec<usize>, Vec<usize>) =
                (0..600).partition(|i| usize::from(fold_of(rows.row(*i), 4)) == fold);
            assert!(held.len() > 100);
            let part = Matrix::from_fn(kept.len(), point.features, |i, m| phi[(kept[i], m)]);
            let targets: Vec<f64> = kept.iter().map(|i| y[(*i, 0)]).collect();
            let mean = targets.iter().sum::<f64>() / targets.len() as f64;
            let solution = plain_ridge(&part, &targets, &vec![1.0; kept.len()], point.penalty);
            for i in held {
                let value = readout(&phi.row(i)[..point.features], &solution);
                error += (y[(i, 0)] - value).powi(2);
                baseline += (y[(i, 0)] - mean).powi(2);
            }
        }
        left = error;
        let plain = 1.0 - error / baseline;
        assert!((point.score - plain).abs() < 1e-7, "{}: {plain}", point.features);
        // A fit of these features alone says the same.
        let options = RidgeOptions::default().features(Some(point.features));
        let alone = sums.ridge(&options.penalty(Penalty::Fixed(point.penalty))).unwrap();
        assert!((alone.report.score.unwrap() - point.score).abs() < 1e-9);
        assert_eq!(alone.head.features(), point.features);
    }
    // No other penalty that was tried is better, but for what does not matter.
    let best = report.penalties.iter().filter_map(|p| p.score).fold(f64::MIN, f64::max);
    assert!(report.score.unwrap() >= best - 1.01e-4 * (1.0 - best));
    assert!(report.score.unwrap() > 0.9);
    // The heads of the folds are those models.
    let heads = sums.cross_fit(report.penalty, None, false).unwrap();
    let mut error = 0.0;
    let values: Vec<Matrix<f64>> =
        heads.iter().map(|h| h.predict(&design, rows.view()).unwrap()).collect();
    for i in 0..600 {
        error += (y[(i, 0)] - values[usize::from(fold_of(rows.row(i), 4))][(i, 0)]).powi(2);
    }
    assert!((error / left - 1.0).abs() < 1e-6, "{error} against {left}");
}

#[test]
fn rows_come_and_go() {
    let mut stream = Stream::new(5, 30);
    let rows = normal(&mut stream, 900, 3);
    let y = wavy(&mut stream, &rows, 0.1);
    for basis in [Basis::Nystrom, Basis::Random(Family::Balanced)] {
        let design = fitted(&DesignSpec::new(50).basis(basis).bandwidth(2.0), &rows);
        let of = |start: usize, end: usize| {
            let part = |m: &Matrix<f64>| m.view().slice(start, end).to_f64(1.0);
            summed(&design, &part(&rows), &part(&y))
        };
        let (all, first, rest) = (of(0, 900), of(0, 500), of(500, 900));
        let options = RidgeOptions::default().penalty(Penalty::Fixed(0.01));
        let predict = |sums: &GramSums| {
            sums.ridge(&options).unwrap().head.predict(&design, rows.view()).unwrap()
        };
        let close = |a: &GramSums, b: &GramSums| {
            assert_eq!(a.fold_rows(), b.fold_rows());
            let (a, b) = (predict(a), predict(b));
            (0..900).for_each(|i| assert!((a[(i, 0)] - b[(i, 0)]).abs() < 1e-7, "{basis}"));
        };
        let mut merged = first.clone();
        merged.merge(&rest).unwrap();
        close(&merged, &all);
        // A window that slides: update, then subtract.
        merged.subtract(&first).unwrap();
        close(&merged, &rest);
        // More than there is, or what was never there.
        let before = merged.clone();
        let error = merged.subtract(&all).unwrap_err().to_string();
        assert!(error.contains("only rows that were added can"), "{error}");
        assert_eq!(merged, before);
        merged.subtract(&rest).unwrap();
        assert_eq!(merged, all.emptied());
        assert!(merged.ridge(&options).unwrap_err().to_string().contains("rows"));
        // Sums of other designs do not mix.
        let other = fitted(&DesignSpec::new(49).basis(basis), &rows);
        assert!(all.clone().merge(&summed(&other, &rows, &y)).is_err());
    }
}

#[test]
fn designs_sums_and_heads_survive_as_bytes() {
    let mut stream = Stream::new(6, 30);
    let rows = normal(&mut stream, 120, 3);
    let y = wavy(&mut stream, &rows, 0.1);
    for basis in ["trig", "trig_pair", "balanced", "nystrom"] {
        let spec = DesignSpec::new(20).basis(basis.parse::<Basis>().unwrap());
        let design = fitted(&spec.bandwidths(vec![1.0, 2.0, 3.0]).linear(true), &rows);
        let sums = summed(&design, &rows, &y);
        let head = sums.gp(&RidgeOptions::default()).unwrap().head;
        let read = Design::from_bytes(&design.to_bytes().unwrap()).unwrap();
        assert_eq!(read, design);
        assert_eq!(GramSums::from_bytes(&sums.to_bytes().unwrap()).unwrap(), sums);
        assert_eq!(Head::from_bytes(&head.to_bytes().unwrap()).unwrap(), head);
        assert_eq!(
            head.predict_with_deviation(&read, rows.view()).unwrap(),
            head.predict_with_deviation(&design, rows.view()).unwrap()
        );
        let json = serde_json::to_string(&(&design, &sums, &head)).unwrap();
        let again: (Design, GramSums, Head) = serde_json::from_str(&json).unwrap();
        assert_eq!(again, (design.clone(), sums.clone(), head.clone()));
        let mut bytes = sums.to_bytes().unwrap();
        let last = bytes.len() - 3;
        bytes[last] ^= 1;
        assert!(matches!(GramSums::from_bytes(&bytes), Err(Error::Format { .. })));
        assert!(matches!(Head::from_bytes(&design.to_bytes().unwrap()), Err(Error::Format { .. })));
    }
}

/// What breaks solvers: the right result, or an error that says what to do.
#[test]
fn degenerate_tables_are_solved() {
    let mut stream = Stream::new(7, 30);
    let options = RidgeOptions::default();
    // A constant column, a copy of another, and more features than rows.
    let base = normal(&mut stream, 60, 1);
    let rows = Matrix::from_fn(60, 3, |i, l| if l == 1 { 5.0 } else { base[(i, 0)] });
    let y = Matrix::from_fn(60, 1, |i, _| base[(i, 0)].sin());
    for basis in [Basis::Random(Family::Trig), Basis::Random(Family::Balanced), Basis::Nystrom] {
        let design = fitted(&DesignSpec::new(256).basis(basis).linear(true), &rows);
        let fit = summed(&design, &rows, &y).ridge(&options).unwrap();
        assert!(fit.report.score.unwrap() > 0.99, "{basis}: {:?}", fit.report.score);
        let found = fit.head.predict(&design, rows.view()).unwrap();
        (0..60).for_each(|i| assert!((found[(i, 0)] - y[(i, 0)]).abs() < 0.1, "{basis}"));
    }
    let design = fitted(&DesignSpec::new(256).basis(Family::Trig), &rows);
    let without = summed(&design, &rows, &y).ridge(&options.penalty(Penalty::Fixed(0.0)));
    assert!(without.unwrap_err().to_string().contains("penalty"));
    // A target that never changes, and a class that all rows have.
    let constant = Matrix::from_fn(60, 1, |_, _| 4.25);
    let design = fitted(&DesignSpec::new(20), &rows);
    for fit in [
        summed(&design, &rows, &constant).ridge(&options),
        summed(&design, &rows, &constant).gp(&options),
    ] {
        let found = fit.unwrap().head.predict(&design, rows.view()).unwrap();
        (0..60).for_each(|i| assert!((found[(i, 0)] - 4.25).abs() < 1e-9));
    }
    let mut sums = GramSums::new(&design, Outcome::Classes(2), 4).unwrap();
    sums.add(&design, rows.view(), Known::Classes(&[1; 60]), None, None).unwrap();
    let mut found = sums.ridge(&options).unwrap().head.predict(&design, rows.view()).unwrap();
    class_probabilities(&mut found);
    (0..60).for_each(|i| assert!(found[(i, 1)] > 1.0 - 1e-9));
    let mut fit = LogisticFit::new(&sums, &LogisticOptions::default()).unwrap();
    run(&mut fit, &design, &rows, &[1; 60], None);
    let found = fit.head().unwrap().predict(&design, rows.view()).unwrap();
    (0..60).for_each(|i| assert!(found[(i, 1)] > 0.9));
}

#[test]
fn weights_of_zero_are_absent_rows() {
    let mut stream = Stream::new(8, 30);
    let rows = normal(&mut stream, 300, 3);
    let y = wavy(&mut stream, &rows, 0.1);
    let design = fitted(&DesignSpec::new(40), &rows);
    let half = |m: &Matrix<f64>| Matrix::from_fn(150, m.columns(), |i, l| m[(2 * i, l)]);
    let plain = summed(&design, &half(&rows), &half(&y));
    let (mut odd, mut odd_y) = (rows.clone(), y.clone());
    (0..150).for_each(|i| {
        odd[(2 * i + 1, 1)] = f64::NAN;
        odd_y[(2 * i + 1, 0)] = f64::INFINITY;
    });
    let weights: Vec<f64> = (0..300).map(|i| if i % 2 == 0 { 1.0 } else { 0.0 }).collect();
    let mut sums = plain.emptied();
    let known = Known::Numbers(odd_y.view());
    sums.add(&design, odd.view(), known, Some(&weights), None).unwrap();
    assert_eq!(sums.fold_rows(), plain.fold_rows());
    let options = RidgeOptions::default().penalty(Penalty::Fixed(0.1));
    let (a, b) = (sums.ridge(&options).unwrap().head, plain.ridge(&options).unwrap().head);
    let pairs = a.coefficients().as_slice().iter().zip(b.coefficients().as_slice());
    pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-9));
    // The same with every row, and with none.
    let error = sums.add(&design, odd.view(), known, None, None).unwrap_err();
    assert!(matches!(error, Error::NonFinite { row, column: 1, .. } if row % 2 == 1), "{error:?}");
    let mut none = plain.emptied();
    none.add(&design, odd.view(), known, Some(&[0.0; 300]), None).unwrap();
    assert_eq!(none.rows(), 0);
    assert!(none.ridge(&options).is_err());
    let error = sums.add(&design, odd.view(), known, Some(&[-1.0; 300]), None).unwrap_err();
    assert!(error.to_string().contains("weight -1"));
}

/// Balanced features with a Gram matrix of condition 10¹⁵: rows in `f32` must give what `f64` rows do.
#[test]
fn ill_conditioned_features_keep_their_accuracy() {
    let mut stream = Stream::new(9, 30);
    let exact: Matrix<f32> = Matrix::from_fn(4000, 3, |_, _| stream.normal() as f32);
    let rows = exact.view().to_f64(1.0);
    let y = wavy(&mut stream, &rows, 0.2);
    let design = fitted(&DesignSpec::new(512).basis(Family::Balanced).bandwidth(1.0), &rows);
    let double = summed(&design, &rows, &y).ridge(&RidgeOptions::default()).unwrap();
    let mut sums = GramSums::new(&design, Outcome::Numbers(vec![Scaling::IDENTITY]), 4).unwrap();
    sums.add(&design, exact.view(), Known::Numbers(y.view()), None, None).unwrap();
    let single = sums.ridge(&RidgeOptions::default()).unwrap();
    assert_eq!(single.report.score, double.report.score);
    assert!(double.report.score.unwrap() > 0.8, "{:?}", double.report);
    // Small penalties are skipped where rounding has made the matrix indefinite, not taken.
    let points = &double.report.penalties;
    assert!(points.iter().all(|p| p.score.is_none_or(|s| s.is_finite() && s <= 1.0)));
}

/// Coordinates with heavy tails: the penalty that the folds choose is near the best on new rows. The
/// generalised cross-validation of the same sums is far off there.
#[test]
fn folds_survive_heavy_tails() {
    let mut stream = Stream::new(10, 30);
    let heavy = |stream: &mut Stream| {
        let (a, b) = (stream.normal(), stream.normal());
        a / b.abs().max(0.02)
    };
    let rows = Matrix::from_fn(3000, 4, |_, _| heavy(&mut stream));
    let y = Matrix::from_fn(3000, 1, |i, _| {
        rows.row(i).iter().map(|v| v.atan()).sum::<f64>() + 0.3 * stream.normal()
    });
    let part = |m: &Matrix<f64>, start: usize, end: usize| m.view().slice(start, end).to_f64(1.0);
    let (seen, new) = (part(&rows, 0, 2000), part(&rows, 2000, 3000));
    let (seen_y, new_y) = (part(&y, 0, 2000), part(&y, 2000, 3000));
    let design = fitted(&DesignSpec::new(256).bandwidth(0.5), &seen);
    let sums = summed(&design, &seen, &seen_y);
    let error = |penalty: Penalty| {
        let head = sums.ridge(&RidgeOptions::default().penalty(penalty)).unwrap().head;
        let found = head.predict(&design, new.view()).unwrap();
        metrics::rmse(found.as_slice(), new_y.as_slice(), None).unwrap()
    };
    let chosen = error(Penalty::Folds);
    let best = (-8..=4).map(|k| error(Penalty::Fixed(10_f64.powi(k)))).fold(f64::MAX, f64::min);
    assert!(chosen < 1.1 * best, "{chosen} against {best}");
}

/// Data drawn from the model itself: noise and coverage are those of the draw.
#[test]
fn intervals_cover_what_they_promise() {
    let mut stream = Stream::new(11, 30);
    let rows = normal(&mut stream, 4000, 2);
    let design = fitted(&DesignSpec::new(64).shape(KernelShape::Matern52), &rows);
    let phi = design.transform(rows.view()).unwrap();
    let beta: Vec<f64> = (0..design.features()).map(|_| 3.0 * stream.normal()).collect();
    let y = Matrix::from_fn(4000, 1, |i, _| {
        let signal: f64 = phi.row(i).iter().zip(&beta).map(|(p, b)| p * b).sum();
        50.0 + 20.0 * (signal + 0.5 * stream.normal())
    });
    let (seen, new) = (rows.view().slice(0, 2000), rows.view().slice(2000, 4000));
    let outcome = Outcome::Numbers(vec![Scaling { centre: 40.0, scale: 9.0 }]);
    let mut sums = GramSums::new(&design, outcome, 4).unwrap();
    sums.add(&design, seen, Known::Numbers(y.view().slice(0, 2000)), None, None).unwrap();
    let fit = sums.gp(&RidgeOptions::default()).unwrap();
    // s²/σ² has a standard deviation of √(2/n) = 0.032.
    let noise = fit.report.noise[0] / 100.0;
    assert!((noise - 1.0).abs() < 0.13, "{noise}");
    // λ = (0.5/3)², to a factor that 64 coefficients can tell.
    let penalty = fit.report.penalty * 36.0;
    assert!((0.4..2.5).contains(&penalty), "{penalty}");
    let (mean, deviation) = fit.head.predict_with_deviation(&design, new).unwrap();
    let targets = &y.as_slice()[2000..];
    for level in [0.5, 0.8, 0.95] {
        let found =
            metrics::coverage(mean.as_slice(), deviation.as_slice(), targets, None, level).unwrap();
        // Four deviations of a binomial of 2000.
        let allowed = 4.0 * (level * (1.0 - level) / 2000.0).sqrt();
        assert!((found - level).abs() < allowed, "{level}: {found}");
    }
    // s²(1 + 1/n + φᵀ(A + λ)⁻¹φ) by its definition.
    let seen_phi = design.transform(seen).unwrap();
    let size = design.features();
    let means: Vec<f64> =
        (0..size).map(|m| (0..2000).map(|i| seen_phi[(i, m)]).sum::<f64>() / 2000.0).collect();
    let gram = Matrix::from_fn(size, size, |a, b| {
        let sum: f64 =
            (0..2000).map(|i| (seen_phi[(i, a)] - means[a]) * (seen_phi[(i, b)] - means[b])).sum();
        sum + if a == b { fit.report.penalty } else { 0.0 }
    });
    let far = Matrix::new(vec![2.5, -3.0], 1, 2).unwrap();
    let centred: Vec<f64> = design
        .transform(far.view())
        .unwrap()
        .row(0)
        .iter()
        .zip(&means)
        .map(|(p, m)| p - m)
        .collect();
    let spread: f64 = solve(gram, centred.clone()).iter().zip(&centred).map(|(a, b)| a * b).sum();
    let expected = (fit.report.noise[0] * (1.0 + 1.0 / 2000.0 + spread)).sqrt();
    let (_, found) = fit.head.predict_with_deviation(&design, far.view()).unwrap();
    assert!((found[(0, 0)] / expected - 1.0).abs() < 1e-6, "{} {expected}", found[(0, 0)]);
    assert!(
        sums.ridge(&RidgeOptions::default())
            .unwrap()
            .head
            .predict_with_deviation(&design, far.view())
            .is_err()
    );
}

fn run(
    fit: &mut LogisticFit,
    design: &Design,
    rows: &Matrix<f64>,
    classes: &[usize],
    weights: Option<&[f64]>,
) {
    loop {
        let mut pass = fit.pass();
        pass.add(design, rows.view(), classes, weights).unwrap();
        if fit.step(&pass).unwrap() {
            return;
        }
    }
}

/// At the optimum the gradient vanishes: `Φᵀ(p − y) + λV = 0`, and without the penalty for intercepts.
#[test]
fn logistic_regression_finds_its_optimum() {
    let mut stream = Stream::new(12, 30);
    let rows = normal(&mut stream, 800, 2);
    let weights: Vec<f64> = (0..800).map(|_| 2.0 * stream.uniform()).collect();
    for count in [2, 4] {
        let classes: Vec<usize> = (0..800)
            .map(|i| {
                let logit = 2.0 * rows[(i, 0)] + rows[(i, 1)].powi(2) + stream.normal();
                (logit.max(0.0) as usize).min(count - 1)
            })
            .collect();
        let design = fitted(&DesignSpec::new(24).bandwidth(1.5), &rows);
        let mut sums = GramSums::new(&design, Outcome::Classes(count), 4).unwrap();
        let known = Known::Classes(&classes);
        sums.add(&design, rows.view(), known, Some(&weights), None).unwrap();
        let options = LogisticOptions::default().penalty(Some(0.5)).tolerance(1e-13).passes(300);
        let mut fit = LogisticFit::new(&sums, &options).unwrap();
        run(&mut fit, &design, &rows, &classes, Some(&weights));
        assert!(fit.passes() < 100, "{} passes", fit.passes());
        let head = fit.head().unwrap();
        let p = head.predict(&design, rows.view()).unwrap();
        let phi = design.transform(rows.view()).unwrap();
        for c in 0..count {
            let error =
                |i: usize| weights[i] * (p[(i, c)] - if classes[i] == c { 1.0 } else { 0.0 });
            let intercept: f64 = (0..800).map(error).sum();
            assert!(intercept.abs() < 1e-3, "{intercept}");
            for m in 0..24 {
                let slope: f64 = (0..800).map(|i| error(i) * phi[(i, m)]).sum();
                let gradient = slope + 0.5 * head.coefficients()[(m, c)];
                assert!(gradient.abs() < 1e-3, "{count} classes: {gradient}");
            }
        }
        let loss = metrics::log_loss(&p, &classes, Some(&weights)).unwrap();
        assert!((loss - fit.mean_loss()).abs() < 1e-9);
        // Few passes are nearly as good.
        let mut early =
            LogisticFit::new(&sums, &LogisticOptions::default().penalty(Some(0.5))).unwrap();
        run(&mut early, &design, &rows, &classes, Some(&weights));
        assert!(early.passes() < 25, "{} passes", early.passes());
        assert!(early.mean_loss() - fit.mean_loss() < 1e-4);
    }
}

#[test]
fn passes_merge_and_are_checked() {
    let mut stream = Stream::new(13, 30);
    let rows = normal(&mut stream, 500, 2);
    let classes: Vec<usize> = (0..500).map(|i| usize::from(rows[(i, 0)] > 0.3)).collect();
    let design = fitted(&DesignSpec::new(16), &rows);
    let mut sums = GramSums::new(&design, Outcome::Classes(2), 4).unwrap();
    sums.add(&design, rows.view(), Known::Classes(&classes), None, None).unwrap();
    let mut fit = LogisticFit::new(&sums, &LogisticOptions::default()).unwrap();
    let mut whole = fit.pass();
    whole.add(&design, rows.view(), &classes, None).unwrap();
    let mut parts = fit.pass();
    parts.add(&design, rows.view().slice(0, 200), &classes[..200], None).unwrap();
    let mut other = fit.pass();
    other.add(&design, rows.view().slice(200, 500), &classes[200..], None).unwrap();
    // As a worker would send it.
    let sent: LogisticPass = serde_json::from_str(&serde_json::to_string(&other).unwrap()).unwrap();
    parts.merge(&sent).unwrap();
    assert!((parts.loss() - whole.loss()).abs() < 1e-9 * whole.loss());
    assert_eq!(parts.weight(), 500.0);
    // A part of the rows, or a pass of an earlier step, is refused.
    assert!(fit.step(&other).unwrap_err().to_string().contains("every row"));
    fit.step(&whole).unwrap();
    assert!(fit.step(&whole).unwrap_err().to_string().contains("not of this step"));
    assert!(other.add(&design, rows.view(), &[2; 500], None).is_err());
    assert!(LogisticFit::new(&sums, &LogisticOptions::default().penalty(Some(0.0))).is_err());
}

#[test]
fn bad_input_is_named() {
    let rows = Matrix::from_fn(30, 2, |i, l| (i * (l + 1)) as f64);
    let moments = Moments::of(rows.view()).unwrap();
    let message = |spec: DesignSpec| spec.fit(&moments, rows.view()).unwrap_err().to_string();
    assert!(message(DesignSpec::new(0)).contains("features"));
    assert!(message(DesignSpec::new(4).bandwidth(-1.0)).contains("-1 is not a positive number"));
    assert!(message(DesignSpec::new(4).bandwidths(vec![1.0; 3])).contains("3 for 2 columns"));
    let rough = DesignSpec::new(4).basis(Family::Balanced).shape(KernelShape::Laplace);
    assert!(message(rough).contains("use trig or nystrom"));
    assert!("nystroem".parse::<Basis>().unwrap_err().to_string().contains("nystrom, trig"));
    let design = DesignSpec::new(4).fit(&moments, rows.view()).unwrap();
    assert!(GramSums::new(&design, Outcome::Classes(2), 0).is_err());
    assert!(GramSums::new(&design, Outcome::Classes(2), 256).is_err());
    let mut sums = GramSums::new(&design, Outcome::Classes(2), 2).unwrap();
    let mut add = |known: Known<'_>, folds: Option<&[u8]>| {
        sums.add(&design, rows.view(), known, None, folds).unwrap_err().to_string()
    };
    assert!(add(Known::Nothing, None).contains("classes are needed"));
    assert!(add(Known::Classes(&[0; 29]), None).contains("29 for 30 rows"));
    assert!(add(Known::Classes(&[2; 30]), None).contains("class 2 of row 0"));
    assert!(add(Known::Classes(&[0; 30]), Some(&[2; 30])).contains("fold 2 where there are 2"));
    let far = Matrix::new(vec![1e30, 0.0], 1, 2).unwrap();
    let error = sums.add(&design, far.view(), Known::Classes(&[0]), None, None).unwrap_err();
    assert!(error.to_string().contains("row 0, column 0"), "{error}");
    let narrow = Matrix::new(vec![1.0], 1, 1).unwrap();
    let head = {
        sums.add(&design, rows.view(), Known::Classes(&[1; 30]), None, None).unwrap();
        sums.ridge(&RidgeOptions::default()).unwrap().head
    };
    assert!(matches!(head.predict(&design, narrow.view()), Err(Error::Shape { .. })));
    let options = RidgeOptions::default().features(Some(5));
    assert!(sums.ridge(&options).unwrap_err().to_string().contains("5 where there are 4"));
}

/// With every row a landmark, the features are the kernel: ridge regression on them is exact.
#[test]
fn all_landmarks_are_the_exact_kernel() {
    let mut stream = Stream::new(14, 30);
    let rows = normal(&mut stream, 150, 3);
    let y = wavy(&mut stream, &rows, 0.2);
    let queries = normal(&mut stream, 40, 3);
    let weights: Vec<f64> = (0..150).map(|_| 0.1 + stream.uniform()).collect();
    for (shape, linear) in [(KernelShape::Gaussian, false), (KernelShape::Matern32, true)] {
        let spec = DesignSpec::new(150).shape(shape).linear(linear).bandwidth(1.5);
        let design = fitted(&spec, &rows);
        assert_eq!(design.features(), 150);
        let outcome = Outcome::Numbers(vec![Scaling { centre: 0.3, scale: 1.7 }]);
        let mut sums = GramSums::new(&design, outcome.clone(), 4).unwrap();
        let known = Known::Numbers(y.view());
        sums.add(&design, rows.view(), known, Some(&weights), None).unwrap();
        let fit = sums.ridge(&RidgeOptions::default().penalty(Penalty::Fixed(0.05))).unwrap();
        let found = fit.head.predict(&design, queries.view()).unwrap();
        let w = Some(&weights[..]);
        let exact =
            exact_ridge(&design, rows.view(), known, &outcome, w, 0.05, queries.view()).unwrap();
        for i in 0..40 {
            assert!((found[(i, 0)] - exact[(i, 0)]).abs() < 1e-6, "{shape}");
        }
    }
}

/// Slopes are differences of predictions, for every basis.
#[test]
fn slopes_are_those_of_the_predictions() {
    let mut stream = Stream::new(15, 30);
    let rows = normal(&mut stream, 300, 3);
    let y = wavy(&mut stream, &rows, 0.05);
    for (basis, shape, linear) in [
        (Basis::Nystrom, KernelShape::Gaussian, false),
        (Basis::Nystrom, KernelShape::Matern52, true),
        (Basis::Random(Family::Trig), KernelShape::Laplace, true),
        (Basis::Random(Family::Balanced), KernelShape::Gaussian, false),
    ] {
        let spec = DesignSpec::new(40).basis(basis).shape(shape).linear(linear);
        let design = fitted(&spec.bandwidths(vec![1.5, 2.0, 3.0]), &rows);
        let head = summed(&design, &rows, &y).ridge(&RidgeOptions::default()).unwrap().head;
        let found = head.slopes(&design, rows.view(), None).unwrap();
        let moments = Moments::of(rows.view()).unwrap();
        for (l, found) in found.into_iter().enumerate() {
            let deviation = moments.covariance()[(l, l)].sqrt();
            let step = 1e-5;
            let moved = |by: f64| {
                let moved = Matrix::from_fn(300, 3, |i, k| {
                    rows[(i, k)] + if k == l { by * deviation } else { 0.0 }
                });
                head.predict(&design, moved.view()).unwrap()
            };
            let (up, down) = (moved(step), moved(-step));
            let squares: f64 =
                (0..300).map(|i| ((up[(i, 0)] - down[(i, 0)]) / (2.0 * step)).powi(2)).sum();
            let slope = (squares / 300.0).sqrt();
            // Differences of step h are off by h² and by rounding over h.
            assert!((found / slope - 1.0).abs() < 1e-4, "{basis} {shape}: {found} {slope}");
        }
    }
}

#[test]
fn comparisons_reject_as_often_as_they_should() {
    let mut rejected = 0;
    for seed in 0..100 {
        let mut stream = Stream::new(seed, 31);
        let (a, b) = (normal(&mut stream, 200, 2), normal(&mut stream, 150, 2));
        let design = fitted(&DesignSpec::new(32).basis(Family::Trig).bandwidth(1.5), &a);
        let of = |rows: &Matrix<f64>| {
            let mut sums = GramSums::new(&design, Outcome::Numbers(vec![]), 1).unwrap();
            sums.add(&design, rows.view(), Known::Nothing, None, None).unwrap();
            sums
        };
        let found = of(&a).compare(&of(&b), seed).unwrap();
        rejected += usize::from(found.p_value < 0.1);
        if seed == 0 {
            let moved = Matrix::from_fn(150, 2, |i, l| b[(i, l)] + 0.8);
            let found = of(&a).compare(&of(&moved), 0).unwrap();
            assert!(found.p_value < 0.001 && found.unbiased_square > 0.01, "{found:?}");
        }
    }
    // Binomial(100, 0.1): beyond 22 with probability 10⁻⁴.
    assert!((1..=22).contains(&rejected), "{rejected} of 100");
}
