//! Attention by features with keys that are exact, in one normalisation.
//!
//! The features give sums over all keys; for the pairs that are exact, the estimate is then taken back
//! and the kernel's own weight put in its place. Each query has an integer exponent that all its sums are
//! relative to, so exact and estimated weights of any size meet without overflow.
//!
//! - `block`: keys with all that a query needs of them,
//! - `rows`: a tile of queries with its sums, and what a block of keys changes in them,
//! - `lists`: global keys and members of slots, found in a sweep over the keys,
//! - `members`: the members of all slots, side by side,
//! - `tile`: the window and the global keys, and which queries meet them,
//! - `routed`: the members of slots, and the queries that prefer them,
//! - `forward`, `causal`: every query sees every key, or its own and earlier ones,
//! - `gradient`, `backward`: the way back,
//! - `store`: the state of causal attention as arrays.
//!
//! Where far more is taken back than is left, digits are lost. That is noticed, and refused.

mod backward;
mod block;
mod causal;
mod forward;
mod gradient;
mod lists;
mod members;
mod routed;
mod rows;
mod store;
mod tile;

pub(crate) use causal::{State, StateUndo, Tools};

use crate::engine::tensor::Scalar;
use crate::map::{Cached, PackedMap, Probes};
use crate::simd::Real;
use crate::{Error, ExactKeys, FeatureMap, Kernel};
use std::f64::consts::LOG2_E;

/// How one head is computed.
#[derive(Clone, Copy)]
pub(crate) struct Hybrid<'m, R> {
    map: &'m PackedMap<R>,
    kernel: Kernel,
    exact: ExactKeys,
    probes: Option<&'m Probes>,
}

impl<'m, R: Cached> Hybrid<'m, R> {
    /// `None` where the map has no packed form.
    pub(crate) fn new(map: &'m FeatureMap, exact: ExactKeys) -> Option<Self> {
        let packed = map.packed::<R>()?;
        Some(Self { map: packed, kernel: map.kernel(), exact, probes: map.probes() })
    }

    /// The sizes of what is kept, with values of this many columns.
    pub(crate) fn shape(&self, columns: usize) -> Shape {
        Shape::new(self.map, columns)
    }

    /// First tokens, and keys estimated worst.
    fn global(&self) -> (usize, usize) {
        self.exact.split_global(self.probes.is_some())
    }

    /// The factor of inner products in logits to the base two.
    fn logit_scale(&self) -> f64 {
        self.kernel.scale().powi(2) * LOG2_E
    }

    /// The factor of a squared norm in the logarithm of a weight, to the base two.
    fn norm_scale(&self) -> f64 {
        self.kernel.alpha() * self.logit_scale()
    }

    /// Whether the window of a query at `i` holds the key at `j`.
    fn is_near(&self, i: usize, j: usize) -> bool {
        self.exact.near > 0 && i.abs_diff(j) <= self.exact.near
    }
}

/// The sizes of rows in blocks and tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    dim: usize,
    dim_padded: usize,
    features: usize,
    /// Features, filled up to whole panels.
    width: usize,
    columns: usize,
    value_width: usize,
}

impl Shape {
    fn new<R: Real>(map: &PackedMap<R>, columns: usize) -> Self {
        Self {
            dim: map.key.dim,
            dim_padded: map.key.dim_padded,
            features: map.key.features,
            width: map.key.weights.width,
            columns,
            value_width: columns.next_multiple_of(R::kernels().lanes),
        }
    }
}

/// Digits were lost in taking estimates back.
fn cancelled<T: Scalar>() -> Error {
    Error::Overflow {
        operation: "subtracting the estimate of the exact keys",
        format: T::NAME,
        hint: "use f64, or a map that fits the data",
    }
}
