//! The features of a map as numbers, for a linear model behind them.

use super::density::density;
use super::scaling::scaled;
use super::summed::FittedMap;
use super::{Curve, FitOptions};
use crate::{Error, FeatureMap, Float, Matrix, Result, Rows, Side};

/// Features whose inner products estimate the kernel: `K(u,v) ≈ Σ_m z_m(u) z_m(v)`.
///
/// A bandwidth that is not given is the one that describes the density of the rows best.
///
/// ```
/// use favor::Matrix;
/// use favor::learn::{FitOptions, RandomFeatures};
/// let rows = Matrix::from_fn(100, 2, |i, l| ((3 * i + 5 * l) as f64).sin());
/// let options = FitOptions::default().features(512).bandwidth(2.0).standardise(false);
/// let z = RandomFeatures::fit(&options, rows.view(), None)?.transform(rows.view())?;
/// let estimate: f64 = z.row(0).iter().zip(z.row(1)).map(|(a, b)| a * b).sum();
/// let exact = favor::learn::gaussian(2.0)?.value(rows.row(0), rows.row(1))?;
/// assert!((estimate - exact).abs() < 0.1);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RandomFeatures {
    fitted: FittedMap,
}

impl RandomFeatures {
    /// Fits a map to rows. Without `weights` every row counts as 1.
    pub fn fit<T: Float>(
        options: &FitOptions,
        rows: Rows<'_, T>,
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        Ok(Self { fitted: FittedMap::fit(options, rows, weights, density)? })
    }

    /// One row of features per row.
    pub fn transform<T: Float>(&self, rows: Rows<'_, T>) -> Result<Matrix<T>> {
        self.fitted.check(rows)?;
        let (map, rows) = (&self.fitted.map, scaled(rows, &self.fitted.scalings));
        if !map.spec().family.is_positive() {
            return map.features_of(Side::Query, rows.view())?.to_matrix();
        }
        // The map was fitted to the same rows on both sides of the kernel, so that the features of the
        // sides differ by a constant factor.
        let mut out = map.log_features(Side::Query, rows.view().to_f64(1.0).view())?;
        let keys = map.log_features(Side::Key, rows.view().to_f64(1.0).view())?;
        let weight = 0.5 * (map.features() as f64).ln();
        for (o, k) in out.as_mut_slice().iter_mut().zip(keys.as_slice()) {
            *o = (0.5 * (*o + k) - weight).exp();
        }
        let out = Matrix::from_fn(out.rows(), out.columns(), |i, m| T::from_f64(out[(i, m)]));
        if out.as_slice().iter().all(|v| v.is_finite()) {
            return Ok(out);
        }
        Err(Error::Overflow {
            operation: "the features of a row",
            format: T::NAME,
            hint: "use a larger bandwidth, or a trigonometric family",
        })
    }

    /// The feature map.
    pub fn map(&self) -> &FeatureMap {
        &self.fitted.map
    }

    /// The bandwidth, and its scores where it was chosen.
    pub fn bandwidth(&self) -> (f64, Option<&Curve>) {
        (self.fitted.bandwidth, self.fitted.curve.as_ref())
    }
}
