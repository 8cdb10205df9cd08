//! The gradients of attention.

use crate::arguments::{self, Seen, Whole};
use crate::arrays::{self, by_type, give, read_tensor};
use crate::run::run;
use pyo3::prelude::*;

type Three = (Py<PyAny>, Py<PyAny>, Py<PyAny>);

/// The gradients of `attention` with respect to queries, keys and values.
#[pyfunction]
#[pyo3(signature = (q, k, v, out, gradient, maps, *, causal=false, key_mask=None, near=Whole(0),
                    offsets=None, threads=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn attention_backward(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    gradient: &Bound<'_, PyAny>,
    maps: &Bound<'_, PyAny>,
    causal: bool,
    key_mask: Option<&Bound<'_, PyAny>>,
    near: Whole,
    offsets: Option<Vec<Whole>>,
    threads: Option<Whole>,
) -> PyResult<Three> {
    let maps = arguments::maps(maps)?;
    let seen = Seen::new(causal, key_mask, near, offsets, threads)?;
    let (q, k, v) = (arrays::array("q", q)?, arrays::array("k", k)?, arrays::array("v", v)?);
    let (out, gradient) = (arrays::array("out", out)?, arrays::array("gradient", gradient)?);
    let types = [("q", &q), ("k", &k), ("v", &v), ("out", &out), ("gradient", &gradient)];
    by_type!(
        ["float16" => half::f16, "float32" => f32, "float64" => f64],
        &types,
        |T| {
            let (q, k) = (read_tensor::<T>("q", &q)?, read_tensor::<T>("k", &k)?);
            let v = read_tensor::<T>("v", &v)?;
            let out = read_tensor::<T>("out", &out)?;
            let gradient = read_tensor::<T>("gradient", &gradient)?;
            let features = maps.first().map_or(0, favor::FeatureMap::features);
            let work = 4.0 * arguments::work(&q.shape, &k.shape, &v.shape, Some(features));
            let shapes = [q.shape.clone(), k.shape.clone(), v.shape.clone()];
            let g = run(py, work, move |stop| {
                let (q, k, v) = (q.tensor()?, k.tensor()?, v.tensor()?);
                let (out, gradient) = (out.tensor()?, gradient.tensor()?);
                let options = seen.options(stop);
                favor::attention_backward(&maps, q, k, v, out, gradient, &options)
            })?;
            let [q, k, v] = shapes;
            Ok((give(py, g.q, &q)?, give(py, g.k, &k)?, give(py, g.v, &v)?))
        }
    )
}

/// The gradients of `exact_attention`.
#[pyfunction]
#[pyo3(signature = (q, k, v, out, gradient, *, kernel=None, scale=1.0, causal=false, key_mask=None,
                    offsets=None, threads=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn exact_attention_backward(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    gradient: &Bound<'_, PyAny>,
    kernel: Option<&Bound<'_, PyAny>>,
    scale: f64,
    causal: bool,
    key_mask: Option<&Bound<'_, PyAny>>,
    offsets: Option<Vec<Whole>>,
    threads: Option<Whole>,
) -> PyResult<Three> {
    let seen = Seen::new(causal, key_mask, Whole(0), offsets, threads)?;
    let (q, k, v) = (arrays::array("q", q)?, arrays::array("k", k)?, arrays::array("v", v)?);
    let (out, gradient) = (arrays::array("out", out)?, arrays::array("gradient", gradient)?);
    let types = [("q", &q), ("k", &k), ("v", &v), ("out", &out), ("gradient", &gradient)];
    by_type!(
        ["float16" => half::f16, "float32" => f32, "float64" => f64],
        &types,
        |T| {
            let (q, k) = (read_tensor::<T>("q", &q)?, read_tensor::<T>("k", &k)?);
            let v = read_tensor::<T>("v", &v)?;
            let out = read_tensor::<T>("out", &out)?;
            let gradient = read_tensor::<T>("gradient", &gradient)?;
            let attention = "attention".into_pyobject(py)?.into_any();
            let dim = q.shape[q.shape.len() - 1];
            let kernel = arguments::kernel(kernel.unwrap_or(&attention), scale, dim)?;
            let work = 4.0 * arguments::work(&q.shape, &k.shape, &v.shape, None);
            let shapes = [q.shape.clone(), k.shape.clone(), v.shape.clone()];
            let g = run(py, work, move |stop| {
                let (q, k, v) = (q.tensor()?, k.tensor()?, v.tensor()?);
                let (out, gradient) = (out.tensor()?, gradient.tensor()?);
                let options = seen.options(stop);
                favor::exact_attention_backward(kernel, q, k, v, out, gradient, &options)
            })?;
            let [q, k, v] = shapes;
            Ok((give(py, g.q, &q)?, give(py, g.k, &k)?, give(py, g.v, &v)?))
        }
    )
}
