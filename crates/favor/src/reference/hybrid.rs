//! Attention by features with exact keys, in plain `f64`: what the engine is tested against. It looks at
//! all pairs, in time quadratic in the length. This is what is computed:
//!
//! ```text
//! given  queries q_i; keys k_j with values v_j, in order of their places j, without masked ones
//!        a map: features φ_m(q) > 0 and ψ_m(k) > 0 of M slots m; if learned, probes u_p with mean weights w_p
//!        near, global, slots, members
//!
//! K(q, k) = the kernel            K̂(q, k) = mean over m of φ_m(q) ψ_m(k)
//!
//! for each query i:
//!     seen  = all keys; if causal, those not after i
//!     known = all keys; if causal, the first n − n mod 48 of the n keys before i
//!
//!     window  = { j in seen : |i − j| ≤ near }, if near > 0
//!
//!     F       = global, or with probes ⌈global / 4⌉
//!     error_j = sum over p of |K(u_p, k_j) − K̂(u_p, k_j)| / w_p, with K and K̂ cut at e⁵⁵ w_p
//!     first   = the first F keys, as far as seen
//!     worst   = the global − F keys with the largest error_j, of known without the first F keys
//!
//!     total_m   = sum of ψ_m(k_j) over j in known
//!     members_m = the `members` j in known with the largest ψ_m(k_j)
//!     preferred = the `slots` m with the largest φ_m(q_i) total_m
//!     routed    = union of members_m over m in preferred
//!
//!     E     = window ∪ first ∪ worst ∪ routed           (every list takes the earlier of two equals)
//!     a_ij  = K(q_i, k_j) if j in E, else K̂(q_i, k_j)   for j in seen
//!     out_i = Σ_j a_ij v_j / Σ_j a_ij over seen          (one normalisation; zeros if nothing is seen)
//! ```
//!
//! Weights are kept as logarithms, so that none overflows.

use super::{Mask, check_inputs, gather, weighted_mean, window_keys};
use crate::{Error, ExactKeys, FeatureMap, Float, Matrix, Result, Rows, Side};

/// Attention in three parts and one normalisation: a window, global keys and the members of the slots
/// that a query prefers are exact, the features of the map carry the rest. A query that sees no key
/// gives zeros.
///
/// ```
/// use favor::{ExactKeys, Family, FeatureSpec, Kernel, Matrix, Moments};
/// use favor::reference::{Mask, exact_attention, hybrid_attention};
/// let x = Matrix::from_fn(40, 4, |i, l| ((7 * i + l) as f64).sin());
/// let m = Moments::of(x.view())?;
/// let map = FeatureSpec::new(Family::Balanced, 16).kernel(Kernel::attention(4)).fit(&m, &m)?;
/// let exact = ExactKeys::NONE.near(4).routed(2, 4);
/// let out = hybrid_attention(&map, exact, x.view(), x.view(), x.view(), Mask::none())?;
/// assert_eq!(out.shape(), (40, 4));
///
/// // With every key in the window it is exact attention.
/// let all = hybrid_attention(&map, ExactKeys::NONE.near(40), x.view(), x.view(), x.view(), Mask::none())?;
/// let exact = exact_attention(map.kernel(), x.view(), x.view(), x.view(), Mask::none())?;
/// assert!((all[(3, 2)] - exact[(3, 2)]).abs() < 1e-12);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn hybrid_attention<T: Float>(
    map: &FeatureMap,
    exact: ExactKeys,
    q: Rows<'_, T>,
    k: Rows<'_, T>,
    v: Rows<'_, T>,
    mask: Mask<'_>,
) -> Result<Matrix<T>> {
    check_inputs(q, k, v, &mask)?;
    let sets = exact_key_sets(map, exact, q, k, mask)?;
    let mut out = Matrix::zeros(q.rows(), v.columns());
    if mask.visible(k.rows()).is_empty() {
        return Ok(out);
    }
    let weights = HybridWeights::new(map, q, k, mask)?;
    for (i, set) in sets.iter().enumerate() {
        weighted_mean(&weights.row(i, set), v, out.row_mut(i))?;
    }
    Ok(out)
}

/// The logarithms of all weights, exact and estimated.
struct HybridWeights {
    exact: Matrix<f64>,
    query_logs: Matrix<f64>,
    key_logs: Matrix<f64>,
    visible: Vec<usize>,
    causal: bool,
}

impl HybridWeights {
    fn new<T: Float>(
        map: &FeatureMap,
        q: Rows<'_, T>,
        k: Rows<'_, T>,
        mask: Mask<'_>,
    ) -> Result<Self> {
        let visible = mask.visible(k.rows());
        let keys = gather(k, &visible).view().to_f64(1.0);
        Ok(Self {
            exact: map.kernel().log_matrix(q.to_f64(1.0).view(), keys.view())?,
            query_logs: map.log_features(Side::Query, q.to_f64(1.0).view())?,
            key_logs: map.log_features(Side::Key, keys.view())?,
            visible,
            causal: mask.causal,
        })
    }

    /// The keys that query `i` sees with their log-weights, given those that are exact.
    fn row(&self, i: usize, set: &[usize]) -> Vec<(usize, f64)> {
        let mean = (self.query_logs.columns() as f64).ln();
        let seen = self.visible.iter().take_while(|&&j| !self.causal || j <= i).enumerate();
        seen.map(|(n, &j)| {
            let log = if set.binary_search(&j).is_ok() {
                self.exact[(i, n)]
            } else {
                let pairs = self.query_logs.row(i).iter().zip(self.key_logs.row(n));
                log_sum(pairs.map(|(p, s)| p + s)) - mean
            };
            (j, log)
        })
        .collect()
    }
}

