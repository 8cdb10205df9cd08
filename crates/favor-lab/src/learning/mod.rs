//! Maps learned from queries and keys, and what they are worth on held-out sequences: a table for the
//! terminal, JSON for programs, and a page to look at.

mod front;
mod image;
mod page;
mod picture;
mod plan;
mod text;

pub use plan::{Plan, plan};

use crate::{Error, Result};
use favor::learned::{
    Calibration, HeadReport, LearnOptions, LearnProgress, LearnedHead, learn_maps,
};
use favor::{ExactKeys, FeatureMap, FeatureSpec, Kernel, LearnedFrom};
use favor_io::SequenceArrays;
use favor_io::numbers::figures;
use favor_io::progress::{Listener, Tick};
use favor_io::stats::mean;

/// Maps that were learned, one per head, and what was measured.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Learning {
    /// Where the arrays came from, if it is known.
    pub sources: Option<String>,
    /// The map that was asked for.
    pub spec: FeatureSpec,
    /// Sequences in the arrays.
    pub sequences: usize,
    /// Keys of a sequence.
    pub tokens: usize,
    /// The dimension of queries and keys.
    pub dim: usize,
    /// Whether there were values; without them errors are those of the weights.
    pub has_values: bool,
    /// One map and its report per head.
    pub heads: Vec<LearnedHead>,
}

/// Learns one map per head. Queries and keys are scaled as attention does.
///
/// ```
/// use favor::learned::LearnOptions;
/// use favor::{Family, FeatureSpec, draw::Stream};
/// use favor_io::{SequenceArrays, Sequences, progress};
/// use favor_lab::learning::learn;
/// let mut noise = Stream::new(1, 0);
/// let mut array = || Sequences::new((0..4 * 32 * 4).map(|_| noise.normal()).collect(), &[4, 1, 32, 4]);
/// let arrays = SequenceArrays::new(array()?, array()?, Some(array()?))?;
/// let spec = FeatureSpec::new(Family::Balanced, 8);
/// let found = learn(&arrays, spec, false, &LearnOptions::new().steps(20), &progress::silent)?;
/// assert!(found.heads[0].report.after <= found.heads[0].report.before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn learn(
    arrays: &SequenceArrays,
    spec: FeatureSpec,
    causal: bool,
    options: &LearnOptions<'_>,
    listener: &Listener<'_>,
) -> Result<Learning> {
    check_members(arrays, options.exact)?;
    let spec = spec.kernel(Kernel::attention(arrays.dim()));
    let progress = |p: LearnProgress| told(listener, p);
    listener(Tick { done: 0, total: (arrays.heads() * options.steps) as u64, what: "" });
    let options = options.progress(Some(&progress));
    let heads = learn_maps(spec, calibration(arrays, causal)?, &options)?;
    Ok(Learning {
        sources: arrays.sources(),
        spec,
        sequences: arrays.sequences(),
        tokens: arrays.keys().shape()[2],
        dim: arrays.dim(),
        has_values: arrays.values().is_some(),
        heads,
    })
}

/// Refuses lists that are longer than a sequence.
fn check_members(arrays: &SequenceArrays, exact: ExactKeys) -> Result<()> {
    let tokens = arrays.keys().shape()[2];
    if exact.is_routed() && exact.members > tokens {
        let reason = format!("{} members of a slot, of {tokens} keys", exact.members);
        return Err(Error::invalid("exact keys", reason));
    }
    Ok(())
}

fn calibration(arrays: &SequenceArrays, causal: bool) -> Result<Calibration<'_, f32>> {
    let values = arrays.values().map(|v| v.tensor()).transpose()?;
    let data = Calibration::new(arrays.queries().tensor()?, arrays.keys().tensor()?);
    Ok(data.values(values).causal(causal))
}

fn told(listener: &Listener<'_>, p: LearnProgress) {
    let what = format!("held-out loss {}", figures(p.held_out));
    listener(Tick { done: p.done as u64, total: p.total as u64, what: &what });
}

impl Learning {
    /// The maps, one per head.
    pub fn maps(&self) -> Vec<FeatureMap> {
        self.heads.iter().map(|head| head.map.clone()).collect()
    }

    /// What the first map was learned on; the others were learned on the same.
    fn from(&self) -> Option<&LearnedFrom> {
        self.heads.first().and_then(|head| head.map.learned())
    }

    fn reports(&self) -> impl Iterator<Item = &HeadReport> {
        self.heads.iter().map(|head| &head.report)
    }

    /// The mean over the heads of a figure.
    fn mean(&self, figure: impl Fn(&HeadReport) -> f64) -> f64 {
        mean(&self.reports().map(figure).collect::<Vec<_>>())
    }

    /// The same of a figure that only some learnings have.
    fn mean_of_some(&self, figure: impl Fn(&HeadReport) -> Option<f64>) -> Option<f64> {
        let all: Option<Vec<f64>> = self.reports().map(figure).collect();
        all.map(|all| mean(&all))
    }
}
