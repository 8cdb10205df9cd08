//! What random features are worth on given arrays.

use crate::arguments::{KernelName, Maps, Named, Routed, Unsigned};
use crate::arrays;
use crate::errors;
use crate::run::run;
use favor::Family;
use favor_inspect::{InspectOptions, MapOptions};
use favor_io::progress::silent;
use favor_io::{HeadArrays, Problem, SequenceArrays, Sequences, Stack};
use numpy::PyUntypedArrayMethods;
use pyo3::prelude::*;

/// The report of an inspection, as text and as JSON.
#[pyfunction]
#[pyo3(signature = (queries, keys, values=None, *, kernel=None, scale=1.0, features=None,
                    families=None, seed=Unsigned(0)))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn inspect(
    py: Python<'_>,
    queries: &Bound<'_, PyAny>,
    keys: &Bound<'_, PyAny>,
    values: Option<&Bound<'_, PyAny>>,
    kernel: Option<KernelName>,
    scale: f64,
    features: Option<Vec<Unsigned>>,
    families: Option<Vec<Named<Family>>>,
    seed: Unsigned,
) -> PyResult<(String, String)> {
    let (queries, keys) = (stack("queries", queries)?, stack("keys", keys)?);
    let values = values.map(|v| stack("values", v)).transpose()?;
    let heads = HeadArrays::new(queries, keys, values).map_err(|e| errors::value(e.to_string()))?;
    // With values it is about attention, without them about the kernel itself.
    let usual = if heads.has_values() { KernelName::Attention } else { KernelName::Softmax };
    let kernel = kernel.unwrap_or(usual).kernel(scale, heads.dim())?;
    let mut options = InspectOptions::new(kernel).seed(seed.0);
    if let Some(features) = features {
        options = options.features(features.into_iter().map(Unsigned::count).collect());
    }
    if let Some(families) = families {
        options = options.families(families.into_iter().map(|name| name.0).collect());
    }
    let found = run(py, f64::INFINITY, move |_| favor_inspect::inspect(&heads, &options, &silent))?;
    Ok((found.to_text(), found.to_json()))
}

/// What given maps are worth on sequences, as text and as JSON.
#[pyfunction]
#[pyo3(signature = (maps, queries, keys, values=None, *, near=None, global_keys=None, routed=None,
                    causal=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn inspect_maps(
    py: Python<'_>,
    maps: Maps,
    queries: &Bound<'_, PyAny>,
    keys: &Bound<'_, PyAny>,
    values: Option<&Bound<'_, PyAny>>,
    near: Option<Unsigned>,
    global_keys: Option<Unsigned>,
    routed: Option<Routed>,
    causal: Option<bool>,
) -> PyResult<(String, String)> {
    let read = |name, value| numbers(name, value, Sequences::new);
    let values = values.map(|v| read("values", v)).transpose()?;
    let arrays = SequenceArrays::new(read("queries", queries)?, read("keys", keys)?, values);
    let arrays = arrays.map_err(|e| errors::value(e.to_string()))?;
    let options = MapOptions::new()
        .near(near.map(Unsigned::count))
        .global(global_keys.map(Unsigned::count))
        .routed(routed.map(|r| (r.slots, r.members)))
        .causal(causal);
    let found = run(py, f64::INFINITY, move |_| {
        favor_inspect::inspect_maps(&arrays, &maps.0, &options, &silent)
    })?;
    Ok((found.to_text(), found.to_json()))
}

/// Rows and columns, heads × rows × columns, or a batch of one such stack.
fn stack(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Stack> {
    numbers(name, value, Stack::new)
}

/// What the numbers and the shape of an array make.
fn numbers<O>(
    name: &str,
    value: &Bound<'_, PyAny>,
    make: impl Fn(Vec<f64>, &[usize]) -> Result<O, Problem>,
) -> PyResult<O> {
    let array = arrays::array(name, value)?;
    let shape = array.shape().to_vec();
    let flat = arrays::vector(name, &array.call_method1("reshape", (-1,))?)?;
    make(flat, &shape).map_err(|problem| errors::value(format!("{name}: {problem}")))
}
