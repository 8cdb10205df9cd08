//! What random features are worth on given arrays.

use crate::arguments::{self, Whole};
use crate::arrays;
use crate::errors;
use crate::run::run;
use favor::Family;
use favor_inspect::InspectOptions;
use favor_io::progress::silent;
use favor_io::{HeadArrays, Stack};
use numpy::PyUntypedArrayMethods;
use pyo3::prelude::*;

/// The report of an inspection, as text and as JSON.
#[pyfunction]
#[pyo3(signature = (queries, keys, values=None, *, kernel=None, scale=1.0, features=None,
                    families=None, seed=Whole(0)))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn inspect(
    py: Python<'_>,
    queries: &Bound<'_, PyAny>,
    keys: &Bound<'_, PyAny>,
    values: Option<&Bound<'_, PyAny>>,
    kernel: Option<&Bound<'_, PyAny>>,
    scale: f64,
    features: Option<Vec<Whole>>,
    families: Option<Vec<String>>,
    seed: Whole,
) -> PyResult<(String, String)> {
    let (queries, keys) = (stack("queries", queries)?, stack("keys", keys)?);
    let values = values.map(|v| stack("values", v)).transpose()?;
    let heads = HeadArrays::new(queries, keys, values).map_err(|e| errors::value(e.to_string()))?;
    // With values it is about attention, without them about the kernel itself.
    let usual = if heads.has_values() { "attention" } else { "softmax" };
    let usual = usual.into_pyobject(py)?.into_any();
    let kernel = arguments::kernel(kernel.unwrap_or(&usual), scale, heads.dim())?;
    let mut options = InspectOptions::new(kernel).seed(seed.0);
    if let Some(features) = features {
        options = options.features(features.into_iter().map(Whole::count).collect());
    }
    if let Some(names) = families {
        let parsed: favor::Result<Vec<Family>> = names.iter().map(|n| n.parse()).collect();
        options = options.families(parsed.map_err(errors::library)?);
    }
    let found = run(py, f64::INFINITY, move |_| favor_inspect::inspect(&heads, &options, &silent))?;
    Ok((found.to_text(), found.to_json()))
}

/// Rows and columns, heads × rows × columns, or a batch of one such stack.
fn stack(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Stack> {
    let array = arrays::array(name, value)?;
    let shape = array.shape().to_vec();
    let flat = arrays::vector(name, &array.call_method1("reshape", (-1,))?)?;
    Stack::new(flat, &shape).map_err(|problem| errors::value(format!("{name}: {problem}")))
}
