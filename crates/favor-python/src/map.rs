//! Feature maps.

use crate::arguments::{KernelName, Maps, Named, Unsigned, spec};
use crate::arrays::{self, doubles, give, give_matrix, rows};
use crate::errors;
use crate::moments::{Moments, moments_of};
use crate::run::run;
use favor::{Coupling, Family, FeatureSpec, Matrix, Parameters, RowTerm, Side};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;

/// A fitted map: immutable, one for both sides of the kernel.
#[pyclass(module = "favor_sharp", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct FeatureMap(pub(crate) favor::FeatureMap);

fn side(name: &str) -> PyResult<Side> {
    match name {
        "query" => Ok(Side::Query),
        "key" => Ok(Side::Key),
        _ => Err(errors::value(format!("side: '{name}' is neither 'query' nor 'key'"))),
    }
}

/// A set as its moments.
fn moments(value: &Bound<'_, PyAny>) -> PyResult<favor::Moments> {
    match value.cast::<Moments>() {
        Ok(moments) => Ok(moments.get().0.clone()),
        Err(_) => moments_of(value, None),
    }
}

#[pymethods]
impl FeatureMap {
    /// The map that is best for the two sets.
    #[staticmethod]
    #[pyo3(signature = (queries, keys=None, *, features=Unsigned(256), family=Named(Family::Balanced),
                        kernel=KernelName::Softmax, scale=1.0,
                        coupling=Named(Coupling::Orthogonal), seed=Unsigned(0)))]
    #[allow(clippy::too_many_arguments)]
    fn fit(
        py: Python<'_>,
        queries: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
        features: Unsigned,
        family: Named<Family>,
        kernel: KernelName,
        scale: f64,
        coupling: Named<Coupling>,
        seed: Unsigned,
    ) -> PyResult<Self> {
        let queries = moments(queries)?;
        let keys = keys.map_or_else(|| Ok(queries.clone()), moments)?;
        let kernel = kernel.kernel(scale, queries.dim())?;
        let spec = spec(features, family, coupling, seed, kernel);
        let work = fit_work(&spec, queries.dim());
        run(py, work, move |_| spec.fit(&queries, &keys)).map(Self)
    }

    /// The map with parameters and an ω of the caller's own.
    #[staticmethod]
    #[pyo3(signature = (omega, quadratic, query_transform, key_transform, query_shift, key_shift, *,
                        family, kernel, scale, coupling, seed))]
    #[allow(clippy::too_many_arguments)]
    fn from_arrays(
        omega: &Bound<'_, PyAny>,
        quadratic: &Bound<'_, PyAny>,
        query_transform: &Bound<'_, PyAny>,
        key_transform: &Bound<'_, PyAny>,
        query_shift: &Bound<'_, PyAny>,
        key_shift: &Bound<'_, PyAny>,
        family: Named<Family>,
        kernel: KernelName,
        scale: f64,
        coupling: Named<Coupling>,
        seed: Unsigned,
    ) -> PyResult<Self> {
        let matrix = |name: &str, value| -> PyResult<Matrix<f64>> {
            Ok(doubles(name, value)?.rows().map_err(errors::library)?.to_f64(1.0))
        };
        let omega = matrix("omega", omega)?;
        let parameters = Parameters::checked(
            arrays::vector("quadratic", quadratic)?,
            matrix("query_transform", query_transform)?,
            matrix("key_transform", key_transform)?,
            arrays::vector("query_shift", query_shift)?,
            arrays::vector("key_shift", key_shift)?,
        );
        let parameters = parameters.map_err(errors::library)?;
        let kernel = kernel.kernel(scale, omega.columns())?;
        let spec = spec(Unsigned(omega.rows() as u64), family, coupling, seed, kernel);
        spec.with_omega(parameters, omega).map(Self).map_err(errors::library)
    }

    /// The numbers of a positive map, as `from_arrays` takes them.
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (Some(p), Some(omega)) = (self.0.parameters(), self.0.omega()) else {
            let kind = if self.0.learned().is_some() { "a learned map" } else { "this family" };
            return Err(errors::value(format!("{kind} has no parameters in closed form")));
        };
        let vector = |v: &[f64]| give(py, v.to_vec(), &[v.len()]);
        let out = PyDict::new(py);
        out.set_item("omega", give_matrix(py, omega.clone())?)?;
        out.set_item("quadratic", vector(p.quadratic())?)?;
        out.set_item("query_transform", give_matrix(py, p.query_transform().clone())?)?;
        out.set_item("key_transform", give_matrix(py, p.key_transform().clone())?)?;
        out.set_item("query_shift", vector(p.query_shift())?)?;
        out.set_item("key_shift", vector(p.key_shift())?)?;
        Ok(out)
    }

    /// One side as the numbers that rows are projected by.
    fn side<'py>(&self, py: Python<'py>, side: &str) -> PyResult<Bound<'py, PyDict>> {
        let side = self.0.side(self::side(side)?);
        let vector = |v: &[f64]| give(py, v.to_vec(), &[v.len()]);
        let out = PyDict::new(py);
        out.set_item("weights", give_matrix(py, side.weights.clone())?)?;
        out.set_item("constants", vector(&side.constants)?)?;
        out.set_item("shift", vector(&side.shift)?)?;
        if let RowTerm::Exponential { transform, linear, constant, .. } = &side.row {
            out.set_item("transform", give_matrix(py, transform.clone())?)?;
            out.set_item("linear", vector(linear)?)?;
            out.set_item("constant", constant)?;
        }
        out.set_item("alpha", self.alpha())?;
        Ok(out)
    }

    /// The features of rows, so that `transform(x) @ transform(y, side="key").T` estimates K.
    #[pyo3(signature = (rows, *, side="query"))]
    fn transform(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        side: &str,
    ) -> PyResult<Py<PyAny>> {
        let (map, side) = (self.0.clone(), self::side(side)?);
        rows!(|T, rows| {
            let work = self.work(rows.shape[0]);
            let out: Matrix<T> =
                run(py, work, move |_| map.features_of(side, rows.rows()?)?.to_matrix())?;
            give_matrix(py, out)
        })
    }

    /// The logarithms of the features, for a positive family, without the factor M^-1/2.
    #[pyo3(signature = (rows, *, side="query"))]
    fn log_features(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        side: &str,
    ) -> PyResult<Py<PyAny>> {
        let (map, side) = (self.0.clone(), self::side(side)?);
        rows!(|T, rows| {
            let work = self.work(rows.shape[0]);
            let out: Matrix<T> = run(py, work, move |_| map.log_features(side, rows.rows()?))?;
            give_matrix(py, out)
        })
    }

    /// Writes a safetensors file, whole or not at all.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        write_atomically(path, &self.0.to_bytes().map_err(errors::library)?)
    }

    /// Reads a file that `save` wrote.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Self> {
        let bytes = std::fs::read(&path)
            .map_err(|e| PyOSError::new_err(format!("{}: cannot be read: {e}", path.display())))?;
        let place = |e| errors::value(format!("{}: {e}", path.display()));
        favor::FeatureMap::from_bytes(&bytes).map(Self).map_err(place)
    }

    /// The bytes of such a file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.to_bytes().map_err(errors::library)?))
    }

    /// The map of such bytes.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        favor::FeatureMap::from_bytes(bytes).map(Self).map_err(errors::library)
    }

    #[getter]
    fn family(&self) -> &'static str {
        self.0.spec().family.name()
    }

    #[getter]
    fn coupling(&self) -> &'static str {
        self.0.spec().coupling.name()
    }

    #[getter]
    fn features(&self) -> usize {
        self.0.features()
    }

    #[getter]
    fn dim(&self) -> usize {
        self.0.dim()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.0.spec().seed
    }

    #[getter]
    fn alpha(&self) -> f64 {
        self.0.kernel().alpha()
    }

    #[getter]
    fn scale(&self) -> f64 {
        self.0.kernel().scale()
    }

    #[getter]
    fn positive(&self) -> bool {
        self.0.spec().family.is_positive()
    }

    #[getter]
    fn omega(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.0.omega().map(|omega| give_matrix(py, omega.clone())).transpose()
    }

    /// What a learned map was learned on; `None` for any other.
    #[getter]
    fn learned<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(from) = self.0.learned() else { return Ok(None) };
        let exact = from.exact;
        let out = PyDict::new(py);
        out.set_item("source", &from.source)?;
        out.set_item("sequences", from.sequences)?;
        out.set_item("tokens", from.tokens)?;
        out.set_item("held_out", from.held_out)?;
        out.set_item("steps", from.steps)?;
        out.set_item("near", exact.near)?;
        out.set_item("global_keys", exact.global)?;
        out.set_item("routed", exact.is_routed().then_some((exact.slots, exact.members)))?;
        out.set_item("causal", from.causal)?;
        out.set_item("seed", from.seed)?;
        out.set_item("kl_before", from.kl_before)?;
        out.set_item("kl_after", from.kl_after)?;
        Ok(Some(out))
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Self>().getattr("from_bytes")?, (self.to_bytes(py)?,)))
    }

    fn __repr__(&self) -> String {
        let (family, features, dim) = (self.family(), self.features(), self.dim());
        let learned = if self.0.learned().is_some() { ", learned" } else { "" };
        format!("FeatureMap(family='{family}', features={features}, dim={dim}{learned})")
    }
}

