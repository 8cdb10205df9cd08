//! The maps of the heads of a layer, and how they follow the data.

use super::LayerOptions;
use crate::attention::{AttendMethod, Attention, Follow, HostView, KeyMask};
use crate::{Error, Result};
use burn::tensor::Tensor;
use favor::{AdaptiveMaps, Choice, FeatureMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maps of a layer. Modules are called by shared reference, so what they learn is behind a lock;
/// clones share it, as a model and its copy for evaluation must.
#[derive(Debug, Clone)]
pub(super) struct Maps {
    options: LayerOptions,
    heads: usize,
    dim: usize,
    /// None for a kind of attention without maps.
    state: Arc<Mutex<Option<AdaptiveMaps>>>,
}

impl Maps {
    pub(super) fn new(options: LayerOptions, heads: usize, dim: usize) -> Result<Self> {
        options.check()?;
        let made = |spec| AdaptiveMaps::new(spec, heads, dim, options.policy());
        let state = options.spec(dim).map(made).transpose()?;
        Ok(Self { options, heads, dim, state: Arc::new(Mutex::new(state)) })
    }

    pub(super) fn options(&self) -> LayerOptions {
        self.options
    }

    pub(super) fn heads(&self) -> usize {
        self.heads
    }

    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    pub(super) fn state(&self) -> Option<AdaptiveMaps> {
        self.lock().clone()
    }

    pub(super) fn set_state(&self, state: Option<AdaptiveMaps>) -> Result<()> {
        let made_of = |maps: &AdaptiveMaps| (*maps.spec(), maps.heads(), maps.dim(), maps.policy());
        let mut own = self.lock();
        if state.as_ref().map(made_of) != own.as_ref().map(made_of) {
            return Err(Error::invalid("maps", "they were learned with other options"));
        }
        *own = state;
        Ok(())
    }

    pub(super) fn begin_calibration(&self) {
        self.lock().iter_mut().for_each(AdaptiveMaps::begin_calibration);
    }

    pub(super) fn end_calibration(&self) {
        self.lock().iter_mut().for_each(AdaptiveMaps::end_calibration);
    }

    /// What to compute for these queries, keys and values.
    pub(super) fn method(
        &self,
        [q, k, v]: [&Tensor<4>; 3],
        mask: Option<&KeyMask>,
        causal: bool,
        training: bool,
    ) -> Result<AttendMethod> {
        let simple = match self.options.kind {
            Attention::Exact => Some(AttendMethod::Exact),
            Attention::Elu => Some(AttendMethod::Elu),
            Attention::Relu => Some(AttendMethod::Relu),
            Attention::Mean => Some(AttendMethod::Mean),
            Attention::Features(_) | Attention::Auto | Attention::Learned => None,
        };
        if let Some(method) = simple {
            return Ok(method);
        }
        if self.options.kind == Attention::Auto && causal {
            let reason = "auto looks at the whole sequence to decide, which causal attention must \
                          not; use exact or a family";
            return Err(Error::invalid("attention", reason));
        }
        let Some(maps) = self.maps_for([q, k], mask, causal, training)? else {
            return Ok(AttendMethod::Exact);
        };
        let maps: Arc<[FeatureMap]> = maps.into();
        if self.options.kind != Attention::Auto {
            return Ok(AttendMethod::Features(maps));
        }
        let views = [HostView::of(q)?, HostView::of(k)?, HostView::of(v)?];
        let mask = mask.map(|m| m.visible().as_slice());
        let tolerance = self.options.tolerance;
        let choices = HostView::choose(views.each_ref(), &maps, mask, causal, tolerance)?;
        Ok(AttendMethod::Hybrid { maps, exact: choices.iter().map(Choice::exact_keys).collect() })
    }

    /// The maps of a call, or none while calibrating.
    fn maps_for(
        &self,
        [q, k]: [&Tensor<4>; 2],
        mask: Option<&KeyMask>,
        causal: bool,
        training: bool,
    ) -> Result<Option<Vec<FeatureMap>>> {
        let mask = mask.map(|m| m.visible().as_slice());
        let mut state = self.lock();
        let Some(maps) = &mut *state else {
            return Err(Error::invalid("maps", "they are of a kind of attention without maps"));
        };
        let views = [HostView::of(q)?, HostView::of(k)?];
        let how = match (maps.is_calibrating(), training) {
            (true, _) => Follow::Calibrate,
            (false, true) => Follow::Train { causal },
            (false, false) => Follow::Evaluate { causal },
        };
        HostView::follow(views.each_ref(), maps, mask, how)
    }

    fn lock(&self) -> MutexGuard<'_, Option<AdaptiveMaps>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
