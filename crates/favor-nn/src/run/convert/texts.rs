//! What a model is shown while it is converted: pieces of texts, or the examples of a task.

use super::options::{ConvertRequest, Source};
use crate::task::{TextTask, encode};
use crate::text::{Encoded, TextTokenizer, pieces};
use crate::{Error, Result};

/// One in so many texts is held out, and at most so many.
const HELD_OUT: usize = 10;
const MOST_HELD_OUT: usize = 256;

/// Texts to learn from and texts that are held out; of a task with their labels.
pub(super) struct Texts {
    pub(super) train: Vec<Encoded>,
    pub(super) held: Vec<Encoded>,
    pub(super) task: Option<TaskTexts>,
}

/// The labels of a task, and its examples to be judged by.
pub(super) struct TaskTexts {
    pub(super) task: TextTask,
    pub(super) train: Vec<f64>,
    pub(super) held: Vec<f64>,
    pub(super) dev: Vec<Encoded>,
}

impl Texts {
    pub(super) fn read(request: &ConvertRequest, tokenizer: &TextTokenizer) -> Result<Self> {
        let (texts, task) = match &request.source {
            Source::Texts(files) => {
                let mut all = Vec::new();
                for file in files {
                    all.extend(pieces(file, tokenizer)?);
                }
                (all, None)
            }
            Source::Task(name) => {
                let task = TextTask::read(name, &request.data)?.truncated(request.options.examples);
                (encode(&task.train, tokenizer)?, Some(task))
            }
        };
        let every = HELD_OUT.max(texts.len().div_ceil(MOST_HELD_OUT));
        if texts.len() < every {
            let reason = format!("{} pieces; at least {HELD_OUT} are needed", texts.len());
            return Err(Error::invalid("texts", format!("too little: {reason}")));
        }
        let is_held = |i: usize| i % every == every - 1;
        let (mut train, mut held) = (Vec::new(), Vec::new());
        for (i, text) in texts.into_iter().enumerate() {
            if is_held(i) { held.push(text) } else { train.push(text) }
        }
        let task = task
            .map(|task| {
                let (mut train, mut held) = (Vec::new(), Vec::new());
                for (i, example) in task.train.iter().enumerate() {
                    if is_held(i) { held.push(example.label) } else { train.push(example.label) }
                }
                let dev = encode(&task.dev, tokenizer)?;
                Ok::<_, Error>(TaskTexts { task, train, held, dev })
            })
            .transpose()?;
        Ok(Self { train, held, task })
    }
}
