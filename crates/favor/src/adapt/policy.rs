//! When ω is drawn again, and where the statistics come from.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// When ω is drawn again.
///
/// ```
/// use favor::{MapPolicy, Redraw};
/// assert_eq!(MapPolicy::new().redraw, Redraw::Never);
/// assert_eq!(MapPolicy::new().redraw(Redraw::Every(100)).redraw, Redraw::Every(100));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Redraw {
    /// One draw forever.
    #[default]
    Never,
    /// A new draw after this many training calls.
    Every(u64),
}

/// Where the statistics of queries and keys come from.
///
/// ```
/// use favor::{MapPolicy, Statistics};
/// assert_eq!(MapPolicy::new().statistics, Statistics::Running { keep: 0.9 });
/// // A causal model whose maps are fitted on calibration data only.
/// let policy = MapPolicy::new().statistics(Statistics::Calibrated);
/// assert_eq!(policy.statistics, Statistics::Calibrated);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Statistics {
    /// Each sequence's own. Not for causal attention: they would leak the future into the past.
    PerSequence,
    /// The batch's. Not for causal attention either.
    PerBatch,
    /// A running average over training calls. Maps are fitted when ω is drawn again (with [`Redraw::Never`],
    /// only at the first call), and only then do statistics cost anything: as much of the old average is kept
    /// as if every call in between had been averaged. A causal call uses the average before it.
    Running {
        /// The fraction of the average that each call keeps: between 0 (only the last call counts) and 1
        /// (nothing is forgotten).
        keep: f64,
    },
    /// The average of all calls until [`AdaptiveMaps::freeze`](super::AdaptiveMaps::freeze), or of calibration.
    Calibrated,
}

impl Default for Statistics {
    fn default() -> Self {
        Self::Running { keep: MapPolicy::KEEP }
    }
}

/// How maps follow training.
///
/// ```
/// use favor::{MapPolicy, Redraw, Statistics};
/// let policy = MapPolicy::new().redraw(Redraw::Every(100)).statistics(Statistics::PerBatch);
/// assert_eq!(policy.redraw, Redraw::Every(100));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MapPolicy {
    /// When ω is drawn again.
    pub redraw: Redraw,
    /// Where the statistics come from.
    pub statistics: Statistics,
}

impl MapPolicy {
    /// Training calls between two draws, for a layer that is told nothing else.
    pub const REDRAW: u64 = 1000;

    /// The fraction that a call keeps of a running average, where nothing else is told.
    pub const KEEP: f64 = 0.9;

    /// One draw, and a running average that keeps [`KEEP`](Self::KEEP) per call.
    pub fn new() -> Self {
        Self::default()
    }

    /// When ω is drawn again.
    #[must_use]
    pub fn redraw(self, redraw: Redraw) -> Self {
        Self { redraw, ..self }
    }

    /// Where the statistics come from.
    #[must_use]
    pub fn statistics(self, statistics: Statistics) -> Self {
        Self { statistics, ..self }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.redraw == Redraw::Every(0) {
            return Err(Error::invalid("redraw", "must be at least 1, to redraw at every call"));
        }
        match self.statistics {
            Statistics::Running { keep } if !(0.0..=1.0).contains(&keep) => {
                Err(Error::invalid("keep", format!("{keep} is not between 0 and 1")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn draw(&self, calls: u64) -> u64 {
        match self.redraw {
            Redraw::Never => 0,
            Redraw::Every(n) => calls / n,
        }
    }
}
