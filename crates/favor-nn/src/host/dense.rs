//! Dense products in `f32`: by faer, on all threads.
//!
//! A number of a product is one sum in the same order, however many threads there are.

use crate::{Error, Result};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;

/// Fewer rows than this are not worth another thread.
const FEWEST: usize = 32;

/// `out = A B` plus the bias in every row.
pub(super) fn affine(
    out: &mut [f32],
    a: MatRef<'_, f32>,
    b: MatRef<'_, f32>,
    bias: &[f32],
) -> Result<()> {
    if bias.len() != b.ncols() {
        let reason = format!("{} numbers for {} columns", bias.len(), b.ncols());
        return Err(Error::invalid("bias", reason));
    }
    multiply(out, Some(bias), a, b)
}

/// `out = A B`.
pub(super) fn product(out: &mut [f32], a: MatRef<'_, f32>, b: MatRef<'_, f32>) -> Result<()> {
    multiply(out, None, a, b)
}

/// Numbers row by row as a matrix of so many columns.
pub(super) fn matrix(numbers: &[f32], columns: usize) -> MatRef<'_, f32> {
    MatRef::from_row_major_slice(numbers, numbers.len() / columns.max(1), columns)
}

/// `out = A B`, plus the bias in every row if there is one: it is where the sums begin.
fn multiply(
    out: &mut [f32],
    bias: Option<&[f32]>,
    a: MatRef<'_, f32>,
    b: MatRef<'_, f32>,
) -> Result<()> {
    let (rows, columns) = (a.nrows(), b.ncols());
    if a.ncols() != b.nrows() || out.len() != rows * columns {
        let ((n, k), (l, m)) = (a.shape(), b.shape());
        let reason = format!("{n}×{k} by {l}×{m} into {} numbers", out.len());
        return Err(Error::invalid("product", reason));
    }
    if out.is_empty() {
        return Ok(());
    }
    let size = rows.div_ceil(pieces()).max(FEWEST);
    out.par_chunks_mut(size * columns).enumerate().for_each(|(piece, out)| {
        let count = out.len() / columns;
        let a = a.subrows(piece * size, count);
        let how = if let Some(bias) = bias {
            out.chunks_mut(columns).for_each(|row| row.copy_from_slice(bias));
            Accum::Add
        } else {
            Accum::Replace
        };
        let out = MatMut::from_row_major_slice_mut(out, count, columns);
        matmul(out, how, a, b, 1.0, Par::Seq);
        clear_upper_halves();
    });
    Ok(())
}

/// Clears the upper halves of the vector registers, which faer's kernels may leave in use. On many
/// processors every older vector instruction of the thread is then slow, those inside `exp` and `ln` of
/// the system's mathematical library among them.
fn clear_upper_halves() {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx) = pulp::core_arch::x86::Avx::try_new() {
        avx._mm256_zeroupper();
    }
}

/// Pieces that rows are cut into. On x86 the digits of a product do not depend on the number of its rows;
/// elsewhere they do, so that the cut must not follow the number of threads.
fn pieces() -> usize {
    if cfg!(target_arch = "x86_64") { rayon::current_num_threads() } else { 8 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use favor::Matrix;

    fn view(x: &Matrix<f32>) -> MatRef<'_, f32> {
        MatRef::from_row_major_slice(x.as_slice(), x.rows(), x.columns())
    }

    /// Sums of `k` products in `f32`: at most `k` roundings of the sum of absolute values.
    #[test]
    fn products_are_sums_of_products_whatever_the_threads() {
        for (n, k, m) in [
            (1, 1, 1),
            (70, 33, 5),
            (130, 384, 48),
            (500, 96, 40),
            (400, 1600, 24),
            (3, 0, 2),
            (0, 4, 2),
        ] {
            let a = Matrix::from_fn(n, k, |i, j| ((7 * i + 3 * j) as f32).sin());
            let b = Matrix::from_fn(k, m, |i, j| ((5 * i + 11 * j) as f32).cos());
            let transposed =
                |x: &Matrix<f32>| Matrix::from_fn(x.columns(), x.rows(), |i, j| x[(j, i)]);
            let (a_transposed, b_transposed) = (transposed(&a), transposed(&b));
            let run = || {
                let mut all = [(); 3].map(|()| vec![9.0; n * m]);
                affine(&mut all[0], view(&a), view(&b), &vec![0.25; m]).unwrap();
                product(&mut all[1], view(&a), view(&b_transposed).transpose()).unwrap();
                product(&mut all[2], view(&a_transposed).transpose(), view(&b)).unwrap();
                all
            };
            let found = run();
            for threads in [1, 2, 3, 5] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                assert!(pool.install(run) == found, "{n}×{k}×{m}: {threads} threads");
            }
            for (i, j) in (0..n).flat_map(|i| (0..m).map(move |j| (i, j))) {
                let terms = (0..k).map(|l| f64::from(a[(i, l)]) * f64::from(b[(l, j)]));
                let (sum, size) =
                    terms.fold((0.0, 0.25), |(sum, size): (f64, f64), t| (sum + t, size + t.abs()));
                let bound = (k + 1) as f64 * f64::from(f32::EPSILON) / 2.0 * size;
                for (way, begun) in [0.25, 0.0, 0.0].iter().enumerate() {
                    let value = f64::from(found[way][i * m + j]);
                    assert!((value - begun - sum).abs() <= bound, "{way} at {i}, {j}");
                }
            }
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let a = Matrix::from_fn(2, 3, |_, _| 1.0);
        let mut out = [0.0; 4];
        assert!(product(&mut out, view(&a), view(&a)).is_err());
        assert!(affine(&mut out, view(&a), view(&a).transpose(), &[0.0; 3]).is_err());
        assert!(product(&mut out[..3], view(&a), view(&a).transpose()).is_err());
        assert!(product(&mut out, view(&a), view(&a).transpose()).is_ok());
    }
}
