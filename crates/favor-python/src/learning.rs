//! Maps that are learned from queries and keys.

use crate::arguments::{KernelName, Named, Routed, Unsigned, exact_keys, heads, spec};
use crate::arrays::{KeyMask, tensors};
use crate::map::FeatureMap;
use crate::run::run_watched;
use favor::learned::{Calibration, LearnOptions, LearnProgress};
use favor::{Coupling, Family};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// What was measured for a head on held-out sequences.
#[pyclass(module = "favor_sharp", frozen, eq, get_all)]
#[derive(PartialEq)]
pub(crate) struct HeadReport {
    before: f64,
    after: f64,
    exact_alone: Option<f64>,
    window_alone: Option<f64>,
    window: usize,
    uniform: f64,
    kl_before: f64,
    kl_after: f64,
    exact_keys: f64,
    kept: &'static str,
    recommended: &'static str,
}

#[pymethods]
impl HeadReport {
    fn __repr__(&self) -> String {
        let Self { before, after, kept, .. } = self;
        format!("HeadReport(before={before:.4}, after={after:.4}, kept='{kept}')")
    }
}

impl From<favor::learned::HeadReport> for HeadReport {
    fn from(report: favor::learned::HeadReport) -> Self {
        Self {
            before: report.before,
            after: report.after,
            exact_alone: report.exact_alone,
            window_alone: report.window_alone,
            window: report.window,
            uniform: report.uniform,
            kl_before: report.kl_before,
            kl_after: report.kl_after,
            exact_keys: report.exact_keys,
            kept: report.kept.name(),
            recommended: report.recommended.name(),
        }
    }
}

/// A learned map and what it is worth.
#[pyclass(module = "favor_sharp", frozen)]
pub(crate) struct LearnedHead {
    #[pyo3(get)]
    map: Py<FeatureMap>,
    #[pyo3(get)]
    report: Py<HeadReport>,
}

#[pymethods]
impl LearnedHead {
    fn __repr__(&self) -> String {
        let HeadReport { before, after, .. } = self.report.get();
        format!("LearnedHead(before={before:.4}, after={after:.4})")
    }
}

/// Learns one map per head.
#[pyfunction]
#[pyo3(signature = (q, k, v=None, *, features=Unsigned(64), near=Unsigned(0),
                    global_keys=Unsigned(0), routed=None, causal=false, key_mask=None, source=String::new(),
                    family=Named(Family::Balanced), kernel=KernelName::Attention, scale=1.0,
                    coupling=Named(Coupling::Orthogonal),
                    steps=Unsigned(LearnOptions::STEPS as u64), batch=None,
                    rate=None, outputs=None, pull=0.0, holdout=0.25, seed=Unsigned(0), threads=None, progress=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn learn_maps(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: Option<&Bound<'_, PyAny>>,
    features: Unsigned,
    near: Unsigned,
    global_keys: Unsigned,
    routed: Option<Routed>,
    causal: bool,
    key_mask: Option<KeyMask>,
    source: String,
    family: Named<Family>,
    kernel: KernelName,
    scale: f64,
    coupling: Named<Coupling>,
    steps: Unsigned,
    batch: Option<Unsigned>,
    rate: Option<f64>,
    outputs: Option<f64>,
    pull: f64,
    holdout: f64,
    seed: Unsigned,
    threads: Option<Unsigned>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<LearnedHead>> {
    let exact = exact_keys(near, global_keys, routed);
    let standard = LearnOptions::new();
    let options = standard
        .exact(exact)
        .steps(steps.count())
        .batch(batch.map(Unsigned::count))
        .rate(rate.unwrap_or(standard.rate))
        .outputs(outputs.unwrap_or(standard.outputs))
        .pull(pull)
        .holdout(holdout)
        .seed(seed.0)
        .threads(threads.map(Unsigned::count));
    let (has_values, v) = (v.is_some(), v.unwrap_or(k));
    let latest = Latest::default();
    let told = latest.clone();
    let mut last = 0;
    let mut tell = |py: Python<'_>| match (&progress, told.get()) {
        (Some(progress), Some(now)) if now.done > last => {
            last = now.done;
            progress.call1(py, (now.done, now.total, now.held_out)).map(|_| ())
        }
        _ => Ok(()),
    };
    let learned = tensors!(|T, q, k, v| {
        let spec = spec(features, family, coupling, seed, kernel.kernel(scale, heads(&q.shape).1)?);
        let work = move |stop: &std::sync::atomic::AtomicBool| {
            let (q, k, v) = (q.tensor()?, k.tensor()?, v.tensor()?);
            let data = Calibration::<T>::new(q, k)
                .values(has_values.then_some(v))
                .mask(key_mask.as_ref().map(|mask| &mask.0[..]))
                .causal(causal)
                .source(&source);
            let progress = |now| latest.set(now);
            let options = options.cancel(Some(stop)).progress(Some(&progress));
            favor::learned::learn_maps(spec, data, &options)
        };
        run_watched(py, f64::INFINITY, work, &mut tell)
    })?;
    tell(py)?;
    let give = |head: favor::learned::LearnedHead| {
        let map = Py::new(py, FeatureMap(head.map))?;
        Ok(LearnedHead { map, report: Py::new(py, HeadReport::from(head.report))? })
    };
    learned.into_iter().map(give).collect()
}

/// The latest news of the threads that learn, for the one that tells Python.
#[derive(Clone, Default)]
struct Latest(Arc<Mutex<Option<LearnProgress>>>);

impl Latest {
    fn set(&self, now: LearnProgress) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none_or(|before| before.done < now.done) {
            *kept = Some(now);
        }
    }

    fn get(&self) -> Option<LearnProgress> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
