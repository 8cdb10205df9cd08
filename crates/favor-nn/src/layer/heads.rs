//! What the heads of a layer see, collected batch by batch, and maps made from it.

use super::LayerOptions;
use crate::{Error, Result};
use burn::tensor::Tensor;
use favor::learned::{Calibration, LearnOptions, LearnedHead, learn_maps};
use favor::{FeatureMap, FeatureSpec, fit_heads};

/// The part of the sequences by which learning is watched.
const HOLDOUT: f64 = 0.1;

/// Queries, keys and values of all heads of a layer, padded to one length, to make maps from.
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use favor_nn::{Attention, Family, LayerHeads, LayerOptions};
/// let device = Device::flex();
/// device.seed(1);
/// let x = || Tensor::<4>::random([2, 3, 10, 4], Distribution::Default, &device);
/// let mut heads = LayerHeads::new(2, 10); // two sequences of up to ten tokens
/// heads.push([x(), x(), x()], &[7, 10])?; // the first has seven, and padding
/// let options = LayerOptions::new(Attention::Features(Family::Balanced), 16);
/// assert_eq!(heads.fit(&options)?.len(), 3);
/// # Ok::<(), favor_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LayerHeads {
    arrays: [Vec<f32>; 3],
    visible: Vec<bool>,
    sequences: usize,
    length: usize,
    /// Heads and their dimension, once there are any.
    heads: Option<[usize; 2]>,
}

impl LayerHeads {
    /// Room for so many sequences of at most this length.
    pub fn new(sequences: usize, length: usize) -> Self {
        let length = length.max(1);
        let visible = Vec::with_capacity(sequences * length);
        Self { arrays: Default::default(), visible, sequences, length, heads: None }
    }

    /// Adds queries, keys and values of a batch, each `[batch, heads, length, dim]`, and the lengths of its
    /// sequences without padding. The tensors may be padded to any length.
    pub fn push(&mut self, parts: [Tensor<4>; 3], lengths: &[usize]) -> Result<()> {
        let [batch, heads, length, dim] = parts[0].dims();
        let shapes = parts.each_ref().map(|part| part.dims());
        let same = self.heads.is_none_or(|own| own == [heads, dim]);
        if !same || shapes.iter().any(|shape| *shape != shapes[0]) || heads * length * dim == 0 {
            let reason = format!("{shapes:?}, where the layer has {:?} heads", self.heads);
            return Err(Error::invalid("heads", reason));
        }
        let most = length.min(self.length);
        if lengths.len() != batch || lengths.iter().any(|own| *own > most) {
            let reason = format!("{lengths:?} for {batch} sequences of at most {most} tokens");
            return Err(Error::invalid("lengths", reason));
        }
        self.heads = Some([heads, dim]);
        let row = self.length * dim;
        for (out, part) in self.arrays.iter_mut().zip(parts) {
            let unread = |e| Error::invalid("model", format!("heads cannot be read: {e:?}"));
            let values = part.try_into_vec_as::<f32>().map_err(unread)?;
            out.reserve((self.sequences * heads * row).saturating_sub(out.len()));
            for values in values.chunks(length * dim) {
                let kept = values.len().min(row);
                out.extend_from_slice(&values[..kept]);
                out.resize(out.len() + row - kept, 0.0);
            }
        }
        for own in lengths {
            self.visible.extend((0..self.length).map(|i| i < *own));
        }
        Ok(())
    }

    /// One map per head, fitted to these sequences.
    pub fn fit(&self, options: &LayerOptions) -> Result<Vec<FeatureMap>> {
        let ([q, k, _], spec) = self.parts(options)?;
        Ok(fit_heads(spec, q, k, Some(&self.visible))?)
    }

    /// One map per head, learned from these sequences, which `source` names, with the seed of the layer.
    pub fn learn(
        &self,
        options: &LayerOptions,
        learning: &LearnOptions<'_>,
        source: &str,
    ) -> Result<Vec<LearnedHead>> {
        let ([q, k, v], spec) = self.parts(options)?;
        let data = Calibration::new(q, k).values(Some(v)).mask(Some(&self.visible)).source(source);
        Ok(learn_maps(spec, data, &learning.holdout(HOLDOUT).seed(options.seed))?)
    }

    fn parts(&self, options: &LayerOptions) -> Result<([favor::Tensor<'_, f32>; 3], FeatureSpec)> {
        let Some([heads, dim]) = self.heads else {
            return Err(Error::invalid("heads", "there are no sequences to make maps from"));
        };
        let spec = options.spec(dim).ok_or_else(|| {
            Error::invalid("attention", format!("'{}' has no maps", options.kind))
        })?;
        let shape = [self.visible.len() / self.length, heads, self.length, dim];
        let [q, k, v] = self.arrays.each_ref().map(|x| favor::Tensor::new(x, shape));
        Ok(([q?, k?, v?], spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attention;
    use burn::tensor::Device;
    use favor::Family;

    /// Sequences of three and five tokens with one head of dimension two, padded to this length with NaN.
    fn batch(length: usize) -> [Tensor<4>; 3] {
        let number = |b: usize, i: usize, l: usize| match i {
            i if i < [3, 5][b] => ((11 * b + 2 * i + l) as f32).sin(),
            _ => f32::NAN,
        };
        let rows =
            (0..2).flat_map(|b| (0..length).map(move |i| [number(b, i, 0), number(b, i, 1)]));
        let values: Vec<f32> = rows.flatten().collect();
        let data = burn::tensor::TensorData::new(values, [2, 1, length, 2]);
        std::array::from_fn(|_| Tensor::from_data(data.clone(), &Device::flex()))
    }

    #[test]
    fn padding_changes_nothing() {
        let options = LayerOptions::new(Attention::Features(Family::Balanced), 8);
        let fitted = |length: usize, padded: usize| {
            let mut heads = LayerHeads::new(2, length);
            heads.push(batch(padded), &[3, 5]).unwrap();
            heads.fit(&options).unwrap()
        };
        let wanted = fitted(5, 5);
        assert_eq!(fitted(9, 5), wanted);
        assert_eq!(fitted(5, 9), wanted);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut heads = LayerHeads::new(2, 4);
        let message = heads.push(batch(5), &[3, 5]).unwrap_err().to_string();
        assert!(message.contains("at most 4 tokens"), "{message}");
        assert!(heads.push(batch(4), &[3]).is_err());
        let learned = LayerOptions::new(Attention::Learned, 8);
        let message = heads.learn(&learned, &LearnOptions::new(), "").unwrap_err().to_string();
        assert!(message.contains("no sequences"), "{message}");
        heads.push(batch(4), &[3, 4]).unwrap();
        let message = heads.fit(&LayerOptions::new(Attention::Elu, 8)).unwrap_err().to_string();
        assert!(message.contains("has no maps"), "{message}");
    }
}
