//! Maps whose projections were learned from the queries and keys of a head.

use super::{FeatureMap, FeatureSpec, Numbers, Projection, Record, RowTerm};
use crate::{Error, ExactKeys, Matrix, Result};
use serde::{Deserialize, Serialize};

/// What a map was learned from, and the gain.
///
/// ```
/// use favor::learned::{Calibration, LearnOptions, learn_maps};
/// use favor::{Family, FeatureSpec, Kernel, Tensor};
/// let x: Vec<f32> = (0..4 * 16 * 2).map(|i| (i as f32).sin()).collect();
/// let t = Tensor::new(&x, [4, 1, 16, 2])?;
/// let spec = FeatureSpec::new(Family::Balanced, 4).kernel(Kernel::attention(2));
/// let data = Calibration::new(t, t).source("sines");
/// let heads = learn_maps(spec, data, &LearnOptions::new().steps(5))?;
/// let from = heads[0].map.learned().unwrap();
/// assert_eq!((from.sequences, from.tokens, from.held_out), (3, 48, 1));
/// assert_eq!(from.source, "sines");
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LearnedFrom {
    /// What the sequences are, as whoever learned from them put it; empty if nothing was said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The number of sequences learned from.
    pub sequences: usize,
    /// The number of their keys together, without padding.
    pub tokens: usize,
    /// The number of held-out sequences, on which the losses below were measured.
    pub held_out: usize,
    /// The number of steps to the kept parameters: those with the lowest held-out loss.
    pub steps: usize,
    /// The keys that are exact: those during learning, or those that a plan chose afterwards.
    pub exact: ExactKeys,
    /// Whether queries saw only their own and earlier keys.
    pub causal: bool,
    /// The seed of the order of the sequences.
    pub seed: u64,
    /// Mean KL divergence of the weights on held-out sequences, at the start with these exact keys.
    pub kl_before: f64,
    /// The same for what was kept. If features are switched off, it is about 1000 times the weight of all
    /// keys that are not exact.
    pub kl_after: f64,
}

/// The numbers of a learned map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Learned {
    pub(crate) query: Projection,
    pub(crate) key: Projection,
    pub(crate) probes: Probes,
    pub(crate) from: LearnedFrom,
}

/// Calibration queries, by which a key's error is judged when it is seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Probes {
    /// One row per query, unscaled.
    pub(crate) queries: Matrix<f64>,
    /// The logarithm of each query's mean weight over the keys of the calibration.
    pub(crate) log_means: Vec<f64>,
}

impl Learned {
    pub(super) fn check(&self, spec: &FeatureSpec) -> Result<()> {
        let bad = |reason: String| Err(Error::invalid("learned map", reason));
        let dim = self.query.weights.columns();
        if !spec.family.is_positive() {
            return bad(format!("{} is not positive", spec.family));
        }
        for (name, side) in [("queries", &self.query), ("keys", &self.key)] {
            let shape = (spec.features, dim);
            let RowTerm::Exponential { transform, linear, .. } = &side.row else {
                return bad(format!("the side of the {name} is trigonometric"));
            };
            let fits = side.weights.shape() == shape
                && side.constants.len() == spec.features
                && side.shift.len() == dim
                && transform.shape() == (dim, dim)
                && linear.len() == dim;
            if !fits || dim == 0 || spec.features == 0 {
                return bad(format!(
                    "the side of the {name} does not have {} features of dimension {dim}",
                    spec.features
                ));
            }
        }
        let Probes { queries, log_means } = &self.probes;
        if queries.columns() != dim || queries.rows() != log_means.len() {
            return bad(format!("probes of shape {:?} for dimension {dim}", queries.shape()));
        }
        if !queries.as_slice().iter().chain(log_means).all(|v| v.is_finite()) {
            return bad("a probe holds a number that is not finite".into());
        }
        Ok(())
    }
}

impl FeatureMap {
    /// A map with these projections.
    pub(crate) fn from_learned(spec: FeatureSpec, learned: Learned) -> Result<Self> {
        Self::from_record(Record { spec, numbers: Numbers::Learned(Box::new(learned)) })
    }

    /// What the map was learned from, or `None` if its parameters have a closed form. Learned features are
    /// not unbiased: closed-form variances do not hold for them, and errors are measured instead.
    pub fn learned(&self) -> Option<&LearnedFrom> {
        self.learned_numbers().map(|learned| &learned.from)
    }

    /// A learned map with other weights, one row per feature, and constants; the rest stays the same. This is
    /// how a model keeps training its maps: [`map_gradients`](crate::learned::map_gradients) has the
    /// gradients.
    ///
    /// ```
    /// # use favor::learned::{Calibration, LearnOptions, learn_maps};
    /// # use favor::{Family, FeatureSpec, Kernel, Side, Tensor};
    /// # let x: Vec<f32> = (0..4 * 16 * 2).map(|i| (i as f32).sin()).collect();
    /// # let t = Tensor::new(&x, [4, 1, 16, 2])?;
    /// # let spec = FeatureSpec::new(Family::Balanced, 4).kernel(Kernel::attention(2));
    /// # let map = learn_maps(spec, Calibration::new(t, t), &LearnOptions::new().steps(5))?.remove(0).map;
    /// let [query, key] = [Side::Query, Side::Key].map(|side| map.side(side).clone());
    /// let lower: Vec<f64> = query.constants.iter().map(|c| c - 1.0).collect();
    /// let other = map.with_weights(query.weights, key.weights, lower)?;
    /// assert_ne!(other, map);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn with_weights(
        &self,
        query: Matrix<f64>,
        key: Matrix<f64>,
        constants: Vec<f64>,
    ) -> Result<Self> {
        let Some(learned) = self.learned_numbers() else {
            let reason = "only a learned map takes other weights";
            return Err(Error::invalid("maps", reason));
        };
        let mut learned = learned.clone();
        learned.key.constants.fill(0.0);
        (learned.query.weights, learned.key.weights) = (query, key);
        learned.query.constants = constants;
        Self::from_learned(self.record.spec, learned)
    }

    /// Queries by which the error of a key is judged, if the map has any.
    pub(crate) fn probes(&self) -> Option<&Probes> {
        self.learned_numbers().map(|learned| &learned.probes).filter(|p| p.queries.rows() > 0)
    }

    pub(super) fn learned_numbers(&self) -> Option<&Learned> {
        match &self.record.numbers {
            Numbers::Learned(learned) => Some(learned),
            Numbers::Drawn(_) => None,
        }
    }
}
