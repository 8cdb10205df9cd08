//! Block-orthogonal rows: right angles within a block of d rows, independent blocks.
//!
//! A row of N(0, I_d) is a direction, uniform on the sphere, times an independent length with the
//! χ_d distribution. Within a block the directions are the rows of a Haar-distributed orthogonal
//! matrix, so each is uniform but none repeats what another has seen (F. X. Yu et al., "Orthogonal
//! Random Features", 2016); the lengths stay independent.
//!
//! Gram–Schmidt on Gaussian rows gives exactly the Haar distribution, because it divides by
//! positive lengths (F. Mezzadri, "How to generate random matrices from the classical compact
//! groups", 2007). It also needs only as many steps as there are rows, and a step never looks
//! ahead.

use super::stream::{Purpose, Stream};

/// A candidate that keeps less than this fraction of its length is drawn again.
const DEGENERATE: f64 = 1e-8;

pub(super) fn fill(seed: u64, omega: &mut [f64], dim: usize) {
    for (block, rows) in omega.chunks_mut(dim.saturating_mul(dim)).enumerate() {
        let mut stream = Stream::block(seed, Purpose::Orthogonal, block as u64);
        let mut lengths = Vec::with_capacity(rows.len() / dim);
        for start in (0..rows.len()).step_by(dim) {
            let (earlier, rest) = rows.split_at_mut(start);
            next_direction(&mut stream, earlier, &mut rest[..dim]);
            lengths.push(chi(&mut stream, dim));
        }
        // Only now: while the block grows, its rows must have length 1.
        for (row, length) in rows.chunks_exact_mut(dim).zip(lengths) {
            scale(row, length);
        }
    }
}

/// Writes the next row of a Haar-distributed orthogonal matrix whose `earlier` rows are given.
pub(super) fn next_direction(stream: &mut Stream, earlier: &[f64], row: &mut [f64]) {
    // Redrawing keeps the distribution exact: what remains of a Gaussian row orthogonally to
    // `earlier` has a direction independent of its length and of what was removed.
    loop {
        stream.fill_normal(row);
        if orthonormalise(earlier, row) {
            return;
        }
    }
}

/// Makes `row` orthogonal to the unit rows `earlier` and gives it length 1. False if too little of
/// it is left to point anywhere.
fn orthonormalise(earlier: &[f64], row: &mut [f64]) -> bool {
    let before = ordered_dot(row, row).sqrt();
    // Rounding in the first pass leaves traces of the earlier rows when much was removed; a second
    // pass removes them. Two are enough (W. Kahan, in B. N. Parlett, "The Symmetric Eigenvalue
    // Problem", 1980).
    for _ in 0..2 {
        for unit in earlier.chunks_exact(row.len()) {
            let along = ordered_dot(unit, row);
            row.iter_mut().zip(unit).for_each(|(r, u)| *r -= along * u);
        }
    }
    let after = ordered_dot(row, row).sqrt();
    let enough = after > DEGENERATE * before;
    if enough {
        row.iter_mut().for_each(|r| *r /= after);
    }
    enough
}

/// A length with the χ_d distribution: that of another Gaussian row.
pub(super) fn chi(stream: &mut Stream, dim: usize) -> f64 {
    let mut sum = 0.0;
    for _ in 0..dim {
        let z = stream.normal();
        sum += z * z;
    }
    sum.sqrt()
}

pub(super) fn scale(row: &mut [f64], factor: f64) {
    row.iter_mut().for_each(|r| *r *= factor);
}

/// The inner product, summed in eight interleaved parts: an order fixed by the source, so the
/// result is the same everywhere, yet one that processors can work on in parallel.
fn ordered_dot(a: &[f64], b: &[f64]) -> f64 {
    let mut parts = [0.0; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    for (i, (x, y)) in a.remainder().iter().zip(b.remainder()).enumerate() {
        parts[i] = x * y;
    }
    for (x, y) in a.zip(b) {
        for i in 0..8 {
            parts[i] += x[i] * y[i];
        }
    }
    let [p0, p1, p2, p3, p4, p5, p6, p7] = parts;
    ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordered_dot_counts_every_entry_once() {
        for len in 0..40 {
            let a: Vec<f64> = (0..len).map(f64::from).collect();
            let b: Vec<f64> = (0..len).map(|i| f64::from(2 * i + 1)).collect();
            let expected: f64 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
            assert_eq!(ordered_dot(&a, &b), expected);
        }
    }

    #[test]
    fn almost_dependent_rows_end_orthogonal() {
        let dim = 40;
        let mut stream = Stream::new(1, 0);
        let mut rows = Vec::new();
        let mut row = vec![0.0; dim];
        for i in 0..dim {
            stream.fill_normal(&mut row);
            if i > 0 {
                // A candidate that differs from the sum of all earlier rows only by a millionth.
                scale(&mut row, 1e-6);
                for unit in rows.chunks_exact(dim) {
                    row.iter_mut().zip(unit).for_each(|(r, u): (&mut f64, &f64)| *r += u);
                }
            }
            assert!(orthonormalise(&rows, &mut row));
            for unit in rows.chunks_exact(dim) {
                assert!(ordered_dot(unit, &row).abs() < 1e-14, "{:e}", ordered_dot(unit, &row));
            }
            assert!((ordered_dot(&row, &row) - 1.0).abs() < 1e-14);
            rows.extend_from_slice(&row);
        }
    }

    #[test]
    fn dependent_rows_are_refused() {
        assert!(!orthonormalise(&[0.6, 0.8, 0.0], &mut [0.6, 0.8, 0.0]));
        assert!(!orthonormalise(&[], &mut [0.0, 0.0]));
        // A full set leaves no room: only rounding errors remain, which are not a direction.
        let mut stream = Stream::new(2, 0);
        let mut rows = vec![0.0; 6 * 5];
        for start in (0..25).step_by(5) {
            let (earlier, rest) = rows.split_at_mut(start);
            next_direction(&mut stream, earlier, &mut rest[..5]);
        }
        let (full, row) = rows.split_at_mut(25);
        stream.fill_normal(row);
        assert!(!orthonormalise(full, row));
        assert!(row.iter().any(|value| *value != 0.0));
    }
}
