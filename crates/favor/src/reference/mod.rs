//! The reference implementations, short and in plain `f64`: what the engine is tested against.
//!
//! Attention is exact, by features of the softmax kernel, by both, or by the ELU and ReLU baselines:
//! `out = diag(P Sᵀ1)⁻¹ P (SᵀV)`. The scales of the features cancel between numerator and
//! denominator, so nothing is added to either: there is no ε anywhere.

mod baseline;
mod exact;
mod features;
mod hybrid;
mod key_sums;
mod some_keys;

pub use baseline::{Baseline, baseline_attention};
pub use exact::exact_attention;
pub use features::feature_attention;
pub(crate) use hybrid::{MOST_LOG, probe_errors};
pub use hybrid::{exact_key_sets, hybrid_attention};
pub use key_sums::{add_keys, apply_sums, kernel_product};
pub use some_keys::{attention_to, mean_of_values, window_keys};

use crate::kernel::{check_sides, check_values};
use crate::{Error, Float, Matrix, Result, Rows};

/// Which keys a query may see.
///
/// ```
/// use favor::reference::Mask;
/// let padding = [true, true, false]; // the last key is padding
/// let mask = Mask::causal().keys(Some(&padding));
/// assert!(mask.causal);
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Mask<'a> {
    /// Query `i` sees only the keys `0..=i`; there must then be as many queries as keys.
    pub causal: bool,
    /// False where a key is padding: it then enters no sum, and its contents are never read.
    pub keys: Option<&'a [bool]>,
}

impl<'a> Mask<'a> {
    /// Whether a query sees only its own and earlier keys, and which keys are padding: those where `keys` is
    /// false.
    pub fn new(causal: bool, keys: Option<&'a [bool]>) -> Self {
        Self { causal, keys }
    }

    /// Every query sees every key.
    pub fn none() -> Self {
        Self::default()
    }

    /// Every query sees its own and the earlier keys.
    pub fn causal() -> Self {
        Self { causal: true, keys: None }
    }

    /// The same, without the keys where `keys` is false.
    #[must_use]
    pub fn keys(self, keys: Option<&'a [bool]>) -> Self {
        Self { keys, ..self }
    }

    fn allows(&self, key: usize) -> bool {
        self.keys.is_none_or(|keys| keys[key])
    }

    /// The keys that are not padding, in order.
    fn visible(&self, count: usize) -> Vec<usize> {
        (0..count).filter(|&j| self.allows(j)).collect()
    }

    fn check(&self, queries: (usize, usize), keys: (usize, usize)) -> Result<()> {
        if self.causal && queries.0 != keys.0 {
            return Err(Error::Shape {
                operation: "causal attention",
                left: "queries",
                left_shape: queries,
                right: "keys",
                right_shape: keys,
            });
        }
        match self.keys {
            Some(mask) if mask.len() != keys.0 => Err(Error::Shape {
                operation: "attention",
                left: "key mask",
                left_shape: (mask.len(), 1),
                right: "keys",
                right_shape: keys,
            }),
            _ => Ok(()),
        }
    }
}

/// Checks the shapes, and that everything visible is finite.
fn check_inputs<T: Float>(
    q: Rows<'_, T>,
    k: Rows<'_, T>,
    v: Rows<'_, T>,
    mask: &Mask<'_>,
) -> Result<()> {
    check_sides("attention", q, k)?;
    check_values("attention", k, v)?;
    mask.check(q.shape(), k.shape())?;
    q.check_finite("queries")?;
    for (what, rows) in [("keys", k), ("values", v)] {
        for j in mask.visible(k.rows()) {
            if let Err(Error::NonFinite { what, column, value, .. }) =
                rows.slice(j, j + 1).check_finite(what)
            {
                return Err(Error::NonFinite { what, row: j, column, value });
            }
        }
    }
    Ok(())
}

/// The given rows as an owned matrix.
fn gather<T: Float>(rows: Rows<'_, T>, which: &[usize]) -> Matrix<T> {
    let mut out = Matrix::zeros(which.len(), rows.columns());
    for (i, &j) in which.iter().enumerate() {
        out.row_mut(i).copy_from_slice(rows.row(j));
    }
    out
}

/// The values with an extra column of ones, whose sum is the denominator.
fn with_ones<T: Float>(values: Rows<'_, T>) -> Matrix<T> {
    let mut out = Matrix::zeros(values.rows(), values.columns() + 1);
    for i in 0..values.rows() {
        let row = out.row_mut(i);
        row[..values.columns()].copy_from_slice(values.row(i));
        row[values.columns()] = T::from_f64(1.0);
    }
    out
}

/// The mean of these values with the exponentials of these logarithms as weights. Without any it is zero.
fn weighted_mean<T: Float>(logs: &[(usize, f64)], v: Rows<'_, T>, out: &mut [T]) -> Result<()> {
    let max = logs.iter().map(|(_, log)| *log).fold(f64::NEG_INFINITY, f64::max);
    let mut sums = vec![0.0; v.columns() + 1];
    for (j, log) in logs {
        let weight = (log - max).exp();
        sums[v.columns()] += weight;
        sums.iter_mut().zip(v.row(*j)).for_each(|(s, v)| *s += weight * v.to_f64());
    }
    normalise(&sums, out)
}

/// Divides numerators by the denominator in the last column. A query that saw no key gives zeros.
fn normalise<T: Float>(sums: &[f64], out: &mut [T]) -> Result<()> {
    let denominator = sums[out.len()];
    for (o, s) in out.iter_mut().zip(sums) {
        *o = if denominator == 0.0 { T::from_f64(0.0) } else { T::from_f64(s / denominator) };
        if !o.is_finite() {
            return Err(Error::Overflow {
                operation: "the normalisation of attention",
                format: T::NAME,
                hint: "features that are not positive can cancel; use a positive family",
            });
        }
    }
    Ok(())
}
