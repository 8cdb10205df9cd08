//! How sums over keys become predictions.

use crate::arrays::{doubles, give_matrix, vector};
use crate::errors;
use favor::LogScaled;
use favor::learn::{Scaling, Task};
use pyo3::prelude::*;

/// The Nadaraya–Watson estimator: what `KeySums.apply` gives, turned into predictions.
#[pyclass(module = "favor_sharp", frozen)]
pub(crate) struct Readout(favor::learn::Readout);

#[pymethods]
impl Readout {
    /// Of one sum per class its share, and of rows that no feature reaches the shares of these weights.
    #[staticmethod]
    fn classes(weights: &Bound<'_, PyAny>) -> PyResult<Self> {
        let weights = vector("weights", weights)?;
        Ok(Self(favor::learn::Readout::classes(weights, None)))
    }

    /// Of the sum of the weights and one sum per target the means; 0 for rows that no feature reaches.
    #[staticmethod]
    fn means(targets: usize) -> Self {
        Self(favor::learn::Readout::Numbers(vec![Scaling::IDENTITY; targets]))
    }

    /// Of the sum of the weights the logarithm of the density, for rows of this total weight.
    #[staticmethod]
    fn density(bandwidth: f64, dim: usize, weight: f64) -> PyResult<Self> {
        if weight <= 0.0 {
            return Err(errors::value("all samples have a weight of zero"));
        }
        let readout = favor::learn::Readout::density(bandwidth, &vec![1.0; dim], weight);
        Ok(Self(readout))
    }

    /// One row per query.
    fn outputs(
        &self,
        py: Python<'_>,
        log_scale: &Bound<'_, PyAny>,
        sums: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let log_scale = vector("log_scale", log_scale)?;
        let values = doubles("sums", sums)?.rows().map_err(errors::library)?.to_f64(1.0);
        // Of numbers, the first column is the sum of the weights.
        let width = self.0.width() + usize::from(self.0.task() == Task::Regress);
        if values.shape() != (log_scale.len(), width) {
            let (rows, found) = values.shape();
            let scales = log_scale.len();
            return Err(errors::value(format!(
                "sums has shape ({rows}, {found}); ({scales}, {width}) is needed"
            )));
        }
        give_matrix(py, self.0.outputs(&LogScaled { log_scale, values }))
    }
}
