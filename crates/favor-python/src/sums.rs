//! Sums over keys that are fed in pieces, merged, and applied to queries.

use crate::arguments::{Unsigned, check_size};
use crate::arrays::{self, doubles, give, give_matrix, rows};
use crate::errors;
use crate::map::FeatureMap;
use crate::product::give_scaled;
use crate::run::run;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// `SᵀC` of the keys seen so far. Calls that read the sums share them.
#[pyclass(module = "favor_sharp")]
pub(crate) struct KeySums(Arc<favor::KeySums>);

#[pymethods]
impl KeySums {
    #[new]
    fn new(map: &Bound<'_, FeatureMap>, columns: Unsigned) -> PyResult<Self> {
        check_size("columns", &[map.get().0.features(), columns.count()])?;
        Ok(Self(Arc::new(favor::KeySums::new(&map.get().0, columns.count()))))
    }

    /// Adds a piece of the keys with their values.
    fn add(
        &mut self,
        py: Python<'_>,
        map: &Bound<'_, FeatureMap>,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (map, sums) = (map.get().0.clone(), self.0.clone());
        // The sums stay as they are until all is done, so that an interrupted call leaves no trace.
        let all = rows!(|T, keys, values| {
            let work = (keys.shape[0] * map.features()) as f64 * map.dim() as f64;
            run(py, work, move |_| {
                let mut piece = favor::KeySums::new(&map, sums.sums().columns());
                piece.add(&map, keys.rows()?, values.rows()?)?;
                piece.merge(&sums)?;
                Ok::<_, favor::Error>(piece)
            })
        })?;
        self.0 = Arc::new(all);
        Ok(())
    }

    /// Adds the sums over other keys.
    fn merge(&mut self, other: &Self) -> PyResult<()> {
        let mut all = favor::KeySums::clone(&self.0);
        all.merge(&other.0).map_err(errors::library)?;
        self.0 = Arc::new(all);
        Ok(())
    }

    /// The product for a set of queries: logarithmic scales of the rows, and the rows.
    fn apply(
        &self,
        py: Python<'_>,
        map: &Bound<'_, FeatureMap>,
        queries: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let (map, sums) = (map.get().0.clone(), self.0.clone());
        rows!(|T, queries| {
            let work = (queries.shape[0] * map.features()) as f64 * map.dim() as f64;
            give_scaled(py, run(py, work, move |_| sums.apply(&map, queries.rows()?))?)
        })
    }

    /// Puts together what `log_scale` and `sums` gave out.
    #[staticmethod]
    fn from_parts(log_scale: &Bound<'_, PyAny>, sums: &Bound<'_, PyAny>) -> PyResult<Self> {
        let log_scale = arrays::vector("log_scale", log_scale)?;
        let sums = doubles("sums", sums)?.rows().map_err(errors::library)?.to_f64(1.0);
        let sums = favor::KeySums::from_parts(log_scale, sums).map_err(errors::library)?;
        Ok(Self(Arc::new(sums)))
    }

    /// The sums as the bytes of a safetensors file, with a note of what they belong to.
    fn to_bytes<'py>(&self, py: Python<'py>, note: &str) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.to_bytes(&note).map_err(errors::library)?))
    }

    /// The sums of such bytes, and their note.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<(Self, String)> {
        let (sums, note) = favor::KeySums::from_bytes(bytes).map_err(errors::library)?;
        Ok((Self(Arc::new(sums)), note))
    }

    #[getter]
    fn log_scale(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        give(py, self.0.log_scale().to_vec(), &[self.0.log_scale().len()])
    }

    #[getter]
    fn sums(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        give_matrix(py, self.0.sums().clone())
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let make = py.get_type::<Self>().getattr("from_parts")?.unbind();
        let parts = (self.log_scale(py)?, self.sums(py)?).into_pyobject(py)?;
        Ok((make, parts.into_any().unbind()))
    }
}
