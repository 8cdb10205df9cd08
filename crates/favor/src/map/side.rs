//! One side of a feature map, ready to project: everything that does not depend on the rows is
//! folded into one matrix and a few vectors.

use super::Side;
use crate::linalg::{dot, product, product_transposed, scale_rows};
use crate::{Kernel, Matrix, Parameters};
use serde::{Deserialize, Serialize};

/// `log f(ω_m, x) = W_mᵀ(x+s) + k_m + r(x)` for positive features, with
/// `r(x) = −½‖R(x+s)‖² − lᵀx − l₀ + α‖x‖²`; `√2 cos(ω_mᵀx + θ_m) · e^{r(x)}` for trigonometric ones.
/// Here `x` is the vector times the kernel's [scale](Kernel::scale).
///
/// ```
/// use favor::{Family, FeatureSpec, Moments, Rows, Side};
/// let x = Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?;
/// let m = Moments::of(x)?;
/// let map = FeatureSpec::new(Family::Balanced, 8).fit(&m, &m)?;
/// let side = map.side(Side::Query);
/// let project = |feature: usize| {
///     let shifted = x.row(0).iter().zip(&side.shift).map(|(x, s)| x + s);
///     let product: f64 = side.weights.row(feature).iter().zip(shifted).map(|(w, x)| w * x).sum();
///     product + side.constants[feature]
/// };
/// // All features of a row share r(x), so it cancels in a difference.
/// let logs = map.log_features(Side::Query, x)?;
/// let difference = logs[(0, 0)] - logs[(0, 1)];
/// assert!((difference - (project(0) - project(1))).abs() < 1e-9);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Projection {
    /// `W`: one row per feature; the family's dense transform is already in it.
    pub weights: Matrix<f64>,
    /// `k_m`, or the offsets θ_m.
    pub constants: Vec<f64>,
    /// `s`, added before anything else: data far from zero would lose digits if it came later.
    pub shift: Vec<f64>,
    /// The term that a row shares with every feature.
    pub row: RowTerm,
}

/// The part of a log-feature that depends only on the vector.
///
/// ```
/// use favor::{Family, FeatureSpec, Moments, RowTerm, Rows, Side};
/// let m = Moments::of(Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?)?;
/// let row = |family| FeatureSpec::new(family, 8).fit(&m, &m).map(|map| map.side(Side::Key).row.clone());
/// assert!(matches!(row(Family::Trig)?, RowTerm::Trigonometric { .. }));
/// assert!(matches!(row(Family::Pos)?, RowTerm::Exponential { .. }));
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RowTerm {
    /// `½‖x‖² + α‖x‖²`.
    Trigonometric {
        /// α of the kernel.
        alpha: f64,
    },
    /// `−½‖R(x+s)‖² − lᵀx − l₀ + α‖x‖²`.
    Exponential {
        /// `R`.
        transform: Matrix<f64>,
        /// `l`.
        linear: Vec<f64>,
        /// `l₀`.
        constant: f64,
        /// α of the kernel.
        alpha: f64,
    },
}

/// The features of a few rows.
pub(crate) enum Block {
    /// The logarithms of positive features.
    Positive(Matrix<f64>),
    /// Features of either sign, `values[i][m] · e^{row_log[i]}`.
    Signed { row_log: Vec<f64>, values: Matrix<f64> },
}

