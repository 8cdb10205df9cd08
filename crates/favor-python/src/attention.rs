//! Attention over arrays and its gradients: by features, exactly, or some heads one way and some the
//! other.

use crate::arguments::{KernelName, Maps, Routed, Unsigned, exact_keys};
use crate::arrays::{Fresh, KeyMask, give, tensors};
use crate::errors;
use crate::owned::{ExactHeads, OwnedMethod, OwnedOptions};
use crate::run::run;
use favor::{AttentionOptions, ExactKeys, Qkv};
use pyo3::prelude::*;

/// The shape of the output: that of the queries with the values' dimension.
pub(crate) fn output_shape(q: &[usize], v: &[usize]) -> Vec<usize> {
    let mut shape = q.to_vec();
    if let (Some(last), Some(dim)) = (shape.last_mut(), v.last()) {
        *last = *dim;
    }
    shape
}

/// Refuses what `attention` refuses, for code that computes the same on another device: shapes
/// `[batch, heads, length, dim]` that do not fit one another, the maps or the exact heads.
#[pyfunction]
#[pyo3(signature = (q, k, v, maps, *, exact_heads=None, causal=false))]
pub(crate) fn check_attention(
    q: [usize; 4],
    k: [usize; 4],
    v: [usize; 4],
    maps: Maps,
    exact_heads: Option<ExactHeads>,
    causal: bool,
) -> PyResult<()> {
    let method = OwnedMethod::new(Some(maps), exact_heads, ExactKeys::NONE, (None, None), &q)?;
    let options = AttentionOptions::new().causal(causal);
    method.borrow().check([q, k, v], &options).map_err(errors::library)
}

/// Attention by the features of maps, or exactly without maps.
#[pyfunction]
#[pyo3(signature = (q, k, v, maps=None, *, exact_heads=None, kernel=None, scale=None, causal=false,
                    key_mask=None, near=Unsigned(0), global_keys=Unsigned(0), routed=None,
                    offsets=None, threads=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn attention(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    maps: Option<Maps>,
    exact_heads: Option<ExactHeads>,
    kernel: Option<KernelName>,
    scale: Option<f64>,
    causal: bool,
    key_mask: Option<KeyMask>,
    near: Unsigned,
    global_keys: Unsigned,
    routed: Option<Routed>,
    offsets: Option<Vec<Unsigned>>,
    threads: Option<Unsigned>,
) -> PyResult<Py<PyAny>> {
    let options = OwnedOptions::new(causal, key_mask, offsets, threads);
    let keys = exact_keys(near, global_keys, routed);
    tensors!(|T, q, k, v| {
        let method = OwnedMethod::new(maps, exact_heads, keys, (kernel, scale), &q.shape)?;
        let work = method.work(&q.shape, &k.shape, &v.shape);
        let mut out = Fresh::<T>::new(py, &output_shape(&q.shape, &v.shape))?;
        let out = run(py, work, move |stop| {
            let inputs = Qkv::new(q.tensor()?, k.tensor()?, v.tensor()?);
            favor::attention_into(method.borrow(), inputs, &options.borrow(stop), out.numbers())?;
            Ok::<_, favor::Error>(out)
        })?;
        out.give(py)
    })
}

/// The gradients of `attention` with respect to queries, keys and values.
#[pyfunction]
#[pyo3(signature = (q, k, v, out, out_gradient, maps=None, *, exact_heads=None, kernel=None, scale=None,
                    causal=false, key_mask=None, near=Unsigned(0), global_keys=Unsigned(0), routed=None,
                    offsets=None, threads=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn attention_backward(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    out_gradient: &Bound<'_, PyAny>,
    maps: Option<Maps>,
    exact_heads: Option<ExactHeads>,
    kernel: Option<KernelName>,
    scale: Option<f64>,
    causal: bool,
    key_mask: Option<KeyMask>,
    near: Unsigned,
    global_keys: Unsigned,
    routed: Option<Routed>,
    offsets: Option<Vec<Unsigned>>,
    threads: Option<Unsigned>,
) -> PyResult<(Py<PyAny>, Py<PyAny>, Py<PyAny>)> {
    let options = OwnedOptions::new(causal, key_mask, offsets, threads);
    let keys = exact_keys(near, global_keys, routed);
    tensors!(|T, q, k, v, out, out_gradient| {
        let method = OwnedMethod::new(maps, exact_heads, keys, (kernel, scale), &q.shape)?;
        let work = 4.0 * method.work(&q.shape, &k.shape, &v.shape);
        let shapes = [q.shape.clone(), k.shape.clone(), v.shape.clone()];
        let gradients = run(py, work, move |stop| {
            let inputs = Qkv::new(q.tensor()?, k.tensor()?, v.tensor()?);
            let (out, out_gradient) = (out.tensor()?, out_gradient.tensor()?);
            let options = options.borrow(stop);
            favor::attention_backward(method.borrow(), inputs, out, out_gradient, &options)
        })?;
        let favor::Gradients::<T> { q, k, v } = gradients;
        Ok((give(py, q, &shapes[0])?, give(py, k, &shapes[1])?, give(py, v, &shapes[2])?))
    })
}
