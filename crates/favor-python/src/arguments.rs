//! Arguments that several functions share.

use crate::errors;
use crate::map::FeatureMap;
use favor::{ExactKeys, FeatureSpec, Kernel};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use std::str::FromStr;

/// An integer that is not negative. Anything else is a `ValueError` or a `TypeError`.
#[derive(Clone, Copy)]
pub(crate) struct Unsigned(pub(crate) u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Unsigned {
    type Error = PyErr;
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        value.extract::<u64>().map(Self).map_err(|error| {
            if error.is_instance_of::<PyOverflowError>(value.py()) {
                errors::value(format!("{} is not between 0 and 2^64 − 1", &*value))
            } else {
                error
            }
        })
    }
}

impl Unsigned {
    pub(crate) fn count(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// An error if sums of this many numbers are beyond any machine.
pub(crate) fn check_size(what: &str, sizes: &[usize]) -> PyResult<()> {
    let total = sizes.iter().try_fold(1_usize, |n, s| n.checked_mul(*s));
    if total.is_some_and(|n| n < 1 << 48) {
        Ok(())
    } else {
        Err(errors::value(format!("{what}: {sizes:?} numbers do not fit into memory")))
    }
}

/// A kernel by name, or by its α.
#[derive(Clone, Copy)]
pub(crate) enum KernelName {
    Softmax,
    Gaussian,
    Attention,
    Alpha(f64),
}

impl<'a, 'py> FromPyObject<'a, 'py> for KernelName {
    type Error = PyErr;
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(alpha) = value.extract::<f64>() {
            return Ok(Self::Alpha(alpha));
        }
        let name = value.extract::<String>();
        match name.map_err(|_| errors::kind("kernel: a name or a number α is needed"))?.as_str() {
            "softmax" => Ok(Self::Softmax),
            "gaussian" => Ok(Self::Gaussian),
            "attention" => Ok(Self::Attention),
            name => Err(errors::value(format!(
                "kernel: '{name}' is not one of softmax, gaussian, attention, and not a number α"
            ))),
        }
    }
}

impl KernelName {
    /// The kernel on vectors of this dimension, multiplied by `scale` beforehand.
    pub(crate) fn kernel(self, scale: f64, dim: usize) -> PyResult<Kernel> {
        let kernel = match self {
            Self::Softmax => Kernel::softmax(),
            Self::Gaussian => Kernel::gaussian(),
            Self::Attention => Kernel::attention(dim),
            Self::Alpha(alpha) => Kernel::new(alpha, 1.0).map_err(errors::library)?,
        };
        kernel.scaled(scale).map_err(errors::library)
    }
}

/// A family or a coupling, by its name.
#[derive(Clone, Copy)]
pub(crate) struct Named<T>(pub(crate) T);

impl<'a, 'py, T: FromStr<Err = favor::Error>> FromPyObject<'a, 'py> for Named<T> {
    type Error = PyErr;
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        value.extract::<String>()?.parse().map(Self).map_err(errors::library)
    }
}

/// What a map is fitted with beside the data and the kernel.
pub(crate) fn spec(
    features: Unsigned,
    family: Named<favor::Family>,
    coupling: Named<favor::Coupling>,
    seed: Unsigned,
    kernel: Kernel,
) -> FeatureSpec {
    let spec = FeatureSpec::new(family.0, features.count());
    spec.kernel(kernel).coupling(coupling.0).seed(seed.0)
}

/// One map, or a sequence of them.
pub(crate) struct Maps(pub(crate) Vec<favor::FeatureMap>);

impl<'a, 'py> FromPyObject<'a, 'py> for Maps {
    type Error = PyErr;
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(map) = value.cast::<FeatureMap>() {
            return Ok(Self(vec![map.get().0.clone()]));
        }
        let wrong = || errors::kind("maps: a FeatureMap or a sequence of them is needed");
        let mut out = vec![];
        for item in value.try_iter().map_err(|_| wrong())? {
            out.push(item?.cast::<FeatureMap>().map_err(|_| wrong())?.get().0.clone());
        }
        Ok(Self(out))
    }
}

impl Maps {
    /// The number of features; 0 without maps.
    pub(crate) fn features(&self) -> usize {
        self.0.first().map_or(0, favor::FeatureMap::features)
    }
}

/// Slots that a query prefers, and members of each: a pair of positive integers.
#[derive(Clone, Copy)]
pub(crate) struct Routed {
    pub(crate) slots: usize,
    pub(crate) members: usize,
}

impl<'a, 'py> FromPyObject<'a, 'py> for Routed {
    type Error = PyErr;
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let wrong = || errors::kind("routed: a pair (slots, members) of integers is needed");
        let items: PyResult<Vec<_>> = value.try_iter().map_err(|_| wrong())?.collect();
        let items = items?;
        let [slots, members] = &items[..] else { return Err(wrong()) };
        let (slots, members) = (slots.extract::<Unsigned>()?, members.extract::<Unsigned>()?);
        if slots.0 == 0 || members.0 == 0 {
            let given = &*value;
            return Err(errors::value(format!(
                "routed: {given} is not a pair of positive numbers; None is no routed keys"
            )));
        }
        Ok(Self { slots: slots.count(), members: members.count() })
    }
}

/// Which keys are exact: those of a window of this width, so many global ones, and routed ones.
pub(crate) fn exact_keys(
    near: Unsigned,
    global_keys: Unsigned,
    routed: Option<Routed>,
) -> ExactKeys {
    let keys = ExactKeys::NONE.near(near.count()).global(global_keys.count());
    routed.map_or(keys, |r| keys.routed(r.slots, r.members))
}

/// The number of heads of a tensor, and their dimension.
pub(crate) fn heads(shape: &[usize]) -> (usize, usize) {
    let heads = if shape.len() > 2 { shape[shape.len() - 3] } else { 1 };
    (heads, shape[shape.len() - 1])
}

/// About how many multiplications attention takes: with so many features, or exactly.
pub(crate) fn work(q: &[usize], k: &[usize], v: &[usize], features: Option<usize>) -> f64 {
    let count = |shape: &[usize]| shape.iter().map(|&n| n as f64).product::<f64>();
    let last = |shape: &[usize]| shape.last().map_or(0.0, |&n| n as f64);
    let length = |shape: &[usize]| shape[shape.len() - 2] as f64;
    let each = features.map_or(length(k), |m| m as f64);
    (count(q) + count(k)) * each * (1.0 + last(v) / last(q).max(1.0))
}
