//! Tensors `[batch, heads, length, dim]` of any strides.

mod scalar;
mod strided;

pub use scalar::Scalar;
pub(crate) use strided::Strided;

use crate::{Error, Result};

/// A borrowed tensor `[batch, heads, length, dim]`. A stride of zero repeats an axis.
///
/// ```
/// use favor::Tensor;
/// let data = vec![0.0_f32; 2 * 3 * 4 * 5];
/// assert!(Tensor::new(&data, [2, 3, 4, 5]).is_ok());
/// // The same numbers, stored as [batch, length, heads, dim].
/// assert!(Tensor::with_strides(&data, [2, 3, 4, 5], [60, 5, 15, 1]).is_ok());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a, T> {
    data: &'a [T],
    shape: [usize; 4],
    strides: [usize; 4],
}

impl<'a, T: Scalar> Tensor<'a, T> {
    /// Numbers one after the other, the last axis fastest.
    pub fn new(data: &'a [T], shape: [usize; 4]) -> Result<Self> {
        let [_, h, l, d] = shape;
        let count = shape.iter().try_fold(1_usize, |n, s| n.checked_mul(*s));
        if count != Some(data.len()) {
            let reason = format!("shape {shape:?} does not make {} numbers", data.len());
            return Err(Error::invalid("tensor", reason));
        }
        Ok(Self { data, shape, strides: [h * l * d, l * d, d, 1] })
    }

    /// Numbers whose neighbours along each axis lie `strides` apart.
    pub fn with_strides(data: &'a [T], shape: [usize; 4], strides: [usize; 4]) -> Result<Self> {
        let last = shape.iter().zip(&strides).try_fold(0_usize, |sum, (n, s)| {
            n.saturating_sub(1).checked_mul(*s).and_then(|span| sum.checked_add(span))
        });
        let empty = shape.contains(&0);
        if !empty && last.is_none_or(|last| last >= data.len()) {
            let reason =
                format!("shape {shape:?} with strides {strides:?} leaves {} numbers", data.len());
            return Err(Error::invalid("tensor", reason));
        }
        Ok(Self { data, shape, strides })
    }

    /// `[batch, heads, length, dim]`.
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// The matrix of one head, or of the rows `start..end` of it.
    pub(crate) fn head(
        &self,
        batch: usize,
        head: usize,
        start: usize,
        end: usize,
    ) -> Strided<'a, T> {
        let [sb, sh, sl, sd] = self.strides;
        let offset = batch * sb + head * sh + start * sl;
        Strided {
            data: self.data.get(offset..).unwrap_or(&[]),
            rows: end - start,
            columns: self.shape[3],
            row_stride: sl,
            column_stride: sd,
        }
    }
}
