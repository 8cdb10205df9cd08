//! Training: one step at a time, the same from the same seed, from any checkpoint on.

mod adam;
mod checkpoint;

use adam::Adam;
pub use adam::{AdamOptions, Rates};

use crate::bert::Bert;
use crate::layer::FavorAttention;
use crate::store::{Stored, Tensors, Views};
use crate::weights;
use crate::{Error, Result};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use favor::AdaptiveMaps;
use favor::draw::Stream;
use serde::{Deserialize, Serialize};

/// The stream that seeds the dropout of each step.
const PURPOSE: u64 = 0x7374_6570;

/// The tensor of a file that holds what the maps of a layer have learned.
fn maps_name(layer: usize) -> String {
    format!("maps.{layer}")
}

/// How long and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Schedule {
    /// Steps in all.
    pub steps: u64,
    /// Steps in which the rate rises to its peak; from there it falls to zero, both in straight lines.
    pub warmup: u64,
    /// The peak of the rate.
    pub rate: f64,
}

setters! { Schedule {
    steps: u64,
    warmup: u64,
    rate: f64,
} }

impl Schedule {
    /// So many steps with this peak of the rate, at which they begin.
    pub fn new(steps: u64, rate: f64) -> Self {
        Self { steps, warmup: 0, rate }
    }

    /// The rate of a step, from 0.
    ///
    /// ```
    /// let schedule = favor_nn::train::Schedule::new(100, 1.0).warmup(10);
    /// assert_eq!(schedule.rate_at(4), 0.5);
    /// assert_eq!(schedule.rate_at(55), 0.5);
    /// assert_eq!(schedule.rate_at(100), 0.0);
    /// ```
    pub fn rate_at(&self, step: u64) -> f64 {
        let rising = (step + 1) as f64 / self.warmup.max(1) as f64;
        let left = self.steps.saturating_sub(step) as f64;
        let falling = left / (self.steps - self.warmup.min(self.steps)).max(1) as f64;
        self.rate * rising.min(falling).min(1.0)
    }
}

/// What can be trained and kept in a file: any module whose attention is ours.
pub trait Model: Module {
    /// Where the weights are.
    fn device(&self) -> Device;

    /// All layers of attention, in their order.
    fn attentions(&self) -> Vec<&FavorAttention>;

    /// All that the model has learned, to be kept in a file: its weights by their paths, and what its
    /// maps know of the data.
    fn state(&self) -> Result<Tensors> {
        let mut tensors = weights::collect(self, weights::own_names)?;
        for (layer, attention) in self.attentions().into_iter().enumerate() {
            if let Some(maps) = attention.map_state() {
                tensors.insert(maps_name(layer), Stored::bytes(maps.to_bytes()?));
            }
        }
        Ok(tensors)
    }

    /// The same model as it was when its state was kept.
    fn with_state(self, tensors: &Views<'_>) -> Result<Self> {
        let device = self.device();
        let model = weights::load(self, tensors, weights::own_names, &device)?;
        for (layer, attention) in model.attentions().into_iter().enumerate() {
            let file = tensors.get(&maps_name(layer));
            let maps = file.map(|file| AdaptiveMaps::from_bytes(file.data())).transpose()?;
            attention.set_map_state(maps)?;
        }
        Ok(model)
    }
}

/// A model in training.
#[derive(Debug)]
pub struct Trainer<M = Bert> {
    /// On a device that differentiates. It is away only while a step changes its weights where they lie.
    model: Option<M>,
    adam: Adam,
    schedule: Schedule,
    seed: u64,
    step: u64,
}

impl<M: Model> Trainer<M> {
    /// Begins with a model whose weights are on a device that differentiates.
    pub fn new(model: M, schedule: Schedule, options: AdamOptions, seed: u64) -> Result<Self> {
        let Schedule { steps, rate, .. } = schedule;
        if steps == 0 || !(rate.is_finite() && rate > 0.0) {
            let reason = format!("{steps} steps at a rate of {rate}; both must be above zero");
            return Err(Error::invalid("training", reason));
        }
        Ok(Self { model: Some(model), adam: Adam::new(options)?, schedule, seed, step: 0 })
    }

    /// Trains parts of the model at other rates, or not at all.
    #[must_use]
    pub fn rates(mut self, rates: Rates) -> Self {
        self.adam.rates = rates;
        self
    }

    /// The model as it is now.
    pub fn model(&self) -> &M {
        self.model.as_ref().expect("the model is back when a step ends")
    }

    /// The model, at the end of training.
    pub fn into_model(self) -> M {
        self.model.expect("the model is back when a step ends")
    }

    /// Steps made.
    pub fn steps_made(&self) -> u64 {
        self.step
    }

    /// Steps in all.
    pub fn steps(&self) -> u64 {
        self.schedule.steps
    }

    /// One step down the gradient of a loss, whose value it gives.
    pub fn step(&mut self, loss: impl FnOnce(&M) -> Result<Tensor<1>> + Send) -> Result<f64> {
        // On a thread of the pool: from another one, each of the thousand small operations of a step would
        // be handed over to the pool and waited for.
        rayon::scope(|_| self.step_here(loss))
    }

    fn step_here(&mut self, loss: impl FnOnce(&M) -> Result<Tensor<1>>) -> Result<f64> {
        // Each step draws its dropout from its own seed, so that a run can go on from any step.
        let mut stream = Stream::new(self.seed.wrapping_add(self.step), PURPOSE);
        let bits = (0..2).fold(0, |bits, _| bits << 32 | stream.index(1 << 32) as u64);
        self.model().device().seed(bits);
        let step = self.step + 1;
        let astray =
            |reason: String| Error::Training(format!("step {step}: {reason}; lower the rate"));
        // Weights that have grown beyond all bounds show first where attention refuses its input.
        let loss = loss(self.model()).map_err(|error| match error {
            Error::Attention(
                cause @ (favor::Error::NonFinite { .. } | favor::Error::Overflow { .. }),
            ) => astray(cause.to_string()),
            error => error,
        })?;
        let value = f64::from(loss.clone().into_scalar::<f32>());
        if !value.is_finite() {
            return Err(astray(format!("the loss is {value}")));
        }
        // A failure of an earlier pass, outside of training, is none of this step.
        self.failure();
        let gradients = loss.backward();
        let rate = self.schedule.rate_at(self.step);
        let model = self.model.take().expect("the model is back when a step ends");
        let (model, changed) = self.adam.update(model, gradients, rate);
        self.model = Some(model);
        if !changed {
            return Err(astray(match self.failure() {
                Some((layer, cause)) => {
                    format!("the backward pass of attention failed in layer {layer}: {cause}")
                }
                None => "the gradient is NaN or infinite".to_owned(),
            }));
        }
        self.step += 1;
        Ok(value)
    }

    /// The layer, from 1, whose backward pass has failed, and why. Gradients come from the last layer
    /// first, and what follows a failure fails too: the last layer's is the cause.
    fn failure(&self) -> Option<(usize, String)> {
        let layers = self.model().attentions().into_iter().enumerate();
        // All are taken, so that none is left for a later step.
        let failures = layers.filter_map(|(i, layer)| Some((i + 1, layer.failure().take()?)));
        let mut failures: Vec<_> = failures.collect();
        failures.pop().map(|(layer, error)| match error {
            Error::Attention(cause) => (layer, cause.to_string()),
            error => (layer, error.to_string()),
        })
    }
}
