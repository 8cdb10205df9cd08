//! What random features are worth on given arrays.

use crate::arguments::Whole;
use crate::arrays;
use crate::errors;
use crate::run::run;
use favor::{Family, Kernel, Matrix};
use favor_io::arrays::Heads;
use favor_io::progress::silent;
use favor_lab::families::SHOWN;
use favor_lab::inspect::{InputScale, Request, inspect_arrays};
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
    let (q, k) = (heads("queries", queries)?, heads("keys", keys)?);
    let v = values.map(|v| heads("values", v)).transpose()?;
    let dim = q.heads.first().map_or(1, Matrix::columns);
    // With values it is about attention, without them about the kernel itself.
    let usual = if v.is_some() { "attention" } else { "softmax" }.into_pyobject(py)?.into_any();
    let kernel = crate::arguments::kernel(kernel.unwrap_or(&usual), scale, dim)?;
    let families = match families {
        None => SHOWN.to_vec(),
        Some(names) => {
            let parsed: Result<Vec<Family>, _> = names.iter().map(|n| n.parse()).collect();
            parsed.map_err(errors::library)?
        }
    };
    let request = Request {
        values: v.as_ref().map(|_| "in memory".into()),
        alpha: kernel.alpha(),
        scale: match kernel.scale() {
            s if s == Kernel::attention(dim).scale() => InputScale::Attention,
            s => InputScale::Factor(s),
        },
        features: features
            .map_or_else(|| vec![64, 256], |all| all.into_iter().map(Whole::count).collect()),
        families,
        seed: seed.0,
        ..Request::new("in memory", "in memory")
    };
    let found = run(py, f64::INFINITY, move |_| {
        // The messages are written for the command, whose arguments begin with dashes.
        inspect_arrays(&request, q, k, v, &silent).map_err(|e| e.to_string().replace("--", ""))
    })?;
    Ok((found.to_text(), found.to_json()))
}

/// Rows and columns, heads × rows × columns, or a batch of one such stack.
fn heads(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Heads> {
    let array = arrays::array(name, value)?;
    let shape = array.shape().to_vec();
    let (count, rows, columns) = match shape[..] {
        [rows, columns] => (1, rows, columns),
        [heads, rows, columns] | [1, heads, rows, columns] => (heads, rows, columns),
        _ => {
            return Err(errors::value(format!(
                "{name} has shape {shape:?}; rows × columns or heads × rows × columns is needed"
            )));
        }
    };
    if count * rows * columns == 0 {
        return Err(errors::value(format!("{name} is empty: its shape is {shape:?}")));
    }
    let flat = array.call_method1("reshape", (count * rows, columns))?;
    let all = arrays::doubles(name, &flat)?;
    let all = all.rows().map_err(errors::library)?;
    all.check_finite(match name {
        "queries" => "queries",
        "keys" => "keys",
        _ => "values",
    })
    .map_err(errors::library)?;
    let head = |h: usize| all.slice(h * rows, (h + 1) * rows).to_f64(1.0);
    Ok(Heads { heads: (0..count).map(head).collect(), three_dimensional: shape.len() > 2 })
}
