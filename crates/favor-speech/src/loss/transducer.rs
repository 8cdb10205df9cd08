//! The loss of a transducer (A. Graves, "Sequence transduction with recurrent neural networks", 2012):
//! the logarithm of the probability of all alignments of a label sequence, and its gradient.
//!
//! A lattice has a node for every frame `t` and every number `u` of labels emitted so far. From a node,
//! the blank leads to the next frame and the next label to the next `u`. Everything is computed in one
//! pass over the scores: the softmax is never stored, and the gradient with respect to the scores is
//! computed together with the loss, so memory holds the scores and one buffer of the same size.

use crate::{Error, Result};
use burn::tensor::Tensor;
use favor_nn::host::{HostOperation, Input, Output, apply};
use rayon::prelude::*;

/// The label that means "next frame".
pub const BLANK: usize = 0;

/// Minus the log-probability of each utterance's labels, `[batch]`.
///
/// `scores` is `[batch, frames, labels + 1, vocabulary]`, before the softmax; an utterance uses the
/// first `frames[b]` and `labels[b].len() + 1` rows. Label 0 is the blank.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use favor_speech::transducer_loss;
/// // One frame, one label, two symbols of equal probability: say the label, then the blank.
/// let scores = Tensor::<4>::zeros([1, 1, 2, 2], &Device::flex());
/// let loss = transducer_loss(scores, &[1], &[vec![1]])?.into_scalar::<f32>();
/// assert!((loss - 2.0 * 2.0_f32.ln()).abs() < 1e-6);
/// # Ok::<(), favor_speech::Error>(())
/// ```
pub fn transducer_loss(
    scores: Tensor<4>,
    frames: &[usize],
    labels: &[Vec<usize>],
) -> Result<Tensor<1>> {
    let shape = scores.dims();
    check(shape, frames, labels)?;
    let loss = Loss { shape, frames: frames.to_vec(), labels: labels.to_vec() };
    Ok(apply(loss, [Input::new(scores)?]))
}

