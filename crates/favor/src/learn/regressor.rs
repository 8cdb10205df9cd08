//! Numbers: the mean of the targets, weighted by the kernel.

use super::summed::{FittedMap, Summed, check_count};
use super::{Curve, FitOptions, Readout, Scaling, Targets};
use crate::{Error, FeatureMap, Float, Matrix, Moments, Result, Rows};

/// A regression: `Σ_i w_i K(u,u_i) y_i / Σ_i w_i K(u,u_i)`, for one target or several.
///
/// ```
/// use favor::Matrix;
/// use favor::learn::{FitOptions, KernelRegressor};
/// let rows = Matrix::from_fn(200, 1, |i, _| i as f64 / 200.0);
/// let targets = Matrix::from_fn(200, 1, |i, _| (6.0 * rows[(i, 0)]).sin());
/// let options = FitOptions::default().bandwidth(0.15);
/// let model = KernelRegressor::fit(&options, rows.view(), targets.view(), None)?;
/// let found = model.predict(rows.view())?;
/// assert!((found[(50, 0)] - 1.5_f64.sin()).abs() < 0.2);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct KernelRegressor {
    /// The weights in the first column, then the scaled targets.
    summed: Summed,
    scalings: Vec<Scaling>,
}

impl KernelRegressor {
    /// Fits a map to rows and sums its features over them. `targets` has one row per row; without
    /// `weights` every row counts as 1.
    pub fn fit<T: Float>(
        options: &FitOptions,
        rows: Rows<'_, T>,
        targets: Rows<'_, T>,
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        check_count(rows, "targets", targets.rows())?;
        targets.check_nonempty("targets")?;
        let mut moments = Moments::new(targets.columns());
        match weights {
            Some(weights) => moments.add_weighted(targets, weights)?,
            None => moments.add(targets)?,
        }
        let scalings = Scaling::standard(&moments);
        let known = |chosen: &[usize], _: &[Scaling]| {
            let entry = |i: usize, c: usize| targets.row(chosen[i])[c].to_f64();
            let values = Matrix::from_fn(chosen.len(), targets.columns(), entry);
            Targets::Numbers { values, scalings: scalings.clone() }
        };
        let fitted = FittedMap::fit(options, rows, weights, known)?;
        let summed = Summed::new(fitted, 1 + scalings.len());
        let mut model = Self { summed, scalings };
        model.partial_fit(rows, targets, weights)?;
        Ok(model)
    }

    /// Adds rows.
    pub fn partial_fit<T: Float>(
        &mut self,
        rows: Rows<'_, T>,
        targets: Rows<'_, T>,
        weights: Option<&[f64]>,
    ) -> Result<()> {
        check_count(rows, "targets", targets.rows())?;
        if targets.columns() != self.scalings.len() {
            let (found, wanted) = (targets.columns(), self.scalings.len());
            let reason = format!("{found} columns where the model has {wanted}");
            return Err(Error::invalid("targets", reason));
        }
        let scalings = &self.scalings;
        self.summed.add(rows, weights, |i, c| match c {
            0 => 1.0,
            _ => scalings[c - 1].apply(targets.row(i)[c - 1].to_f64()),
        })
    }

    /// Adds the rows of another model with the same map.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if self.scalings != other.scalings {
            let reason = "the scalings of the targets differ; fit one model and add the other rows \
                          to copies of it";
            return Err(Error::invalid("merge", reason));
        }
        self.summed.merge(&other.summed)
    }

    /// The same map before the first row: for a worker elsewhere, whose model is merged later.
    pub fn emptied(&self) -> Self {
        let summed = Summed::new(self.summed.fitted.clone(), 1 + self.scalings.len());
        Self { summed, scalings: self.scalings.clone() }
    }

    /// One row per row, one column per target.
    pub fn predict<T: Float>(&self, rows: Rows<'_, T>) -> Result<Matrix<f64>> {
        Ok(Readout::Numbers(self.scalings.clone()).outputs(&self.summed.apply(rows)?))
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
