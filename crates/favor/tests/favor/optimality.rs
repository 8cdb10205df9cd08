//! The theorems: no parameters of a family's class beat those that it fits.
//!
//! Objectives are compared over their floor, and a comparison may be off only by what rounding and
//! the families' floor on variances (1e-12 of the average) can do, computed for each pair of
//! parameters.

use crate::common::sets::{Sets, excess, excess_of, ordinary, tolerance};
use crate::common::{matmul, normal};
use favor::draw::Stream;
use favor::{Family, Matrix, Moments, Parameters, optimal_quadratic};

const STEPS: [f64; 7] = [1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 2.0];
const SETS: u64 = 60;

/// What of the parameters a class leaves free.
#[derive(Clone, Copy, PartialEq)]
enum Transform {
    Identity,
    Diagonal,
    Rotation,
    Any,
}

#[derive(Clone, Copy)]
struct Class {
    family: Family,
    transform: Transform,
    diagonal: bool,
    shifted: bool,
}

/// The classes of the theorems: the paper's for GE, SADE, ADE and SDE, ours for the shifted ones
/// and for the whole class.
const CLASSES: [Class; 7] = [
    Class { family: Family::Ge, transform: Transform::Identity, diagonal: false, shifted: false },
    Class { family: Family::Sade, transform: Transform::Diagonal, diagonal: false, shifted: false },
    Class { family: Family::Ade, transform: Transform::Any, diagonal: false, shifted: false },
    Class { family: Family::Sde, transform: Transform::Rotation, diagonal: true, shifted: false },
    Class {
        family: Family::SdeShifted,
        transform: Transform::Rotation,
        diagonal: true,
        shifted: true,
    },
    Class { family: Family::AdeShifted, transform: Transform::Any, diagonal: false, shifted: true },
    Class { family: Family::Balanced, transform: Transform::Any, diagonal: true, shifted: true },
];

impl Class {
    /// Parameters of the class, a step away from `p` in a random direction. A negative step is the
    /// opposite direction of the same seed.
    fn perturbed(&self, p: &Parameters, seed: u64, step: f64) -> Option<Parameters> {
        let d = p.dim();
        let mut stream = Stream::new(seed, 9);
        let transform = match self.transform {
            Transform::Identity => p.query_transform().clone(),
            Transform::Diagonal => {
                let factors: Vec<f64> = (0..d).map(|_| (step * stream.normal()).exp()).collect();
                Matrix::from_fn(d, d, |i, j| factors[i] * p.query_transform()[(i, j)])
            }
            Transform::Rotation => {
                matmul(&rotation(&normal(seed, d, d, 0.0, step)), p.query_transform())
            }
            Transform::Any => {
                let noise = normal(seed, d, d, 0.0, step);
                let near =
                    Matrix::from_fn(d, d, |i, j| f64::from(u8::from(i == j)) + noise[(i, j)]);
                matmul(&near, p.query_transform())
            }
        };
        // Steps are relative to the distance from the end of the domain, a = 1/8, so no step
        // leaves it.
        let factors: Vec<f64> = (0..d).map(|_| (step * stream.normal()).exp()).collect();
        let quadratic = p.quadratic().iter().enumerate();
        let quadratic = quadratic
            .map(|(l, a)| 0.125 - (0.125 - a) * factors[if self.diagonal { l } else { 0 }])
            .collect();
        let mut moved = |shift: &[f64]| -> Vec<f64> {
            let scale = if self.shifted { step } else { 0.0 };
            shift.iter().map(|s| s + scale * stream.normal()).collect()
        };
        let (c, e) = (moved(p.query_shift()), moved(p.key_shift()));
        // A large step may by chance come close to a singular transform: no member of the class.
        Parameters::new(quadratic, transform, c, e).ok()
    }
}

/// `(I + K)(I − K)⁻¹` for the skew part K of the noise would do; Gram and Schmidt on `I + K` is
/// shorter and orthogonal as well.
fn rotation(noise: &Matrix<f64>) -> Matrix<f64> {
    let d = noise.rows();
    let mut q =
        Matrix::from_fn(d, d, |i, j| f64::from(u8::from(i == j)) + noise[(i, j)] - noise[(j, i)]);
    for i in 0..d {
        // Twice, so that the result is orthogonal to rounding.
        for _ in 0..2 {
            for k in 0..i {
                let (before, rest) = q.as_mut_slice().split_at_mut(i * d);
                let unit = &before[k * d..(k + 1) * d];
                let inner = crate::common::dot(unit, &rest[..d]);
                rest[..d].iter_mut().zip(unit).for_each(|(r, u)| *r -= inner * u);
            }
        }
        let norm = crate::common::dot(q.row(i), q.row(i)).sqrt();
        q.row_mut(i).iter_mut().for_each(|v| *v /= norm);
    }
    q
}

