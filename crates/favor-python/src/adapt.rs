//! Maps for tensors: fitted once, or following a training.

use crate::arguments::{KernelName, Maps, Named, Unsigned, heads, spec};
use crate::arrays::{Array, KeyMask, tensors};
use crate::errors;
use crate::map::{FeatureMap, fit_work};
use crate::number::Number;
use crate::run::{in_place, is_short, run};
use favor::{Coupling, Family, MapPolicy, Redraw, Scalar, Side, Statistics};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

/// One map per head, fitted to these queries and keys, or one per sequence and head.
#[pyfunction]
#[pyo3(signature = (q, k, *, features=Unsigned(256), family=Named(Family::Balanced),
                    kernel=KernelName::Attention, scale=1.0, coupling=Named(Coupling::Orthogonal),
                    seed=Unsigned(0), key_mask=None, per_sequence=false))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn fit_maps(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    features: Unsigned,
    family: Named<Family>,
    kernel: KernelName,
    scale: f64,
    coupling: Named<Coupling>,
    seed: Unsigned,
    key_mask: Option<KeyMask>,
    per_sequence: bool,
) -> PyResult<Vec<FeatureMap>> {
    tensors!(|T, q, k| {
        let (heads, dim) = heads(&q.shape);
        let spec = spec(features, family, coupling, seed, kernel.kernel(scale, dim)?);
        let work = moments_work(&q, &k) + heads as f64 * fit_work(&spec, dim);
        let maps = run(py, work, move |_| {
            let (q, k) = (q.tensor()?, k.tensor()?);
            let mask = key_mask.as_ref().map(|mask| &mask.0[..]);
            if per_sequence {
                favor::fit_sequences::<T>(spec, q, k, mask)
            } else {
                favor::fit_heads::<T>(spec, q, k, mask)
            }
        })?;
        Ok(maps.into_iter().map(FeatureMap).collect())
    })
}

/// About how many multiplications the moments of queries and keys take.
fn moments_work<T: Number>(q: &Array<T>, k: &Array<T>) -> f64 {
    let numbers = |shape: &[usize]| shape.iter().map(|&n| n as f64).product::<f64>();
    (numbers(&q.shape) + numbers(&k.shape)) * heads(&q.shape).1 as f64
}

/// Where statistics come from.
fn statistics(name: &str, keep: f64) -> PyResult<Statistics> {
    match name {
        "running" => Ok(Statistics::Running { keep }),
        "calibrated" => Ok(Statistics::Calibrated),
        "batch" => Ok(Statistics::PerBatch),
        "sequence" => Ok(Statistics::PerSequence),
        _ => Err(errors::value(format!(
            "statistics: '{name}' is not one of running, calibrated, batch, sequence"
        ))),
    }
}

/// One map per head, kept in step with the data of a training.
#[pyclass(module = "favor_sharp")]
pub(crate) struct AdaptiveMaps {
    state: favor::AdaptiveMaps,
    /// What was given out last: as long as the maps do not change, it is the same object.
    given: Option<(Vec<favor::FeatureMap>, Py<PyTuple>)>,
}