impl FeatureMap {
    fn work(&self, rows: usize) -> f64 {
        (rows * self.0.features()) as f64 * self.0.dim() as f64
    }
}

/// About how many multiplications a fit takes.
pub(crate) fn fit_work(spec: &FeatureSpec, dim: usize) -> f64 {
    let dim = dim as f64;
    dim.powi(3) * 10.0 + spec.features as f64 * dim * dim
}

/// Maps as the bytes of one safetensors file, with a note in JSON if one is given.
#[pyfunction]
#[pyo3(signature = (maps, *, note=None))]
pub(crate) fn maps_to_bytes<'py>(
    py: Python<'py>,
    maps: Maps,
    note: Option<&str>,
) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = match note {
        Some(note) => {
            let note: serde_json::Value = serde_json::from_str(note)
                .map_err(|e| PyValueError::new_err(format!("note: not JSON: {e}")))?;
            favor::maps_to_bytes_with_note(&maps.0, &note)
        }
        None => favor::maps_to_bytes(&maps.0),
    };
    Ok(PyBytes::new(py, &bytes.map_err(errors::library)?))
}

/// The note of such bytes, if they have one.
#[pyfunction]
pub(crate) fn note_from_bytes(bytes: &[u8]) -> PyResult<Option<String>> {
    let note: Option<serde_json::Value> = favor::note_from_bytes(bytes).map_err(errors::library)?;
    Ok(note.map(|note| note.to_string()))
}

/// The maps of such bytes.
#[pyfunction]
pub(crate) fn maps_from_bytes(bytes: &[u8]) -> PyResult<Vec<FeatureMap>> {
    let maps = favor::maps_from_bytes(bytes).map_err(errors::library)?;
    Ok(maps.into_iter().map(FeatureMap).collect())
}

/// Writes a file, whole or not at all.
#[pyfunction]
pub(crate) fn write_atomically(path: PathBuf, bytes: &[u8]) -> PyResult<()> {
    favor_io::write_atomically(path, bytes).map_err(|e| PyOSError::new_err(e.to_string()))
}
