//! An attention of the table, with the keys that are exact beside it.

use crate::attention::Attention;
use crate::{Error, Result};
use favor::ExactKeys;
use serde::{Deserialize, Serialize};

/// The word for exact keys that stand alone.
const ALONE: &str = "keys";

/// An attention, and the keys that every head attends exactly: `learned`, `learned+4+2x4` with a window of ±4
/// and two slots of four members, or `keys+4+2x4` for these keys without features.
///
/// ```
/// use favor_nn::run::Variant;
/// let variant: Variant = "learned+4+2x4".parse()?;
/// assert_eq!((variant.exact.near, variant.exact.slots, variant.exact.members), (4, 2, 4));
/// assert_eq!(variant.to_string(), "learned+4+2x4");
/// # Ok::<(), favor_nn::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Variant {
    /// The attention.
    pub attention: Attention,
    /// The keys.
    pub exact: ExactKeys,
    /// Whether the keys stand alone.
    pub alone: bool,
}

impl From<Attention> for Variant {
    fn from(attention: Attention) -> Self {
        Self { attention, exact: ExactKeys::NONE, alone: false }
    }
}

impl Variant {
    /// The name in text.
    pub fn title(&self) -> String {
        match (self.alone, self.exact.is_none()) {
            (true, _) => format!("{} alone", self.exact),
            (false, true) => self.attention.title().to_owned(),
            (false, false) => format!("{}, {}", self.attention.title(), self.exact),
        }
    }
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut name = if self.alone { ALONE } else { self.attention.name() }.to_owned();
        if self.exact.near > 0 {
            name += &format!("+{}", self.exact.near);
        }
        if self.exact.is_routed() {
            name += &format!("+{}x{}", self.exact.slots, self.exact.members);
        }
        f.pad(&name)
    }
}

impl std::str::FromStr for Variant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split('+');
        let name = parts.next().unwrap_or_default();
        let alone = name == ALONE;
        let attention = if alone { Attention::Learned } else { name.parse()? };
        let mut exact = ExactKeys::NONE;
        for part in parts {
            let wanted = || {
                let reason = format!(
                    "'{part}' of '{text}' is neither a window, as 4, nor routed keys, as 2x4"
                );
                Error::invalid("attention", reason)
            };
            let number = |n: &str| n.parse::<usize>().ok().filter(|n| *n > 0).ok_or_else(wanted);
            exact = match part.split_once('x') {
                Some((slots, members)) => exact.routed(number(slots)?, number(members)?),
                None => exact.near(number(part)?),
            };
        }
        if !exact.is_none() && attention.family().is_none() || alone && exact.is_none() {
            let reason =
                format!("'{text}': exact keys go with features, and keys alone must be some");
            return Err(Error::invalid("attention", reason));
        }
        Ok(Self { attention, exact, alone })
    }
}

impl TryFrom<String> for Variant {
    type Error = Error;
    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

impl From<Variant> for String {
    fn from(variant: Variant) -> Self {
        variant.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_back() {
        for name in ["exact", "sde", "learned", "learned+4", "balanced+16+4x8", "keys+4+2x4"] {
            assert_eq!(name.parse::<Variant>().unwrap().to_string(), name);
        }
        for name in ["keys", "exact+4", "elu+2x2", "learned+0", "learned+ax4", "soft"] {
            assert!(name.parse::<Variant>().is_err(), "{name}");
        }
        let title = |name: &str| name.parse::<Variant>().unwrap().title();
        assert_eq!(title("learned+4+2x4"), "Learned (ours), window ±4, 2 × 4 routed");
        assert_eq!(title("keys+4"), "window ±4 alone");
    }
}
