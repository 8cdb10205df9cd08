//! The statistics of queries and keys, head by head.

use crate::attention::Shapes;
use crate::engine::tensor::{Scalar, Tensor};
use crate::{Error, Float, Matrix, Moments, Result};
use rayon::prelude::*;

/// The moments of two sets together, head by head.
pub(super) fn merged(
    old: &[(Moments, Moments)],
    new: Vec<(Moments, Moments)>,
) -> Result<Vec<(Moments, Moments)>> {
    let mut out = old.to_vec();
    for (own, new) in out.iter_mut().zip(new) {
        own.0.merge(&new.0)?;
        own.1.merge(&new.1)?;
    }
    Ok(out)
}

/// The moments of a mixture of two sets, head by head.
pub(super) fn averaged(
    old: &[(Moments, Moments)],
    new: Vec<(Moments, Moments)>,
    keep: f64,
) -> Result<Vec<(Moments, Moments)>> {
    // A set of nothing but padding has no weight, and no share.
    let side = |old: &Moments, new: &Moments| -> Result<Moments> {
        if new.weight() == 0.0 {
            return Ok(old.clone());
        }
        let mut out = old.weighted(keep / old.weight());
        out.merge(&new.weighted((1.0 - keep) / new.weight()))?;
        Ok(out)
    };
    let pairs = old.iter().zip(&new);
    pairs.map(|(old, new)| Ok((side(&old.0, &new.0)?, side(&old.1, &new.1)?))).collect()
}

/// The moments of queries and keys of each head, over all sequences.
pub(super) fn moments_of_heads<T: Scalar>(
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    mask: Option<&[bool]>,
) -> Result<Vec<(Moments, Moments)>> {
    let side = |t: Tensor<'_, T>, head: usize, mask: Option<&[bool]>| -> Result<Moments> {
        let mut all = Moments::new(t.shape()[3]);
        for batch in 0..t.shape()[0] {
            all.merge(&moments_of_sequence(t, batch, head, mask)?)?;
        }
        Ok(all)
    };
    (0..q.shape()[1])
        .into_par_iter()
        .map(|head| Ok((side(q, head, query_mask(q, k, mask))?, side(k, head, mask)?)))
        .collect()
}

pub(super) fn moments_of_sequence<T: Scalar>(
    t: Tensor<'_, T>,
    batch: usize,
    head: usize,
    mask: Option<&[bool]>,
) -> Result<Moments> {
    let length = t.shape()[2];
    let rows = t.head(batch, head, 0, length);
    let values = Matrix::from_fn(length, rows.columns, |i, l| rows.at(i, l).widen().to_f64());
    match mask {
        Some(mask) => {
            Moments::of_masked(values.view(), &mask[batch * length..(batch + 1) * length])
        }
        None => Moments::of(values.view()),
    }
}

/// The padding of the queries: that of the keys, if there are as many.
pub(super) fn query_mask<'m, T: Scalar>(
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    mask: Option<&'m [bool]>,
) -> Option<&'m [bool]> {
    mask.filter(|_| q.shape()[2] == k.shape()[2])
}

pub(super) fn check_inputs<T: Scalar>(
    (heads, dim): (usize, usize),
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    mask: Option<&[bool]>,
) -> Result<()> {
    let shapes = Shapes { q: q.shape(), k: k.shape(), v: None };
    shapes.check(false, false, mask)?;
    let [_, own_heads, _, own_dim] = shapes.q;
    if (own_heads, own_dim) != (heads, dim) {
        let reason = format!("{shapes} for {heads} heads of dimension {dim}");
        return Err(Error::invalid("tensors", reason));
    }
    Ok(())
}
