//! Rows of a tensor, copied into the layouts that the kernels read.

use crate::Float;
use crate::engine::tensor::Scalar;
use crate::engine::tensor::Strided;
use crate::map::Panels;
use crate::simd::Constants;

/// A factor that is rounded only once: with the number, unless the format cannot hold it.
fn times<R: Constants>(scale: f64) -> impl Fn(R) -> R {
    let factor = R::from_f64(scale);
    let held = (factor.to_f64() - scale).abs() <= 1e-6 * scale.abs();
    move |x| if held { x * factor } else { R::from_f64(x.to_f64() * scale) }
}

/// Rows as the columns of panels, times `scale`; zero beyond the last.
pub(crate) fn pack_rows<T: Scalar>(
    m: Strided<'_, T>,
    rows: &[usize],
    scale: f64,
) -> Panels<T::Real> {
    let mut panels = Panels::zeros(rows.len(), m.columns);
    let (panel, depth) = (panels.panel, panels.depth);
    let mut row = vec![T::Real::ZERO; m.columns];
    let times = times(scale);
    for (j, &i) in rows.iter().enumerate() {
        m.widen_row(i, &mut row);
        let column = &mut panels.data[j / panel * panel * depth + j % panel..];
        column.iter_mut().step_by(panel).zip(&row).for_each(|(out, x)| *out = times(*x));
    }
    panels
}

/// Rows one after the other, times `scale`, padded with zeros to `width`.
pub(crate) fn packed_rows<T: Scalar>(
    m: Strided<'_, T>,
    rows: &[usize],
    width: usize,
    scale: f64,
) -> Vec<T::Real> {
    let mut out = vec![T::Real::ZERO; rows.len() * width];
    let times = times(scale);
    for (out, &i) in out.chunks_mut(width).zip(rows) {
        m.widen_row(i, &mut out[..m.columns]);
        if scale != 1.0 {
            out.iter_mut().for_each(|v| *v = times(*v));
        }
    }
    out
}

pub(crate) fn squared_norm<T: Scalar>(m: Strided<'_, T>, row: usize) -> f64 {
    (0..m.columns).map(|l| m.at(row, l).widen().to_f64().powi(2)).sum()
}
