//! Tasks on texts: examples with labels, and how answers are scored.

mod files;
mod glue;
mod metric;

pub use glue::Glue;
pub use metric::Metric;

use crate::bert::Bert;
use crate::text::{Batch, Encoded, TextTokenizer};
use crate::{Error, Result};
use favor::learn::argmax;
use std::path::Path;

/// What is asked of a text, or of a pair of texts.
#[derive(Debug, Clone, PartialEq)]
pub enum Answers {
    /// One of these classes.
    Classes(Vec<String>),
    /// A number.
    Number,
}

/// A text or a pair of texts, and the right answer: a number, or that of a class.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// The text.
    pub first: String,
    /// The other text of a pair.
    pub second: Option<String>,
    /// The answer.
    pub label: f64,
}

/// Examples to learn from and examples to be judged by.
#[derive(Debug, Clone, PartialEq)]
pub struct TextTask {
    /// The name.
    pub name: String,
    /// What is asked.
    pub answers: Answers,
    /// How answers are scored.
    pub metric: Metric,
    /// Examples to learn from.
    pub train: Vec<Example>,
    /// Examples to be judged by.
    pub dev: Vec<Example>,
}

impl TextTask {
    /// A task of GLUE by its name, in the folder `glue` of the data, or a file of one's own.
    pub fn read(name: &str, data: &Path) -> Result<Self> {
        match name.parse::<Glue>() {
            Ok(glue) => glue.read(&data.join("glue")),
            Err(_) if Path::new(name).extension().is_some() => files::own(Path::new(name)),
            Err(error) => Err(error),
        }
    }

    /// The number of outputs that a classifier needs.
    pub fn labels(&self) -> usize {
        match &self.answers {
            Answers::Classes(names) => names.len(),
            Answers::Number => 1,
        }
    }

    /// The names of the classes; one name for a number.
    pub fn label_names(&self) -> Vec<String> {
        match &self.answers {
            Answers::Classes(names) => names.clone(),
            Answers::Number => vec!["score".into()],
        }
    }

    /// Only the first examples, for a short trial.
    #[must_use]
    pub fn truncated(mut self, train: Option<usize>) -> Self {
        self.train.truncate(train.unwrap_or(usize::MAX));
        self
    }
}

/// The tokens of examples.
pub fn encode(examples: &[Example], tokenizer: &TextTokenizer) -> Result<Vec<Encoded>> {
    tokenizer.encode(examples.iter().map(|e| (e.first.as_str(), e.second.as_deref())))
}

/// The answers of a model, in the order of the texts.
pub(crate) fn answers(
    model: &Bert,
    texts: &[Encoded],
    kind: &Answers,
    size: usize,
) -> Result<Vec<f64>> {
    let scores = Batch::rows(texts, size, |batch| model.classify(batch), |_, _| ())?;
    let answer = |row: &Vec<f32>| match kind {
        Answers::Number => f64::from(row[0]),
        Answers::Classes(_) => {
            let scores: Vec<f64> = row.iter().copied().map(f64::from).collect();
            argmax(&scores) as f64
        }
    };
    Ok(scores.iter().map(answer).collect())
}

/// The number of a class, given its name.
fn class(names: &[String], name: &str) -> Option<f64> {
    names.iter().position(|n| n == name).map(|i| i as f64)
}

/// At least one example of each kind.
fn check(path: &Path, examples: Vec<Example>) -> Result<Vec<Example>> {
    if examples.is_empty() { Err(Error::file(path, "holds no example")) } else { Ok(examples) }
}
