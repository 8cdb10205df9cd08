//! What all training runs share: a checkpoint now and then, and an end when asked for.

use crate::bert::Bert;
use crate::train::{Model, Trainer};
use crate::{Error, Result};
use burn::tensor::Tensor;
use favor_io::progress::{Listener, Tick};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A checkpoint is written about this often.
const PAUSE: Duration = Duration::from_secs(120);

/// Who watches a run: a listener, and a switch that ends it.
///
/// ```
/// use favor_io::progress::{Tick, silent};
/// use favor_nn::run::Watch;
/// use std::sync::atomic::AtomicBool;
/// let stop = AtomicBool::new(false); // another thread may set it
/// let tell = |tick: Tick<'_>| eprintln!("{} of {}", tick.done, tick.total);
/// let watch = Watch::new(&tell, &stop).listener(&silent);
/// (watch.listener)(Tick { done: 1, total: 2, what: "nobody hears of this" });
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Watch<'a> {
    /// Hears of every step.
    pub listener: &'a Listener<'a>,
    /// Ends the run, with a checkpoint, when it becomes true.
    pub stop: &'a AtomicBool,
}

impl<'a> Watch<'a> {
    /// A listener and a switch.
    pub fn new(listener: &'a Listener<'a>, stop: &'a AtomicBool) -> Self {
        Self { listener, stop }
    }

    /// The same with another listener.
    #[must_use]
    pub fn listener<'b>(self, listener: &'b Listener<'b>) -> Watch<'b>
    where
        'a: 'b,
    {
        Watch { listener, ..self }
    }
}

/// One run with its checkpoint.
pub struct Session<'a, M = Bert> {
    trainer: Trainer<M>,
    /// Describes the run.
    description: String,
    checkpoint: PathBuf,
    watch: Watch<'a>,
    /// A running mean, which is easier to follow than single losses.
    loss: Option<f64>,
}

impl<'a, M: Model> Session<'a, M> {
    /// Begins a run that `described` describes, or goes on with it from its checkpoint; a checkpoint of
    /// another run is refused.
    pub fn start(
        trainer: Trainer<M>,
        described: &impl Serialize,
        checkpoint: PathBuf,
        watch: Watch<'a>,
    ) -> Result<Self> {
        let description = serde_json::to_string(described)
            .map_err(|e| Error::invalid("description", e.to_string()))?;
        let mut session = Self { trainer, description, checkpoint, watch, loss: None };
        if session.checkpoint.exists() {
            session.trainer.load_checkpoint(&session.checkpoint, &session.description)?;
        }
        Ok(session)
    }

    /// The model in training, and how far it has come.
    pub fn trainer(&self) -> &Trainer<M> {
        &self.trainer
    }

    /// The running mean of the losses since the run began or went on.
    pub fn loss(&self) -> Option<f64> {
        self.loss
    }

    /// Steps up to `end`, each with the loss of its number. If the run is to stop, it writes a checkpoint
    /// and ends with [`Error::Stopped`].
    pub fn train(
        &mut self,
        end: u64,
        loss: impl Fn(&M, u64) -> Result<Tensor<1>> + Sync,
    ) -> Result<()> {
        let mut saved = Instant::now();
        while self.trainer.steps_made() < end {
            let step = self.trainer.steps_made();
            let value = self.trainer.step(|model| loss(model, step))?;
            let shown = self.loss.map_or(value, |mean| 0.95 * mean + 0.05 * value);
            self.loss = Some(shown);
            let what = format!("loss {shown:.4}");
            let (done, total) = (self.trainer.steps_made(), self.trainer.steps());
            (self.watch.listener)(Tick { done, total, what: &what });
            let stop = self.watch.stop.load(Ordering::Relaxed);
            if stop || saved.elapsed() > PAUSE {
                self.save()?;
                saved = Instant::now();
            }
            if stop {
                let checkpoint = self.checkpoint.clone();
                return Err(Error::Stopped { step: done, steps: total, checkpoint });
            }
        }
        Ok(())
    }

    /// Writes the checkpoint.
    fn save(&self) -> Result<()> {
        self.trainer.save_checkpoint(&self.checkpoint, &self.description)
    }

    /// The model, when all is done. Removes the checkpoint, which nobody needs any more.
    pub fn finish(self) -> Result<M> {
        if self.checkpoint.exists() {
            std::fs::remove_file(&self.checkpoint).map_err(|e| Error::file(&self.checkpoint, e))?;
        }
        Ok(self.trainer.into_model())
    }
}
