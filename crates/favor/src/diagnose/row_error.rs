//! The error of a query's row sum, predicted from the moments of the keys alone.
//!
//! If the keys are assumed Gaussian with mean `μ` and covariance `Σ`, the sum over them of one feature is
//! itself the exponential of a quadratic form in ω: with `P = R₂ᵀR₂ − 2αI` and `H⁻¹ = (I+ΣP)⁻¹Σ`,
//!
//! ```text
//! log f₁(ω,x) Σ_j f₂(ω,y_j) = ωᵀQω + ωᵀl(x) + …    Q = 2A + ½B₂H⁻¹B₂ᵀ
//! l(x) = B₁(x+c) + B₂e + B₂(I+ΣP)⁻¹μ − B₂H⁻¹(R₂ᵀR₂e + c)
//! ```
//!
//! whose first two moments over ω are Gaussian integrals. With `λ` and `V` the eigenvalues and
//! eigenvectors of `I − 4Q` and `z = Vl(x)`, the second moment over the square of the first is
//! `exp Σ_l (log((1+λ_l)/2) − ½ log λ_l + 2z_l²/(λ_l(1+λ_l)))`: a quadratic form in the query.

use super::Estimator;
use crate::linalg::{apply, eigen, inverse_transpose, product, scale_rows};
use crate::parameters::overflow;
use crate::{Error, Family, Float, Matrix, Moments, Result, Rows};

/// Eigenvalues of `I − 4Q` below this are rounding errors: the second moment is infinite.
const LEAST_EIGENVALUE: f64 = 1e-12;

/// The relative variance of row sums `Σ_j K(x,y_j)` as a function of the query, in `O(d²)` per query.
///
/// ```
/// use favor::{Family, Kernel, Matrix, Moments, diagnose::{Estimator, RowErrorModel}};
/// let keys = Matrix::from_fn(50, 2, |i, l| (1.7 * i as f64 + l as f64).sin());
/// let moments = Moments::of(keys.view())?;
/// let estimator = Estimator::fit(Family::Balanced, Kernel::gaussian(), &moments, &moments)?;
/// let model = RowErrorModel::new(&estimator, &moments)?.unwrap();
/// let far = Matrix::from_fn(1, 2, |_, _| 3.0);
/// let (near, far) = (model.log_relative_variances(keys.view())?, model.log_relative_variances(far.view())?);
/// assert!(near.iter().all(|v| *v < far[0]));
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RowErrorModel {
    scale: f64,
    /// `z = weightsᵀ · x + offset`.
    weights: Matrix<f64>,
    offset: Vec<f64>,
    /// `2/(λ(1+λ))`.
    curvature: Vec<f64>,
    constant: f64,
}

impl RowErrorModel {
    /// For an estimator and keys of these moments. `None` for families without the closed form (Trig,
    /// Hyperbolic), and if the second moment does not exist.
    pub fn new(estimator: &Estimator, keys: &Moments) -> Result<Option<Self>> {
        let (Some(p), false) = (estimator.parameters(), estimator.family() == Family::Hyperbolic)
        else {
            return Ok(None);
        };
        let d = p.dim();
        if keys.dim() != d {
            return Err(Error::Shape {
                operation: "model",
                left: "parameters",
                left_shape: (d, d),
                right: "moments",
                right_shape: (keys.dim(), keys.dim()),
            });
        }
        let scale = estimator.kernel().scale();
        let keys = keys.scaled(scale);
        let covariance = keys.covariance();
        let root: Vec<f64> = p.quadratic().iter().map(|a| (1.0 - 4.0 * a).sqrt()).collect();
        let r2 = p.key_transform();
        let (b1, b2) =
            (scale_rows(p.query_transform().clone(), &root), scale_rows(r2.clone(), &root));
        let gram = product(&r2.transposed(), r2);
        let mut precision = gram.clone();
        (0..d).for_each(|l| precision[(l, l)] -= 2.0 * estimator.kernel().alpha());
        let mut spread = product(&covariance, &precision);
        (0..d).for_each(|l| spread[(l, l)] += 1.0);
        let inverse = inverse_transpose(&spread, "moments")?.transposed();
        let h = product(&inverse, &covariance);

        let mut gap = product(&product(&b2, &h), &b2.transposed());
        gap.as_mut_slice().iter_mut().for_each(|v| *v *= -2.0);
        (0..d).for_each(|l| gap[(l, l)] += 1.0 - 8.0 * p.quadratic()[l]);
        let found = eigen(&gap)?;
        if found.values.iter().any(|v| !(v.is_finite() && *v > LEAST_EIGENVALUE)) {
            return Ok(None);
        }
        let transformed = apply(&gram, p.key_shift());
        let pull: Vec<f64> = transformed.iter().zip(p.query_shift()).map(|(a, c)| a + c).collect();
        let (centre, back) = (apply(&inverse, keys.mean()), apply(&h, &pull));
        let moved: Vec<f64> = (0..d).map(|l| p.key_shift()[l] + centre[l] - back[l]).collect();
        let (from_query, from_keys) = (apply(&b1, p.query_shift()), apply(&b2, &moved));
        let linear: Vec<f64> = from_query.iter().zip(&from_keys).map(|(a, b)| a + b).collect();
        let constant =
            found.values.iter().map(|v| ((1.0 + v) / 2.0).ln() - 0.5 * v.ln()).sum::<f64>();
        Ok(Some(Self {
            scale,
            weights: product(&found.vectors, &b1).transposed(),
            offset: apply(&found.vectors, &linear),
            curvature: found.values.iter().map(|v| 2.0 / (v * (1.0 + v))).collect(),
            constant: constant.max(0.0),
        }))
    }

    /// For each query the logarithm of the relative variance of its row sum, for one feature.
    pub fn log_relative_variances<T: Float>(&self, queries: Rows<'_, T>) -> Result<Vec<f64>> {
        queries.check_finite("queries")?;
        if queries.columns() != self.offset.len() {
            return Err(Error::Shape {
                operation: "model",
                left: "moments",
                left_shape: self.weights.shape(),
                right: "queries",
                right_shape: queries.shape(),
            });
        }
        let mut z = self.offset.clone();
        let log = |query: &[T]| {
            z.copy_from_slice(&self.offset);
            for (l, v) in query.iter().enumerate() {
                let v = self.scale * v.to_f64();
                z.iter_mut().zip(self.weights.row(l)).for_each(|(z, w)| *z += v * w);
            }
            let squares = z.iter().zip(&self.curvature).map(|(z, c)| c * z * z);
            let exponent = self.constant + squares.sum::<f64>();
            let variance = exponent.exp_m1();
            if variance.is_finite() { variance.max(f64::MIN_POSITIVE).ln() } else { exponent }
        };
        let logs: Vec<f64> = queries.iter().map(log).collect();
        if logs.iter().all(|v| v.is_finite()) {
            Ok(logs)
        } else {
            Err(overflow("the predicted variance"))
        }
    }
}
