//! Texts as labels.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What a label stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Units {
    /// A character; the space between words is one.
    Characters,
    /// A word. Words that were not in training cannot be recognised.
    Words,
}

impl std::str::FromStr for Units {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "characters" => Ok(Self::Characters),
            "words" => Ok(Self::Words),
            _ => Err(Error::invalid("units", format!("'{name}' is neither characters nor words"))),
        }
    }
}

/// The labels of a model, from 1; label 0 is the blank.
///
/// ```
/// use favor_speech::{Units, Vocabulary};
/// let vocabulary = Vocabulary::of(["YES", "oh no"], Units::Words)?;
/// assert_eq!(vocabulary.size(), 4);
/// let labels = vocabulary.encode("No, yes!")?;
/// assert_eq!(vocabulary.decode(&labels), "no yes");
/// # Ok::<(), favor_speech::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vocabulary {
    units: Units,
    symbols: Vec<String>,
}

impl Vocabulary {
    /// All units that occur in these texts.
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t str>, units: Units) -> Result<Self> {
        let mut all = BTreeSet::new();
        for text in texts {
            all.extend(split(&plain(text), units));
        }
        if all.is_empty() {
            Err(Error::invalid("texts", "there is no word in any of them"))
        } else {
            Ok(Self { units, symbols: all.into_iter().collect() })
        }
    }

    /// The number of labels, including the blank.
    pub fn size(&self) -> usize {
        self.symbols.len() + 1
    }

    /// The labels of a text.
    pub fn encode(&self, text: &str) -> Result<Vec<usize>> {
        let label = |symbol: String| match self.symbols.binary_search(&symbol) {
            Ok(place) => Ok(place + 1),
            Err(_) => {
                let reason = format!("'{symbol}' of '{text}' is not in the model's vocabulary");
                Err(Error::invalid("text", reason))
            }
        };
        split(&plain(text), self.units).into_iter().map(label).collect()
    }

    /// The text of labels.
    pub fn decode(&self, labels: &[usize]) -> String {
        let symbols = labels.iter().filter_map(|l| self.symbols.get(l.checked_sub(1)?));
        let symbols: Vec<&str> = symbols.map(String::as_str).collect();
        match self.units {
            Units::Characters => symbols.concat(),
            Units::Words => symbols.join(" "),
        }
    }
}

fn split(text: &str, units: Units) -> Vec<String> {
    match units {
        Units::Characters => text.chars().map(String::from).collect(),
        Units::Words => text.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect(),
    }
}

/// The text in lower case, with one space between words and no punctuation except apostrophes: what
/// models learn and what is compared.
pub fn plain(text: &str) -> String {
    let keep = |c: char| if c.is_alphanumeric() || c == '\'' { c } else { ' ' };
    let text: String = text.to_lowercase().chars().map(keep).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
