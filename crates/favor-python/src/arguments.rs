//! Arguments that several functions share.

use crate::arrays;
use crate::errors;
use crate::map::FeatureMap;
use favor::{Coupling, Family, FeatureSpec, Kernel, Options};
use pyo3::prelude::*;
use std::sync::atomic::AtomicBool;

/// A kernel by name, or by its α, with inputs multiplied by `scale` beforehand.
pub(crate) fn kernel(name: &Bound<'_, PyAny>, scale: f64, dim: usize) -> PyResult<Kernel> {
    let kernel = match (name.extract::<f64>(), name.extract::<String>()) {
        (Ok(alpha), _) => Kernel::new(alpha, 1.0).map_err(errors::library)?,
        (_, Ok(name)) => match name.as_str() {
            "softmax" => Kernel::softmax(),
            "gaussian" => Kernel::gaussian(),
            "attention" => Kernel::attention(dim),
            _ => {
                return Err(errors::value(format!(
                    "kernel: '{name}' is none of softmax, gaussian, attention, nor a number α"
                )));
            }
        },
        _ => return Err(errors::kind("kernel: a name or a number α is needed")),
    };
    kernel.scaled(scale).map_err(errors::library)
}

/// Everything that a map is fitted with beside the data.
pub(crate) fn spec(
    family: &str,
    features: usize,
    kernel: Kernel,
    coupling: &str,
    seed: u64,
) -> PyResult<FeatureSpec> {
    let family: Family = family.parse().map_err(errors::library)?;
    let coupling: Coupling = coupling.parse().map_err(errors::library)?;
    Ok(FeatureSpec::new(family, features).kernel(kernel).coupling(coupling).seed(seed))
}

/// One map, or a sequence of them.
pub(crate) fn maps(value: &Bound<'_, PyAny>) -> PyResult<Vec<favor::FeatureMap>> {
    if let Ok(map) = value.cast::<FeatureMap>() {
        return Ok(vec![map.get().0.clone()]);
    }
    let wrong = || errors::kind("maps: a FeatureMap or a sequence of them is needed");
    let mut out = vec![];
    for item in value.try_iter().map_err(|_| wrong())? {
        out.push(item?.cast::<FeatureMap>().map_err(|_| wrong())?.get().0.clone());
    }
    Ok(out)
}

/// The options of attention, owned.
pub(crate) struct Seen {
    pub(crate) causal: bool,
    pub(crate) key_mask: Option<Vec<bool>>,
    pub(crate) near: usize,
    pub(crate) offsets: Option<Vec<usize>>,
    pub(crate) threads: Option<usize>,
}

impl Seen {
    pub(crate) fn new(
        causal: bool,
        key_mask: Option<&Bound<'_, PyAny>>,
        near: usize,
        offsets: Option<Vec<usize>>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let key_mask = arrays::mask("key_mask", key_mask)?;
        Ok(Self { causal, key_mask, near, offsets, threads })
    }

    pub(crate) fn options<'a>(&'a self, stop: &'a AtomicBool) -> Options<'a> {
        Options {
            causal: self.causal,
            key_mask: self.key_mask.as_deref(),
            near: self.near,
            offsets: self.offsets.as_deref(),
            threads: self.threads,
            cancel: Some(stop),
        }
    }
}

/// About how many multiplications attention takes.
pub(crate) fn work(q: &[usize], k: &[usize], v: &[usize], features: Option<usize>) -> f64 {
    let count = |shape: &[usize]| shape.iter().map(|&n| n as f64).product::<f64>();
    let last = |shape: &[usize]| shape.last().map_or(0.0, |&n| n as f64);
    let length = |shape: &[usize]| shape[shape.len() - 2] as f64;
    let each = features.map_or(length(k), |m| m as f64);
    (count(q) + count(k)) * each * (1.0 + last(v) / last(q).max(1.0))
}
