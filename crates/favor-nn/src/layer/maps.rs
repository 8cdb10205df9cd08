//! The maps of the heads of a layer, and how they follow the data.

use super::AttentionOptions;
use crate::attention::{Attention, Follow, HostView, KeyMask, Method};
use crate::{Error, Result};
use burn::tensor::Tensor;
use favor::{AdaptiveMaps, Choice, FeatureMap, FeatureSpec, Kernel};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the maps of a layer have learned.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MapState {
    options: AttentionOptions,
    /// None for a kind of attention without maps.
    maps: Option<AdaptiveMaps>,
    calibrating: bool,
}

/// The maps of a layer. Modules are called by shared reference, so what they learn is behind a lock;
/// clones share it, as a model and its copy for evaluation must.
#[derive(Debug, Clone)]
pub(super) struct Maps {
    options: AttentionOptions,
    heads: usize,
    dim: usize,
    state: Arc<Mutex<MapState>>,
}

impl Maps {
    pub(super) fn new(options: AttentionOptions, heads: usize, dim: usize) -> Result<Self> {
        options.check()?;
        let made = |family| {
            let spec = FeatureSpec::new(family, options.features).kernel(Kernel::attention(dim));
            let spec = spec.coupling(options.coupling).seed(options.seed);
            AdaptiveMaps::new(spec, heads, dim, options.policy())
        };
        let maps = options.kind.family().map(made).transpose()?;
        let state = MapState { options, maps, calibrating: false };
        Ok(Self { options, heads, dim, state: Arc::new(Mutex::new(state)) })
    }

    pub(super) fn options(&self) -> AttentionOptions {
        self.options
    }

    pub(super) fn heads(&self) -> usize {
        self.heads
    }

    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    pub(super) fn state(&self) -> MapState {
        self.lock().clone()
    }

    pub(super) fn set_state(&self, state: MapState) -> Result<()> {
        if state.options != self.options {
            return Err(Error::invalid("maps", "they were learned with other options"));
        }
        *self.lock() = state;
        Ok(())
    }

    pub(super) fn begin_calibration(&self) {
        self.lock().calibrating = true;
    }

    pub(super) fn end_calibration(&self) {
        let mut state = self.lock();
        state.calibrating = false;
        if let Some(maps) = &mut state.maps {
            maps.end_calibration();
        }
    }

    /// What to compute for these queries, keys and values.
    pub(super) fn method(
        &self,
        [q, k, v]: [&Tensor<4>; 3],
        mask: Option<&KeyMask>,
        causal: bool,
        training: bool,
    ) -> Result<Method> {
        let simple = match self.options.kind {
            Attention::Exact => Some(Method::Exact),
            Attention::Elu => Some(Method::Elu),
            Attention::Relu => Some(Method::Relu),
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
            return Ok(Method::Exact);
        };
        let maps: Arc<[FeatureMap]> = maps.into();
        if self.options.kind != Attention::Auto {
            return Ok(Method::Features(maps));
        }
        let views = [HostView::of(q)?, HostView::of(k)?, HostView::of(v)?];
        let mask = mask.map(|m| m.visible().as_slice());
        let tolerance = self.options.tolerance;
        let choices = HostView::choose(views.each_ref(), &maps, mask, causal, tolerance)?;
        Ok(Method::Hybrid { maps, exact: choices.iter().map(Choice::exact_keys).collect() })
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
        let MapState { maps: Some(maps), calibrating, .. } = &mut *state else {
            return Err(Error::invalid("maps", "they are of a kind of attention without maps"));
        };
        let views = [HostView::of(q)?, HostView::of(k)?];
        HostView::follow(
            views.each_ref(),
            maps,
            mask,
            match (*calibrating, training) {
                (true, _) => Follow::Calibrate,
                (false, true) => Follow::Train { causal },
                (false, false) => Follow::Evaluate { causal },
            },
        )
    }

    fn lock(&self) -> MutexGuard<'_, MapState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
