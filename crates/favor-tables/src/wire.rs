//! Functions and what they give as bytes that say what they are: a version, a kind, the contents.

use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Grows with every change of what functions or their states have in their bytes.
///
/// ```
/// println!("functions of version {}", favor_tables::WIRE_VERSION);
/// ```
pub const WIRE_VERSION: u8 = 4;

/// What bytes are. The numbers are written: never give one to another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    SurveyState = 1,
    MomentsState = 2,
    SampleState = 3,
    SumsState = 4,
    GramState = 5,
    LogisticState = 6,
    Aggregate = 16,
    Predict = 17,
    PredictColumns = 18,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::SurveyState,
        Self::MomentsState,
        Self::SampleState,
        Self::SumsState,
        Self::GramState,
        Self::LogisticState,
        Self::Aggregate,
        Self::Predict,
        Self::PredictColumns,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::SurveyState => "a survey of columns",
            Self::MomentsState => "moments",
            Self::SampleState => "a sample of rows",
            Self::SumsState => "feature sums",
            Self::GramState => "Gram sums",
            Self::LogisticState => "a logistic gradient",
            Self::Aggregate => "an aggregate function",
            Self::Predict => "a predict function",
            Self::PredictColumns => "a function that predicts all columns",
        }
    }
}

pub(crate) fn write<T: Serialize>(kind: Kind, contents: &T) -> Result<Vec<u8>> {
    let bytes = postcard::to_extend(contents, vec![WIRE_VERSION, kind as u8]);
    bytes.map_err(|e| Error::Bytes { what: kind.name(), reason: e.to_string() })
}

pub(crate) fn read<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T> {
    let bad = |reason: String| Error::Bytes { what: kind.name(), reason };
    let found = kind_of(bytes).map_err(bad)?;
    if found != kind {
        return Err(bad(format!("they hold {}", found.name())));
    }
    postcard::from_bytes(&bytes[2..]).map_err(|e| bad(format!("damaged ({e})")))
}

/// What bytes are, or why that cannot be told.
pub(crate) fn kind_of(bytes: &[u8]) -> std::result::Result<Kind, String> {
    let [version, kind, ..] = bytes else { return Err("there is nothing to read".into()) };
    if *version != WIRE_VERSION {
        return Err(format!("version {version}; this build reads version {WIRE_VERSION}"));
    }
    let found = Kind::ALL.into_iter().find(|k| *k as u8 == *kind);
    found.ok_or_else(|| format!("nothing of ours is of kind {kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_say_what_they_are() {
        let bytes = write(Kind::SumsState, &(1.5_f64, "a")).unwrap();
        let (number, text): (f64, String) = read(Kind::SumsState, &bytes).unwrap();
        assert_eq!((number, text.as_str()), (1.5, "a"));
        let refused =
            |kind, bytes: &[u8]| read::<(f64, String)>(kind, bytes).unwrap_err().to_string();
        let other = refused(Kind::MomentsState, &bytes);
        assert_eq!(other, "cannot be decoded as moments: they hold feature sums");
        for cut in [0, 1] {
            assert!(refused(Kind::SumsState, &bytes[..cut]).contains("nothing to read"));
        }
        assert!(refused(Kind::SumsState, &bytes[..5]).contains("damaged"));
        let mut newer = bytes.clone();
        newer[0] += 1;
        let wanted = format!("this build reads version {WIRE_VERSION}");
        assert!(refused(Kind::SumsState, &newer).contains(&wanted));
        newer = bytes;
        newer[1] = 99;
        assert!(refused(Kind::SumsState, &newer).contains("kind 99"));
    }
}
