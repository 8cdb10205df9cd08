//! The loss of connectionist temporal classification (A. Graves et al., 2006) on the encoder alone.
//! Added to the transducer loss with a small weight, it shows the encoder early where the labels are.

use super::{BLANK, log_add, log_sum};
use crate::Result;
use burn::tensor::Tensor;
use favor_nn::host::{HostOperation, Input, Output, apply};
use rayon::prelude::*;

/// Minus the log-probability of each utterance's labels, `[batch]`, of scores
/// `[batch, frames, vocabulary]`. An utterance with too few frames for its labels contributes
/// nothing.
pub(crate) fn ctc_loss(
    scores: Tensor<3>,
    frames: &[usize],
    labels: &[Vec<usize>],
) -> Result<Tensor<1>> {
    let loss = Loss { shape: scores.dims(), frames: frames.to_vec(), labels: labels.to_vec() };
    Ok(apply(loss, [Input::new(scores)?]))
}

#[derive(Debug)]
struct Loss {
    shape: [usize; 3],
    frames: Vec<usize>,
    labels: Vec<Vec<usize>>,
}

impl HostOperation<1, 1> for Loss {
    const INPUTS: bool = false;

    fn forward(&self, [scores]: [&[f32]; 1], _: bool) -> Output<1> {
        let [batch, frames, vocabulary] = self.shape;
        let size = frames * vocabulary;
        let mut kept = vec![0.0; scores.len()];
        let parts = scores.par_chunks(size).zip(kept.par_chunks_mut(size)).enumerate();
        let values = parts
            .map(|(b, (scores, gradient))| {
                let frames = self.frames[b] * vocabulary;
                let (scores, gradient) = (&scores[..frames], &mut gradient[..frames]);
                utterance(scores, vocabulary, &self.labels[b], gradient) as f32
            })
            .collect();
        Output { values, shape: [batch], kept }
    }

    fn backward(&self, _: [&[f32]; 1], mut kept: Vec<f32>, gradient: &[f32]) -> [Vec<f32>; 1] {
        let size = kept.len() / gradient.len();
        for (part, by) in kept.chunks_mut(size).zip(gradient) {
            part.iter_mut().for_each(|g| *g *= by);
        }
        [kept]
    }
}

fn utterance(scores: &[f32], vocabulary: usize, labels: &[usize], gradient: &mut [f32]) -> f64 {
    // Blanks before, between and after the labels.
    let symbols: Vec<usize> =
        (0..2 * labels.len() + 1).map(|s| if s % 2 == 0 { BLANK } else { labels[s / 2] }).collect();
    let (states, frames) = (symbols.len(), scores.len() / vocabulary);
    let row = |t: usize| &scores[t * vocabulary..][..vocabulary];
    let norms: Vec<f64> = (0..frames).map(|t| log_sum(row(t))).collect();
    let says = |t: usize, s: usize| f64::from(row(t)[symbols[s]]) - norms[t];
    let skips = |s: usize| s >= 2 && symbols[s] != BLANK && symbols[s] != symbols[s - 2];
    let none = f64::NEG_INFINITY;
    let mut before = vec![none; frames * states];
    for (s, first) in before.iter_mut().take(states.min(2)).enumerate() {
        *first = says(0, s);
    }
    for t in 1..frames {
        for s in 0..states {
            let last = &before[(t - 1) * states..][..states];
            let mut sum = last[s];
            if s >= 1 {
                sum = log_add(sum, last[s - 1]);
            }
            if skips(s) {
                sum = log_add(sum, last[s - 2]);
            }
            before[t * states + s] = sum + says(t, s);
        }
    }
    let ends = states.saturating_sub(2)..states;
    let total = ends.clone().fold(none, |sum, s| log_add(sum, before[(frames - 1) * states + s]));
    if total == none {
        return 0.0;
    }
    let mut after: Vec<f64> =
        (0..states).map(|s| if ends.contains(&s) { 0.0 } else { none }).collect();
    for t in (0..frames).rev() {
        if t + 1 < frames {
            let next: Vec<f64> = (0..states).map(|s| after[s] + says(t + 1, s)).collect();
            for s in 0..states {
                let mut sum = next[s];
                if s + 1 < states {
                    sum = log_add(sum, next[s + 1]);
                }
                if s + 2 < states && skips(s + 2) {
                    sum = log_add(sum, next[s + 2]);
                }
                after[s] = sum;
            }
        }
        let out = &mut gradient[t * vocabulary..][..vocabulary];
        for (out, score) in out.iter_mut().zip(row(t)) {
            *out = (f64::from(*score) - norms[t]).exp() as f32;
        }
        for s in 0..states {
            out[symbols[s]] -= (before[t * states + s] + after[s] - total).exp() as f32;
        }
    }
    -total
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The labels of a path: repeats count once, blanks not at all.
    fn collapse(path: &[usize]) -> Vec<usize> {
        let mut path = path.to_vec();
        path.dedup();
        path.retain(|s| *s != BLANK);
        path
    }

    #[test]
    fn agrees_with_all_paths() {
        const V: usize = 3;
        let scores: Vec<f32> = (0..4 * V).map(|i| (1.3 * (i * i) as f32).sin()).collect();
        let loss = |scores: &[f32], labels: &[usize]| {
            utterance(scores, V, labels, &mut vec![0.0; scores.len()])
        };
        for labels in [vec![], vec![1], vec![1, 2], vec![2, 2], vec![1, 2, 1, 2]] {
            let paths = (0..V.pow(4)).map(|n| [n / 27, n / 9 % 3, n / 3 % 3, n % 3]);
            let probability: f64 = paths
                .filter(|path| collapse(path) == labels)
                .map(|path| {
                    let step = |(t, s): (usize, &usize)| {
                        let row = &scores[t * V..][..V];
                        (f64::from(row[*s]) - log_sum(row)).exp()
                    };
                    path.iter().enumerate().map(step).product::<f64>()
                })
                .sum();
            let found = loss(&scores, &labels);
            assert!((found + probability.ln()).abs() < 1e-6, "{labels:?}");
            let mut gradient = vec![0.0; scores.len()];
            utterance(&scores, V, &labels, &mut gradient);
            for i in 0..scores.len() {
                let at = |by: f32| {
                    let mut moved = scores.clone();
                    moved[i] += by;
                    loss(&moved, &labels)
                };
                let slope = (at(0.01) - at(-0.01)) / 0.02;
                assert!((slope - f64::from(gradient[i])).abs() < 1e-4, "{labels:?} {i}");
            }
        }
        // Two equal labels need a blank between them: at least three frames.
        assert_eq!(loss(&scores[..2 * V], &[2, 2]), 0.0);
    }
}
