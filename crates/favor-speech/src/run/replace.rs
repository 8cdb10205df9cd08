//! A trained recogniser with other attention, and all else as it is.

use crate::audio::Features;
use crate::{Frames, Result, SpeechModel, subsampled};
use favor::learned::LearnOptions;
use favor::{ExactKeys, Redraw, Statistics};
use favor_nn::batches::like_length;
use favor_nn::train::Model;
use favor_nn::{Attention, GivenMaps, LayerHeads, LayerOptions};

/// Utterances that maps are made from, evenly spaced.
const CALIBRATION: usize = 200;

/// Utterances that go through the model together.
const BATCH: usize = 8;

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
    let options = options.redraw(Redraw::Never).statistics(Statistics::Calibrated);
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
    let lengths = || batches.iter().flat_map(|frames| frames.lengths());
    let longest = lengths().copied().map(subsampled).max().unwrap_or(1);
    let mut all: Vec<LayerHeads> = Vec::new();
    for frames in batches {
        let (blocks, lengths_there) = model.network.heads(frames)?;
        all.resize(blocks.len(), LayerHeads::new(lengths().count(), longest));
        for (own, heads) in all.iter_mut().zip(blocks) {
            own.push(heads, &lengths_there)?;
        }
    }
    let one = |(i, own): (usize, LayerHeads)| {
        let source = format!("block {i} of a recogniser, {} utterances", lengths().count());
        let heads = own.learn(&options.for_layer(i), &LearnOptions::new(), &source)?;
        let exact = vec![ExactKeys::NONE; heads.len()];
        GivenMaps::fixed(heads.into_iter().map(|head| head.map).collect(), exact)
    };
    all.into_iter().enumerate().map(one).collect()
}
