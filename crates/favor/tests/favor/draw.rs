//! The laws of ω: what every coupling must keep, and what each one adds.
//!
//! All seeds are fixed, so a test either always passes or always fails. Statistical bounds are
//! standard errors from theory; at five of them a right law is refused less than once in a million.

use favor::Matrix;
use favor::draw::{Coupling, Stream, draw_omega, offsets};

fn omega(coupling: Coupling, seed: u64, features: usize, dim: usize) -> Matrix<f64> {
    draw_omega(coupling, seed, features, dim).unwrap()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    dot(a, b) / (norm(a) * norm(b))
}

/// The distribution function of the standard normal law.
fn normal_cdf(z: f64) -> f64 {
    libm::erfc(-z / std::f64::consts::SQRT_2) / 2.0
}

/// The distribution function of the χ_d law, by the recurrence from d to d + 2.
fn chi_cdf(r: f64, dim: usize) -> f64 {
    let half = r * r / 2.0;
    let (mut cdf, mut degrees) = match dim % 2 {
        1 => (libm::erf(half.sqrt()), 1),
        _ => (1.0 - (-half).exp(), 2),
    };
    while degrees < dim {
        let s = degrees as f64 / 2.0;
        cdf -= (s * half.ln() - half - libm::lgamma(s + 1.0)).exp();
        degrees += 2;
    }
    cdf
}

/// Asserts that the mean of `values` is `expected`, within five standard errors from `variance`.
#[track_caller]
fn assert_mean(what: &str, values: impl Iterator<Item = f64>, expected: f64, variance: f64) {
    let (mut sum, mut count) = (0.0, 0.0);
    values.for_each(|value| {
        sum += value;
        count += 1.0;
    });
    let off = (sum / count - expected) / (variance / count).sqrt();
    assert!(off.abs() < 5.0, "{what}: mean {} for {expected}, {off:.1} errors off", sum / count);
}

/// Asserts that `values` follow `cdf`, by the Kolmogorov–Smirnov test at significance 1e-6.
#[track_caller]
fn assert_law(what: &str, mut values: Vec<f64>, cdf: impl Fn(f64) -> f64) {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let distance = values
        .iter()
        .enumerate()
        .map(|(i, &v)| (cdf(v) - i as f64 / n).max((i + 1) as f64 / n - cdf(v)))
        .fold(0.0, f64::max);
    // √(−½ ln(α/2)) for α = 1e-6; hundreds of laws are tested, so a larger α would refuse one.
    assert!(distance * n.sqrt() < 2.6934, "{what}: distance {distance} for {n} values");
}

#[test]
fn golden_values() {
    // Written down once: a change here changes every published result, so it must be meant.
    // Entries (0, 0), (1, 2), (3, 1) and (6, 0) of seed 42, M = 7, d = 3.
    let golden = [
        (
            Coupling::Iid,
            [-0.4619526745252721, -0.2897172851047551, -1.7474397290597992, -0.5917388239248871],
        ),
        (
            Coupling::Orthogonal,
            [-1.6122339013113876, -0.3434586440864963, -0.03248134150932155, 1.1056787798805008],
        ),
        (
            Coupling::Simplex,
            [1.6329681398990297, 0.33007731556186554, -0.9522230396577787, 0.26428489146262263],
        ),
        (
            Coupling::Antithetic,
            [-1.6122339013113876, 1.0396393715789802, 0.8589873733801674, -0.2184065517371489],
        ),
        (
            Coupling::Sobol,
            [-0.036111645526837585, -0.16709701544712274, -0.43822540317693975, 1.5267844737178795],
        ),
    ];
    for (coupling, expected) in golden {
        let omega = omega(coupling, 42, 7, 3);
        let found = [omega[(0, 0)], omega[(1, 2)], omega[(3, 1)], omega[(6, 0)]];
        assert_eq!(found, expected, "{coupling}");
    }
    // Every bit of a larger draw, folded by the FNV-1a hash over words.
    let folded = Coupling::ALL.map(|coupling| {
        let omega = omega(coupling, 9, 70, 33);
        let words = omega.as_slice().iter().map(|value| value.to_bits());
        words.fold(0xcbf29ce484222325u64, |hash, word| (hash ^ word).wrapping_mul(0x100000001b3))
    });
    assert_eq!(
        folded,
        [
            0x421d459a51d843c2,
            0x0ed1447ce3fe9f49,
            0x0aae0c1cf4eeb0a9,
            0x75024dcaaf00cea1,
            0x0f98777c9a64c1eb
        ]
    );
    assert_eq!(offsets(42, 2), [3.0013918170810174, 4.34226512561459]);
}

