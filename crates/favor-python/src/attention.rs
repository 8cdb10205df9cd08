//! Attention over arrays, by features and exactly.

use crate::arguments::{self, Seen, Whole};
use crate::arrays::{self, Fresh, by_type, give, read_tensor};
use crate::run::run;
use pyo3::prelude::*;

/// The shape of the output: that of the queries with the values' dimension.
pub(crate) fn output_shape(q: &[usize], v: &[usize]) -> Vec<usize> {
    let mut shape = q.to_vec();
    if let (Some(last), Some(dim)) = (shape.last_mut(), v.last()) {
        *last = *dim;
    }
    shape
}

/// Attention by features.
#[pyfunction]
#[pyo3(signature = (q, k, v, maps, *, causal=false, key_mask=None, near=Whole(0), offsets=None,
                    threads=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn attention(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    maps: &Bound<'_, PyAny>,
    causal: bool,
    key_mask: Option<&Bound<'_, PyAny>>,
    near: Whole,
    offsets: Option<Vec<Whole>>,
    threads: Option<Whole>,
) -> PyResult<Py<PyAny>> {
    let maps = arguments::maps(maps)?;
    let seen = Seen::new(causal, key_mask, near, offsets, threads)?;
    let (q, k, v) = (arrays::array("q", q)?, arrays::array("k", k)?, arrays::array("v", v)?);
    let types = [("q", &q), ("k", &k), ("v", &v)];
    by_type!(
        ["float16" => half::f16, "float32" => f32, "float64" => f64],
        &types,
        |T| {
            let (q, k) = (read_tensor::<T>("q", &q)?, read_tensor::<T>("k", &k)?);
            let v = read_tensor::<T>("v", &v)?;
            let features = maps.first().map_or(0, favor::FeatureMap::features);
            let work = arguments::work(&q.shape, &k.shape, &v.shape, Some(features));
            let mut out = Fresh::new(py, &output_shape(&q.shape, &v.shape))?;
            let out = run(py, work, move |stop| {
                let (q, k, v) = (q.tensor()?, k.tensor()?, v.tensor()?);
                favor::attention_into(&maps, q, k, v, &seen.options(stop), out.numbers())?;
                Ok::<_, favor::Error>(out)
            })?;
            Ok(out.give())
        }
    )
}

/// Attention without approximation, in blocks.
#[pyfunction]
#[pyo3(signature = (q, k, v, *, kernel=None, scale=1.0, causal=false, key_mask=None, offsets=None,
                    threads=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn exact_attention(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    kernel: Option<&Bound<'_, PyAny>>,
    scale: f64,
    causal: bool,
    key_mask: Option<&Bound<'_, PyAny>>,
    offsets: Option<Vec<Whole>>,
    threads: Option<Whole>,
) -> PyResult<Py<PyAny>> {
    let seen = Seen::new(causal, key_mask, Whole(0), offsets, threads)?;
    let (q, k, v) = (arrays::array("q", q)?, arrays::array("k", k)?, arrays::array("v", v)?);
    let types = [("q", &q), ("k", &k), ("v", &v)];
    by_type!(
        ["float16" => half::f16, "float32" => f32, "float64" => f64],
        &types,
        |T| {
            let (q, k) = (read_tensor::<T>("q", &q)?, read_tensor::<T>("k", &k)?);
            let v = read_tensor::<T>("v", &v)?;
            let attention = "attention".into_pyobject(py)?.into_any();
            let dim = q.shape[q.shape.len() - 1];
            let kernel = arguments::kernel(kernel.unwrap_or(&attention), scale, dim)?;
            let work = arguments::work(&q.shape, &k.shape, &v.shape, None);
            let shape = output_shape(&q.shape, &v.shape);
            let out = run(py, work, move |stop| {
                let (q, k, v) = (q.tensor()?, k.tensor()?, v.tensor()?);
                favor::exact_attention_tensors(kernel, q, k, v, &seen.options(stop))
            })?;
            give(py, out, &shape)
        }
    )
}
