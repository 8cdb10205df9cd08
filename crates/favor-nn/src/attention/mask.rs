//! Which keys are padding.

use crate::{Error, Result};
use burn::tensor::{Bool, Device, Tensor, TensorData};
use std::sync::Arc;

/// Keys that can be seen, `[batch, keys]`. Padding enters no output, no gradient and no statistic.
///
/// ```
/// use favor_nn::attention::KeyMask;
/// let mask = KeyMask::of_lengths(&[3, 1], 3);
/// assert_eq!(mask.visible()[..], [true, true, true, true, false, false]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMask {
    visible: Arc<Vec<bool>>,
    shape: [usize; 2],
}

impl KeyMask {
    /// `visible` holds `batch × keys` values, false at padding.
    pub fn new(visible: Vec<bool>, batch: usize) -> Result<Self> {
        if batch == 0 || !visible.len().is_multiple_of(batch) {
            let reason = format!("{} values for a batch of {batch}", visible.len());
            return Err(Error::invalid("key mask", reason));
        }
        let shape = [batch, visible.len() / batch];
        Ok(Self { visible: Arc::new(visible), shape })
    }

    /// Sequences of these lengths, padded to one length at their ends.
    pub fn of_lengths(lengths: &[usize], padded: usize) -> Self {
        let visible = lengths.iter().flat_map(|&l| (0..padded).map(move |i| i < l)).collect();
        Self { visible: Arc::new(visible), shape: [lengths.len(), padded] }
    }

    /// From a tensor that is true at padding, as burn's own attention takes it.
    pub fn from_padding(padding: Tensor<2, Bool>) -> Self {
        let shape = padding.dims();
        let visible = padding.into_data().iter::<bool>().map(|padding| !padding).collect();
        Self { visible: Arc::new(visible), shape }
    }

    /// `[batch, keys]`.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// False at padding, the keys of one sequence after the other.
    pub fn visible(&self) -> &Arc<Vec<bool>> {
        &self.visible
    }

    /// True at padding, as a tensor `[batch, 1, 1, keys]`.
    pub(crate) fn hidden(&self, device: &Device) -> Tensor<4, Bool> {
        let hidden: Vec<bool> = self.visible.iter().map(|v| !v).collect();
        let [batch, keys] = self.shape;
        Tensor::from_data(TensorData::new(hidden, [batch, 1, 1, keys]), device)
    }
}
