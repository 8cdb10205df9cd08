//! The three jobs of the library on synthetic data, exact against approximate: kernel products,
//! kernel classification and attention. One page to look at, and a summary for the terminal.

mod attention;
mod chart;
mod classify;
mod curve;
mod data;
mod page;
mod product;
mod regions;
mod table;
mod text;

pub use attention::AttentionResult;
pub use classify::{ClassifyResult, Regions};
pub use curve::{CurvePoint, FamilyCurve};
pub use product::{ProductResult, Timing};

use crate::{Error, Result};
use favor::Family;
use favor_io::progress::{Counter, Listener};
use serde::Serialize;
use std::time::Instant;

/// The size of the demonstration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setup {
    /// Decides the data and all draws.
    pub seed: u64,
    /// The families that are compared.
    pub families: Vec<Family>,
    /// The numbers of features.
    pub features: Vec<usize>,
    /// The number of features of times, pictures and tables; one of `features`.
    pub shown_features: usize,
    /// Errors are means over this many draws.
    pub draws: u64,
    /// Points of the kernel product.
    pub points: usize,
    /// Numbers of points at which exact products are timed.
    pub exact_lengths: Vec<usize>,
    /// Numbers of points at which approximate products are timed.
    pub feature_lengths: Vec<usize>,
    /// Training points of the classification; a third as many are tested.
    pub training: usize,
    /// Tokens of the attention.
    pub tokens: usize,
    /// Columns of the pictures of decision regions.
    pub picture: usize,
}

impl Setup {
    /// The demonstration as a person runs it.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            families: crate::families::SHOWN.to_vec(),
            features: vec![16, 32, 64, 128, 256, 512, 1024],
            shown_features: 256,
            draws: 3,
            points: 2000,
            exact_lengths: vec![1000, 2000, 4000, 8000, 16_000],
            feature_lengths: vec![1000, 2000, 4000, 8000, 16_000, 32_000, 64_000],
            training: 3000,
            tokens: 1024,
            picture: 120,
        }
    }

    /// A tiny one that takes a moment.
    pub fn small(seed: u64) -> Self {
        Self {
            features: vec![16, 64],
            shown_features: 64,
            draws: 1,
            points: 120,
            exact_lengths: vec![100, 200],
            feature_lengths: vec![100, 200],
            training: 150,
            tokens: 96,
            picture: 24,
            ..Self::new(seed)
        }
    }

    fn check(&self) -> Result<()> {
        let sizes = [self.points, self.training, self.tokens, self.picture, self.draws as usize];
        let lengths = self.exact_lengths.iter().chain(&self.feature_lengths);
        let sizes = sizes.iter().chain(&self.features).chain(lengths);
        if sizes.into_iter().any(|&n| n == 0)
            || self.families.is_empty()
            || !self.features.contains(&self.shown_features)
        {
            let reason = "the demonstration needs sizes above zero and at least one family";
            return Err(Error::Invalid(reason.to_owned()));
        }
        Ok(())
    }
}

/// What the demonstration found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Demo {
    /// What was run.
    pub setup: Setup,
    /// The kernel product.
    pub product: ProductResult,
    /// The classification.
    pub classify: ClassifyResult,
    /// The attention.
    pub attention: AttentionResult,
    /// How long it took.
    pub seconds: f64,
}

/// Runs all three jobs.
///
/// ```
/// use favor_io::progress;
/// use favor_lab::demo;
/// let found = demo::run(&demo::Setup::small(1), &progress::silent)?;
/// assert!(found.to_html().starts_with("<!doctype html>"));
/// # Ok::<(), favor_lab::Error>(())
/// ```
pub fn run(setup: &Setup, listener: &Listener<'_>) -> Result<Demo> {
    setup.check()?;
    let start = Instant::now();
    let steps = 3 * setup.families.len()
        + setup.exact_lengths.len()
        + setup.feature_lengths.len()
        + classify::PICTURES.len();
    let counter = Counter::new(listener, steps);
    let product = product::run(setup, &counter)?;
    let classify = classify::run(setup, &counter)?;
    let attention = attention::run(setup, &counter)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Demo { setup: setup.clone(), product, classify, attention, seconds })
}
