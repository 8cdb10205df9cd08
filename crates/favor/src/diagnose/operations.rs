//! The cost of attention by features and exact keys, in operations and compared with exact attention.

use super::break_even;

/// How much longer a multiply-add takes for an exact key than for features: exact keys come in small products, and
/// their weights need exponentials. By docs/benchmarks.md, "Exact keys", it is 2.5 to 3.8 for windows of ±16 with and
/// without routed keys, and 1.3 to 1.6 for wide windows, at 4096 tokens and more. Chosen from the upper end, so that
/// the settings of docs/benchmarks-quality.md at 512 tokens, where the decision is close, fall on the right side.
const EXACT_KEY_TIME: f64 = 3.5;

/// The sizes of a head, for counting operations.
///
/// Features take `2M(d + v)` multiply-adds per token, an exact key `d + v` and, if there are features,
/// `M` more to subtract its estimate.
///
/// ```
/// use favor::diagnose::Operations;
/// let head = Operations { features: 64, dim: 32, values: 32 };
/// assert_eq!(head.per_token(0.0), 2.0 * 64.0 * 64.0);
/// assert_eq!(head.per_token(33.0), 2.0 * 64.0 * 64.0 + 33.0 * (64.0 + 64.0));
/// // An exact window alone of ±64 keys costs as much as the features.
/// assert_eq!(head.window(0.0, false), 64);
/// assert_eq!(Operations { features: 0, ..head }.per_token(129.0), 129.0 * 64.0);
/// // Here an exact key has as many operations as a feature, half of them to subtract its estimate, and each
/// // takes 3.5 times as long.
/// assert_eq!(head.in_features(33.0), 64.0 + 3.5 * 33.0);
/// // At 512 tokens exact attention is as fast as 256 features alone.
/// assert!(!head.exact_is_no_slower(33.0, 512, 512, false));
/// assert!(head.exact_is_no_slower(60.0, 512, 512, false));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations {
    /// The number of features; 0 for exact keys alone.
    pub features: usize,
    /// The dimension of queries and keys.
    pub dim: usize,
    /// The dimension of values.
    pub values: usize,
}

impl Operations {
    /// Multiply-adds per token with this many exact keys per query.
    pub fn per_token(&self, exact_keys: f64) -> f64 {
        let (features, key) = (self.features as f64, (self.dim + self.values) as f64);
        2.0 * features * key + exact_keys * (key + features)
    }

    /// How many features alone take as long.
    pub fn in_features(&self, exact_keys: f64) -> f64 {
        let key = (self.dim + self.values) as f64;
        let per_key = (key + self.features as f64) / (2.0 * key);
        self.features as f64 + EXACT_KEY_TIME * per_key * exact_keys
    }

    /// Whether exact attention of this many queries and keys takes no longer, by
    /// [`break_even`](super::break_even).
    pub fn exact_is_no_slower(
        &self,
        exact_keys: f64,
        queries: usize,
        keys: usize,
        causal: bool,
    ) -> bool {
        break_even(queries, keys, causal) <= self.in_features(exact_keys)
    }

    /// The width of an exact window alone that takes as many multiply-adds.
    pub fn window(&self, exact_keys: f64, causal: bool) -> usize {
        let keys = self.per_token(exact_keys) / (self.dim + self.values) as f64;
        let width = if causal { keys - 1.0 } else { (keys - 1.0) / 2.0 };
        width.round() as usize
    }
}
