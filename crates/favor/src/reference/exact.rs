//! Exact attention in blocks of queries: the reference.

use super::{Mask, check_inputs, gather, weighted_mean};
use crate::{Float, Kernel, Matrix, Result, Rows};
use rayon::prelude::*;

const BLOCK: usize = 64;

/// `softmax` attention without approximation: each output is the average of the visible values,
/// weighted by the kernel. A query that sees no key gives zeros.
///
/// ```
/// use favor::{Kernel, Rows, reference::{Mask, exact_attention}};
/// let q = Rows::new(&[1.0, 0.0], 1, 2)?;
/// let k = Rows::new(&[0.0, 1.0, 0.0, -1.0], 2, 2)?; // both equally far from the query
/// let v = Rows::new(&[1.0, 3.0], 2, 1)?;
/// let out = exact_attention(Kernel::attention(2), q, k, v, Mask::none())?;
/// assert_eq!(out[(0, 0)], 2.0);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn exact_attention<T: Float>(
    kernel: Kernel,
    q: Rows<'_, T>,
    k: Rows<'_, T>,
    v: Rows<'_, T>,
    mask: Mask<'_>,
) -> Result<Matrix<T>> {
    check_inputs(q, k, v, &mask)?;
    let visible = mask.visible(k.rows());
    let mut out = Matrix::zeros(q.rows(), v.columns());
    if visible.is_empty() {
        return Ok(out);
    }
    let keys = gather(k, &visible);
    let columns = v.columns();
    let tasks: Vec<_> = out.as_mut_slice().chunks_mut(BLOCK * columns).enumerate().collect();
    tasks.into_par_iter().try_for_each(|(b, out)| {
        let block = q.slice(b * BLOCK, (b + 1) * BLOCK);
        let logs = kernel.log_matrix(block, keys.view())?;
        for (i, out) in out.chunks_mut(columns).enumerate() {
            let query = b * BLOCK + i;
            let seen =
                if mask.causal { visible.partition_point(|&j| j <= query) } else { visible.len() };
            let seen = visible[..seen].iter().copied().zip(logs.row(i).iter().copied());
            weighted_mean(&seen.collect::<Vec<_>>(), v, out)?;
        }
        Ok(())
    })?;
    Ok(out)
}
