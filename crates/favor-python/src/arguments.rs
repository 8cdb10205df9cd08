//! Arguments that several functions share.

use crate::arrays;
use crate::errors;
use crate::map::FeatureMap;
use favor::{Coupling, Family, FeatureSpec, Kernel, Options};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use std::sync::atomic::AtomicBool;

/// A whole number that is not negative. Anything else is a `ValueError` or a `TypeError`.
#[derive(Clone, Copy)]
pub(crate) struct Whole(pub(crate) u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Whole {
    type Error = PyErr;
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        value.extract::<u64>().map(Self).map_err(|error| {
            match error.is_instance_of::<PyOverflowError>(value.py()) {
                true => errors::value(format!("{} is not between 0 and 2^64 − 1", &*value)),
                false => error,
            }
        })
    }
}

impl Whole {
    pub(crate) fn count(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// An error if sums of this many numbers are beyond any machine.
pub(crate) fn check_size(what: &str, sizes: &[usize]) -> PyResult<()> {
    let total = sizes.iter().try_fold(1_usize, |n, s| n.checked_mul(*s));
    match total.is_some_and(|n| n < 1 << 48) {
        true => Ok(()),
        false => Err(errors::value(format!("{what}: {sizes:?} numbers do not fit into memory"))),
    }
}

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
    features: Whole,
    kernel: Kernel,
    coupling: &str,
    seed: Whole,
) -> PyResult<FeatureSpec> {
    let family: Family = family.parse().map_err(errors::library)?;
    let coupling: Coupling = coupling.parse().map_err(errors::library)?;
    Ok(FeatureSpec::new(family, features.count()).kernel(kernel).coupling(coupling).seed(seed.0))
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
        near: Whole,
        offsets: Option<Vec<Whole>>,
        threads: Option<Whole>,
    ) -> PyResult<Self> {
        let key_mask = arrays::mask("key_mask", key_mask)?;
        let offsets = offsets.map(|all| all.into_iter().map(Whole::count).collect());
        let (near, threads) = (near.count(), threads.map(Whole::count));
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
