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
    /// Balanced features for the heads where they are predicted to be accurate, exact for the others.
    Auto,
    /// Features learned from the queries and keys of a trained model, which is converted to them.
    Learned,
    /// The plain mean of all values, which looks at no query and no key: a control.
    Mean,
}

impl Attention {
    /// Every kind that a layer has by itself: softmax, linear attention, the features of each positive family,
    /// and the choice between them. Learned features come with a converted model, and the mean is a control.
    ///
    /// ```
    /// use favor_nn::{Attention, Family};
    /// assert!(Attention::all().any(|kind| kind == Attention::Features(Family::Hyperbolic)));
    /// assert!(Attention::all().all(|kind| kind.name().parse::<Attention>().unwrap() == kind));
    /// ```
    pub fn all() -> impl Iterator<Item = Self> {
        let families = Family::ALL.into_iter().filter(|family| family.is_positive());
        let plain = [Self::Exact, Self::Elu, Self::Relu];
        plain.into_iter().chain(families.map(Self::Features)).chain([Self::Auto])
    }

    /// The name in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Elu => "elu",
            Self::Relu => "relu",
            Self::Features(family) => family.name(),
            Self::Auto => "auto",
            Self::Learned => "learned",
            Self::Mean => "mean",
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
            Self::Learned => "Learned (ours)",
            Self::Mean => "Plain mean",
        }
    }

    /// The family whose maps it needs, or starts from, if any.
    pub fn family(self) -> Option<Family> {
        match self {
            Self::Features(family) => Some(family),
            Self::Auto | Self::Learned => Some(Family::Balanced),
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
        let known = || Self::all().chain([Self::Learned, Self::Mean]);
        known().find(|kind| kind.name() == name).ok_or_else(|| {
            let names: Vec<&str> = known().map(Self::name).collect();
            Error::invalid("attention", favor::unknown_name(name, &names))
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