fn fit(family: Family, x: &Moments, y: &Moments) -> Parameters {
    family.fit(x, y).unwrap().unwrap()
}

/// Theorems of the paper on GE, SADE, ADE and SDE, and ours on the shifted and the balanced family:
/// each is the minimum of its class.
#[test]
fn no_parameters_of_the_class_are_better() {
    for seed in 0..SETS {
        let sets = ordinary(seed);
        let (x, y) = sets.moments();
        for class in CLASSES {
            let best = fit(class.family, &x, &y);
            let least = excess(&best, &x, &y);
            for (k, step) in STEPS.into_iter().enumerate() {
                for direction in 0..6 {
                    let key = seed * 1000 + 10 * k as u64 + direction / 2;
                    let step = if direction % 2 == 0 { step } else { -step };
                    let Some(other) = class.perturbed(&best, key, step) else { continue };
                    let rise = excess(&other, &x, &y) - least;
                    let allowed = tolerance(&best, &other, &x, &y);
                    assert!(
                        rise >= -allowed,
                        "{}, {}: step {step} falls by {rise:e}, rounding \
                        {allowed:e}",
                        class.family,
                        sets.name
                    );
                }
            }
        }
    }
}

/// The minimum is a real one: a step of a fiftieth that is wrong in every free parameter raises the
/// objective by far more than rounding, and the two directions of a small step raise it alike, as a
/// quadratic does (the gradient vanishes).
#[test]
fn wrong_parameters_of_the_class_are_worse() {
    for seed in 0..SETS {
        let sets = ordinary(seed);
        let (x, y) = sets.moments();
        for class in CLASSES {
            let best = fit(class.family, &x, &y);
            let least = excess(&best, &x, &y);
            let rise = |step: f64| {
                let other = class.perturbed(&best, seed, step).unwrap();
                excess(&other, &x, &y) - least
            };
            let what = format!("{}, {}", class.family, sets.name);
            let (up, down) = (rise(1e-3), rise(-1e-3));
            assert!(up > 1e-11 && down > 1e-11, "{what}: {up:e}, {down:e}");
            assert!((up - down).abs() < 0.2 * (up + down), "{what}: {up:e} against {down:e}");
            assert!(rise(0.5) > 100.0 * up, "{what}");
        }
    }
}

/// The balanced theorem says more: any G, any shifts, any diagonal, not only those near it.
#[test]
fn nothing_in_the_whole_class_beats_balanced() {
    for seed in 0..SETS {
        let Sets { name, x, y } = ordinary(seed);
        let (mx, my) = (crate::common::moments(&x), crate::common::moments(&y));
        let best = fit(Family::Balanced, &mx, &my);
        let least = excess(&best, &mx, &my);
        for trial in 0..20 {
            let d = x.columns();
            let key = seed * 100 + trial;
            let g = normal(key, d, d, 0.0, 1.0);
            let shifts = normal(key + (1 << 30), 2, d, 0.0, 0.5);
            let near = |m: &Moments, i: usize| -> Vec<f64> {
                m.mean().iter().zip(shifts.row(i)).map(|(m, s)| s - m).collect()
            };
            let made = Parameters::new(vec![0.0; d], g, near(&mx, 0), near(&my, 1));
            let Ok(plain) = made else { continue };
            // With the diagonal that is best for it, so that only G and the shift are on trial.
            let spread = plain.spread(&mx, &my).unwrap();
            let a = spread.iter().map(|&phi| optimal_quadratic(phi)).collect();
            let g = plain.query_transform().clone();
            let (c, e) = (plain.query_shift().to_vec(), plain.key_shift().to_vec());
            let other = Parameters::new(a, g, c, e).unwrap();
            let rise = excess(&other, &mx, &my) - least;
            assert!(rise >= -tolerance(&best, &other, &mx, &my), "{name}: falls by {rise:e}");
        }
    }
}

