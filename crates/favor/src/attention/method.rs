//! How attention is computed: exactly, by features, or by features with keys that are exact.

use super::ExactKeys;
use crate::{FeatureMap, Kernel};

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
        /// As for [`Method::Features`]; the map of a head that is exact throughout gives only its kernel.
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

    /// Whether any head has a window, which needs as many queries as keys.
    pub(super) fn has_window(&self) -> bool {
        match self {
            Self::Hybrid { exact, .. } => exact.iter().any(|e| e.near > 0 && !e.is_all()),
            _ => false,
        }
    }
}
