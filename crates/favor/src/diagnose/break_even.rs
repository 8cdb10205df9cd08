//! Where features and the exact kernel cost the same.

/// A feature of a row costs as much as this many exact kernel values: both are one inner product and
/// one weighted sum. Measured: exact attention and features are equally fast at L = 1.8 M to 2.0 M
/// (docs/benchmarks.md), where L/2 exact values stand against M features.
const VALUES_PER_FEATURE: f64 = 0.95;

/// The same for causal attention, where the exact kernel leaves out half of its values: L = 2.9 M to
/// 3.6 M.
const VALUES_PER_CAUSAL_FEATURE: f64 = 1.7;

/// The number of features at which they cost as much as the exact kernel of this many queries and
/// keys. With more features, exact is no slower.
///
/// ```
/// use favor::diagnose::break_even;
/// assert!(break_even(64, 64, false) < 128.0);       // 64 tokens: exact beats 128 features
/// assert!(break_even(16_384, 16_384, false) > 128.0); // 16 384 tokens: it does not
/// ```
pub fn break_even(queries: usize, keys: usize, causal: bool) -> f64 {
    let (l, s) = (queries as f64, keys as f64);
    let per_feature = if causal { VALUES_PER_CAUSAL_FEATURE } else { VALUES_PER_FEATURE };
    l * s / (l + s).max(1.0) / per_feature
}
