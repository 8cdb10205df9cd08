//! A model with new attention beside the exact one: how far apart they are, and a step closer.

use crate::batches::like_length;
use crate::bert::{Bert, without_padding};
use crate::task::{Answers, TextTask, answers};
use crate::text::{Batch, Encoded};
use crate::{Error, Result};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

/// The weight of the output's squared error, relative to the mean of the states.
const OUTPUT: f64 = 10.0;

/// Logits are divided by this before the classes of two models are compared.
const TEMPERATURE: f64 = 2.0;

/// How far a model is from the exact one on held-out texts: errors relative to the exact model's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Distance {
    /// Of the states after each layer, on average.
    pub states: f64,
    /// Of the last state.
    pub last: f64,
    /// Of the output: the classifier's where there is one, else the mean vector of a text.
    pub output: f64,
}

impl Distance {
    /// What is brought down.
    pub fn loss(&self) -> f64 {
        self.states.powi(2) + OUTPUT * self.output.powi(2)
    }
}

/// Squares of errors and of what they are relative to: of each layer's state and of the output.
struct Squares {
    states: Vec<(Tensor<1>, Tensor<1>)>,
    output: (Tensor<1>, Tensor<1>),
}

/// The squares of a batch. The exact model's numbers are constants.
fn squares(student: &Bert, teacher: &Bert, batch: &Batch) -> Result<Squares> {
    let (own, exact) = (student.encoder.states(batch)?, teacher.encoder.states(batch)?);
    let constant = |t: Tensor<3>| if own[0].is_autodiff() { t.autodiff() } else { t };
    let output = |model: &Bert, states: &[Tensor<3>]| {
        let last = states[states.len() - 1].clone();
        match model.classifier {
            Some(_) => model.classify_states(last),
            None => Ok(model.embed_states(last, batch)),
        }
    };
    let (a, b) = (output(student, &own)?, output(teacher, &exact)?);
    let b = if a.is_autodiff() { b.autodiff() } else { b };
    let output = ((a - b.clone()).square().sum(), b.square().sum());
    // The embeddings before the first layer are the same in both, until all weights are trained.
    let states = own.iter().cloned().zip(exact).skip(1).map(|(own, exact)| {
        let exact = constant(exact);
        let off = without_padding(own - exact.clone(), batch);
        (off.square().sum(), without_padding(exact, batch).square().sum())
    });
    Ok(Squares { states: states.collect(), output })
}

/// What a step brings down: the mean over layers of the squared error of the states, relative to their square,
/// and ten times that of the output.
pub(super) fn loss(student: &Bert, teacher: &Bert, batch: &Batch) -> Result<Tensor<1>> {
    let Squares { states, output: (off, all) } = squares(student, teacher, batch)?;
    let share = 1.0 / states.len() as f64;
    let mut loss = off / all * OUTPUT;
    for (off, all) in states {
        loss = loss + off / all * share;
    }
    Ok(loss)
}

/// The distance of two models on texts.
pub(super) fn distance(
    student: &Bert,
    teacher: &Bert,
    texts: &[Encoded],
    size: usize,
) -> Result<Distance> {
    let lengths: Vec<usize> = texts.iter().map(|t| t.ids.len()).collect();
    let longest = lengths.iter().copied().max().unwrap_or(1);
    let mut states = vec![(0.0, 0.0); teacher.encoder.layers.len()];
    let mut output = (0.0, 0.0);
    let number = |t: Tensor<1>| f64::from(t.into_scalar::<f32>());
    for group in like_length(&lengths, size, size * longest) {
        let batch = Batch::of(group.iter().map(|i| &texts[*i]))?;
        let found = squares(student, teacher, &batch)?;
        for (sum, (off, all)) in states.iter_mut().zip(found.states) {
            *sum = (sum.0 + number(off), sum.1 + number(all));
        }
        output = (output.0 + number(found.output.0), output.1 + number(found.output.1));
    }
    let squared = |(off, all): (f64, f64)| off / all.max(f64::MIN_POSITIVE);
    let mean = states.iter().map(|s| squared(*s)).sum::<f64>() / states.len() as f64;
    let last = states.last().map_or(0.0, |s| squared(*s).sqrt());
    Ok(Distance { states: mean.sqrt(), last, output: squared(output).sqrt() })
}

/// The loss of labels, with the exact model's answers beside them, each for one half.
pub(super) fn task_loss(
    student: &Bert,
    teacher: &Bert,
    batch: &Batch,
    labels: &[f64],
    task: &TextTask,
) -> Result<Tensor<1>> {
    let scores = student.classify(batch)?;
    let exact = teacher.classify(batch)?;
    let exact = if scores.is_autodiff() { exact.autodiff() } else { exact };
    let device = scores.device();
    Ok(match task.answers {
        Answers::Classes(_) => {
            let labels: Vec<i64> = labels.iter().map(|l| *l as i64).collect();
            let labels = TensorData::new(labels, [batch.len()]);
            let labels = Tensor::<1, Int>::from_data(labels, &device);
            let of_labels =
                CrossEntropyLossConfig::new().init(&device).forward(scores.clone(), labels);
            let wanted = softmax(exact / TEMPERATURE, 1);
            let logs = log_softmax(scores / TEMPERATURE, 1);
            let of_answers = (wanted * logs).sum_dim(1).mean().neg() * TEMPERATURE.powi(2);
            (of_labels + of_answers) * 0.5
        }
        Answers::Number => {
            let labels: Vec<f32> = labels.iter().map(|l| *l as f32).collect();
            let labels = TensorData::new(labels, [batch.len(), 1]);
            let labels = Tensor::<2>::from_data(labels, &device);
            let (of_labels, of_answers) = (scores.clone() - labels, scores - exact);
            (of_labels.square().mean() + of_answers.square().mean()) * 0.5
        }
    })
}

/// The score of a task on the examples to be judged by.
pub(super) fn score(model: &Bert, task: &TextTask, dev: &[Encoded], size: usize) -> Result<f64> {
    let found = answers(model, dev, &task.answers, size)?;
    let right: Vec<f64> = task.dev.iter().map(|e| e.label).collect();
    Ok(task.metric.score(&found, &right))
}

/// Refuses an exact model that cannot answer a task.
pub(super) fn check_teacher(teacher: &Bert, task: &TextTask) -> Result<()> {
    let found = teacher.classifier.as_ref().map(|c| c.weight.dims()[1]);
    if found == Some(task.labels()) {
        return Ok(());
    }
    let has = found.map_or("none".to_owned(), |n| format!("one for {n} answers"));
    let reason = format!(
        "the task needs a classifier for {} answers and it has {has}; fine-tune the exact model first",
        task.labels()
    );
    Err(Error::invalid("model", reason))
}
