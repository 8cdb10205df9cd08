//! How attention is computed: exactly, by features, or some heads one way and some the other.

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
    /// Some heads exactly, with the kernel of their map, the others by features.
    Mixed {
        /// As for [`Method::Features`]; the maps of exact heads give only their kernel.
        maps: &'a [FeatureMap],
        /// True where a head is exact: one entry per head, or one per sequence and head as
        /// [`choose_heads`](crate::choose_heads) orders them.
        exact: &'a [bool],
    },
}

impl<'a> Method<'a> {
    /// The maps, if there are any.
    pub fn maps(&self) -> &'a [FeatureMap] {
        match self {
            Self::Exact(_) => &[],
            Self::Features(maps) | Self::Mixed { maps, .. } => maps,
        }
    }
}
