//! Several utterances, padded to one length.

use crate::audio::Features;
use crate::{Error, Result};
use burn::tensor::{Bool, Device, Tensor, TensorData};

/// The number of frames that subsampling merges into one.
pub const SUBSAMPLING: usize = 4;

/// Frames left after subsampling.
///
/// ```
/// use favor_speech::subsampled;
/// assert_eq!([1, 4, 5, 100].map(subsampled), [1, 1, 2, 25]);
/// ```
pub fn subsampled(frames: usize) -> usize {
    frames.div_ceil(2).div_ceil(2)
}

/// A batch of utterances.
#[derive(Debug, Clone, PartialEq)]
pub struct Frames {
    values: Vec<f32>,
    lengths: Vec<usize>,
    length: usize,
    dim: usize,
}

impl Frames {
    /// Utterances, padded with zeros to the length of the longest.
    pub fn new<'a>(utterances: impl IntoIterator<Item = &'a Features>) -> Result<Self> {
        let utterances: Vec<&Features> = utterances.into_iter().collect();
        let lengths: Vec<usize> = utterances.iter().map(|f| f.frames()).collect();
        let (Some(first), Some(most)) = (utterances.first(), lengths.iter().max()) else {
            return Err(Error::invalid("utterances", "there are none"));
        };
        let (dim, length) = (first.dim(), most.next_multiple_of(SUBSAMPLING));
        let mut values = Vec::with_capacity(utterances.len() * length * dim);
        for (i, features) in utterances.iter().enumerate() {
            if features.frames() == 0 {
                return Err(Error::invalid("utterances", "one has no frame"));
            }
            if features.dim() != dim {
                let reason = format!("frames of {} and of {dim} numbers together", features.dim());
                return Err(Error::invalid("utterances", reason));
            }
            values.extend_from_slice(features.values());
            values.resize((i + 1) * length * dim, 0.0);
        }
        Ok(Self { values, lengths, length, dim })
    }

    /// The number of frames of each utterance, without padding.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Entries per frame.
    pub fn dim(&self) -> usize {
        self.dim
    }

    pub(super) fn tensor(&self, device: &Device) -> Tensor<3> {
        let shape = [self.lengths.len(), self.length, self.dim];
        Tensor::from_data(TensorData::new(self.values.clone(), shape), device)
    }
}

/// The tensor with zeros at padding, whatever was there.
pub(super) fn clear(x: Tensor<3>, lengths: &[usize]) -> Tensor<3> {
    let [batch, length, _] = x.dims();
    if lengths.iter().all(|l| *l == length) {
        return x;
    }
    let hidden: Vec<bool> =
        lengths.iter().flat_map(|l| (0..length).map(move |t| t >= *l)).collect();
    let hidden = TensorData::new(hidden, [batch, length, 1]);
    let hidden = Tensor::<3, Bool>::from_data(hidden, &x.device()).expand(x.shape());
    x.mask_fill(hidden, 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_alone_is_cleared() {
        let device = Device::flex();
        let x = Tensor::<3>::ones([3, 4, 2], &device);
        let found: Vec<f32> = clear(x, &[4, 1, 3]).into_data().iter().collect();
        let row = |l: usize| [vec![1.0; 2 * l], vec![0.0; 8 - 2 * l]].concat();
        assert_eq!(found, [row(4), row(1), row(3)].concat());
    }
}
