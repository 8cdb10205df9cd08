//! The tasks of GLUE whose data are at hand.

use super::files::{rows, table};
use super::{Answers, Example, Metric, TextTask, check, class};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A task of GLUE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Glue {
    /// Is a sentence English? Matthews' correlation.
    Cola,
    /// Do two sentences say the same? F1.
    Mrpc,
    /// Does the second sentence follow from the first? Accuracy.
    Rte,
    /// Is a review kind? Accuracy.
    Sst2,
    /// How alike are two sentences? Spearman's correlation.
    Stsb,
}

impl Glue {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Cola, Self::Mrpc, Self::Rte, Self::Sst2, Self::Stsb];

    /// The name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cola => "cola",
            Self::Mrpc => "mrpc",
            Self::Rte => "rte",
            Self::Sst2 => "sst2",
            Self::Stsb => "stsb",
        }
    }

    /// The name in text, which is that of the folder.
    pub fn title(self) -> &'static str {
        match self {
            Self::Cola => "CoLA",
            Self::Mrpc => "MRPC",
            Self::Rte => "RTE",
            Self::Sst2 => "SST-2",
            Self::Stsb => "STS-B",
        }
    }

    /// How answers are scored.
    pub fn metric(self) -> Metric {
        match self {
            Self::Cola => Metric::Matthews,
            Self::Mrpc => Metric::F1,
            Self::Rte | Self::Sst2 => Metric::Accuracy,
            Self::Stsb => Metric::Spearman,
        }
    }

    /// Reads `train.tsv` and `dev.tsv`, compressed or not, of the task's folder in `glue`.
    pub fn read(self, glue: &Path) -> Result<TextTask> {
        let folder = glue.join(self.title());
        if !folder.is_dir() {
            return Err(Error::NoData {
                path: folder,
                wanted: "train.tsv and dev.tsv of the task",
            });
        }
        let names: Vec<String> = match self {
            Self::Rte => vec!["entailment".into(), "not_entailment".into()],
            _ => vec!["0".into(), "1".into()],
        };
        let answers = match self {
            Self::Stsb => Answers::Number,
            _ => Answers::Classes(names),
        };
        let part = |name| self.part(&folder, name, &answers);
        let (train, dev) = (part("train")?, part("dev")?);
        Ok(TextTask { name: self.name().into(), metric: self.metric(), answers, train, dev })
    }

    /// The columns of the texts and of the answer, and whether there is a header.
    fn columns(self) -> (usize, Option<usize>, usize, bool) {
        match self {
            Self::Cola => (3, None, 1, false),
            Self::Mrpc => (3, Some(4), 0, true),
            Self::Rte => (1, Some(2), 3, true),
            Self::Sst2 => (0, None, 1, true),
            Self::Stsb => (7, Some(8), 9, true),
        }
    }

    fn part(self, folder: &Path, name: &str, answers: &Answers) -> Result<Vec<Example>> {
        let (path, text) = table(folder, name)?;
        let (first, second, answer, header) = self.columns();
        let mut out = Vec::new();
        for (line, row) in rows(&text).skip(usize::from(header)) {
            let wanted = first.max(answer).max(second.unwrap_or(0)) + 1;
            if row.len() < wanted {
                let reason = format!("line {line} has {} columns of {wanted}", row.len());
                return Err(Error::file(path, reason));
            }
            let label = match answers {
                Answers::Classes(names) => class(names, row[answer].trim()),
                Answers::Number => row[answer].trim().parse().ok(),
            };
            let Some(label) = label else {
                let reason =
                    format!("line {line}: '{}' is not an answer of {}", row[answer], self.title());
                return Err(Error::file(path, reason));
            };
            let second = second.map(|c| row[c].to_owned());
            out.push(Example { first: row[first].to_owned(), second, label });
        }
        check(&path, out)
    }
}

impl std::fmt::Display for Glue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Glue {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|task| task.name() == name).ok_or_else(|| {
            let known = favor::unknown_name(name, &Self::ALL.map(Self::name));
            Error::invalid("task", format!("neither a file FILE.tsv nor a known task: {known}"))
        })
    }
}
