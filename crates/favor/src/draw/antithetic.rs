//! Antithetic rows: ω and −ω side by side.
//!
//! −ω has the distribution of ω, and averaging over the pair removes every odd part of the
//! integrand. The base is the block-orthogonal draw of the same seed with half as many rows, so
//! this coupling and the orthogonal one can be compared on the same random numbers. An odd last row
//! has no partner.

use super::orthogonal;

pub(super) fn fill(seed: u64, omega: &mut [f64], dim: usize) {
    let features = omega.len() / dim;
    let base = features.div_ceil(2);
    orthogonal::fill(seed, &mut omega[..base * dim], dim);
    // From the last row back, so that no base row is overwritten before it is used.
    for row in (0..features).rev() {
        let from = row / 2 * dim;
        omega.copy_within(from..from + dim, row * dim);
        if row % 2 == 1 {
            omega[row * dim..(row + 1) * dim].iter_mut().for_each(|value| *value = -*value);
        }
    }
}
