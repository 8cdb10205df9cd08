//! Matrix transposition, by squares that fit into the registers.

// Indices name registers here; iterators over arrays of vectors would hide which.
#![allow(clippy::needless_range_loop)]

use super::lanes::{Constants, Lanes};

/// Shapes and strides of a matrix to transpose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transpose {
    /// Rows of the matrix, columns of its transpose.
    pub(crate) rows: usize,
    /// Columns of the matrix, rows of its transpose.
    pub(crate) columns: usize,
    /// The stride from one row of the matrix to the next.
    pub(crate) row_stride: usize,
    /// Numbers in a row of the transpose, whole vectors or a single shorter one, padded with zeros.
    pub(crate) width: usize,
    /// The stride from one row of the transpose to the next.
    pub(crate) out_stride: usize,
}

/// Vectors in the largest square.
const MOST: usize = 16;

/// `out_lj = x_jl`.
///
/// # Safety
/// The processor must support `V`, and the slices behind the pointers must hold what `s` says.
#[inline(always)]
pub(super) unsafe fn transpose<V: Lanes>(s: &Transpose, x: *const V::Real, out: *mut V::Real) {
    let zero = <V::Real as Constants>::ZERO;
    let whole = s.columns / V::COUNT * V::COUNT;
    for j in (0..s.width).step_by(V::COUNT) {
        let rows = s.rows.saturating_sub(j).min(V::COUNT);
        // SAFETY: rows below `s.rows` and columns below `s.columns` are read, and rows of the transpose
        // are written up to `s.width`, all inside the slices by the caller's promise.
        unsafe {
            for l in (0..whole).step_by(V::COUNT) {
                let mut square = [V::splat(zero); MOST];
                for i in 0..V::COUNT {
                    if i < rows {
                        square[i] = V::load(x.add((j + i) * s.row_stride + l));
                    }
                }
                let square = transposed(square);
                for i in 0..V::COUNT {
                    square[i].store(out.add((l + i) * s.out_stride + j));
                }
            }
            for l in whole..s.columns {
                for i in 0..V::COUNT {
                    let number = if i < rows { *x.add((j + i) * s.row_stride + l) } else { zero };
                    *out.add(l * s.out_stride + j + i) = number;
                }
            }
        }
    }
}

/// Transposes a square of vectors: each step halves the distance between the numbers of a column.
///
/// # Safety
/// The processor must support `V`.
#[inline(always)]
unsafe fn transposed<V: Lanes>(mut square: [V; MOST]) -> [V; MOST] {
    // SAFETY: the caller vouches for the processor level. Steps are written out so that all indices are
    // known, and the square stays in registers.
    unsafe {
        square = step(square);
        if V::COUNT >= 4 {
            square = step(square);
        }
        if V::COUNT >= 8 {
            square = step(square);
        }
        if V::COUNT >= 16 {
            square = step(square);
        }
    }
    square
}

/// # Safety
/// As for [`transposed`].
#[inline(always)]
unsafe fn step<V: Lanes>(square: [V; MOST]) -> [V; MOST] {
    let mut out = square;
    for i in 0..V::COUNT / 2 {
        // SAFETY: the caller vouches for the processor level.
        (out[2 * i], out[2 * i + 1]) = unsafe { square[i].zip(square[i + V::COUNT / 2]) };
    }
    out
}
