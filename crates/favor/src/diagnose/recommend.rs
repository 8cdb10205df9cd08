//! Which family, how many features, or "use exact".

use crate::Family;
use serde::Serialize;
use std::fmt;

/// Beyond this many features nobody computes them.
const MOST_FEATURES: f64 = 65_536.0;

/// A family with the features that the wanted accuracy needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The family.
    pub family: Family,
    /// The features needed.
    pub features: f64,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "use", rename_all = "snake_case")]
pub enum Advice {
    /// Random features serve.
    Features {
        /// The family that needs the fewest.
        family: Family,
        /// How many, a power of two.
        features: usize,
    },
    /// Random features do not pay on these data.
    Exact {
        /// The family that needs the fewest features.
        family: Family,
        /// How many it needs.
        features_needed: f64,
        /// The number of features at which they cost as much as the exact kernel.
        break_even: f64,
    },
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Features { family, features } => {
                write!(f, "use {features} features of {}", family.title())
            }
            Self::Exact { family, features_needed, break_even } => write!(
                f,
                "use exact: even {} needs about {features_needed:.1e} features, and exact costs no \
                 more than {break_even:.0}",
                family.title()
            ),
        }
    }
}

/// Picks the family that needs the fewest features; exact where `queries` × `keys` exact kernel
/// values cost no more than that many features.
///
/// ```
/// use favor::{Family, diagnose::{Advice, Candidate, recommend}};
/// let candidates = [Candidate { family: Family::Balanced, features: 90.0 }];
/// assert!(matches!(recommend(&candidates, 4096, 4096), Some(Advice::Features { features: 128, .. })));
/// assert!(matches!(recommend(&candidates, 100, 100), Some(Advice::Exact { .. })));
/// ```
pub fn recommend(candidates: &[Candidate], queries: usize, keys: usize) -> Option<Advice> {
    let best = candidates.iter().min_by(|a, b| a.features.total_cmp(&b.features))?;
    // Exact: one inner product and one weighted sum a pair. Features: the same a feature and row.
    let break_even = queries as f64 * keys as f64 / (queries + keys) as f64;
    Some(match best.features <= break_even.min(MOST_FEATURES) {
        true => Advice::Features {
            family: best.family,
            features: (best.features.ceil() as usize).next_power_of_two(),
        },
        false => Advice::Exact { family: best.family, features_needed: best.features, break_even },
    })
}
