//! How likely classes are held to be before a row is seen.

use crate::{Error, Result, Setting};
use serde::{Deserialize, Serialize};

/// How likely the classes are held to be before a row is seen.
///
/// ```
/// use favor_tables::Prior;
/// assert_eq!("yes=0.3".parse(), Ok(Prior::Given(vec![("yes".into(), 0.3)])));
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum Prior {
    /// As frequent as in the table.
    #[default]
    Data,
    /// All the same.
    Uniform,
    /// Given for each label.
    Given(Vec<(String, f64)>),
}

impl std::str::FromStr for Prior {
    type Err = String;

    /// `data`, `uniform`, or `label=probability,…`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "data" => return Ok(Self::Data),
            "uniform" => return Ok(Self::Uniform),
            _ => {}
        }
        let part = |part: &str| {
            let (label, p) = part.rsplit_once('=')?;
            let p: f64 = p.trim().parse().ok()?;
            (p.is_finite() && p > 0.0).then(|| (label.trim().to_owned(), p))
        };
        let parts: Option<Vec<_>> = text.split(',').map(part).collect();
        parts.map(Self::Given).ok_or_else(|| {
            "give data, uniform, or a positive number for each label as in yes=0.3,no=0.7".into()
        })
    }
}

impl Prior {
    /// That every label that a number is given for is there.
    pub(crate) fn check(&self, labels: &[String]) -> Result<()> {
        if let Self::Given(parts) = self
            && let Some((label, _)) = parts.iter().find(|(l, _)| !labels.contains(l))
        {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            let reason = favor::unknown_name(label, &labels);
            return Err(Error::request(Setting::Prior, reason));
        }
        Ok(())
    }

    /// One number per class, given their labels and weights; `None` where the weights decide.
    /// Classes without weight need no number.
    pub(crate) fn numbers(&self, labels: &[String], weights: &[f64]) -> Result<Option<Vec<f64>>> {
        let number = |(label, weight): (&String, &f64)| match self {
            Self::Given(parts) if *weight > 0.0 => {
                let given = parts.iter().find(|(l, _)| l == label).map(|(_, p)| *p);
                given.ok_or_else(|| {
                    let reason = format!("no number is given for the label '{label}'");
                    Error::request(Setting::Prior, reason)
                })
            }
            _ => Ok(1.0),
        };
        match self {
            Self::Data => Ok(None),
            _ => labels.iter().zip(weights).map(number).collect::<Result<_>>().map(Some),
        }
    }
}
