//! Exact or features, head by head, and what it rests on.

use crate::arguments::{Maps, Routed, Unsigned, exact_keys};
use crate::arrays::{KeyMask, doubles, tensors};
use crate::map::FeatureMap;
use crate::owned::OwnedOptions;
use crate::run::run;
use favor::Qkv;
use favor::diagnose::{self, Estimator, Operations, predict};
use pyo3::prelude::*;

/// How one head is computed, and why.
#[pyclass(module = "favor_sharp", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Choice(favor::Choice);

impl Choice {
    pub(crate) fn exact_keys(&self) -> favor::ExactKeys {
        self.0.exact_keys()
    }
}

#[pymethods]
impl Choice {
    /// Whether the head is computed exactly.
    #[getter]
    fn exact(&self) -> bool {
        self.0.is_exact()
    }

    /// The predicted relative error of the output by features, where it was looked at.
    #[getter]
    fn predicted_error(&self) -> Option<f64> {
        match self.0 {
            favor::Choice::Features { predicted_error, .. }
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

/// Decides for each head of each sequence whether features are accurate enough.
#[pyfunction]
#[pyo3(signature = (q, k, v, maps, *, tolerance=0.1, causal=false, key_mask=None, offsets=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn choose_heads(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    maps: Maps,
    tolerance: f64,
    causal: bool,
    key_mask: Option<KeyMask>,
    offsets: Option<Vec<Unsigned>>,
) -> PyResult<Vec<Choice>> {
    let options = OwnedOptions::new(causal, key_mask, offsets, None);
    tensors!(|T, q, k, v| {
        let choices = run(py, f64::INFINITY, move |stop| {
            let inputs = Qkv::<T>::new(q.tensor()?, k.tensor()?, v.tensor()?);
            favor::choose_heads(&maps.0, inputs, &options.borrow(stop), tolerance)
        })?;
        Ok(choices.into_iter().map(Choice).collect())
    })
}

/// The number of features at which they cost as much as the exact kernel.
#[pyfunction]
#[pyo3(signature = (queries, keys, *, causal=false))]
pub(crate) fn break_even(queries: Unsigned, keys: Unsigned, causal: bool) -> f64 {
    diagnose::break_even(queries.count(), keys.count(), causal)
}

/// Whether exact attention takes no longer than features with these exact keys.
#[pyfunction]
#[pyo3(signature = (map, queries, keys, *, causal=false, near=Unsigned(0), global_keys=Unsigned(0), routed=None))]
pub(crate) fn exact_is_no_slower(
    map: &Bound<'_, FeatureMap>,
    queries: Unsigned,
    keys: Unsigned,
    causal: bool,
    near: Unsigned,
    global_keys: Unsigned,
    routed: Option<Routed>,
) -> bool {
    let map = &map.get().0;
    let (queries, keys) = (queries.count(), keys.count());
    let exact = exact_keys(near, global_keys, routed).per_query(keys, causal);
    let operations = Operations { features: map.features(), dim: map.dim(), values: map.dim() };
    operations.exact_is_no_slower(exact as f64, queries, keys, causal)
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
    features: Option<Unsigned>,
) -> PyResult<Option<f64>> {
    let map = map.get().0.clone();
    let (q, k) = (doubles("queries", queries)?, doubles("keys", keys)?);
    let v = doubles("values", values)?;
    let features = features.map_or(map.features(), Unsigned::count) as f64;
    let work = (q.shape[0] * k.shape[0]) as f64 * (k.shape[0] * q.shape[1]) as f64;
    run(py, work, move |_| {
        let estimator = Estimator::of(&map)?;
        let prediction = predict(&estimator, q.rows()?, k.rows()?, Some(v.rows()?))?;
        Ok::<_, favor::Error>(prediction.and_then(|p| p.output_error(features)))
    })
}
