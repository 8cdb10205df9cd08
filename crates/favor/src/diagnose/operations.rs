//! The cost of attention by features and exact keys, in operations.

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
/// // Here an exact key takes as much as a feature: half of it for its weight, half for its estimate.
/// assert_eq!(head.in_features(33.0), 64.0 + 33.0);
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

    /// How many features alone take as many multiply-adds: what [`break_even`](super::break_even) compares
    /// with exact attention.
    pub fn in_features(&self, exact_keys: f64) -> f64 {
        self.per_token(exact_keys) / (2 * (self.dim + self.values)) as f64
    }

    /// The width of an exact window alone that takes as many multiply-adds.
    pub fn window(&self, exact_keys: f64, causal: bool) -> usize {
        let keys = self.per_token(exact_keys) / (self.dim + self.values) as f64;
        let width = if causal { keys - 1.0 } else { (keys - 1.0) / 2.0 };
        width.round() as usize
    }
}