/// The keys that are exact for each query, in order. Masked keys never are.
///
/// ```
/// use favor::{ExactKeys, Family, FeatureSpec, Kernel, Matrix, Moments};
/// use favor::reference::{Mask, exact_key_sets};
/// let x = Matrix::from_fn(5, 2, |i, l| ((7 * i + l) as f64).sin());
/// let m = Moments::of(x.view())?;
/// let map = FeatureSpec::new(Family::Balanced, 8).kernel(Kernel::attention(2)).fit(&m, &m)?;
/// let exact = ExactKeys::NONE.near(1).global(1);
/// let sets = exact_key_sets(&map, exact, x.view(), x.view(), Mask::none())?;
/// assert_eq!(sets[3], [0, 2, 3, 4]); // the first token and the neighbours
/// # Ok::<(), favor::Error>(())
/// ```
pub fn exact_key_sets<T: Float>(
    map: &FeatureMap,
    exact: ExactKeys,
    q: Rows<'_, T>,
    k: Rows<'_, T>,
    mask: Mask<'_>,
) -> Result<Vec<Vec<usize>>> {
    let windowed = exact.near > 0 && !exact.is_all();
    if windowed && q.rows() != k.rows() {
        let reason = format!("a window with {} queries and {} keys", q.rows(), k.rows());
        return Err(Error::invalid("tensors", reason));
    }
    exact.check(map.features())?;
    let visible = mask.visible(k.rows());
    if visible.is_empty() {
        return Ok(vec![vec![]; q.rows()]);
    }
    let keys = gather(k, &visible);
    let keys = keys.view().to_f64(1.0);
    let query_logs = map.log_features(Side::Query, q.to_f64(1.0).view())?;
    let key_logs = map.log_features(Side::Key, keys.view())?;
    let errors = probe_errors(map, &keys)?;
    let (first, worst) = exact.split_global(map.probes().is_some());
    let mut sets = Vec::with_capacity(q.rows());
    let mut slots = Slots::new(&key_logs, 0, exact.members);
    for i in 0..q.rows() {
        let seen = |j: usize| !mask.causal || j <= i;
        // Whole blocks of keys before a query decide how it is routed and which keys are global.
        let before = visible.partition_point(|&j| j < i) / ExactKeys::BLOCK * ExactKeys::BLOCK;
        let known = if mask.causal { before } else { visible.len() };
        let mut set: Vec<usize> = vec![];
        if exact.near > 0 {
            let window = window_keys(i, exact.near, k.rows(), mask.causal);
            set.extend(window.filter(|j| mask.allows(*j)));
        }
        set.extend(visible.iter().take(first).filter(|&&j| seen(j)));
        let later: Vec<usize> = (first..known).collect();
        set.extend(largest(worst, &later, |n| errors[n]).into_iter().map(|n| visible[n]));
        if exact.is_routed() && known > 0 {
            if slots.known != known {
                slots = Slots::new(&key_logs, known, exact.members);
            }
            let all: Vec<usize> = (0..map.features()).collect();
            for m in largest(exact.slots, &all, |m| query_logs[(i, m)] + slots.totals[m]) {
                set.extend(slots.members[m].iter().map(|&n| visible[n]));
            }
        }
        set.sort_unstable();
        set.dedup();
        sets.push(set);
    }
    Ok(sets)
}

/// The state of the slots after the first `known` keys: logarithms of their sums, and their members.
struct Slots {
    known: usize,
    totals: Vec<f64>,
    members: Vec<Vec<usize>>,
}

impl Slots {
    fn new(key_logs: &Matrix<f64>, known: usize, members: usize) -> Self {
        let all: Vec<usize> = (0..known).collect();
        let total = |m: usize| log_sum(all.iter().map(|&n| key_logs[(n, m)]));
        let members = |m: usize| largest(members, &all, |n| key_logs[(n, m)]);
        let features = 0..key_logs.columns();
        Self {
            known,
            totals: features.clone().map(total).collect(),
            members: features.map(members).collect(),
        }
    }
}

/// Weights beyond this many times the mean, as a logarithm, are clipped to it: all of them are far off.
pub(crate) const MOST_LOG: f64 = 55.0;

/// The error of the map at each key, summed over its probes: `Σ |k − k̂|` in units of the probe's mean
/// weight. Zeros without probes.
pub(crate) fn probe_errors(map: &FeatureMap, keys: &Matrix<f64>) -> Result<Vec<f64>> {
    let Some(probes) = map.probes() else { return Ok(vec![0.0; keys.rows()]) };
    let weights = HybridWeights::new(map, probes.queries.view(), keys.view(), Mask::none())?;
    let all: Vec<usize> = (0..keys.rows()).collect();
    let mut errors = vec![0.0; keys.rows()];
    for (i, mean) in probes.log_means.iter().enumerate() {
        let pairs = weights.row(i, &all).into_iter().zip(weights.row(i, &[]));
        for (error, ((_, exact), (_, estimate))) in errors.iter_mut().zip(pairs) {
            let relative = |log: f64| (log - mean).min(MOST_LOG).exp();
            *error += (relative(exact) - relative(estimate)).abs();
        }
    }
    Ok(errors)
}

/// The `count` of these with the largest scores; of two equal ones, the earlier comes first.
fn largest(count: usize, of: &[usize], score: impl Fn(usize) -> f64) -> Vec<usize> {
    if count == 0 {
        return vec![];
    }
    let mut scored: Vec<(usize, f64)> = of.iter().map(|&n| (n, score(n))).collect();
    scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    scored.into_iter().take(count).map(|(n, _)| n).collect()
}

fn log_sum(logs: impl Iterator<Item = f64> + Clone) -> f64 {
    let max = logs.clone().fold(f64::NEG_INFINITY, f64::max);
    max + logs.map(|l| (l - max).exp()).sum::<f64>().ln()
}