#[test]
fn shapes_and_prefixes() {
    for coupling in Coupling::ALL {
        for dim in [1, 2, 3, 64] {
            let all = omega(coupling, 5, 3 * dim + 2, dim);
            for features in [1, dim.div_ceil(2), dim, dim + 1, 2 * dim + 1, 3 * dim + 2] {
                let some = omega(coupling, 5, features, dim);
                assert_eq!(some.shape(), (features, dim));
                assert!(some.as_slice().iter().all(|v| v.is_finite() && *v != 0.0));
                assert_eq!(some.as_slice(), &all.as_slice()[..features * dim], "{coupling} {dim}");
            }
        }
    }
}

#[test]
fn seeds_and_couplings_differ() {
    for coupling in Coupling::ALL {
        let first = |seed| omega(coupling, seed, 4, 3)[(0, 0)];
        assert!([1, 2, 1 << 32, u64::MAX].iter().all(|&seed| first(seed) != first(0)));
    }
}

#[test]
fn every_row_is_standard_normal() {
    let (features, dim, seeds) = (7, 3, 6000);
    for coupling in Coupling::ALL {
        let draws: Vec<_> = (0..seeds).map(|seed| omega(coupling, seed, features, dim)).collect();
        for row in 0..features {
            let entry = |column: usize| draws.iter().map(move |omega| omega[(row, column)]);
            for column in 0..dim {
                let what = |moment| format!("{coupling} row {row} column {column}, {moment}");
                assert_mean(&what("mean"), entry(column), 0.0, 1.0);
                assert_mean(&what("square"), entry(column).map(|v| v * v), 1.0, 2.0);
                assert_mean(&what("cube"), entry(column).map(|v| v.powi(3)), 0.0, 15.0);
                assert_mean(&what("fourth power"), entry(column).map(|v| v.powi(4)), 3.0, 96.0);
                assert_law(&what("law"), entry(column).collect(), normal_cdf);
                for other in 0..column {
                    let pairs = || entry(column).zip(entry(other));
                    assert_mean(&what("covariance"), pairs().map(|(a, b)| a * b), 0.0, 1.0);
                    let squares = pairs().map(|(a, b)| a * a * b * b);
                    assert_mean(&what("squares"), squares, 1.0, 8.0);
                }
            }
        }
    }
}

#[test]
fn wide_rows_are_standard_normal() {
    // In 64 dimensions a wrong length would hide in single entries: look at the whole row.
    let dim = 64;
    for coupling in Coupling::ALL {
        let draws: Vec<_> = (0..300).map(|seed| omega(coupling, seed, 71, dim)).collect();
        for row in [0, 40, 63, 64, 70] {
            let lengths = draws.iter().map(|omega| norm(omega.row(row))).collect();
            assert_law(&format!("{coupling} row {row}"), lengths, |r| chi_cdf(r, dim));
        }
    }
}

#[test]
fn lengths_are_chi_and_independent() {
    for coupling in [Coupling::Orthogonal, Coupling::Simplex] {
        for dim in [1, 2, 3, 8, 64] {
            let lengths: Vec<f64> =
                omega(coupling, 11, 4096, dim).view().iter().map(norm).collect();
            assert_law(&format!("{coupling} {dim}"), lengths.clone(), |r| chi_cdf(r, dim));
            // E χ_d and its variance, then the covariance of neighbours and of blocks.
            let half = dim as f64 / 2.0;
            let mean = 2f64.sqrt() * (libm::lgamma(half + 0.5) - libm::lgamma(half)).exp();
            let variance = dim as f64 - mean * mean;
            for lag in [1, dim] {
                let products = lengths.iter().zip(&lengths[lag..]);
                let products = products.map(|(a, b)| (a - mean) * (b - mean));
                assert_mean(&format!("{coupling} {dim}"), products, 0.0, variance * variance);
            }
        }
    }
}

#[test]
fn length_and_direction_are_independent() {
    for coupling in [Coupling::Orthogonal, Coupling::Simplex] {
        let dim = 4;
        for row in 0..dim {
            // E[(‖ω‖² − d)(u₀² − 1/d)] = 0, with variances 2d and 2(d−1)/(d²(d+2)).
            let products = (0..4000).map(|seed| {
                let omega = omega(coupling, seed, dim, dim);
                let square = dot(omega.row(row), omega.row(row));
                (square - 4.0) * (omega[(row, 0)].powi(2) / square - 0.25)
            });
            assert_mean(coupling.name(), products, 0.0, 8.0 * (6.0 / 96.0));
        }
    }
}

