//! Masked-language-model training on a folder of texts.

use super::device;
use super::session::{Session, Watch};
use crate::batches::Batches;
use crate::bert::{Bert, BertConfig};
use crate::layer::LayerOptions;
use crate::text::{Batch, Encoded, Special, TextTokenizer, pieces};
use crate::train::{AdamOptions, Schedule, Trainer};
use crate::{Error, Result};
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Int, Tensor, TensorData};
use favor::draw::Stream;
use favor_io::create_folder;
use std::path::PathBuf;

/// The fraction of tokens that are to be guessed.
const MASKED: f64 = 0.15;
/// One in so many pieces of text is kept to judge by.
const HELD_OUT: usize = 20;
/// The streams that mask: for training and for judging.
const PURPOSE: [u64; 2] = [0x6d61_736b, 0x6a75_6467];

/// What to train on what.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PretrainRequest {
    /// A folder of `.txt` and `.txt.gz` files, or one such file.
    pub corpus: PathBuf,
    /// A folder with a tokenizer, and with a model unless `shape` is given.
    pub model: PathBuf,
    /// Width, layers and heads of a model with new weights; `None`: go on from the model's.
    pub shape: Option<[usize; 3]>,
    /// Where the model is written.
    pub out: PathBuf,
    /// The attention.
    pub attention: LayerOptions,
    /// Steps in all.
    pub steps: u64,
    /// Pieces of text of a step.
    pub batch: usize,
    /// Tokens of a piece.
    pub length: usize,
    /// The peak of the rate.
    pub rate: f64,
    /// The fraction of steps in which the rate rises.
    pub warmup: f64,
    /// Decides new weights, order, masks and dropout.
    pub seed: u64,
}

setters! { PretrainRequest {
    corpus: PathBuf,
    model: PathBuf,
    shape: Option<[usize; 3]>,
    out: PathBuf,
    attention: LayerOptions,
    steps: u64,
    batch: usize,
    length: usize,
    rate: f64,
    warmup: f64,
    seed: u64,
} }