#[pymethods]
impl AdaptiveMaps {
    #[new]
    #[pyo3(signature = (heads, dim, *, features=Unsigned(256), family=Named(Family::Balanced),
                        kernel=KernelName::Attention, scale=1.0,
                        coupling=Named(Coupling::Orthogonal), seed=Unsigned(0), redraw=None,
                        statistics="running", keep=MapPolicy::KEEP))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        heads: Unsigned,
        dim: Unsigned,
        features: Unsigned,
        family: Named<Family>,
        kernel: KernelName,
        scale: f64,
        coupling: Named<Coupling>,
        seed: Unsigned,
        redraw: Option<Unsigned>,
        statistics: &str,
        keep: f64,
    ) -> PyResult<Self> {
        let (heads, dim) = (heads.count(), dim.count());
        let spec = spec(features, family, coupling, seed, kernel.kernel(scale, dim)?);
        let policy = MapPolicy::new()
            .redraw(redraw.map_or(Redraw::Never, |n| Redraw::Every(n.0)))
            .statistics(self::statistics(statistics, keep)?);
        let state = favor::AdaptiveMaps::new(spec, heads, dim, policy).map_err(errors::library)?;
        Ok(Self { state, given: None })
    }

    /// The maps for one training call.
    #[pyo3(signature = (q, k, *, key_mask=None, causal=false))]
    fn training<'py>(
        &mut self,
        py: Python<'py>,
        q: &Bound<'_, PyAny>,
        k: &Bound<'_, PyAny>,
        key_mask: Option<KeyMask>,
        causal: bool,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let maps =
            tensors!(|T, q, k| self.change(py, (q, k), key_mask, move |state, q, k, mask| {
                state.training::<T>(q, k, mask, causal)
            }))?;
        self.give(py, maps)
    }

    /// The maps for an evaluation: nothing is learned and nothing redrawn.
    #[pyo3(signature = (q, k, *, key_mask=None, causal=false))]
    fn evaluation<'py>(
        &mut self,
        py: Python<'py>,
        q: &Bound<'_, PyAny>,
        k: &Bound<'_, PyAny>,
        key_mask: Option<KeyMask>,
        causal: bool,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let maps =
            tensors!(|T, q, k| self.change(py, (q, k), key_mask, move |state, q, k, mask| {
                state.evaluation::<T>(q, k, mask, causal)
            }))?;
        self.give(py, maps)
    }

    /// Adds a batch to the statistics of a calibration, which replace those from before it.
    #[pyo3(signature = (q, k, *, key_mask=None))]
    fn calibrate(
        &mut self,
        py: Python<'_>,
        q: &Bound<'_, PyAny>,
        k: &Bound<'_, PyAny>,
        key_mask: Option<KeyMask>,
    ) -> PyResult<()> {
        tensors!(|T, q, k| self
            .change(py, (q, k), key_mask, |state, q, k, mask| { state.calibrate::<T>(q, k, mask) }))
    }

    /// Ends a calibration.
    fn end_calibration(&mut self) {
        self.state.end_calibration();
    }

    /// Ends the learning of statistics; redrawing goes on.
    fn freeze(&mut self) {
        self.state.freeze();
    }

    /// The maps as they are.
    fn maps<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let state = &self.state;
        let maps = in_place(py, || state.maps())?;
        self.give(py, maps)
    }

    /// Puts maps from elsewhere in the place of the fitted ones, until the next draw or calibration.
    fn set_maps(&mut self, maps: Maps) -> PyResult<()> {
        self.state.set_maps(maps.0).map_err(errors::library)
    }

    /// Training calls so far.
    #[getter]
    fn calls(&self) -> u64 {
        self.state.calls()
    }

    /// The state as the bytes of a safetensors file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.state.to_bytes().map_err(errors::library)?))
    }

    /// Takes up a state where `to_bytes` left it.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        let state = favor::AdaptiveMaps::from_bytes(bytes).map_err(errors::library)?;
        Ok(Self { state, given: None })
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Self>().getattr("from_bytes")?, (self.to_bytes(py)?,)))
    }

    fn __repr__(&self) -> String {
        let spec = self.state.spec();
        let (family, features, calls) = (spec.family, spec.features, self.state.calls());
        format!("AdaptiveMaps(family='{family}', features={features}, calls={calls})")
    }
}

type Mask<'a> = Option<&'a [bool]>;

impl AdaptiveMaps {
    /// Runs a call that may change the state. A long one works on a copy, so that it leaves no trace
    /// if it is interrupted.
    fn change<T: Number + Scalar, R: Send + 'static>(
        &mut self,
        py: Python<'_>,
        (q, k): (Array<T>, Array<T>),
        key_mask: Option<KeyMask>,
        call: impl FnOnce(
            &mut favor::AdaptiveMaps,
            favor::Tensor<'_, T>,
            favor::Tensor<'_, T>,
            Mask<'_>,
        ) -> favor::Result<R>
        + Send
        + 'static,
    ) -> PyResult<R> {
        let (heads, dim) = heads(&q.shape);
        let work = moments_work(&q, &k) + heads as f64 * fit_work(self.state.spec(), dim);
        if is_short(work) {
            let (state, mask) = (&mut self.state, key_mask.as_ref().map(|mask| &mask.0[..]));
            return in_place(py, || call(state, q.tensor()?, k.tensor()?, mask));
        }
        let mut next = self.state.clone();
        let (result, next) = run(py, work, move |_| {
            let mask = key_mask.as_ref().map(|mask| &mask.0[..]);
            let result = call(&mut next, q.tensor()?, k.tensor()?, mask)?;
            Ok::<_, favor::Error>((result, next))
        })?;
        self.state = next;
        Ok(result)
    }

    fn give<'py>(
        &mut self,
        py: Python<'py>,
        maps: Vec<favor::FeatureMap>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // Copies of a map share its numbers.
        let same = |a: &favor::FeatureMap, b: &favor::FeatureMap| {
            std::ptr::eq(a.side(Side::Query), b.side(Side::Query))
        };
        if let Some((before, given)) = &self.given
            && before.len() == maps.len()
            && before.iter().zip(&maps).all(|(a, b)| same(a, b))
        {
            return Ok(given.bind(py).clone());
        }
        let tuple = PyTuple::new(py, maps.iter().cloned().map(FeatureMap))?;
        self.given = Some((maps, tuple.clone().unbind()));
        Ok(tuple)
    }
}
