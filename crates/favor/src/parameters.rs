//! The parameters of the dense-exponential class, checked.
//!
//! Every positive family is the same estimator of `exp(xᵀy)` with different numbers:
//!
//! ```text
//! log f₁(ω,x) = log D + ωᵀAω + ωᵀB₁u − ½‖R₁u‖² − xᵀe − cᵀe      u = x + c
//! log f₂(ω,y) = log D + ωᵀAω + ωᵀB₂v − ½‖R₂v‖² − cᵀy            v = y + e
//! A = diag(a), 8a < 1,  R₁ = G,  R₂ = G⁻ᵀ,  B_k = (I−4A)^½ R_k,  log D = ¼ Σ log(1−4a)
//! ```
//!
//! It is unbiased for every `a`, `G`, `c`, `e`, and its second moment depends on a pair only through
//! `w = R₁u + R₂v`:
//!
//! ```text
//! log E[f₁²f₂²] = 2xᵀy + Σ_l log(1−4a_l) − ½ log(1−8a_l) + w_l² / (1−8a_l)
//! ```

use crate::linalg::{apply, dot, inverse_transpose, product, transposed_product};
use crate::{Error, Matrix, Moments, Result};
use serde::{Deserialize, Serialize};

/// How far `R₁ᵀR₂` may be from the identity before parameters are rejected, relative to the
/// magnitude of the terms summed in it.
const CONSTRAINT_TOLERANCE: f64 = 1e-8;

/// Parameters `a, G, c, e` of a valid estimator: only checked ones exist.
///
/// ```
/// use favor::{Matrix, Parameters};
/// let identity = Matrix::identity(2);
/// let zero = vec![0.0; 2];
/// assert!(Parameters::new(vec![-0.1, -0.2], identity.clone(), zero.clone(), zero.clone()).is_ok());
/// let refused = Parameters::new(vec![0.2, 0.0], identity, zero.clone(), zero).unwrap_err();
/// assert!(refused.to_string().contains("8a < 1"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawParameters")]
pub struct Parameters {
    quadratic: Vec<f64>,
    query_transform: Matrix<f64>,
    key_transform: Matrix<f64>,
    query_shift: Vec<f64>,
    key_shift: Vec<f64>,
}

#[derive(Deserialize)]
struct RawParameters {
    quadratic: Vec<f64>,
    query_transform: Matrix<f64>,
    key_transform: Matrix<f64>,
    query_shift: Vec<f64>,
    key_shift: Vec<f64>,
}

impl TryFrom<RawParameters> for Parameters {
    type Error = Error;
    fn try_from(p: RawParameters) -> Result<Self> {
        Self::checked(p.quadratic, p.query_transform, p.key_transform, p.query_shift, p.key_shift)
    }
}

impl Parameters {
    /// The parameters with diagonal `a`, transform `G` and the two shifts `c` and `e`.
    pub fn new(
        quadratic: Vec<f64>,
        transform: Matrix<f64>,
        query_shift: Vec<f64>,
        key_shift: Vec<f64>,
    ) -> Result<Self> {
        square("transform", &transform, quadratic.len())?;
        finite("transform", transform.as_slice())?;
        let key_transform = inverse_transpose(&transform, "transform")?;
        Self::checked(quadratic, transform, key_transform, query_shift, key_shift)
    }

    /// The parameters with the projections `B₁` and `B₂` themselves, which must satisfy
    /// `B₁ᵀ(I−4A)⁻¹B₂ = I`.
    pub fn from_projections(
        quadratic: Vec<f64>,
        query_projection: &Matrix<f64>,
        key_projection: &Matrix<f64>,
        query_shift: Vec<f64>,
        key_shift: Vec<f64>,
    ) -> Result<Self> {
        check_quadratic(&quadratic)?;
        square("query projection", query_projection, quadratic.len())?;
        square("key projection", key_projection, quadratic.len())?;
        let root: Vec<f64> = quadratic.iter().map(|a| 1.0 / (1.0 - 4.0 * a).sqrt()).collect();
        let query = crate::linalg::scale_rows(query_projection.clone(), &root);
        let key = crate::linalg::scale_rows(key_projection.clone(), &root);
        Self::checked(quadratic, query, key, query_shift, key_shift)
    }

