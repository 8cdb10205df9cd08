//! Simplex-coupled rows: equal obtuse angles within a block of d rows, independent blocks.
//!
//! I. Reid, K. Choromanski, V. Likhosherstov, A. Weller, "Simplex Random Features" (2023): d unit
//! vectors that point to the corners of a regular simplex, cosine −1/(d−1) between any two, rotated
//! by a Haar-distributed rotation and given independent χ_d lengths. No other directions of a block
//! are further apart, and positive features gain from it over right angles.
//!
//! The corners are built one by one in the rows q₀, q₁, … of the rotation, so that no row waits for
//! later ones and the rotation costs only as many steps as there are rows:
//!
//! ```text
//! corner j = Σ_{k<j} l_k q_k + m_j q_j,   m_j² = d/(d−1) · (d−j−1)/(d−j),   l_j = −m_j/(d−j−1)
//! ```
//!
//! This is the Cholesky factor of the matrix of cosines. Proof: the corners sum to zero, and still
//! do after projecting out q₀ … q_{j−1}; the d−j that remain have equal lengths m_j and equal
//! angles, so any two have inner product −m_j²/(d−j−1). The last corner needs no q of its own.

use super::iid;
use super::orthogonal::{chi, next_direction, scale};
use super::stream::{Purpose, Stream};

pub(super) fn fill(seed: u64, omega: &mut [f64], dim: usize) {
    if dim == 1 {
        // A single corner: nothing to couple.
        return iid::fill(seed, omega);
    }
    let d = dim as f64;
    let mut shared = vec![0.0; dim];
    let mut rotation = Vec::new();
    for (block, rows) in omega.chunks_mut(dim.saturating_mul(dim)).enumerate() {
        let mut stream = Stream::block(seed, Purpose::Simplex, block as u64);
        // What all later corners of the block have in common: Σ l_k q_k so far.
        shared.fill(0.0);
        rotation.clear();
        for (j, row) in rows.chunks_exact_mut(dim).enumerate() {
            let later = (dim - 1 - j) as f64;
            if later > 0.0 {
                next_direction(&mut stream, &rotation, row);
                rotation.extend_from_slice(row);
                let m = (d / (d - 1.0) * (later / (later + 1.0))).sqrt();
                let l = -m / later;
                for (r, s) in row.iter_mut().zip(&mut shared) {
                    let q = *r;
                    *r = *s + m * q;
                    *s += l * q;
                }
            } else {
                row.copy_from_slice(&shared);
            }
            scale(row, chi(&mut stream, dim));
        }
    }
}
