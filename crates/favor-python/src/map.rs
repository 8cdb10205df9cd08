//! Feature maps.

use crate::arguments::{self, Whole, kernel};
use crate::arrays::{self, by_type, doubles, give, give_matrix, read_rows, read_tensor};
use crate::errors;
use crate::moments::Moments;
use crate::run::run;
use favor::{AdaptiveMaps, Matrix, Parameters, Redraw, Side, Statistics};
use pyo3::exceptions::PyOSError;
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
fn moments(py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<favor::Moments> {
    if let Ok(moments) = value.cast::<Moments>() {
        return Ok(moments.get().0.clone());
    }
    let rows = doubles(name, value)?;
    let work = (rows.shape[0] * rows.shape[1] * rows.shape[1]) as f64;
    run(py, work, move |_| favor::Moments::of(rows.rows()?))
}

#[pymethods]
impl FeatureMap {
    /// The map that is best for the two sets.
    #[staticmethod]
    #[pyo3(signature = (queries, keys=None, *, features=Whole(256), family="balanced", kernel=None,
                        scale=1.0, coupling="orthogonal", seed=Whole(0)))]
    #[allow(clippy::too_many_arguments)]
    fn fit(
        py: Python<'_>,
        queries: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
        features: Whole,
        family: &str,
        kernel: Option<&Bound<'_, PyAny>>,
        scale: f64,
        coupling: &str,
        seed: Whole,
    ) -> PyResult<Self> {
        let queries = moments(py, "queries", queries)?;
        let keys = keys.map_or_else(|| Ok(queries.clone()), |keys| moments(py, "keys", keys))?;
        let softmax = "softmax".into_pyobject(py)?.into_any();
        let kernel = arguments::kernel(kernel.unwrap_or(&softmax), scale, queries.dim())?;
        let spec = arguments::spec(family, features, kernel, coupling, seed)?;
        let dim = queries.dim() as f64;
        let work = dim.powi(3) * 10.0 + features.0 as f64 * dim * dim;
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
        family: &str,
        kernel: &Bound<'_, PyAny>,
        scale: f64,
        coupling: &str,
        seed: Whole,
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
        let kernel = arguments::kernel(kernel, scale, omega.columns())?;
        let spec = arguments::spec(family, Whole(omega.rows() as u64), kernel, coupling, seed)?;
        spec.with_omega(parameters, omega).map(Self).map_err(errors::library)
    }

    /// The numbers of a positive map, as `from_arrays` takes them.
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Some(p) = self.0.parameters() else {
            return Err(errors::value(format!("{} takes no parameters", self.0.spec().family)));
        };
        let vector = |v: &[f64]| give(py, v.to_vec(), &[v.len()]);
        let out = PyDict::new(py);
        out.set_item("omega", give_matrix(py, self.0.omega().clone())?)?;
        out.set_item("quadratic", vector(p.quadratic())?)?;
        out.set_item("query_transform", give_matrix(py, p.query_transform().clone())?)?;
        out.set_item("key_transform", give_matrix(py, p.key_transform().clone())?)?;
        out.set_item("query_shift", vector(p.query_shift())?)?;
        out.set_item("key_shift", vector(p.key_shift())?)?;
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
        let array = arrays::array("rows", rows)?;
        by_type!(["float32" => f32, "float64" => f64], &[("rows", &array)], |T| {
            let rows = read_rows::<T>("rows", &array)?;
            let work = self.work(rows.shape[0]);
            let out = run(py, work, move |_| map.features_of(side, rows.rows()?)?.to_matrix())?;
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
        let array = arrays::array("rows", rows)?;
        by_type!(["float32" => f32, "float64" => f64], &[("rows", &array)], |T| {
            let rows = read_rows::<T>("rows", &array)?;
            let work = self.work(rows.shape[0]);
            give_matrix(py, run(py, work, move |_| map.log_features(side, rows.rows()?))?)
        })
    }

    /// Writes a safetensors file, whole or not at all.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        let bytes = self.0.to_bytes().map_err(errors::library)?;
        favor_io::write_atomically(path, &bytes).map_err(|e| PyOSError::new_err(e.to_string()))
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
    fn omega(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        give_matrix(py, self.0.omega().clone())
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Self>().getattr("from_bytes")?, (self.to_bytes(py)?,)))
    }

    fn __repr__(&self) -> String {
        let (family, features, dim) = (self.family(), self.features(), self.dim());
        format!("FeatureMap(family='{family}', features={features}, dim={dim})")
    }
}

impl FeatureMap {
    fn work(&self, rows: usize) -> f64 {
        (rows * self.0.features()) as f64 * self.0.dim() as f64
    }
}

/// One map a head for tensors of queries and keys, fitted to the batch, or one a sequence and head.
#[pyfunction]
#[pyo3(signature = (q, k, *, features=Whole(256), family="balanced", kernel=None, scale=1.0,
                    coupling="orthogonal", seed=Whole(0), key_mask=None, per_sequence=false))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn fit_maps(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    features: Whole,
    family: &str,
    kernel: Option<&Bound<'_, PyAny>>,
    scale: f64,
    coupling: &str,
    seed: Whole,
    key_mask: Option<&Bound<'_, PyAny>>,
    per_sequence: bool,
) -> PyResult<Vec<FeatureMap>> {
    let (q, k) = (arrays::array("q", q)?, arrays::array("k", k)?);
    let mask = arrays::mask("key_mask", key_mask)?;
    let types = [("q", &q), ("k", &k)];
    by_type!(
        ["float16" => half::f16, "float32" => f32, "float64" => f64],
        &types,
        |T| {
            let (q, k) = (read_tensor::<T>("q", &q)?, read_tensor::<T>("k", &k)?);
            let dim = q.shape[q.shape.len() - 1];
            let heads = if q.shape.len() > 2 { q.shape[q.shape.len() - 3] } else { 1 };
            let attention = "attention".into_pyobject(py)?.into_any();
            let kernel = self::kernel(kernel.unwrap_or(&attention), scale, dim)?;
            let spec = arguments::spec(family, features, kernel, coupling, seed)?;
            let work = q.shape.iter().chain(&k.shape).product::<usize>() as f64;
            let maps = run(py, work.max(heads as f64 * (dim as f64).powi(3)), move |_| {
                let statistics = match per_sequence {
                    true => Statistics::PerSequence,
                    false => Statistics::PerBatch,
                };
                AdaptiveMaps::new(spec, heads, Redraw::Never, statistics)?.training(
                    q.tensor()?,
                    k.tensor()?,
                    mask.as_deref(),
                    false,
                )
            })?;
            Ok(maps.into_iter().map(FeatureMap).collect())
        }
    )
}