    /// The parameters with both transforms given; they must satisfy `R₁ᵀR₂ = I`.
    pub fn checked(
        quadratic: Vec<f64>,
        query_transform: Matrix<f64>,
        key_transform: Matrix<f64>,
        query_shift: Vec<f64>,
        key_shift: Vec<f64>,
    ) -> Result<Self> {
        let d = quadratic.len();
        if d == 0 {
            return Err(Error::Empty { what: "parameters".into(), rows: 0, columns: 0 });
        }
        check_quadratic(&quadratic)?;
        square("query transform", &query_transform, d)?;
        square("key transform", &key_transform, d)?;
        for (what, shift) in [("query shift", &query_shift), ("key shift", &key_shift)] {
            if shift.len() != d {
                let reason = format!("has {} numbers where the dimension is {d}", shift.len());
                return Err(Error::invalid(what, reason));
            }
            finite(what, shift)?;
        }
        finite("query transform", query_transform.as_slice())?;
        finite("key transform", key_transform.as_slice())?;
        check_constraint(&query_transform, &key_transform)?;
        Ok(Self { quadratic, query_transform, key_transform, query_shift, key_shift })
    }

    /// Dimension of the vectors.
    pub fn dim(&self) -> usize {
        self.quadratic.len()
    }

    /// The diagonal of `A`.
    pub fn quadratic(&self) -> &[f64] {
        &self.quadratic
    }

    /// `R₁ = G`.
    pub fn query_transform(&self) -> &Matrix<f64> {
        &self.query_transform
    }

    /// `R₂ = G⁻ᵀ`.
    pub fn key_transform(&self) -> &Matrix<f64> {
        &self.key_transform
    }

    /// `c`.
    pub fn query_shift(&self) -> &[f64] {
        &self.query_shift
    }

    /// `e`.
    pub fn key_shift(&self) -> &[f64] {
        &self.key_shift
    }

    /// `log D = ¼ Σ log(1−4a)`.
    pub fn log_d(&self) -> f64 {
        self.quadratic.iter().map(|a| 0.25 * (-4.0 * a).ln_1p()).sum()
    }

    /// `C_k = −½R_kᵀR_k` of both sides.
    pub fn c_matrices(&self) -> (Matrix<f64>, Matrix<f64>) {
        let half = |r: &Matrix<f64>| {
            let mut c = transposed_product(r, r);
            c.as_mut_slice().iter_mut().for_each(|v| *v *= -0.5);
            c
        };
        (half(&self.query_transform), half(&self.key_transform))
    }

    /// `φ_l = mean over all pairs of w_l²`, the spread of the transformed sums: all that the
    /// objective needs to know about the data.
    pub fn spread(&self, queries: &Moments, keys: &Moments) -> Result<Vec<f64>> {
        check_dims(self.dim(), queries, keys)?;
        let (x, y) = (queries.covariance(), keys.covariance());
        let (rx, ry) = (product(&self.query_transform, &x), product(&self.key_transform, &y));
        let add = |m: &[f64], s: &[f64]| m.iter().zip(s).map(|(a, b)| a + b).collect::<Vec<_>>();
        let u = apply(&self.query_transform, &add(queries.mean(), &self.query_shift));
        let v = apply(&self.key_transform, &add(keys.mean(), &self.key_shift));
        let spread: Vec<f64> = (0..self.dim())
            .map(|l| {
                let variance = dot(rx.row(l), self.query_transform.row(l))
                    + dot(ry.row(l), self.key_transform.row(l));
                variance.max(0.0) + (u[l] + v[l]) * (u[l] + v[l])
            })
            .collect();
        if spread.iter().all(|phi| phi.is_finite()) {
            Ok(spread)
        } else {
            Err(overflow("the spread of the data"))
        }
    }

    /// The shifted log-variance objective `L̄ = mean over all pairs of log E[f₁²f₂²]`, for one
    /// feature, in `O(d³)` from the moments.
    pub fn objective(&self, queries: &Moments, keys: &Moments) -> Result<f64> {
        let spread = self.spread(queries, keys)?;
        let excess: f64 =
            self.quadratic.iter().zip(&spread).map(|(&a, &phi)| log_excess(a, phi)).sum();
        let objective = objective_floor(queries, keys) + excess;
        if objective.is_finite() { Ok(objective) } else { Err(overflow("the objective")) }
    }

    /// The same parameters with the diagonal that is optimal for their transform and shift.
    pub(crate) fn with_best_diagonal(self, queries: &Moments, keys: &Moments) -> Result<Self> {
        let quadratic = self.spread(queries, keys)?.into_iter().map(optimal_quadratic).collect();
        Ok(Self { quadratic, ..self })
    }

    /// The same parameters with the multiple of the identity that is optimal for their transform
    /// and shift.
    pub(crate) fn with_best_scalar(self, queries: &Moments, keys: &Moments) -> Result<Self> {
        let spread = self.spread(queries, keys)?;
        let a = optimal_quadratic(spread.iter().sum::<f64>() / spread.len() as f64);
        Ok(Self { quadratic: vec![a; spread.len()], ..self })
    }
}

