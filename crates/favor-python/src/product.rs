//! Kernel products, by features and exactly.

use crate::arguments::{self, KernelName};
use crate::arrays::{self, give, give_matrix, rows};
use crate::map::FeatureMap;
use crate::number::Number;
use crate::run::run;
use favor::{Float, LogScaled};
use pyo3::prelude::*;

/// A product as logarithmic scales of its rows, and the rows.
pub(crate) fn give_scaled<T: Float + Number>(
    py: Python<'_>,
    product: LogScaled<T>,
) -> PyResult<Py<PyAny>> {
    let rows = product.log_scale.len();
    let scales = give(py, product.log_scale, &[rows])?;
    let pair = (scales, give_matrix(py, product.values)?);
    Ok(pair.into_pyobject(py)?.into_any().unbind())
}

/// Runs a product; its result is one array, or logarithmic scales and an array.
fn run_product<T: Float + Number>(
    py: Python<'_>,
    work: f64,
    log_scale: bool,
    product: impl FnOnce() -> favor::Result<LogScaled<T>> + Send + 'static,
) -> PyResult<Py<PyAny>> {
    if log_scale {
        give_scaled(py, run(py, work, move |_| product())?)
    } else {
        give_matrix(py, run(py, work, move |_| product()?.to_matrix())?)
    }
}

/// K(X,Y)·C by features.
#[pyfunction]
#[pyo3(signature = (map, x, y, c, *, log_scale=false))]
pub(crate) fn kernel_product(
    py: Python<'_>,
    map: &Bound<'_, FeatureMap>,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
    c: &Bound<'_, PyAny>,
    log_scale: bool,
) -> PyResult<Py<PyAny>> {
    let map = map.get().0.clone();
    rows!(|T, x, y, c| {
        let work = arguments::work(&x.shape, &y.shape, &c.shape, Some(map.features()));
        run_product(py, work, log_scale, move || {
            favor::kernel_product(&map, x.rows()?, y.rows()?, c.rows()?)
        })
    })
}

/// K(X,Y)·C exactly, never the whole kernel matrix.
#[pyfunction]
#[pyo3(signature = (x, y, c, *, kernel, scale=1.0, log_scale=false))]
pub(crate) fn exact_kernel_product(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
    c: &Bound<'_, PyAny>,
    kernel: KernelName,
    scale: f64,
    log_scale: bool,
) -> PyResult<Py<PyAny>> {
    rows!(|T, x, y, c| {
        let kernel = kernel.kernel(scale, x.shape[1])?;
        let work = arguments::work(&x.shape, &y.shape, &c.shape, None);
        run_product(py, work, log_scale, move || kernel.product(x.rows()?, y.rows()?, c.rows()?))
    })
}

/// log K of every pair.
#[pyfunction]
#[pyo3(signature = (x, y, *, kernel, scale=1.0))]
pub(crate) fn log_kernel(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
    kernel: KernelName,
    scale: f64,
) -> PyResult<Py<PyAny>> {
    let (x, y) = (arrays::doubles("x", x)?, arrays::doubles("y", y)?);
    let kernel = kernel.kernel(scale, x.shape[1])?;
    let work = (x.shape[0] * y.shape[0] * x.shape[1]) as f64;
    give_matrix(py, run(py, work, move |_| kernel.log_matrix(x.rows()?, y.rows()?))?)
}
