//! Kernel products, by features and exactly.

use crate::arguments;
use crate::arrays::{self, by_type, give, give_matrix, read_rows};
use crate::map::FeatureMap;
use crate::run::run;
use favor::{Element, LogScaled};
use pyo3::prelude::*;

/// A product as one array, or as logarithmic scales and an array.
pub(crate) fn give_scaled<T: Element + numpy::Element>(
    py: Python<'_>,
    product: LogScaled<T>,
) -> PyResult<Py<PyAny>> {
    let rows = product.log_scale.len();
    let scales = give(py, product.log_scale, &[rows])?;
    let pair = (scales, give_matrix(py, product.values)?);
    Ok(pair.into_pyobject(py)?.into_any().unbind())
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
    let (x, y, c) = (arrays::array("x", x)?, arrays::array("y", y)?, arrays::array("c", c)?);
    let types = [("x", &x), ("y", &y), ("c", &c)];
    by_type!(["float32" => f32, "float64" => f64], &types, |T| {
        let (x, y) = (read_rows::<T>("x", &x)?, read_rows::<T>("y", &y)?);
        let c = read_rows::<T>("c", &c)?;
        let work = arguments::work(&x.shape, &y.shape, &c.shape, Some(map.features()));
        let product = move || favor::kernel_product(&map, x.rows()?, y.rows()?, c.rows()?);
        match log_scale {
            true => give_scaled(py, run(py, work, move |_| product())?),
            false => give_matrix(py, run(py, work, move |_| product()?.to_matrix())?),
        }
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
    kernel: &Bound<'_, PyAny>,
    scale: f64,
    log_scale: bool,
) -> PyResult<Py<PyAny>> {
    let (x, y, c) = (arrays::array("x", x)?, arrays::array("y", y)?, arrays::array("c", c)?);
    let types = [("x", &x), ("y", &y), ("c", &c)];
    by_type!(["float32" => f32, "float64" => f64], &types, |T| {
        let (x, y) = (read_rows::<T>("x", &x)?, read_rows::<T>("y", &y)?);
        let c = read_rows::<T>("c", &c)?;
        let kernel = arguments::kernel(kernel, scale, x.shape[1])?;
        let work = arguments::work(&x.shape, &y.shape, &c.shape, None);
        let product = move || kernel.product(x.rows()?, y.rows()?, c.rows()?);
        match log_scale {
            true => give_scaled(py, run(py, work, move |_| product())?),
            false => give_matrix(py, run(py, work, move |_| product()?.to_matrix())?),
        }
    })
}

/// log K of every pair.
#[pyfunction]
#[pyo3(signature = (x, y, *, kernel, scale=1.0))]
pub(crate) fn log_kernel(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
    kernel: &Bound<'_, PyAny>,
    scale: f64,
) -> PyResult<Py<PyAny>> {
    let (x, y) = (arrays::doubles("x", x)?, arrays::doubles("y", y)?);
    let kernel = arguments::kernel(kernel, scale, x.shape[1])?;
    let work = (x.shape[0] * y.shape[0] * x.shape[1]) as f64;
    give_matrix(py, run(py, work, move |_| kernel.log_matrix(x.rows()?, y.rows()?))?)
}
