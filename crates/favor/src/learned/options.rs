//! What maps are learned from, and how.

use crate::attention::Shapes;
use crate::engine::tensor::{Scalar, Tensor};
use crate::{Error, ExactKeys, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// Calibration sequences of all heads of a layer.
///
/// ```
/// use favor::Tensor;
/// use favor::learned::Calibration;
/// let x = vec![0.5_f32; 4 * 2 * 16 * 8];
/// let t = Tensor::new(&x, [4, 2, 16, 8])?; // four sequences of 16 tokens, two heads
/// let data = Calibration::new(t, t).causal(true);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Calibration<'a, T> {
    pub(super) q: Tensor<'a, T>,
    pub(super) k: Tensor<'a, T>,
    pub(super) v: Option<Tensor<'a, T>>,
    pub(super) mask: Option<&'a [bool]>,
    pub(super) causal: bool,
    pub(super) source: &'a str,
}

impl<'a, T: Scalar> Calibration<'a, T> {
    /// Queries and keys, each `[sequences, heads, length, dim]`.
    pub fn new(q: Tensor<'a, T>, k: Tensor<'a, T>) -> Self {
        Self { q, k, v: None, mask: None, causal: false, source: "" }
    }

    /// Values, used to measure output errors. Without them, weights are compared.
    #[must_use]
    pub fn values(self, v: Option<Tensor<'a, T>>) -> Self {
        Self { v, ..self }
    }

    /// `sequences × keys`, false at padding. If there are as many queries as keys, it applies to the
    /// queries too.
    #[must_use]
    pub fn mask(self, mask: Option<&'a [bool]>) -> Self {
        Self { mask, ..self }
    }

    /// Whether a query sees only its own and earlier keys.
    #[must_use]
    pub fn causal(self, causal: bool) -> Self {
        Self { causal, ..self }
    }

    /// What the sequences are. The maps keep it: see [`LearnedFrom`](crate::LearnedFrom).
    #[must_use]
    pub fn source(self, source: &'a str) -> Self {
        Self { source, ..self }
    }

    pub(super) fn check(&self, exact: ExactKeys) -> Result<()> {
        let (q, k, v) = (self.q.shape(), self.k.shape(), self.v.map(|v| v.shape()));
        Shapes { q, k, v }.check(exact.has_window(), self.causal, self.mask)
    }
}

/// The progress of learning.
///
/// ```
/// use favor::learned::{LearnOptions, LearnProgress};
/// let show = |p: LearnProgress| eprintln!("{} of {} steps", p.done, p.total);
/// let options = LearnOptions::new().progress(Some(&show));
/// assert!(options.progress.is_some());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LearnProgress {
    /// Steps of all heads so far.
    pub done: usize,
    /// Total steps of all heads.
    pub total: usize,
    /// The objective on held-out sequences of the head that was measured last.
    pub held_out: f64,
}

/// How maps are learned.
///
/// ```
/// use favor::ExactKeys;
/// use favor::learned::LearnOptions;
/// let options = LearnOptions::new().exact(ExactKeys::NONE.near(16)).steps(400).seed(1);
/// assert_eq!(options.holdout, 0.25);
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct LearnOptions<'a> {
    /// The exact keys, while learning and afterwards.
    pub exact: ExactKeys,
    /// Steps of the optimiser; 0 keeps the start.
    pub steps: usize,
    /// Sequences per step. By default as many as have about 1 024 tokens together, at least four.
    pub batch: Option<usize>,
    /// Queries per sequence and step. From a longer sequence this many are drawn; all keys are seen.
    /// Measurements take evenly spaced queries, at most this many per sequence.
    pub queries: usize,
    /// The peak learning rate.
    pub rate: f64,
    /// The fraction of the objective that is the output error, in the second half of the steps and if
    /// there are values; the rest is the divergence of the weights.
    pub outputs: f64,
    /// How strongly numbers are pulled towards the start. By default not at all: stopping where held-out
    /// sequences are best was better even with little data.
    pub pull: f64,
    /// The fraction of the sequences that is held out, at least one.
    pub holdout: f64,
    /// The seed that decides which sequences are held out, and the order of the others.
    pub seed: u64,
    /// The number of threads; rayon's default if not set. No result depends on it.
    pub threads: Option<usize>,
    /// Another thread may set this to true: learning then ends with [`Error::Cancelled`].
    pub cancel: Option<&'a AtomicBool>,
    /// Called with progress, from several threads.
    pub progress: Option<&'a (dyn Fn(LearnProgress) + Sync)>,
}