/// The lower bound of every objective, `2·mean(xᵀy)`: all variances zero.
///
/// ```
/// use favor::{Family, Moments, Rows, objective_floor};
/// let m = Moments::of(Rows::new(&[1.0, 0.0, 0.0, 2.0], 2, 2)?)?;
/// let best = Family::Balanced.fit(&m, &m)?.unwrap();
/// assert!(best.objective(&m, &m)? >= objective_floor(&m, &m));
/// # Ok::<(), favor::Error>(())
/// ```
pub fn objective_floor(queries: &Moments, keys: &Moments) -> f64 {
    2.0 * dot(queries.mean(), keys.mean())
}

/// One coordinate's contribution to `log E[f₁²f₂²] − 2xᵀy`.
pub(crate) fn log_excess(a: f64, phi: f64) -> f64 {
    // log(1−4a) − ½log(1−8a) = ½ log(1 + 16a²/(1−8a)): never below zero, exact near it. a² alone may
    // overflow even if the quotient does not.
    0.5 * (16.0 * a * (a / (1.0 - 8.0 * a))).ln_1p() + phi / (1.0 - 8.0 * a)
}

/// The minimiser `a*(φ)` over `a < 1/8` of `log(1−4a) − ½log(1−8a) + φ/(1−8a)`; 0 at 0, never
/// positive.
///
/// ```
/// assert_eq!(favor::optimal_quadratic(0.0), 0.0);
/// assert!(favor::optimal_quadratic(1.0) < 0.0);
/// ```
pub fn optimal_quadratic(phi: f64) -> f64 {
    // (1 − 2φ − √((2φ+1)² + 8φ)) / 16, written without the cancellation at small φ: with
    // r = √((2φ+1)² + 8φ), 1 − 2φ − r = −16φ / (r + 1 − 2φ), and r > 2φ.
    let phi = phi.max(0.0);
    let linear = 2.0 * phi + 1.0;
    // The square alone may overflow even if its root does not.
    let root = linear * (1.0 + 8.0 * (phi / linear) / linear).sqrt();
    if phi <= 0.5 { -phi / (root + 1.0 - 2.0 * phi) } else { (1.0 - 2.0 * phi - root) / 16.0 }
}

pub(crate) fn overflow(operation: &'static str) -> Error {
    Error::Overflow { operation, format: "f64", hint: "divide the data by a constant" }
}

pub(crate) fn check_dims(dim: usize, queries: &Moments, keys: &Moments) -> Result<()> {
    queries.check_nonempty("queries")?;
    keys.check_nonempty("keys")?;
    for (right, m) in [("queries", queries), ("keys", keys)] {
        if m.dim() != dim {
            return Err(Error::Shape {
                operation: "fit",
                left: "parameters",
                left_shape: (dim, dim),
                right,
                right_shape: (m.count() as usize, m.dim()),
            });
        }
    }
    Ok(())
}

fn check_quadratic(a: &[f64]) -> Result<()> {
    match a.iter().position(|a| !(a.is_finite() && 8.0 * a < 1.0)) {
        Some(l) => Err(Error::invalid(
            "quadratic",
            format!("a[{l}] = {}; the variance is finite only for 8a < 1", a[l]),
        )),
        None => Ok(()),
    }
}

fn square(what: &'static str, m: &Matrix<f64>, d: usize) -> Result<()> {
    if m.shape() == (d, d) {
        Ok(())
    } else {
        let reason = format!("has shape {:?} where the dimension is {d}", m.shape());
        Err(Error::invalid(what, reason))
    }
}

fn finite(what: &'static str, values: &[f64]) -> Result<()> {
    match values.iter().position(|v| !v.is_finite()) {
        Some(k) => Err(Error::invalid(what, format!("entry {k} is {}", values[k]))),
        None => Ok(()),
    }
}

fn check_constraint(query: &Matrix<f64>, key: &Matrix<f64>) -> Result<()> {
    let inner = transposed_product(query, key);
    let d = inner.rows();
    let norm = |r: &Matrix<f64>, j: usize| (0..d).map(|l| r[(l, j)].powi(2)).sum::<f64>().sqrt();
    let (q, k): (Vec<f64>, Vec<f64>) = (0..d).map(|j| (norm(query, j), norm(key, j))).unzip();
    for i in 0..d {
        for j in 0..d {
            let expected = f64::from(u8::from(i == j));
            let error = (inner[(i, j)] - expected).abs();
            let tolerance = CONSTRAINT_TOLERANCE * (q[i] * k[j]).max(1.0);
            if error.is_nan() || error > tolerance {
                return Err(Error::invalid(
                    "transforms",
                    format!(
                        "not an unbiased estimator: B₁ᵀ(I−4A)⁻¹B₂ must be the identity, but its \
                         entry ({i},{j}) is {}",
                        inner[(i, j)]
                    ),
                ));
            }
        }
    }
    Ok(())
}
