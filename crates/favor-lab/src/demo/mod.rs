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

use crate::families::compared;
use crate::{Error, Result};
use favor::Family;
use favor_io::progress::{Counter, Listener};
use serde::Serialize;
use std::time::Instant;

/// The size of the demonstration.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DemoOptions {
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

setters! { DemoOptions {
    seed: u64,
    families: Vec<Family>,
    features: Vec<usize>,
    shown_features: usize,
    draws: u64,
    points: usize,
    exact_lengths: Vec<usize>,
    feature_lengths: Vec<usize>,
    training: usize,
    tokens: usize,
    picture: usize,
} }

impl DemoOptions {
    /// The demonstration as a person runs it.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            families: compared(),
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
        let sizes = [
            ("points", self.points),
            ("training", self.training),
            ("tokens", self.tokens),
            ("picture", self.picture),
            ("draws", self.draws as usize),
        ];
        let lists = [
            ("features", &self.features),
            ("exact_lengths", &self.exact_lengths),
            ("feature_lengths", &self.feature_lengths),
        ];
        let listed =
            lists.into_iter().flat_map(|(what, list)| list.iter().map(move |&n| (what, n)));
        let zero = sizes.into_iter().chain(listed).find(|(_, size)| *size == 0);
        if let Some((what, _)) = zero {
            return Err(Error::invalid(what, "0 is too few; give at least 1"));
        }
        if self.families.is_empty() {
            return Err(Error::invalid("families", "give at least one"));
        }
        if !self.features.contains(&self.shown_features) {
            let reason = format!("{} is not among the features", self.shown_features);
            return Err(Error::invalid("shown_features", reason));
        }
        Ok(())
    }
}

/// What the demonstration found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Demo {
    /// What was run.
    pub options: DemoOptions,
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
/// let found = demo::run(&demo::DemoOptions::small(1), &progress::silent)?;
/// assert!(found.to_html("favor help").starts_with("<!doctype html>"));
/// # Ok::<(), favor_lab::Error>(())
/// ```
pub fn run(options: &DemoOptions, listener: &Listener<'_>) -> Result<Demo> {
    options.check()?;
    let start = Instant::now();
    let steps = 3 * options.families.len()
        + options.exact_lengths.len()
        + options.feature_lengths.len()
        + classify::PICTURES.len();
    let counter = Counter::new(listener, steps);
    let product = product::run(options, &counter)?;
    let classify = classify::run(options, &counter)?;
    let attention = attention::run(options, &counter)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Demo { options: options.clone(), product, classify, attention, seconds })
}