impl Projection {
    pub(crate) fn new(
        kernel: Kernel,
        parameters: Option<&Parameters>,
        omega: &Matrix<f64>,
        offsets: &[f64],
        side: Side,
    ) -> Self {
        let alpha = kernel.alpha();
        let Some(p) = parameters else {
            let row = RowTerm::Trigonometric { alpha };
            let shift = vec![0.0; omega.columns()];
            return Self { weights: omega.clone(), constants: offsets.to_vec(), shift, row };
        };
        let (transform, shift, linear) = match side {
            Side::Query => (p.query_transform(), p.query_shift(), p.key_shift()),
            Side::Key => (p.key_transform(), p.key_shift(), p.query_shift()),
        };
        // −xᵀe − cᵀe on the query side, −cᵀy on the key side.
        let constant = match side {
            Side::Query => dot(p.query_shift(), p.key_shift()),
            Side::Key => 0.0,
        };
        let root: Vec<f64> = p.quadratic().iter().map(|a| (1.0 - 4.0 * a).sqrt()).collect();
        let weights = product(omega, &scale_rows(transform.clone(), &root));
        let log_d = p.log_d();
        let constants = (0..omega.rows())
            .map(|m| {
                let w = omega.row(m);
                let square: f64 = w.iter().zip(p.quadratic()).map(|(w, a)| a * w * w).sum();
                log_d + square
            })
            .collect();
        let row = RowTerm::Exponential {
            transform: transform.clone(),
            linear: linear.to_vec(),
            constant,
            alpha,
        };
        Self { weights, constants, shift: shift.to_vec(), row }
    }

    pub(crate) fn is_finite(&self) -> bool {
        let row = match &self.row {
            RowTerm::Trigonometric { .. } => true,
            RowTerm::Exponential { transform, linear, constant, .. } => {
                transform.as_slice().iter().chain(linear).chain([constant]).all(|v| v.is_finite())
            }
        };
        let numbers = self.weights.as_slice().iter().chain(&self.constants).chain(&self.shift);
        row && numbers.copied().all(f64::is_finite)
    }

    /// The features of rows that are already scaled.
    pub(crate) fn features(&self, rows: &Matrix<f64>) -> Block {
        let moved =
            Matrix::from_fn(rows.rows(), rows.columns(), |i, l| rows[(i, l)] + self.shift[l]);
        let mut out = product_transposed(&moved, &self.weights);
        let row_log = self.row.values(rows, &moved);
        match self.row {
            RowTerm::Trigonometric { .. } => {
                for i in 0..out.rows() {
                    for (v, theta) in out.row_mut(i).iter_mut().zip(&self.constants) {
                        *v = std::f64::consts::SQRT_2 * (*v + theta).cos();
                    }
                }
                Block::Signed { row_log, values: out }
            }
            RowTerm::Exponential { .. } => {
                for (i, term) in row_log.iter().enumerate() {
                    let pairs = out.row_mut(i).iter_mut().zip(&self.constants);
                    pairs.for_each(|(v, k)| *v += k + term);
                }
                Block::Positive(out)
            }
        }
    }
}

impl RowTerm {
    /// The term of each row, given the rows and the shifted rows.
    pub(crate) fn values(&self, rows: &Matrix<f64>, moved: &Matrix<f64>) -> Vec<f64> {
        let norm = |i: usize| dot(rows.row(i), rows.row(i));
        match self {
            Self::Trigonometric { alpha } => {
                (0..rows.rows()).map(|i| (0.5 + alpha) * norm(i)).collect()
            }
            Self::Exponential { transform, linear, constant, alpha } => {
                let transformed = product_transposed(moved, transform);
                (0..rows.rows())
                    .map(|i| {
                        let quadratic = dot(transformed.row(i), transformed.row(i));
                        -0.5 * quadratic - dot(rows.row(i), linear) - constant + alpha * norm(i)
                    })
                    .collect()
            }
        }
    }
}

impl Block {
    pub(crate) fn is_finite(&self) -> bool {
        match self {
            Self::Positive(logs) => logs.as_slice().iter().all(|v| v.is_finite()),
            Self::Signed { row_log, values } => {
                row_log.iter().chain(values.as_slice()).all(|v| v.is_finite())
            }
        }
    }

    /// A logarithmic scale per row, and the features without it, at most of order one.
    pub(crate) fn row_scaled(self) -> (Vec<f64>, Matrix<f64>) {
        match self {
            Self::Signed { row_log, values } => (row_log, values),
            Self::Positive(mut logs) => {
                let scales = (0..logs.rows())
                    .map(|i| {
                        let row = logs.row_mut(i);
                        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                        row.iter_mut().for_each(|v| *v = (*v - max).exp());
                        max
                    })
                    .collect();
                (scales, logs)
            }
        }
    }
}
