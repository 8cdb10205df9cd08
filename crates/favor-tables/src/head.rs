//! What turns features into predictions.

use favor::learn::{HeadKind, Task};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What turns features into predictions.
///
/// ```
/// use favor_tables::{HeadKind, TableHead};
/// assert_eq!("nw".parse(), Ok(TableHead::Nw));
/// assert_eq!("gp".parse(), Ok(TableHead::Linear(HeadKind::Gp)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
#[non_exhaustive]
pub enum TableHead {
    /// A linear model of the features; for classes, of their indicators or logits.
    Linear(HeadKind),
    /// Nadaraya–Watson: weighted means over the rows, the weights by the kernel.
    Nw,
}

impl TableHead {
    /// Every head.
    pub fn all() -> impl Iterator<Item = Self> {
        HeadKind::ALL.into_iter().map(Self::Linear).chain([Self::Nw])
    }

    /// The name, as text and files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear(kind) => kind.name(),
            Self::Nw => "nw",
        }
    }

    /// The head that is taken where none is asked for.
    pub fn usual(task: Task) -> Self {
        if task == Task::Density { Self::Nw } else { Self::Linear(HeadKind::Ridge) }
    }

    /// Whether it can do a task.
    pub fn does(self, task: Task) -> bool {
        match self {
            Self::Linear(HeadKind::Ridge) => task != Task::Density,
            Self::Linear(HeadKind::Gp) => task == Task::Regress,
            Self::Linear(HeadKind::Logistic) => task == Task::Classify,
            Self::Nw => true,
        }
    }
}

impl From<HeadKind> for TableHead {
    fn from(kind: HeadKind) -> Self {
        Self::Linear(kind)
    }
}

impl From<TableHead> for &'static str {
    fn from(head: TableHead) -> Self {
        head.name()
    }
}

impl TryFrom<String> for TableHead {
    type Error = String;
    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl fmt::Display for TableHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for TableHead {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Self::all().find(|head| head.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            favor::unknown_name(name, &names)
        })
    }
}
