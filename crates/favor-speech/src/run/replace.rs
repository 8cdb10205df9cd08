//! A trained recogniser with other attention, and all else as it is.

use crate::audio::Features;
use crate::{Error, Frames, Result, SpeechModel};
use burn::tensor::Tensor;
use favor::learned::{Calibration, LearnOptions, learn_maps};
use favor::{ExactKeys, Family, FeatureSpec, Kernel, Statistics};
use favor_nn::batches::like_length;
use favor_nn::train::Model;
use favor_nn::{Attention, GivenMaps, LayerOptions};

/// Utterances that maps are made from, evenly spaced.
const CALIBRATION: usize = 200;

/// Utterances that go through the model together.
const BATCH: usize = 8;

/// Steps in which each head learns its map, and the part of the utterances by which that is watched.
const STEPS: usize = 800;
const HOLDOUT: f64 = 0.1;

/// The model with other attention. Maps are fitted to the queries and keys that it has on these utterances when
/// it is exact, or learned from them, and stay as they are.
pub(super) fn replaced(
    mut model: SpeechModel,
    options: LayerOptions,
    utterances: &[Features],
) -> Result<SpeechModel> {
    let step = utterances.len().div_ceil(CALIBRATION).max(1);
    let chosen: Vec<&Features> = utterances.iter().step_by(step).collect();
    let lengths: Vec<usize> = chosen.iter().map(|u| u.frames()).collect();
    let groups = like_length(&lengths, BATCH, usize::MAX);
    let batch = |group: &Vec<usize>| Frames::new(group.iter().map(|i| chosen[*i]));
    let batches = groups.iter().map(batch).collect::<Result<Vec<Frames>>>()?;
    if options.kind == Attention::Learned {
        let maps = learned(&model, options, &batches)?;
        model.network.set_maps(maps)?;
        return Ok(model);
    }
    let options = options.redraw(None).statistics(Statistics::Calibrated);
    model.network.set_attention(options)?;
    model.attention = options;
    if options.kind.family().is_some() {
        model.network.attentions().into_iter().for_each(|a| a.begin_calibration());
        for frames in &batches {
            model.network.encode(frames)?;
        }
        model.network.attentions().into_iter().for_each(|a| a.end_calibration());
    }
    Ok(model)
}

/// Learned maps of all blocks.
fn learned(
    model: &SpeechModel,
    options: LayerOptions,
    batches: &[Frames],
) -> Result<Vec<GivenMaps>> {
    let mut all: Vec<Padded> = Vec::new();
    for frames in batches {
        let (blocks, lengths) = model.network.heads(frames)?;
        all.resize_with(blocks.len(), Padded::default);
        for (own, heads) in all.iter_mut().zip(blocks) {
            own.push(heads, &lengths)?;
        }
    }
    let one = |(i, own): (usize, Padded)| {
        let seed = options.for_layer(i).seed;
        let (arrays, visible, shape) = own.arrays();
        let [q, k, v] = arrays.each_ref().map(|x| favor::Tensor::new(x, shape));
        let spec = FeatureSpec::new(Family::Balanced, options.features);
        let spec = spec.kernel(Kernel::attention(shape[3])).seed(seed);
        let learning = LearnOptions::new().steps(STEPS).holdout(HOLDOUT).seed(seed);
        let data = Calibration::new(q?, k?).values(Some(v?)).mask(Some(&visible));
        let maps = learn_maps(spec, data, &learning)?.into_iter().map(|head| head.map).collect();
        GivenMaps::fixed(maps, vec![ExactKeys::NONE; shape[1]])
    };
    all.into_iter().enumerate().map(one).collect()
}

/// Queries, keys and values of a block, batch by batch.
#[derive(Default)]
struct Padded {
    batches: Vec<([Vec<f32>; 3], [usize; 4])>,
    lengths: Vec<usize>,
}

impl Padded {
    fn push(&mut self, heads: [Tensor<4>; 3], lengths: &[usize]) -> Result<()> {
        let shape = heads[0].dims();
        let unread = |e| Error::invalid("model", format!("heads cannot be read: {e:?}"));
        let [q, k, v] = heads.map(|t| t.try_into_vec_as::<f32>().map_err(unread));
        self.batches.push(([q?, k?, v?], shape));
        self.lengths.extend(lengths);
        Ok(())
    }

    /// All of them, padded to one length, `[utterances, heads, length, dim]`; and which are no padding.
    fn arrays(self) -> ([Vec<f32>; 3], Vec<bool>, [usize; 4]) {
        let longest = self.lengths.iter().copied().max().unwrap_or(1);
        let [_, heads, _, dim] = self.batches[0].1;
        let shape = [self.lengths.len(), heads, longest, dim];
        let mut out: [Vec<f32>; 3] = std::array::from_fn(|_| vec![0.0; shape.iter().product()]);
        let mut first = 0;
        for (arrays, [batch, _, length, _]) in self.batches {
            for (out, values) in out.iter_mut().zip(arrays) {
                for (row, values) in values.chunks(length * dim).enumerate() {
                    let start = (first * heads + row) * longest * dim;
                    // A batch may be padded beyond its own longest utterance.
                    let kept = values.len().min(longest * dim);
                    out[start..start + kept].copy_from_slice(&values[..kept]);
                }
            }
            first += batch;
        }
        let visible = self.lengths.iter().flat_map(|own| (0..longest).map(move |i| i < *own));
        (out, visible.collect(), shape)
    }
}
