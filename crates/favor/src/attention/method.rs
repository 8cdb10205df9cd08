//! How attention is computed: exactly, by features, or by features with exact keys.

use super::plan::Plan;
use super::{AttentionOptions, ExactKeys, Shapes};
use crate::{FeatureMap, Kernel, Result};

/// How attention is computed.
///
/// ```
/// use favor::{Kernel, Method};
/// let method = Method::Exact(Kernel::attention(64)); // softmax of the products, divided by √64
/// assert!(matches!(method, Method::Exact(_)));
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Method<'a> {
    /// Exactly, in blocks: time grows with the square of the length, memory does not.
    Exact(Kernel),
    /// By the features of these maps: one for all heads, one per head, or one per sequence of the
    /// batch and head.
    Features(&'a [FeatureMap]),
    /// By features, with some keys of each query attended exactly, in one normalisation.
    Hybrid {
        /// As for [`Method::Features`]; for a fully exact head, only the kernel of its map is used.
        maps: &'a [FeatureMap],
        /// Which keys are exact: one entry for all heads, one per head, or one per sequence and head as
        /// [`choose_heads`](crate::choose_heads) orders them.
        exact: &'a [ExactKeys],
    },
}

impl<'a> Method<'a> {
    /// The maps, if there are any.
    pub fn maps(&self) -> &'a [FeatureMap] {
        match self {
            Self::Exact(_) => &[],
            Self::Features(maps) | Self::Hybrid { maps, .. } => maps,
        }
    }

    /// Checks that queries, keys and values of these shapes, each `[batch, heads, length, dim]`, can be
    /// attended this way. [`attention`](crate::attention) checks its inputs itself; this is for code that
    /// computes the same on another device.
    ///
    /// ```
    /// use favor::{AttentionOptions, Kernel, Method};
    /// let (method, options) = (Method::Exact(Kernel::attention(8)), AttentionOptions::new());
    /// let (q, k) = ([1, 2, 10, 8], [1, 2, 50, 8]);
    /// assert!(method.check([q, k, k], &options).is_ok());
    /// assert!(method.check([q, k, k], &options.causal(true)).is_err());
    /// ```
    pub fn check(&self, shapes: [[usize; 4]; 3], options: &AttentionOptions<'_>) -> Result<()> {
        let [q, k, v] = shapes;
        Plan::of_shapes(self, Shapes { q, k, v: Some(v) }, options).map(|_| ())
    }

    /// Whether any head has a window, which needs as many queries as keys.
    pub(super) fn has_window(&self) -> bool {
        match self {
            Self::Hybrid { exact, .. } => exact.iter().any(ExactKeys::has_window),
            _ => false,
        }
    }
}
