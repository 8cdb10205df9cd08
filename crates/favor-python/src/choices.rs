//! Exact or features, head by head.

use crate::arguments::{self, Seen, Whole};
use crate::arrays::{self, by_type, doubles, give, read_tensor};
use crate::attention::output_shape;
use crate::map::FeatureMap;
use crate::run::run;
use favor::diagnose::{Estimator, predict};
use pyo3::prelude::*;

/// How one head is computed, and why.
#[pyclass(module = "favor_sharp", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Choice(favor::Choice);

#[pymethods]
impl Choice {
    /// Whether the head is computed exactly.
    #[getter]
    fn exact(&self) -> bool {
        !self.0.by_features()
    }

    /// The predicted relative error of the output by features, where it was looked at.
    #[getter]
    fn predicted_error(&self) -> Option<f64> {
        match self.0 {
            favor::Choice::Features { predicted_error }
            | favor::Choice::ExactIsNeeded { predicted_error } => Some(predicted_error),
            favor::Choice::ExactIsShort => None,
        }
    }

    fn __repr__(&self) -> String {
        format!("Choice({})", self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }
}

/// Decides for each head of each sequence whether features serve.
#[pyfunction]
#[pyo3(signature = (q, k, v, maps, *, tolerance=0.1, causal=false, key_mask=None, offsets=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn choose(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    maps: &Bound<'_, PyAny>,
    tolerance: f64,
    causal: bool,
    key_mask: Option<&Bound<'_, PyAny>>,
    offsets: Option<Vec<Whole>>,
) -> PyResult<Vec<Choice>> {
    let maps = arguments::maps(maps)?;
    let seen = Seen::new(causal, key_mask, Whole(0), offsets, None)?;
    let (q, k, v) = (arrays::array("q", q)?, arrays::array("k", k)?, arrays::array("v", v)?);
    let types = [("q", &q), ("k", &k), ("v", &v)];
    by_type!(
        ["float16" => half::f16, "float32" => f32, "float64" => f64],
        &types,
        |T| {
            let (q, k) = (read_tensor::<T>("q", &q)?, read_tensor::<T>("k", &k)?);
            let v = read_tensor::<T>("v", &v)?;
            let choices = run(py, f64::INFINITY, move |stop| {
                let (q, k, v) = (q.tensor()?, k.tensor()?, v.tensor()?);
                favor::choose(&maps, q, k, v, &seen.options(stop), tolerance)
            })?;
            Ok(choices.into_iter().map(Choice).collect())
        }
    )
}

/// Attention with the choices of `choose`.
#[pyfunction]
#[pyo3(signature = (q, k, v, maps, choices, *, causal=false, key_mask=None, near=Whole(0), offsets=None,
                    threads=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn auto_attention(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    maps: &Bound<'_, PyAny>,
    choices: Vec<Bound<'_, Choice>>,
    causal: bool,
    key_mask: Option<&Bound<'_, PyAny>>,
    near: Whole,
    offsets: Option<Vec<Whole>>,
    threads: Option<Whole>,
) -> PyResult<Py<PyAny>> {
    let maps = arguments::maps(maps)?;
    let choices: Vec<favor::Choice> = choices.iter().map(|c| c.get().0).collect();
    let seen = Seen::new(causal, key_mask, near, offsets, threads)?;
    let (q, k, v) = (arrays::array("q", q)?, arrays::array("k", k)?, arrays::array("v", v)?);
    let types = [("q", &q), ("k", &k), ("v", &v)];
    by_type!(
        ["float16" => half::f16, "float32" => f32, "float64" => f64],
        &types,
        |T| {
            let (q, k) = (read_tensor::<T>("q", &q)?, read_tensor::<T>("k", &k)?);
            let v = read_tensor::<T>("v", &v)?;
            let work = arguments::work(&q.shape, &k.shape, &v.shape, None);
            let shape = output_shape(&q.shape, &v.shape);
            let out = run(py, work, move |stop| {
                let (q, k, v) = (q.tensor()?, k.tensor()?, v.tensor()?);
                favor::auto_attention(&maps, q, k, v, &seen.options(stop), &choices)
            })?;
            give(py, out, &shape)
        }
    )
}

/// The relative error of the attention output that the closed forms predict, or `None` for a family
/// without them.
#[pyfunction]
#[pyo3(signature = (map, queries, keys, values, *, features=None))]
pub(crate) fn predicted_error(
    py: Python<'_>,
    map: &Bound<'_, FeatureMap>,
    queries: &Bound<'_, PyAny>,
    keys: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
    features: Option<Whole>,
) -> PyResult<Option<f64>> {
    let map = map.get().0.clone();
    let (q, k) = (doubles("queries", queries)?, doubles("keys", keys)?);
    let v = doubles("values", values)?;
    let features = features.map_or(map.features(), Whole::count) as f64;
    let work = (q.shape[0] * k.shape[0]) as f64 * (k.shape[0] * q.shape[1]) as f64;
    run(py, work, move |_| {
        let estimator = Estimator::from(&map);
        let prediction = predict(&estimator, q.rows()?, k.rows()?, Some(v.rows()?))?;
        Ok::<_, favor::Error>(prediction.and_then(|p| p.output_error(features)))
    })
}