fn check(shape: [usize; 4], frames: &[usize], labels: &[Vec<usize>]) -> Result<()> {
    let [batch, most_frames, most_labels, vocabulary] = shape;
    let refuse = |reason: String| Err(Error::invalid("transducer", reason));
    if frames.len() != batch || labels.len() != batch {
        let (f, l) = (frames.len(), labels.len());
        return refuse(format!("{f} lengths and {l} label sequences for a batch of {batch}"));
    }
    for (b, (&frames, labels)) in frames.iter().zip(labels).enumerate() {
        if frames == 0 || frames > most_frames || labels.len() + 1 > most_labels {
            let count = labels.len();
            return refuse(format!(
                "utterance {b} has {frames} frames and {count} labels where scores are {shape:?}"
            ));
        }
        if let Some(bad) = labels.iter().find(|&&l| l == BLANK || l >= vocabulary) {
            return refuse(format!("utterance {b}: label {bad} is not from 1 to {vocabulary}"));
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Loss {
    shape: [usize; 4],
    frames: Vec<usize>,
    labels: Vec<Vec<usize>>,
}

impl HostOperation<1, 1> for Loss {
    const INPUTS: bool = false;

    fn forward(&self, [scores]: [&[f32]; 1], tracked: bool) -> Output<1> {
        let [batch, frames, rows, vocabulary] = self.shape;
        let size = frames * rows * vocabulary;
        let mut kept = vec![0.0; if tracked { scores.len() } else { 0 }];
        let one = |(b, (scores, gradient)): (usize, (&[f32], Option<&mut [f32]>))| {
            let grid = Grid { frames: self.frames[b], rows, vocabulary, labels: &self.labels[b] };
            grid.loss(scores, gradient) as f32
        };
        let scores = scores.par_chunks(size);
        let values = if tracked {
            scores.zip(kept.par_chunks_mut(size).map(Some)).enumerate().map(one).collect()
        } else {
            scores.map(|s| (s, None)).enumerate().map(one).collect()
        };
        Output { values, shape: [batch], kept }
    }

    fn backward(&self, _: [&[f32]; 1], mut kept: Vec<f32>, gradient: &[f32]) -> [Vec<f32>; 1] {
        let size = kept.len() / gradient.len();
        kept.par_chunks_mut(size).zip(gradient).for_each(|(part, by)| {
            part.iter_mut().for_each(|g| *g *= by);
        });
        [kept]
    }
}

/// The lattice of one utterance.
struct Grid<'a> {
    frames: usize,
    /// Rows per frame, including padding.
    rows: usize,
    vocabulary: usize,
    labels: &'a [usize],
}

impl Grid<'_> {
    /// The loss; its gradient is written only where it is not zero.
    fn loss(&self, scores: &[f32], gradient: Option<&mut [f32]>) -> f64 {
        let (frames, width) = (self.frames, self.labels.len() + 1);
        let at = |t: usize, u: usize| t * width + u;
        let cell = |t: usize, u: usize| (t * self.rows + u) * self.vocabulary;
        let mut norms = vec![0.0; frames * width];
        let (mut blank, mut label) = (norms.clone(), norms.clone());
        for t in 0..frames {
            for u in 0..width {
                let row = &scores[cell(t, u)..][..self.vocabulary];
                let norm = log_sum(row);
                norms[at(t, u)] = norm;
                blank[at(t, u)] = f64::from(row[BLANK]) - norm;
                label[at(t, u)] = match self.labels.get(u) {
                    Some(&l) => f64::from(row[l]) - norm,
                    None => f64::NEG_INFINITY,
                };
            }
        }
        // Log-probabilities of reaching a node, and of reaching the end from it.
        let mut before = vec![f64::NEG_INFINITY; frames * width];
        before[0] = 0.0;
        for t in 0..frames {
            for u in 0..width {
                if t > 0 {
                    let way = before[at(t - 1, u)] + blank[at(t - 1, u)];
                    before[at(t, u)] = log_add(before[at(t, u)], way);
                }
                if u > 0 {
                    let way = before[at(t, u - 1)] + label[at(t, u - 1)];
                    before[at(t, u)] = log_add(before[at(t, u)], way);
                }
            }
        }
        let last = at(frames - 1, width - 1);
        let total = before[last] + blank[last];
        let Some(gradient) = gradient else { return -total };
        let mut after = vec![f64::NEG_INFINITY; frames * width];
        for t in (0..frames).rev() {
            for u in (0..width).rev() {
                let next = match (t + 1 < frames, u + 1 < width) {
                    (true, _) => after[at(t + 1, u)],
                    (false, false) => 0.0,
                    (false, true) => f64::NEG_INFINITY,
                };
                let by_blank = blank[at(t, u)] + next;
                let by_label = if u + 1 < width {
                    label[at(t, u)] + after[at(t, u + 1)]
                } else {
                    f64::NEG_INFINITY
                };
                after[at(t, u)] = log_add(by_blank, by_label);
                // The probability of passing here, and of leaving either way.
                let reach = before[at(t, u)] - total;
                let passed = (reach + after[at(t, u)]).exp();
                let place = cell(t, u);
                let row = &scores[place..][..self.vocabulary];
                let out = &mut gradient[place..][..self.vocabulary];
                let (norm, passed) = (norms[at(t, u)] as f32, passed as f32);
                for (out, score) in out.iter_mut().zip(row) {
                    *out = passed * (score - norm).exp();
                }
                out[BLANK] -= (reach + by_blank).exp() as f32;
                if let Some(&l) = self.labels.get(u) {
                    out[l] -= (reach + by_label).exp() as f32;
                }
            }
        }
        -total
    }
}

/// The logarithm of the sum of exponentials.
pub(crate) fn log_sum(row: &[f32]) -> f64 {
    let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = row.iter().map(|x| (x - top).exp()).sum();
    f64::from(top) + f64::from(sum).ln()
}

/// `ln(exp(a) + exp(b))`, also for minus infinities.
pub(crate) fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if high == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}
