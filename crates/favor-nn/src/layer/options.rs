//! Which attention a layer computes.

use crate::attention::Attention;
use crate::{Error, Result};
use favor::{Coupling, FeatureSpec, Kernel, MapPolicy, Redraw, Statistics};
use serde::{Deserialize, Serialize};

/// Which attention, and how its maps follow the training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LayerOptions {
    /// The kind.
    pub kind: Attention,
    /// The number of features of each head.
    pub features: usize,
    /// How the rows of ω depend on one another.
    pub coupling: Coupling,
    /// What decides ω.
    pub seed: u64,
    /// When the maps are fitted again in training, with a new draw.
    pub redraw: Redraw,
    /// Where the statistics that maps are fitted to come from.
    pub statistics: Statistics,
    /// Heads of [`Attention::Auto`] whose predicted relative error is above this stay exact.
    pub tolerance: f64,
}

setters! { LayerOptions {
    kind: Attention,
    features: usize,
    coupling: Coupling,
    seed: u64,
    redraw: Redraw,
    statistics: Statistics,
    tolerance: f64,
} }

impl Default for LayerOptions {
    fn default() -> Self {
        Self {
            kind: Attention::Features(favor::Family::Balanced),
            features: 256,
            coupling: Coupling::default(),
            seed: 0,
            redraw: Redraw::Every(MapPolicy::REDRAW),
            statistics: Statistics::default(),
            tolerance: 0.1,
        }
    }
}

impl LayerOptions {
    /// The defaults with another kind and number of features.
    pub fn new(kind: Attention, features: usize) -> Self {
        Self { kind, features, ..Self::default() }
    }

    /// The same for one layer of many: layers draw apart from one another, as heads do. Redrawing counts
    /// seeds up from that of the layer, so layers are kept far apart.
    #[must_use]
    pub fn for_layer(self, layer: usize) -> Self {
        self.seed(self.seed.wrapping_add((layer as u64) << 40))
    }

    /// The maps of heads of this dimension, if the attention has any.
    pub(super) fn spec(&self, dim: usize) -> Option<FeatureSpec> {
        let spec = FeatureSpec::new(self.kind.family()?, self.features);
        Some(spec.kernel(Kernel::attention(dim)).coupling(self.coupling).seed(self.seed))
    }

    /// How the maps follow the training.
    pub(super) fn policy(&self) -> MapPolicy {
        MapPolicy::new().redraw(self.redraw).statistics(self.statistics)
    }

    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what, reason: String| Err(Error::invalid(what, reason));
        if let Some(family) = self.kind.family().filter(|family| !family.is_positive()) {
            return refuse(
                "attention",
                format!("features of '{family}' can be negative; use a positive family"),
            );
        }
        if self.kind == Attention::Learned {
            let reason =
                "maps are learned from a trained model; convert it, and open what was written";
            return refuse("attention", reason.into());
        }
        if self.features == 0 {
            return refuse("features", "there must be at least one".into());
        }
        if !(self.tolerance.is_finite() && self.tolerance >= 0.0) {
            return refuse("tolerance", format!("{} is not 0 or more", self.tolerance));
        }
        Ok(())
    }
}