/// The lemma under all theorems: `a*(φ)` minimises `log(1−4a) − ½log(1−8a) + φ/(1−8a)`.
#[test]
fn optimal_quadratic_is_the_minimiser() {
    let mut previous = 0.0;
    for k in -120..=200 {
        let phi = 10_f64.powf(0.1 * f64::from(k));
        let a = optimal_quadratic(phi);
        assert!(a.is_finite() && a < previous, "a* falls with φ: {a} after {previous}");
        previous = a;
        // The derivative, 4/(1−8a) − 4/(1−4a) + 8φ/(1−8a)², vanishes beside its own terms.
        let (one, two) = (1.0 - 4.0 * a, 1.0 - 8.0 * a);
        // 4/two − 4/one = 16a/(one·two), without the cancellation at small a.
        let terms = [16.0 * a / (one * two), 8.0 * phi / (two * two)];
        let sum: f64 = terms.iter().sum();
        assert!(sum.abs() <= 1e-13 * terms[1], "φ = {phi:e}: slope {sum:e} of {terms:?}");
        let least = excess_of(a, phi);
        for j in -400..400 {
            let other = 0.125 - (0.125 - a) * (0.02 * f64::from(j)).exp();
            let rounding = 1e-15 * (1.0 + (8.0 * a.abs()).ln_1p());
            assert!(excess_of(other, phi) >= least - 4.0 * rounding, "φ = {phi:e}, a = {other}");
        }
    }
    assert_eq!(optimal_quadratic(0.0), 0.0);
}

/// Bhatia and Kittaneh: the eigenvalues of `GΣ_xGᵀ + G⁻ᵀΣ_yG⁻¹`, in order, are at least twice the
/// singular values of `Σ_x^½Σ_y^½`, with equality at the balancing transform.
#[test]
fn no_transform_has_smaller_eigenvalues_than_the_balancing_one() {
    for seed in 0..SETS {
        let sets = ordinary(seed);
        let (x, y) = sets.moments();
        let d = x.dim();
        let (cx, cy) = (x.covariance(), y.covariance());
        // Σ_x = LLᵀ: the squares of the singular values are the eigenvalues of LᵀΣ_yL.
        let l = cholesky(&cx);
        let squares = eigenvalues(&matmul(&matmul(&l.transposed(), &cy), &l));
        let sigma: Vec<f64> = squares.iter().map(|v| v.max(0.0).sqrt()).collect();
        let best = fit(Family::Balanced, &x, &y);
        let mut spread = best.spread(&x, &y).unwrap();
        spread.sort_by(f64::total_cmp);
        // The floors and the squares under the root: σ² is exact to a few 2⁻⁵³ of the largest.
        let unit = sigma[d - 1];
        for (phi, s) in spread.iter().zip(&sigma) {
            let rounding = 1e-6 * unit;
            assert!((phi - 2.0 * s).abs() <= rounding, "{}: {phi} for {}", sets.name, 2.0 * s);
        }
        for trial in 0..10 {
            let g = normal(seed * 64 + trial, d, d, 0.0, 1.0);
            let zeros = vec![0.0; d];
            let Ok(p) = Parameters::new(zeros.clone(), g, zeros.clone(), zeros) else { continue };
            let (r1, r2) = (p.query_transform(), p.key_transform());
            let turned = |r: &Matrix<f64>, c: &Matrix<f64>| matmul(&matmul(r, c), &r.transposed());
            let (a, b) = (turned(r1, &cx), turned(r2, &cy));
            let sum = Matrix::from_fn(d, d, |i, j| a[(i, j)] + b[(i, j)]);
            let values = eigenvalues(&sum);
            for (value, s) in values.iter().zip(&sigma) {
                let rounding = 1e-12 * values[d - 1] + 1e-6 * unit;
                assert!(*value >= 2.0 * s - rounding, "{}: {value} < {}", sets.name, 2.0 * s);
            }
        }
    }
}

fn cholesky(m: &Matrix<f64>) -> Matrix<f64> {
    let d = m.rows();
    let mut l = Matrix::<f64>::zeros(d, d);
    for j in 0..d {
        for i in j..d {
            let sum = m[(i, j)] - crate::common::dot(&l.row(i)[..j], &l.row(j)[..j]);
            l[(i, j)] = if i == j { sum.max(0.0).sqrt() } else { sum / l[(j, j)] };
        }
    }
    l
}

/// Ascending eigenvalues of a symmetric matrix, by faer directly.
fn eigenvalues(m: &Matrix<f64>) -> Vec<f64> {
    let view = faer::MatRef::from_row_major_slice(m.as_slice(), m.rows(), m.columns());
    let mut values = view.self_adjoint_eigenvalues(faer::Side::Lower).unwrap();
    values.sort_by(f64::total_cmp);
    values
}
