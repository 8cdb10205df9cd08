//! From the encoder's vectors to labels: greedily, or by a beam.

use super::recogniser::Recogniser;
use crate::loss::{BLANK, log_add, log_sum};
use crate::{Error, Result};
use burn::tensor::Tensor;
use std::collections::{BTreeMap, HashMap};

/// The maximum number of labels per frame. After subsampling by four, a frame is 40 ms.
const MOST_PER_FRAME: usize = 5;

/// Recognised labels and their probability.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heard {
    /// The labels.
    pub labels: Vec<usize>,
    /// The log-probability: of one alignment for a greedy search, of all that a beam followed.
    pub score: f64,
}

impl Heard {
    /// Between 0 and 1: the geometric mean of the probabilities of each label and of the end.
    pub fn confidence(&self) -> f64 {
        (self.score / (self.labels.len() + 1) as f64).exp().min(1.0)
    }
}

/// Gives the log-probabilities of all symbols, in a frame, after the labels so far.
pub(super) trait Lattice {
    fn scores(&mut self, frame: usize, labels: &[usize]) -> Vec<f32>;
}

/// Takes the most probable symbol each time, continuing from `heard`.
pub(super) fn greedy(lattice: &mut impl Lattice, frames: usize, heard: &mut Heard) {
    for t in 0..frames {
        for said in 0.. {
            let scores = lattice.scores(t, &heard.labels);
            let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
            let best = if said < MOST_PER_FRAME { best.unwrap_or(BLANK) } else { BLANK };
            heard.score += f64::from(scores[best]);
            if best == BLANK {
                break;
            }
            heard.labels.push(best);
        }
    }
}

/// Keeps this many label sequences after each frame; alignments of the same labels are added up.
/// Returns the kept ones, the most probable first.
pub(super) fn beam(lattice: &mut impl Lattice, frames: usize, size: usize) -> Vec<Heard> {
    let mut kept = BTreeMap::from([(Vec::new(), 0.0)]);
    for t in 0..frames {
        let (mut open, mut done) = (kept, BTreeMap::new());
        for said in 0..=MOST_PER_FRAME {
            let mut longer = BTreeMap::new();
            for (labels, score) in open {
                let scores = lattice.scores(t, &labels);
                add(&mut done, labels.clone(), score + f64::from(scores[BLANK]));
                if said == MOST_PER_FRAME {
                    continue;
                }
                let mut order: Vec<usize> = (0..scores.len()).filter(|s| *s != BLANK).collect();
                order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
                for symbol in order.into_iter().take(size) {
                    let labels = [&labels[..], &[symbol]].concat();
                    add(&mut longer, labels, score + f64::from(scores[symbol]));
                }
            }
            // Anything less probable than everything kept already cannot become more probable.
            let bar = best(done.clone(), size);
            let bar = if bar.len() < size {
                f64::NEG_INFINITY
            } else {
                bar.values().copied().fold(f64::INFINITY, f64::min)
            };
            open = best(longer, size);
            open.retain(|_, score| *score > bar);
            if open.is_empty() {
                break;
            }
        }
        kept = best(done, size);
    }
    let mut out: Vec<Heard> =
        kept.into_iter().map(|(labels, score)| Heard { labels, score }).collect();
    out.sort_by(|a, b| b.score.total_cmp(&a.score));
    out
}

type Scored = BTreeMap<Vec<usize>, f64>;

fn add(to: &mut Scored, labels: Vec<usize>, score: f64) {
    let sum = to.entry(labels).or_insert(f64::NEG_INFINITY);
    *sum = log_add(*sum, score);
}

fn best(all: Scored, size: usize) -> Scored {
    let mut order: Vec<(Vec<usize>, f64)> = all.into_iter().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    order.into_iter().take(size).collect()
}

/// A matrix and its bias on the host, `[from, to]`.
#[derive(Debug, Clone)]
struct Layer {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Layer {
    fn of(linear: &burn::nn::Linear) -> Result<Self> {
        let bias = linear.bias.as_ref().map(|b| numbers(b.val())).transpose()?;
        Ok(Self { weight: numbers(linear.weight.val())?, bias: bias.unwrap_or_default() })
    }

    fn apply(&self, x: &[f32]) -> Vec<f32> {
        let mut out = self.bias.clone();
        for (x, row) in x.iter().zip(self.weight.chunks(self.bias.len())) {
            out.iter_mut().zip(row).for_each(|(out, w)| *out += x * w);
        }
        out
    }
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    let unread = |e| Error::invalid("model", format!("its numbers cannot be read: {e:?}"));
    tensor.try_into_vec_as::<f32>().map_err(unread)
}

/// The prediction network and the joiner on the host, where the small steps of a search are fast.
#[derive(Debug, Clone)]
pub struct Search {
    embedding: Vec<f32>,
    prediction: usize,
    context: usize,
    memory: Layer,
    joint_memory: Layer,
    output: Layer,
}

impl Search {
    /// The search for a model as it is now.
    pub fn new(model: &Recogniser) -> Result<Self> {
        let embedding = model.embedding.weight.val();
        let prediction = embedding.dims()[1];
        Ok(Self {
            embedding: numbers(embedding)?,
            prediction,
            context: model.context(),
            memory: Layer::of(&model.memory)?,
            joint_memory: Layer::of(&model.joint_memory)?,
            output: Layer::of(&model.output)?,
        })
    }

