//! Where features and the exact kernel cost the same.

/// Self-attention over this many tokens per feature is as fast exact as with features: the median of the
/// lengths measured in docs/benchmarks.md, "Break-even length".
const TOKENS_PER_FEATURE: f64 = 2.0;

/// The same for causal attention, where the exact kernel skips half of its values.
const CAUSAL_TOKENS_PER_FEATURE: f64 = 3.5;

/// The number of features at which they cost as much as the exact kernel of this many queries and
/// keys. With more features, exact is no slower.
///
/// ```
/// use favor::diagnose::break_even;
/// assert!(break_even(64, 64, false) < 128.0);       // 64 tokens: exact beats 128 features
/// assert!(break_even(16_384, 16_384, false) > 128.0); // 16 384 tokens: it does not
/// assert!((break_even(2000, 2000, false) - 1000.0).abs() < 1e-9);
/// ```
pub fn break_even(queries: usize, keys: usize, causal: bool) -> f64 {
    let (l, s) = (queries as f64, keys as f64);
    let per_feature = if causal { CAUSAL_TOKENS_PER_FEATURE } else { TOKENS_PER_FEATURE };
    // The exact kernel has l·s values; features are computed for l + s rows.
    2.0 * l * s / (l + s).max(1.0) / per_feature
}
