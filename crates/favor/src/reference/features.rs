//! Attention by a feature map, in plain `f64`: what the engine is tested against.

use super::key_sums::{add_keys, apply_sums};
use super::{Mask, check_inputs, gather, normalise, with_ones};
use crate::{FeatureMap, Float, KeySums, Matrix, Result, Rows};

/// Attention with the kernel estimated by features, in time linear in the numbers of queries and
/// keys. For bidirectional attention, fit the map on the same queries and keys. For causal
/// attention, fit it beforehand, on other data or on a prefix, since statistics of the whole
/// sequence would leak the future into the past.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Moments, Rows, reference::{Mask, feature_attention}};
/// let q = Rows::new(&[1.0_f64, 0.0, 0.0, 1.0], 2, 2)?;
/// let k = Rows::new(&[0.0, 1.0, 0.0, -1.0], 2, 2)?;
/// let v = Rows::new(&[1.0, 3.0], 2, 1)?;
/// let spec = FeatureSpec::new(Family::Balanced, 256).kernel(Kernel::attention(2));
/// let map = spec.fit(&Moments::of(q)?, &Moments::of(k)?)?;
/// let out = feature_attention(&map, q, k, v, Mask::none())?;
/// assert!((out[(0, 0)] - 2.0).abs() < 0.2);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn feature_attention<T: Float>(
    map: &FeatureMap,
    q: Rows<'_, T>,
    k: Rows<'_, T>,
    v: Rows<'_, T>,
    mask: Mask<'_>,
) -> Result<Matrix<T>> {
    check_inputs(q, k, v, &mask)?;
    let mut out = Matrix::zeros(q.rows(), v.columns());
    let mut sums = KeySums::new(map, v.columns() + 1);
    if !mask.causal {
        let visible = mask.visible(k.rows());
        if !visible.is_empty() {
            let values = with_ones(gather(v, &visible).view());
            add_keys(&mut sums, map, gather(k, &visible).view(), values.view())?;
        }
        return apply(map, &sums, q, 0, &mut out).map(|()| out);
    }
    for i in 0..q.rows() {
        if mask.allows(i) {
            let values = with_ones(v.slice(i, i + 1));
            add_keys(&mut sums, map, k.slice(i, i + 1), values.view())?;
        }
        apply(map, &sums, q.slice(i, i + 1), i, &mut out)?;
    }
    Ok(out)
}

/// Writes the outputs of the queries `q` to the rows of `out` from `start` on.
fn apply<T: Float>(
    map: &FeatureMap,
    sums: &KeySums,
    q: Rows<'_, T>,
    start: usize,
    out: &mut Matrix<T>,
) -> Result<()> {
    let product = apply_sums(sums, map, q.to_f64(1.0).view())?.values;
    (0..q.rows()).try_for_each(|i| normalise(product.row(i), out.row_mut(start + i)))
}