    /// Searches each of the utterances that the model encoded. A beam of one is a greedy search.
    pub fn run(
        &self,
        model: &Recogniser,
        states: Tensor<3>,
        lengths: &[usize],
        size: usize,
    ) -> Result<Vec<Heard>> {
        let heard = model.joint_encoder.forward(states);
        let [_, length, width] = heard.dims();
        let heard = numbers(heard)?;
        let one = |(b, &frames): (usize, &usize)| {
            let rows = &heard[b * length * width..][..frames * width];
            self.one(rows, frames, size, Heard::default())
        };
        use rayon::prelude::*;
        Ok(lengths.par_iter().enumerate().map(one).collect())
    }

    /// Continues greedily from what was recognised before these frames of one utterance.
    pub fn go_on(&self, model: &Recogniser, states: Tensor<3>, heard: Heard) -> Result<Heard> {
        let rows = model.joint_encoder.forward(states);
        let frames = rows.dims()[1];
        Ok(self.one(&numbers(rows)?, frames, 1, heard))
    }

    fn one(&self, rows: &[f32], frames: usize, size: usize, mut heard: Heard) -> Heard {
        let mut lattice = Joiner { search: self, rows, known: HashMap::new() };
        if size <= 1 {
            greedy(&mut lattice, frames, &mut heard);
            return heard;
        }
        beam(&mut lattice, frames, size).into_iter().next().unwrap_or_default()
    }

    /// The joiner's input from the last labels.
    fn remember(&self, last: &[usize]) -> Vec<f32> {
        let seen: Vec<f32> = last
            .iter()
            .flat_map(|l| &self.embedding[l * self.prediction..][..self.prediction])
            .copied()
            .collect();
        let inner: Vec<f32> = self.memory.apply(&seen).into_iter().map(|v| v.max(0.0)).collect();
        self.joint_memory.apply(&inner)
    }
}

/// The lattice of one utterance.
struct Joiner<'a> {
    search: &'a Search,
    rows: &'a [f32],
    known: HashMap<Vec<usize>, Vec<f32>>,
}

impl Lattice for Joiner<'_> {
    fn scores(&mut self, frame: usize, labels: &[usize]) -> Vec<f32> {
        let search = self.search;
        let back =
            |back: usize| labels.len().checked_sub(back).map_or(BLANK, |place| labels[place]);
        let last: Vec<usize> = (1..=search.context).map(back).collect();
        let memory = self.known.entry(last).or_insert_with_key(|last| search.remember(last));
        let width = memory.len();
        let heard = &self.rows[frame * width..][..width];
        let joint: Vec<f32> = heard.iter().zip(&*memory).map(|(a, b)| (a + b).tanh()).collect();
        let mut scores = search.output.apply(&joint);
        let norm = log_sum(&scores) as f32;
        scores.iter_mut().for_each(|s| *s -= norm);
        scores
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two frames with given scores for each number of labels emitted.
    struct Made(fn(usize, &[usize]) -> [f32; 3]);

    impl Lattice for Made {
        fn scores(&mut self, frame: usize, labels: &[usize]) -> Vec<f32> {
            self.0(frame, labels).map(f32::ln).to_vec()
        }
    }

    /// Label 1 is never the best single step but is reached by two alignments, so greedy search misses
    /// it.
    #[test]
    fn a_beam_adds_up_alignments() {
        let mut made = Made(|_, labels| match labels {
            [] => [0.55, 0.45, 0.0],
            _ => [1.0, 0.0, 0.0],
        });
        let mut heard = Heard::default();
        greedy(&mut made, 2, &mut heard);
        assert_eq!(heard.labels, [0; 0]);
        assert!((heard.score.exp() - 0.55 * 0.55).abs() < 1e-6);
        let found = beam(&mut made, 2, 4);
        assert_eq!(found[0].labels, [1]);
        assert!((found[0].score.exp() - (0.45 + 0.55 * 0.45)).abs() < 1e-6);
        assert_eq!(found[1].labels, [0; 0]);
        // A beam of one keeps the better prefix after the first frame, which is the empty one.
        assert_eq!(beam(&mut made, 2, 1)[0].labels, [0; 0]);
    }

    #[test]
    fn labels_follow_one_another_within_a_frame() {
        // 1, then 2, then nothing.
        let mut made = Made(|_, labels| match labels {
            [] => [0.1, 0.8, 0.1],
            [1] => [0.2, 0.1, 0.7],
            _ => [0.9, 0.05, 0.05],
        });
        let mut heard = Heard::default();
        greedy(&mut made, 1, &mut heard);
        assert_eq!(heard.labels, [1, 2]);
        assert!((heard.score.exp() - 0.8 * 0.7 * 0.9).abs() < 1e-6);
        assert!((heard.confidence() - (0.8 * 0.7 * 0.9_f64).cbrt()).abs() < 1e-6);
        assert_eq!(beam(&mut made, 1, 5)[0].labels, [1, 2]);
        // A symbol that is always the best is not emitted forever.
        let mut endless = Made(|_, _| [0.1, 0.8, 0.1]);
        let mut heard = Heard::default();
        greedy(&mut endless, 2, &mut heard);
        assert_eq!(heard.labels.len(), 2 * MOST_PER_FRAME);
    }
}
