//! Maps learned from queries and keys, and what they are worth on held-out sequences: a table for the
//! terminal, JSON for programs, and a page to look at.

mod front;
mod image;
mod page;
mod picture;
mod plan;
mod text;

pub use plan::{Plan, plan};

use crate::Result;
use favor::learned::{
    Calibration, HeadReport, HeldOut, LearnOptions, LearnProgress, LearnedHead, held_out,
    learn_maps,
};
use favor::{FeatureMap, FeatureSpec, Kernel, LearnedFrom, Matrix};
use favor_io::numbers::figures;
use favor_io::progress::{Listener, Tick};
use favor_io::stats::mean;
use favor_io::{SequenceArrays, Sequences};

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
    /// What was not learned from: sequences, or pieces of the only one.
    pub held_out: Vec<HeldOut>,
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
    let spec = spec.kernel(Kernel::attention(arrays.dim()));
    let progress = |p: LearnProgress| told(listener, p);
    listener(Tick { done: 0, total: (arrays.heads() * options.steps) as u64, what: "" });
    let options = options.progress(Some(&progress));
    let source = source(arrays);
    let data = calibration(arrays, causal)?.source(&source);
    let heads = learn_maps(spec, data, &options)?;
    let (sequences, tokens) = (arrays.sequences(), arrays.keys().shape()[2]);
    Ok(Learning {
        sources: arrays.sources(),
        spec,
        sequences,
        tokens,
        dim: arrays.dim(),
        has_values: arrays.values().is_some(),
        held_out: held_out(sequences, tokens, &options),
        heads,
    })
}

fn calibration(arrays: &SequenceArrays, causal: bool) -> Result<Calibration<'_, f32>> {
    let values = arrays.values().map(|v| v.tensor()).transpose()?;
    let data = Calibration::new(arrays.queries().tensor()?, arrays.keys().tensor()?);
    Ok(data.values(values).causal(causal))
}

/// The names of the arrays, without their folders: a map may go to other people.
fn source(arrays: &SequenceArrays) -> String {
    let sides = [Some(arrays.queries()), Some(arrays.keys()), arrays.values()];
    let sources: Option<Vec<&str>> = sides.into_iter().flatten().map(Sequences::source).collect();
    let name = |source: &str| source.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    sources.unwrap_or_default().into_iter().map(name).collect::<Vec<_>>().join(", ")
}

fn told(listener: &Listener<'_>, p: LearnProgress) {
    let what = format!("objective {}", figures(p.held_out));
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

    /// The first tokens of a head, at most so many, of what the page shows: a sequence that was held out, or
    /// a piece of the only one.
    fn shown(&self, array: &Sequences, head: usize, most: usize) -> Matrix<f64> {
        let sequence = self.held_out.first().map_or(0, |held| held.sequence);
        let rows = array.head(sequence, head);
        // There may be more or fewer queries than keys, unless a single sequence was cut.
        let piece = self.held_out.first().filter(|_| self.sequences == 1);
        let own = piece.map_or(0..rows.rows(), |held| held.tokens.clone());
        rows.view().slice(own.start, own.end.min(own.start + most)).to_f64(1.0)
    }

    /// What that is, in words.
    fn shown_in_words(&self) -> String {
        match self.held_out.first() {
            Some(held) if self.sequences > 1 => {
                format!("sequence {}, which was held out", held.sequence)
            }
            _ => "the piece of the sequence that was held out".to_owned(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use favor::draw::Stream;
    use favor::{ExactKeys, Family};
    use favor_io::progress::silent;

    /// Learning of which one sequence of 40 tokens is held out, or one of four pieces of a single sequence.
    pub(super) fn one_held_out(sequences: usize, with_values: bool) -> (Learning, SequenceArrays) {
        let shape = [sequences, 2, if sequences == 1 { 160 } else { 40 }, 4];
        let mut noise = Stream::new(9, 0);
        let mut array = || {
            let numbers = (0..shape.iter().product()).map(|_| 1.5 * noise.normal()).collect();
            Sequences::new(numbers, &shape).unwrap()
        };
        let (q, k) = (array(), array());
        let arrays = SequenceArrays::new(q, k, with_values.then(array)).unwrap();
        let exact = ExactKeys::NONE.near(8).routed(2, 2);
        let options = LearnOptions::new().exact(exact).steps(24);
        let spec = FeatureSpec::new(Family::Balanced, 4);
        let learning = learn(&arrays, spec, false, &options, &silent).unwrap();
        assert_eq!(learning.held_out.len(), 1);
        (learning, arrays)
    }

    /// It has one name everywhere: that of Python's progress bar.
    #[test]
    fn progress_tells_the_objective() {
        let told = std::sync::Mutex::new(vec![]);
        let listener = |tick: Tick<'_>| {
            told.lock().unwrap().push((tick.done, tick.total, tick.what.to_owned()));
        };
        let mut noise = Stream::new(9, 0);
        let mut array = || {
            let numbers = (0..4 * 2 * 20 * 4).map(|_| noise.normal()).collect();
            Sequences::new(numbers, &[4, 2, 20, 4]).unwrap()
        };
        let arrays = SequenceArrays::new(array(), array(), None).unwrap();
        let options = LearnOptions::new().steps(3).threads(Some(1));
        learn(&arrays, FeatureSpec::new(Family::Balanced, 4), false, &options, &listener).unwrap();
        let told = told.into_inner().unwrap();
        // Nothing first, then each step of both heads, as there are fewer than looks.
        let steps: Vec<(u64, u64)> = told.iter().map(|(done, total, _)| (*done, *total)).collect();
        assert_eq!(steps, (0..=6).map(|done| (done, 6)).collect::<Vec<_>>());
        assert_eq!(told[0].2, "");
        for (.., what) in &told[1..] {
            let value = what.strip_prefix("objective ").and_then(|v| v.parse::<f64>().ok());
            assert!(value.is_some_and(|v| v > 0.0), "{what}");
        }
    }

    #[test]
    fn the_page_says_what_it_shows() {
        let (learning, _) = one_held_out(4, true);
        let number = learning.held_out[0].sequence;
        assert_eq!(learning.shown_in_words(), format!("sequence {number}, which was held out"));
        let (learning, arrays) = one_held_out(1, true);
        assert_eq!(learning.shown_in_words(), "the piece of the sequence that was held out");
        let tokens = learning.held_out[0].tokens.clone();
        assert_eq!(tokens.len(), 40);
        let rows = learning.shown(arrays.keys(), 1, 30);
        assert_eq!(
            rows,
            arrays.keys().head(0, 1).view().slice(tokens.start, tokens.start + 30).to_f64(1.0)
        );
    }
}
