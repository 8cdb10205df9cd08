//! Which family, how many features, or "use exact".

use crate::Family;
use serde::Serialize;
use std::fmt;

/// Nobody computes more features than this.
pub const MOST_FEATURES: usize = 1 << 16;

/// A family with the number of features that the desired accuracy needs.
///
/// [`recommend`] takes a list of them; its page has an example.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The family.
    pub family: Family,
    /// The number of features needed.
    pub features: f64,
}

/// What to do.
///
/// ```
/// use favor::{Family, diagnose::Advice};
/// let advice = Advice::Features { family: Family::Sde, features: 128 };
/// assert_eq!(advice.to_string(), "use 128 features of SDE (FAVOR#)");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "use", rename_all = "snake_case")]
pub enum Advice {
    /// Random features are accurate enough.
    Features {
        /// The family that needs the fewest features.
        family: Family,
        /// How many, a power of two.
        features: usize,
    },
    /// Random features do not pay off on this data.
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

/// Picks the family that needs the fewest features; exact if they would cost more than the exact
/// kernel, which costs as much as `break_even` features ([`break_even`](super::break_even)).
///
/// ```
/// use favor::{Family, diagnose::{Advice, Candidate, break_even, recommend}};
/// let candidates = [Candidate { family: Family::Balanced, features: 90.0 }];
/// let long = recommend(&candidates, break_even(4096, 4096, false));
/// assert!(matches!(long, Some(Advice::Features { features: 128, .. })));
/// let short = recommend(&candidates, break_even(100, 100, false));
/// assert!(matches!(short, Some(Advice::Exact { .. })));
/// ```
pub fn recommend(candidates: &[Candidate], break_even: f64) -> Option<Advice> {
    let best = candidates.iter().min_by(|a, b| a.features.total_cmp(&b.features))?;
    let (family, needed) = (best.family, best.features);
    Some(if needed <= break_even.min(MOST_FEATURES as f64) {
        Advice::Features { family, features: (needed.ceil() as usize).next_power_of_two() }
    } else {
        Advice::Exact { family, features_needed: needed, break_even }
    })
}