impl Default for LearnOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl LearnOptions<'_> {
    /// Steps of the optimiser, unless asked otherwise.
    pub const STEPS: usize = 800;
}

impl<'a> LearnOptions<'a> {
    /// Features alone; [`STEPS`](Self::STEPS) of about 1 024 tokens; a quarter of the sequences held out.
    pub fn new() -> Self {
        Self {
            exact: ExactKeys::NONE,
            steps: Self::STEPS,
            batch: None,
            queries: 256,
            rate: 0.07,
            pull: 0.0,
            outputs: 0.3,
            holdout: 0.25,
            seed: 0,
            threads: None,
            cancel: None,
            progress: None,
        }
    }

    /// The exact keys.
    #[must_use]
    pub fn exact(self, exact: ExactKeys) -> Self {
        Self { exact, ..self }
    }

    /// Steps of the optimiser.
    #[must_use]
    pub fn steps(self, steps: usize) -> Self {
        Self { steps, ..self }
    }

    /// Sequences per step.
    #[must_use]
    pub fn batch(self, batch: Option<usize>) -> Self {
        Self { batch, ..self }
    }

    /// Queries per sequence and step.
    #[must_use]
    pub fn queries(self, queries: usize) -> Self {
        Self { queries, ..self }
    }

    /// The peak learning rate.
    #[must_use]
    pub fn rate(self, rate: f64) -> Self {
        Self { rate, ..self }
    }

    /// How strongly numbers are pulled towards the start.
    #[must_use]
    pub fn pull(self, pull: f64) -> Self {
        Self { pull, ..self }
    }

    /// The fraction of the objective that is the output error.
    #[must_use]
    pub fn outputs(self, outputs: f64) -> Self {
        Self { outputs, ..self }
    }

    /// The fraction of the sequences that is held out.
    #[must_use]
    pub fn holdout(self, holdout: f64) -> Self {
        Self { holdout, ..self }
    }

    /// The seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The number of threads.
    #[must_use]
    pub fn threads(self, threads: Option<usize>) -> Self {
        Self { threads, ..self }
    }

    /// The flag that ends learning early.
    #[must_use]
    pub fn cancel(self, cancel: Option<&'a AtomicBool>) -> Self {
        Self { cancel, ..self }
    }

    /// The progress callback.
    #[must_use]
    pub fn progress(self, progress: Option<&'a (dyn Fn(LearnProgress) + Sync)>) -> Self {
        Self { progress, ..self }
    }

    pub(super) fn check(&self) -> Result<()> {
        let bad = |what: &'static str, reason: String| Err(Error::invalid(what, reason));
        if self.batch == Some(0) || self.queries == 0 {
            let batch = self.batch.map_or("any".to_owned(), |n| n.to_string());
            let reason = format!("{batch} sequences of {} queries per step", self.queries);
            return bad("batch", reason);
        }
        if !(self.rate.is_finite() && self.rate > 0.0) {
            return bad("rate", format!("{} is not a positive number", self.rate));
        }
        if !(self.pull.is_finite() && self.pull >= 0.0) {
            return bad("pull", "is not a number of at least zero".into());
        }
        if !(0.0..=1.0).contains(&self.outputs) {
            return bad("outputs", format!("{} is not between 0 and 1", self.outputs));
        }
        if !(self.holdout > 0.0 && self.holdout < 1.0) {
            return bad("holdout", format!("{} is not between 0 and 1", self.holdout));
        }
        Ok(())
    }

    pub(super) fn check_cancelled(&self) -> Result<()> {
        if self.cancel.is_some_and(|c| c.load(Ordering::Relaxed)) {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}