#[test]
fn orthogonal_blocks_are_orthogonal() {
    for dim in [2, 3, 64, 200] {
        for seed in 0..3 {
            let omega = omega(Coupling::Orthogonal, seed, 2 * dim + 1, dim);
            for block in 0..3 {
                let rows = block * dim..((block + 1) * dim).min(omega.rows());
                for i in rows.clone() {
                    for j in rows.start..i {
                        assert!(cosine(omega.row(i), omega.row(j)).abs() < 1e-12);
                    }
                }
            }
            // Blocks are independent, so rows of two blocks are not at right angles.
            assert!(cosine(omega.row(0), omega.row(dim)).abs() > 1e-6);
        }
    }
}

#[test]
fn directions_are_haar() {
    // For a uniform unit vector u and any unit a, t = uᵀa has
    // E t⁴ = 3/(d(d+2)) and E t⁸ = 105/(d(d+2)(d+4)(d+6)).
    for coupling in [Coupling::Orthogonal, Coupling::Simplex] {
        for dim in [2, 5] {
            let d = dim as f64;
            let axis: Vec<f64> = (0..dim).map(|i| (i + 1) as f64).collect();
            let fourth = 3.0 / (d * (d + 2.0));
            let eighth = 105.0 / (d * (d + 2.0) * (d + 4.0) * (d + 6.0));
            for row in 0..dim {
                let powers = (0..4000)
                    .map(|seed| cosine(omega(coupling, seed, dim, dim).row(row), &axis).powi(4));
                assert_mean(coupling.name(), powers, fourth, eighth - fourth * fourth);
            }
        }
    }
    // The whole matrix Q: E tr Q = 0, E (tr Q)² = 1, E (tr Q)⁴ = 3 (P. Diaconis and
    // M. Shahshahani, "On the eigenvalues of random matrices", 1994), and det Q = ±1 alike.
    let traces: Vec<f64> = (0..8000)
        .map(|seed| {
            let omega = omega(Coupling::Orthogonal, seed, 6, 6);
            (0..6).map(|i| omega[(i, i)] / norm(omega.row(i))).sum()
        })
        .collect();
    assert_mean("trace", traces.iter().copied(), 0.0, 1.0);
    assert_mean("trace squared", traces.iter().map(|t| t * t), 1.0, 2.0);
    assert_mean("trace to the fourth", traces.iter().map(|t| t.powi(4)), 3.0, 96.0);
    let signs = (0..4000).map(|seed| {
        let q = omega(Coupling::Orthogonal, seed, 2, 2);
        (q[(0, 0)] * q[(1, 1)] - q[(0, 1)] * q[(1, 0)]).signum()
    });
    assert_mean("determinant", signs, 0.0, 1.0);
}

#[test]
fn simplex_angles_are_equal_and_obtuse() {
    for dim in [2, 3, 5, 64, 200] {
        let expected = -1.0 / (dim as f64 - 1.0);
        let omega = omega(Coupling::Simplex, 3, 2 * dim, dim);
        for block in [0, dim] {
            for i in block..block + dim {
                for j in block..i {
                    let found = cosine(omega.row(i), omega.row(j));
                    assert!((found - expected).abs() < 1e-12, "{dim}: {i} {j} {found}");
                }
            }
        }
        assert!((cosine(omega.row(0), omega.row(dim)) - expected).abs() > 1e-6 || dim == 2);
    }
}

#[test]
fn antithetic_rows_come_in_pairs() {
    for features in [1usize, 2, 5, 12] {
        let base = omega(Coupling::Orthogonal, 8, features.div_ceil(2), 3);
        let omega = omega(Coupling::Antithetic, 8, features, 3);
        for row in 0..features {
            let sign = if row % 2 == 0 { 1.0 } else { -1.0 };
            let expected: Vec<f64> = base.row(row / 2).iter().map(|v| sign * v).collect();
            assert_eq!(omega.row(row), expected);
        }
    }
}

/// The cell of each entry of a column when (0, 1) is cut into `cells`.
fn cells(omega: &Matrix<f64>, column: usize, cells: usize) -> Vec<usize> {
    omega.view().iter().map(|row| (normal_cdf(row[column]) * cells as f64) as usize).collect()
}

#[test]
fn sobol_points_are_evenly_spread() {
    for seed in 0..5 {
        // One point in each of 64 intervals, in the first and in the second group of columns.
        let wide = omega(Coupling::Sobol, seed, 64, 300);
        for column in [0, 1, 7, 255, 256, 299] {
            let mut found = cells(&wide, column, 64);
            found.sort_unstable();
            assert!(found.into_iter().eq(0..64), "column {column}");
        }
        // The first two columns: one point in each of 8 × 8 squares.
        let (x, y) = (cells(&wide, 0, 8), cells(&wide, 1, 8));
        let mut squares: Vec<usize> = x.iter().zip(y).map(|(x, y)| 8 * x + y).collect();
        squares.sort_unstable();
        assert!(squares.into_iter().eq(0..64));
    }
}

