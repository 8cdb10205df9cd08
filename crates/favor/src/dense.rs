//! Dense products in `f32`, for the layers around an attention: by faer, on all threads.
//!
//! A number of a product is one sum in the same order, however many threads there are.

use crate::simd::clear_upper_halves;
use crate::{Error, Result, Rows};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;

/// Fewer rows than this are not worth another thread.
const FEWEST: usize = 32;

/// `out = A B + out`.
///
/// ```
/// use favor::{Rows, dense};
/// let mut out = [0.5, 0.0];
/// dense::add_product(&mut out, Rows::new(&[1.0, 2.0], 1, 2)?, Rows::new(&[3.0, 4.0, 5.0, 6.0], 2, 2)?)?;
/// assert_eq!(out, [13.5, 16.0]);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn add_product(out: &mut [f32], a: Rows<'_, f32>, b: Rows<'_, f32>) -> Result<()> {
    multiply(out, Accum::Add, view(a), view(b))
}

/// `out = A Bᵀ`.
///
/// ```
/// use favor::{Rows, dense};
/// let mut out = [0.5, 0.0];
/// dense::product_transposed(&mut out, Rows::new(&[1.0, 2.0], 1, 2)?, Rows::new(&[3.0, 4.0, 5.0, 6.0], 2, 2)?)?;
/// assert_eq!(out, [11.0, 17.0]);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn product_transposed(out: &mut [f32], a: Rows<'_, f32>, b: Rows<'_, f32>) -> Result<()> {
    multiply(out, Accum::Replace, view(a), view(b).transpose())
}

/// `out = Aᵀ B`.
///
/// ```
/// use favor::{Rows, dense};
/// let mut out = [0.5; 4];
/// dense::transposed_product(&mut out, Rows::new(&[1.0, 2.0], 1, 2)?, Rows::new(&[3.0, 4.0], 1, 2)?)?;
/// assert_eq!(out, [3.0, 4.0, 6.0, 8.0]);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn transposed_product(out: &mut [f32], a: Rows<'_, f32>, b: Rows<'_, f32>) -> Result<()> {
    multiply(out, Accum::Replace, view(a).transpose(), view(b))
}

fn view(rows: Rows<'_, f32>) -> MatRef<'_, f32> {
    let (count, columns) = rows.shape();
    MatRef::from_row_major_slice_with_stride(rows.data(), count, columns, rows.stride())
}

fn multiply(out: &mut [f32], how: Accum, a: MatRef<'_, f32>, b: MatRef<'_, f32>) -> Result<()> {
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
        let out = MatMut::from_row_major_slice_mut(out, count, columns);
        matmul(out, how, a, b, 1.0, Par::Seq);
        clear_upper_halves();
    });
    Ok(())
}

/// Pieces that rows are cut into. On x86 the digits of a product do not depend on the number of its rows;
/// elsewhere they do, so that the cut must not follow the number of threads.
fn pieces() -> usize {
    if cfg!(target_arch = "x86_64") { rayon::current_num_threads() } else { 8 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;

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
            let turned = |x: &Matrix<f32>| Matrix::from_fn(x.columns(), x.rows(), |i, j| x[(j, i)]);
            let (a_turned, b_turned) = (turned(&a), turned(&b));
            let run = || {
                let mut all = [vec![0.25; n * m], vec![9.0; n * m], vec![9.0; n * m]];
                add_product(&mut all[0], a.view(), b.view()).unwrap();
                product_transposed(&mut all[1], a.view(), b_turned.view()).unwrap();
                transposed_product(&mut all[2], a_turned.view(), b.view()).unwrap();
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
        assert!(add_product(&mut out, a.view(), a.view()).is_err());
        assert!(product_transposed(&mut out[..3], a.view(), a.view()).is_err());
        assert!(product_transposed(&mut out, a.view(), a.view()).is_ok());
    }
}
