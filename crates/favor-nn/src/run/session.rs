//! What all training runs share: a checkpoint now and then, and an end when asked for.

use crate::bert::{Bert, BertConfig};
use crate::layer::AttentionOptions;
use crate::train::Trainer;
use crate::{Error, Result};
use burn::tensor::Tensor;
use favor_lab::progress::{Listener, Tick};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A checkpoint is written about this often.
const PAUSE: Duration = Duration::from_secs(120);

/// Who watches a run: a listener, and a switch that ends it.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Is told about every step.
    pub listener: &'a Listener<'a>,
    /// Ends the run, with a checkpoint, when it becomes true.
    pub stop: &'a AtomicBool,
}

/// How a run ended.
#[derive(Debug)]
pub enum Outcome<T> {
    /// It came to its end.
    Done(T),
    /// It was stopped and can go on.
    Stopped {
        /// Steps made.
        step: u64,
        /// Steps in all.
        steps: u64,
        /// Where it is kept.
        checkpoint: PathBuf,
    },
}

/// One run with its checkpoint.
pub(super) struct Session<'a> {
    pub(super) trainer: Trainer,
    /// Describes the run.
    pub(super) request: String,
    pub(super) checkpoint: PathBuf,
    pub(super) watch: Watch<'a>,
}

impl Session<'_> {
    /// Goes on from the checkpoint, if there is one.
    pub(super) fn resume(&mut self, config: &BertConfig, options: AttentionOptions) -> Result<()> {
        match self.checkpoint.exists() {
            true => self.trainer.load_checkpoint(&self.checkpoint, &self.request, config, options),
            false => Ok(()),
        }
    }

    /// Steps up to `end`, each with the loss of its number; false if it was stopped before.
    pub(super) fn train(
        &mut self,
        end: u64,
        loss: impl Fn(&Bert, u64) -> Result<Tensor<1>>,
    ) -> Result<bool> {
        let (mut saved, mut mean) = (Instant::now(), None);
        while self.trainer.steps_made() < end {
            let step = self.trainer.steps_made();
            let value = self.trainer.step(|model| loss(model, step))?;
            // A running mean is easier to follow than single losses.
            let shown = mean.map_or(value, |mean: f64| 0.95 * mean + 0.05 * value);
            mean = Some(shown);
            let what = format!("loss {shown:.4}");
            let (done, total) = (self.trainer.steps_made(), self.trainer.steps());
            (self.watch.listener)(Tick { done, total, what: &what });
            let stop = self.watch.stop.load(Ordering::Relaxed);
            if stop || saved.elapsed() > PAUSE {
                self.save()?;
                saved = Instant::now();
            }
            if stop {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn save(&self) -> Result<()> {
        self.trainer.save_checkpoint(&self.checkpoint, &self.request)
    }

    pub(super) fn stopped<T>(self) -> Outcome<T> {
        let (step, steps) = (self.trainer.steps_made(), self.trainer.steps());
        Outcome::Stopped { step, steps, checkpoint: self.checkpoint }
    }

    /// Removes the checkpoint, which nobody needs any more.
    pub(super) fn finish(self) -> Result<Bert> {
        if self.checkpoint.exists() {
            std::fs::remove_file(&self.checkpoint).map_err(|e| Error::file(&self.checkpoint, e))?;
        }
        Ok(self.trainer.model)
    }
}
