//! Maps for the layers of a model, made from the queries and keys that it has when it is exact.

use super::options::{ConvertRequest, name};
use crate::batches::like_length;
use crate::bert::Bert;
use crate::layer::{LayerHeads, LayerOptions};
use crate::text::{Batch, Encoded};
use crate::{Attention, Result};
use burn::tensor::Tensor;
use favor::FeatureMap;
use favor::learned::{HeadReport, LearnOptions, LearnProgress};
use std::sync::atomic::AtomicBool;

/// Tokens, with padding, that maps are made from.
const MOST_TOKENS: usize = 1 << 17;

/// Texts longer than all but this part of the texts are left out: padding to their length would cost more
/// texts than they are worth.
const LONGEST: f64 = 0.02;

/// Texts that go through the model together.
const BATCH: usize = 32;

/// Texts on their way through the exact model, layer by layer.
pub(super) struct Passage<'a> {
    teacher: &'a Bert,
    batches: Vec<Batch>,
    /// What goes into the next layer, batch by batch.
    states: Vec<Tensor<3>>,
    layer: usize,
    length: usize,
}

impl<'a> Passage<'a> {
    /// Evenly spaced texts, before the first layer.
    pub(super) fn new(teacher: &'a Bert, texts: &[Encoded]) -> Result<Self> {
        let mut lengths: Vec<usize> = texts.iter().map(|t| t.ids.len()).collect();
        lengths.sort_unstable();
        let rank = ((1.0 - LONGEST) * (lengths.len() - 1) as f64).round() as usize;
        let length = lengths[rank];
        let short: Vec<&Encoded> = texts.iter().filter(|t| t.ids.len() <= length).collect();
        let step = short.len().div_ceil((MOST_TOKENS / length).max(2));
        let texts: Vec<&Encoded> = short.into_iter().step_by(step).collect();
        let lengths: Vec<usize> = texts.iter().map(|t| t.ids.len()).collect();
        let groups = like_length(&lengths, BATCH, BATCH * length);
        let batch = |group: &Vec<usize>| Batch::of(group.iter().map(|i| texts[*i]));
        let batches = groups.iter().map(batch).collect::<Result<Vec<_>>>()?;
        let states = batches.iter().map(|b| teacher.encoder.embed(b)).collect::<Result<_>>()?;
        Ok(Self { teacher, batches, states, layer: 0, length })
    }

    /// The number of texts.
    pub(super) fn texts(&self) -> usize {
        self.batches.iter().map(Batch::len).sum()
    }

    /// The texts, batch by batch.
    pub(super) fn batches(&self) -> &[Batch] {
        &self.batches
    }

    /// What goes into the layer that they have come to.
    pub(super) fn states(&self) -> &[Tensor<3>] {
        &self.states
    }

    /// Moves on to a layer.
    pub(super) fn advance_to(&mut self, layer: usize) -> Result<()> {
        while self.layer < layer {
            let own = &self.teacher.encoder.layers[self.layer];
            for (state, batch) in self.states.iter_mut().zip(&self.batches) {
                *state = own.forward(state.clone(), batch.mask().as_ref())?;
            }
            self.layer += 1;
        }
        Ok(())
    }

    /// Queries, keys and values of the layer.
    fn heads(&self) -> Result<LayerHeads> {
        let attention = &self.teacher.encoder.layers[self.layer].attention;
        let mut heads = LayerHeads::new(self.texts(), self.length);
        for (state, batch) in self.states.iter().zip(&self.batches) {
            let x = state.clone();
            heads.push(attention.heads(x.clone(), x.clone(), x), batch.lengths())?;
        }
        Ok(heads)
    }
}

/// The maps of the layer that the texts have come to, and what was measured where they were learned.
pub(super) fn maps(
    request: &ConvertRequest,
    passage: &Passage<'_>,
    steps: u64,
    stop: &AtomicBool,
    progress: &(dyn Fn(LearnProgress) + Sync),
) -> Result<(Vec<FeatureMap>, Option<Vec<HeadReport>>)> {
    let heads = passage.heads()?;
    let layer = LayerOptions::new(request.attention, request.features);
    let layer = layer.seed(request.options.seed).for_layer(passage.layer);
    if request.attention != Attention::Learned {
        return Ok((heads.fit(&layer)?, None));
    }
    let options = LearnOptions::new()
        .exact(request.exact)
        .steps(steps as usize)
        .cancel(Some(stop))
        .progress(Some(progress));
    let source = format!("layer {} of {}, {}", passage.layer, name(&request.model), request.source);
    let heads = heads.learn(&layer, &options, &source)?;
    let reports = heads.iter().map(|head| head.report).collect();
    Ok((heads.into_iter().map(|head| head.map).collect(), Some(reports)))
}