#[test]
fn sobol_goes_on_beyond_its_limits() {
    // Groups of columns share direction numbers but neither order nor scrambling.
    let wide = omega(Coupling::Sobol, 1, 1024, 257);
    let products = wide.view().iter().map(|row| row[0] * row[256]);
    assert_mean("groups", products, 0.0, 1.0);
    // The rows past 2¹⁶ belong to a new sequence, even and unrelated to the first.
    let length = 1 << 16;
    let long = omega(Coupling::Sobol, 1, length + 64, 2);
    assert_eq!(long.row(7), omega(Coupling::Sobol, 1, 8, 2).row(7));
    let second = Matrix::from_fn(64, 2, |i, j| long[(length + i, j)]);
    for column in 0..2 {
        let mut found = cells(&second, column, 64);
        found.sort_unstable();
        assert!(found.into_iter().eq(0..64));
    }
    let mut first: Vec<f64> = (0..length).map(|i| normal_cdf(long[(i, 0)])).collect();
    first.sort_by(f64::total_cmp);
    let fresh = (0..64).filter(|&i| {
        let value = normal_cdf(second[(i, 0)]);
        let next = first.partition_point(|&other| other < value);
        first[next.saturating_sub(1)..].iter().take(2).all(|v| (v - value).abs() > 1e-9)
    });
    assert!(fresh.count() > 60);
    // No grid: below the 32 bits of the sequence the values are uniform.
    assert_law("low bits", first.iter().map(|v| (v * 2f64.powi(32)).fract()).collect(), |u| u);
}

/// Root-mean-square error of the average of f(aᵀω) over 64 rows of dimension 8.
fn error(coupling: Coupling, f: fn(f64) -> f64, expected: fn(f64) -> f64) -> f64 {
    let axis: Vec<f64> = (0..8).map(|i| 0.4 * f64::from(i + 1).cos()).collect();
    let expected = expected(dot(&axis, &axis));
    let squares = (0..200).map(|seed| {
        let omega = omega(coupling, seed, 64, 8);
        let sum: f64 = omega.view().iter().map(|row| f(dot(row, &axis))).sum();
        (sum / 64.0 - expected).powi(2)
    });
    (squares.sum::<f64>() / 200.0).sqrt()
}

#[test]
fn couplings_lower_the_error_of_averages() {
    // The integrands of positive features, exp(aᵀω), and of trigonometric ones, cos(aᵀω). The
    // bounds lie well above what was measured, and well below 1.
    let positive = |coupling| error(coupling, f64::exp, |square| (square / 2.0).exp());
    let trigonometric = |coupling| error(coupling, f64::cos, |square| (-square / 2.0).exp());
    for (coupling, most_positive, most_trigonometric) in [
        (Coupling::Orthogonal, 0.95, 0.65),
        (Coupling::Simplex, 0.6, 0.8),
        (Coupling::Antithetic, 0.5, 0.85),
        (Coupling::Sobol, 0.4, 0.5),
    ] {
        let share = positive(coupling) / positive(Coupling::Iid);
        assert!(share < most_positive, "{coupling}: {share} of the error of independent rows");
        let share = trigonometric(coupling) / trigonometric(Coupling::Iid);
        assert!(share < most_trigonometric, "{coupling}: {share} of the error");
    }
}

#[test]
fn offsets_are_uniform_phases_of_their_own() {
    let tau = std::f64::consts::TAU;
    let phases = offsets(6, 5000);
    assert!(phases.iter().all(|&phase| (0.0..tau).contains(&phase)));
    assert_law("offsets", phases.clone(), |phase| phase / tau);
    assert_eq!(phases[..10], offsets(6, 10));
    assert!(offsets(6, 0).is_empty());
    let rows = omega(Coupling::Iid, 6, 5000, 1);
    let products = rows.as_slice().iter().zip(&phases).map(|(w, p)| w * (p / tau - 0.5));
    assert_mean("offsets and rows", products, 0.0, 1.0 / 12.0);
}

#[test]
fn streams_are_uniform_and_normal() {
    let mut stream = Stream::new(2, 3);
    assert_law("uniform", (0..20_000).map(|_| stream.uniform()).collect(), |u| u);
    assert_law("normal", (0..20_000).map(|_| stream.normal()).collect(), normal_cdf);
    // Streams of neighbouring seeds and purposes are unrelated.
    for (seed, purpose) in [(3, 3), (2, 4)] {
        let (mut a, mut b) = (Stream::new(2, 3), Stream::new(seed, purpose));
        assert_mean("streams", (0..20_000).map(|_| a.normal() * b.normal()), 0.0, 1.0);
    }
}
