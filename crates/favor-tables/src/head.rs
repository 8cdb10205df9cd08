//! What turns features into predictions.

use favor::learn::Task;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What turns features into predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeadKind {
    /// Ridge regression on the features, for classes on their indicators: closed form, one pass.
    Ridge,
    /// The same as a Gaussian process: numbers with a standard deviation.
    Gp,
    /// Logistic regression on the features: probabilities, some passes more.
    Logistic,
    /// Nadaraya–Watson: weighted means over the rows, the weights by the kernel.
    Nw,
}

impl HeadKind {
    /// Every head.
    pub const ALL: [Self; 4] = [Self::Ridge, Self::Gp, Self::Logistic, Self::Nw];

    /// The name, as text and files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ridge => "ridge",
            Self::Gp => "gp",
            Self::Logistic => "logistic",
            Self::Nw => "nw",
        }
    }

    /// The head that is taken where none is asked for.
    pub fn usual(task: Task) -> Self {
        if task == Task::Density { Self::Nw } else { Self::Ridge }
    }

    /// Whether it can do a task.
    pub fn does(self, task: Task) -> bool {
        match self {
            Self::Ridge => task != Task::Density,
            Self::Gp => task == Task::Regress,
            Self::Logistic => task == Task::Classify,
            Self::Nw => true,
        }
    }
}

impl fmt::Display for HeadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for HeadKind {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|head| head.name() == name);
        found.ok_or_else(|| "give ridge, gp, logistic or nw".into())
    }
}
