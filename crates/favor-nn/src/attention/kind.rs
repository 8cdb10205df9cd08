//! The kinds of attention by name.

use crate::{Error, Result};
use favor::Family;
use serde::{Deserialize, Serialize};

/// A kind of attention.
///
/// ```
/// use favor_nn::attention::Attention;
/// let kind: Attention = "balanced".parse()?;
/// assert_eq!(kind.title(), "Balanced (ours)");
/// # Ok::<(), favor_nn::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Attention {
    /// Softmax of the scaled products: time grows with the square of the length.
    Exact,
    /// Linear attention with `elu(x) + 1`.
    Elu,
    /// Linear attention with `relu(x) + ε`.
    Relu,
    /// Random features of the softmax kernel, of a positive family.
    Features(Family),
    /// Balanced features where they are predicted to serve, exact for the other heads.
    Auto,
}

impl Attention {
    /// Every kind that has a name in commands.
    pub const ALL: [Self; 10] = [
        Self::Exact,
        Self::Elu,
        Self::Relu,
        Self::Features(Family::Pos),
        Self::Features(Family::Ge),
        Self::Features(Family::Sade),
        Self::Features(Family::Sde),
        Self::Features(Family::Ade),
        Self::Features(Family::Balanced),
        Self::Auto,
    ];

    /// The name in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Elu => "elu",
            Self::Relu => "relu",
            Self::Features(family) => family.name(),
            Self::Auto => "auto",
        }
    }

    /// The name in text.
    pub fn title(self) -> &'static str {
        match self {
            Self::Exact => "Exact softmax",
            Self::Elu => "ELU",
            Self::Relu => "ReLU",
            Self::Features(family) => family.title(),
            Self::Auto => "Auto",
        }
    }

    /// The family whose maps it needs, if any.
    pub fn family(self) -> Option<Family> {
        match self {
            Self::Features(family) => Some(family),
            Self::Auto => Some(Family::Balanced),
            _ => None,
        }
    }
}

impl std::fmt::Display for Attention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Attention {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid("attention", format!("'{name}' is none of {names}"))
        })
    }
}

impl TryFrom<String> for Attention {
    type Error = Error;
    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

impl From<Attention> for String {
    fn from(kind: Attention) -> Self {
        kind.name().to_owned()
    }
}
