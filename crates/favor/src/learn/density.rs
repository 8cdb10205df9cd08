//! The density of rows: the mean of Gaussians around them.

use super::summed::{FittedMap, Summed};
use super::{Curve, FitOptions, Readout, Scaling, Targets};
use crate::{FeatureMap, Float, Result, Rows};

/// A density in the units of the rows: `Σ_i w_i K(u,u_i) / Σ_i w_i`, normalised.
///
/// ```
/// use favor::Matrix;
/// use favor::learn::{FitOptions, KernelDensity};
/// let rows = Matrix::from_fn(500, 1, |i, _| (0.61 * i as f64).fract());
/// let model = KernelDensity::fit(&FitOptions::default(), rows.view(), None)?;
/// let logs = model.log_density(Matrix::new(vec![0.5, 1.5], 2, 1)?.view())?;
/// assert!(logs[0].abs() < 0.3 && logs[1] < -1.0); // uniform between 0 and 1
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct KernelDensity {
    summed: Summed,
}

impl KernelDensity {
    /// Fits a map to rows and sums its features over them. Without `weights` every row counts as 1.
    pub fn fit<T: Float>(
        options: &FitOptions,
        rows: Rows<'_, T>,
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        let fitted = FittedMap::fit(options, rows, weights, density)?;
        let mut model = Self { summed: Summed::new(fitted, 1) };
        model.partial_fit(rows, weights)?;
        Ok(model)
    }

    /// Adds rows.
    pub fn partial_fit<T: Float>(
        &mut self,
        rows: Rows<'_, T>,
        weights: Option<&[f64]>,
    ) -> Result<()> {
        self.summed.add(rows, weights, |_, _| 1.0)
    }

    /// Adds the rows of another model with the same map.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.summed.merge(&other.summed)
    }

    /// The same map before the first row: for a worker elsewhere, whose model is merged later.
    pub fn emptied(&self) -> Self {
        Self { summed: Summed::new(self.summed.fitted.clone(), 1) }
    }

    /// The logarithm of the density at each row.
    pub fn log_density<T: Float>(&self, rows: Rows<'_, T>) -> Result<Vec<f64>> {
        let fitted = &self.summed.fitted;
        let scales: Vec<f64> = fitted.scalings.iter().map(|s| s.scale).collect();
        let readout = Readout::density(fitted.bandwidth, &scales, self.summed.weight);
        Ok(readout.outputs(&self.summed.apply(rows)?).into_vec())
    }

    /// The feature map.
    pub fn map(&self) -> &FeatureMap {
        &self.summed.fitted.map
    }

    /// The bandwidth, and its scores where it was chosen.
    pub fn bandwidth(&self) -> (f64, Option<&Curve>) {
        (self.summed.fitted.bandwidth, self.summed.fitted.curve.as_ref())
    }
}

/// What is known of rows whose density is estimated.
pub(super) fn density(_: &[usize], scalings: &[Scaling]) -> Targets {
    Targets::Density { scales: scalings.iter().map(|s| s.scale).collect() }
}