impl PretrainRequest {
    /// A thousand steps on a corpus, from the weights of this model.
    pub fn new(
        corpus: impl Into<PathBuf>,
        model: impl Into<PathBuf>,
        out: impl Into<PathBuf>,
    ) -> Self {
        Self {
            corpus: corpus.into(),
            model: model.into(),
            shape: None,
            out: out.into(),
            attention: LayerOptions::default(),
            steps: 1000,
            batch: 16,
            length: 128,
            rate: 1e-4,
            warmup: 0.1,
            seed: 0,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Pretrained {
    /// Pieces of text learned from and judged by.
    pub pieces: [usize; 2],
    /// The mean loss on masked tokens of the pieces to be judged by.
    pub loss: f64,
    /// The fraction of them that were guessed right.
    pub accuracy: f64,
}

/// Trains a model to guess masked tokens and writes it. The same request goes on from its checkpoint.
pub fn pretrain(request: &PretrainRequest, watch: Watch<'_>) -> Result<Pretrained> {
    let PretrainRequest { attention, steps, batch, length, rate, seed, .. } = *request;
    if batch == 0 || !(0.0..=1.0).contains(&request.warmup) {
        let reason = "a batch must hold something, and the warm-up be a fraction";
        return Err(Error::invalid("training", reason));
    }
    let tokenizer = TextTokenizer::load(&request.model, length)?;
    let pieces = pieces(&request.corpus, &tokenizer)?;
    let (judge, learn): (Vec<_>, Vec<_>) =
        pieces.into_iter().enumerate().partition(|(i, _)| i % HELD_OUT == HELD_OUT - 1);
    let [learn, judge] = [learn, judge].map(|part| part.into_iter().map(|(_, p)| p).collect());
    let (learn, judge): (Vec<Encoded>, Vec<Encoded>) = (learn, judge);
    if judge.is_empty() {
        let reason = format!("too short: at least {HELD_OUT} pieces of {length} tokens are needed");
        return Err(Error::file(&request.corpus, reason));
    }
    let device = device().autodiff();
    device.seed(seed);
    let (model, config) = match request.shape {
        None => Bert::load(&request.model, attention, &device)?,
        Some([width, layers, heads]) => {
            let mut config = BertConfig::small(tokenizer.vocabulary(), width, layers, heads);
            config.max_position_embeddings = config.max_position_embeddings.max(length);
            (Bert::new(&config, attention, &device)?, config)
        }
    };
    if length > config.max_position_embeddings {
        let most = config.max_position_embeddings;
        let reason = format!("{length} tokens where the model has {most} positions");
        return Err(Error::invalid("length", reason));
    }
    let mut model = model.with_masked_head(&config, &device);
    model.classifier = None;
    let warmup = (request.warmup * steps as f64).round() as u64;
    let schedule = Schedule::new(steps, rate).warmup(warmup);
    let described = (
        (&request.corpus, &request.model, request.shape, attention),
        (steps, batch, length, rate, request.warmup, seed),
    );
    create_folder(&request.out)?;
    let trainer = Trainer::new(model, schedule, AdamOptions::default(), seed)?;
    let checkpoint = request.out.join("checkpoint.safetensors");
    let mut session = Session::start(trainer, &described, checkpoint, watch)?;
    let masking = Masking { special: tokenizer.special(), words: tokenizer.vocabulary() as u32 };
    let batches = Batches::new(learn.iter().map(|p| p.ids.len()).collect(), batch, seed);
    let loss = |model: &Bert, step: u64| {
        let epoch = batches.epoch(step / batches.per_epoch());
        let chosen = &epoch[(step % batches.per_epoch()) as usize];
        let batch = Batch::of(chosen.iter().map(|i| &learn[*i]))?;
        let mut stream = Stream::new(seed.wrapping_add(step), PURPOSE[0]);
        let (batch, places, right) = masking.hide(batch, &mut stream);
        cross_entropy(model.masked_logits(&batch, &places)?, &right)
    };
    session.train(steps, loss)?;
    let (loss, accuracy) = judged(&session.trainer().model().valid(), &judge, batch, &masking)?;
    session.trainer().model().save(&request.out, &config, None, Some(&request.model))?;
    session.finish()?;
    Ok(Pretrained { pieces: [learn.len(), judge.len()], loss, accuracy })
}

fn cross_entropy(logits: Tensor<2>, right: &[i64]) -> Result<Tensor<1>> {
    let device = logits.device();
    let right = TensorData::new(right.to_vec(), [right.len()]);
    let right = Tensor::<1, Int>::from_data(right, &device);
    Ok(CrossEntropyLossConfig::new().init(&device).forward(logits, right))
}

/// Loss and accuracy on pieces, with masks that are always the same.
fn judged(model: &Bert, pieces: &[Encoded], size: usize, masking: &Masking) -> Result<(f64, f64)> {
    let mut stream = Stream::new(0, PURPOSE[1]);
    let (mut loss, mut hits, mut count) = (0.0, 0, 0);
    for group in pieces.chunks(size) {
        let (batch, places, right) = masking.hide(Batch::of(group.iter())?, &mut stream);
        let logits = model.masked_logits(&batch, &places)?;
        let guesses = logits.clone().argmax(1).into_data();
        hits += guesses.iter::<i64>().zip(&right).filter(|(g, r)| g == *r).count();
        let value = cross_entropy(logits, &right)?.into_scalar::<f32>();
        loss += f64::from(value) * right.len() as f64;
        count += right.len();
    }
    Ok((loss / count as f64, hits as f64 / count as f64))
}

/// Hides tokens, as BERT's authors did: of those to be guessed, 80 % become the mask, 10 % any other
/// token, and 10 % stay.
struct Masking {
    special: Special,
    words: u32,
}

impl Masking {
    /// The batch with tokens hidden, their places, and what stood there. At least one is hidden.
    fn hide(&self, mut batch: Batch, stream: &mut Stream) -> (Batch, Vec<usize>, Vec<i64>) {
        let visible = batch.visible();
        let Special { begin, end, mask } = self.special;
        let candidates: Vec<usize> = (0..visible.len())
            .filter(|&i| visible[i] && ![begin, end].contains(&batch.ids()[i]))
            .collect();
        let mut places: Vec<usize> =
            candidates.iter().copied().filter(|_| stream.uniform() < MASKED).collect();
        if places.is_empty() {
            places = vec![candidates.get(stream.index(candidates.len())).copied().unwrap_or(0)];
        }
        let right = places.iter().map(|p| i64::from(batch.ids()[*p])).collect();
        let ids = batch.ids_mut();
        for &place in &places {
            ids[place] = match stream.uniform() {
                u if u < 0.8 => mask,
                u if u < 0.9 => stream.index(self.words as usize) as u32,
                _ => ids[place],
            };
        }
        (batch, places, right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of many draws, within five standard deviations: 15 % are to be guessed, and 80 % of these become
    /// the mask. What begins, ends and pads texts is never among them.
    #[test]
    fn words_alone_are_hidden() {
        let masking = Masking { special: Special { begin: 1, end: 2, mask: 3 }, words: 100 };
        let words = |n: u32| [vec![1], (0..n).map(|i| 10 + i % 80).collect(), vec![2]].concat();
        let plain = Batch::new(vec![words(40), words(3), words(17)]).unwrap();
        let visible = plain.visible();
        let (mut stream, mut hidden, mut masks, draws) = (Stream::new(1, 2), 0, 0, 1000);
        for _ in 0..draws {
            let (batch, places, right) = masking.hide(plain.clone(), &mut stream);
            assert!(!places.is_empty() && places.is_sorted());
            for (&place, right) in places.iter().zip(&right) {
                assert!(visible[place] && plain.ids()[place] >= 10, "{place}");
                assert_eq!(*right, i64::from(plain.ids()[place]));
                masks += usize::from(batch.ids()[place] == masking.special.mask);
            }
            let changed = |i: &usize| batch.ids()[*i] != plain.ids()[*i];
            assert!((0..visible.len()).filter(changed).all(|i| places.contains(&i)));
            hidden += places.len();
        }
        let close = |count: usize, of: usize, p: f64| {
            let deviation = (of as f64 * p * (1.0 - p)).sqrt();
            assert!((count as f64 - of as f64 * p).abs() < 5.0 * deviation, "{count} of {of}");
        };
        close(hidden, draws * (40 + 3 + 17), MASKED);
        // A token that is drawn can be the mask too.
        close(masks, hidden, 0.8 + 0.1 / 100.0);
    }
}
