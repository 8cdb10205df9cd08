//! Count, mean and covariance of a set of vectors.

use crate::arrays::{self, doubles, give, give_matrix, rows};
use crate::errors;
use crate::run::run;
use pyo3::prelude::*;

/// Weighted mean and covariance of a set, fed in pieces and merged.
#[pyclass(module = "favor_sharp", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Moments(pub(crate) favor::Moments);

#[pymethods]
impl Moments {
    #[new]
    #[pyo3(signature = (rows, weights=None))]
    fn new(rows: &Bound<'_, PyAny>, weights: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        moments_of(rows, weights).map(Self)
    }

    /// Moments that were computed elsewhere.
    #[staticmethod]
    fn from_covariance(
        count: u64,
        weight: f64,
        mean: &Bound<'_, PyAny>,
        covariance: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let mean = arrays::vector("mean", mean)?;
        let covariance = doubles("covariance", covariance)?;
        let covariance = covariance.rows().map_err(errors::library)?.to_f64(1.0);
        let moments = favor::Moments::from_covariance(count, weight, mean, covariance);
        moments.map(Self).map_err(errors::library)
    }

    /// The moments of both sets together.
    fn merge(&self, other: &Bound<'_, Self>) -> PyResult<Self> {
        let mut all = self.0.clone();
        all.merge(&other.get().0).map_err(errors::library)?;
        Ok(Self(all))
    }

    #[getter]
    fn count(&self) -> u64 {
        self.0.count()
    }

    #[getter]
    fn weight(&self) -> f64 {
        self.0.weight()
    }

    #[getter]
    fn dim(&self) -> usize {
        self.0.dim()
    }

    #[getter]
    fn mean(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        give(py, self.0.mean().to_vec(), &[self.0.dim()])
    }

    #[getter]
    fn covariance(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        give_matrix(py, self.0.covariance())
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let make = py.get_type::<Self>().getattr("from_covariance")?.unbind();
        let parts = (self.count(), self.weight(), self.mean(py)?, self.covariance(py)?);
        Ok((make, parts.into_pyobject(py)?.into_any().unbind()))
    }

    fn __repr__(&self) -> String {
        format!("Moments(count={}, dim={})", self.0.count(), self.0.dim())
    }
}

/// The moments of an array of rows.
pub(crate) fn moments_of(
    rows: &Bound<'_, PyAny>,
    weights: Option<&Bound<'_, PyAny>>,
) -> PyResult<favor::Moments> {
    let py = rows.py();
    let weights = weights.map(|w| arrays::vector("weights", w)).transpose()?;
    rows!(|T, rows| {
        let work = (rows.shape[0] * rows.shape[1] * rows.shape[1]) as f64;
        run(py, work, move |_| match weights {
            None => favor::Moments::of(rows.rows()?),
            Some(weights) => {
                let mut moments = favor::Moments::new(rows.shape[1]);
                moments.add_weighted(rows.rows()?, &weights)?;
                Ok::<_, favor::Error>(moments)
            }
        })
    })
}
