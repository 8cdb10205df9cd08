//! The paper's comparison of variances (its Figures 1 and 5).
//!
//! Six kinds of data of dimension 64, five pairs of sets of 1024 vectors each, vectors multiplied
//! by a scale of 0.1, …, 1. The parameters of every family are fitted to each pair of sets. Reported is
//! the mean over all pairs of vectors and all sets of the logarithm of the variance of one feature,
//! relative to `K` as in the paper and also to `K²`, from the closed forms.
//!
//! The paper does not say how pixels become numbers. Here a pixel is its byte divided by 255, so
//! that images lie in [0, 1] before they are multiplied by the scale; with that the gaps that the paper
//! reports appear between scales of 0.5 and 0.9. Images centred at their mean give gaps that are far
//! smaller than the paper's, and standardised ones or ones in [−1, 1] give larger gaps on mnist than
//! on cifar10, against the paper.

mod compute;
mod data;
mod findings;
mod plot;
mod regime;
mod report;
mod text;

pub use crate::finding::Finding;
pub use regime::Regime;
pub use report::{Curve, Missing, Point, Reproduction};

use crate::families::compared;
use crate::{Error, Result};
use favor::Family;
use favor_io::data::DataFolder;
use favor_io::progress::Listener;
use favor_io::{create_folder, write_atomically};
use std::path::Path;

/// The size of the experiment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct VarianceOptions {
    /// The kinds of data.
    pub regimes: Vec<Regime>,
    /// The factors of the vectors.
    pub scales: Vec<f64>,
    /// The families.
    pub families: Vec<Family>,
    /// Vectors in a set.
    pub rows: usize,
    /// Pairs of sets.
    pub sets: usize,
    /// Decides the sets.
    pub seed: u64,
}

setters! { VarianceOptions {
    regimes: Vec<Regime>,
    scales: Vec<f64>,
    families: Vec<Family>,
    rows: usize,
    sets: usize,
    seed: u64,
} }

impl VarianceOptions {
    /// The experiment as in the paper, with all families.
    pub fn paper() -> Self {
        Self {
            regimes: Regime::ALL.to_vec(),
            scales: (1..=10).map(|s| f64::from(s) / 10.0).collect(),
            families: compared(),
            rows: 1024,
            sets: 5,
            seed: 0,
        }
    }

    fn check(&self) -> Result<()> {
        for (what, size) in [("rows", self.rows), ("sets", self.sets)] {
            if size == 0 {
                return Err(Error::invalid(what, "0 is too few; give at least 1"));
            }
        }
        if self.scales.is_empty() || !self.scales.iter().all(|s| s.is_finite() && *s > 0.0) {
            return Err(Error::invalid("scales", "give at least one, each above zero"));
        }
        Ok(())
    }
}

/// Runs the experiment and writes `variance.csv` and `variance.svg` into the folder `out`, which is
/// made if it is not there. Kinds of data whose files are missing are left out and named.
///
/// ```no_run
/// use favor_io::{data, progress};
/// use favor_lab::variance;
/// let folder = data::data_folder(None);
/// let out = std::path::Path::new("favor-variance");
/// let found = variance::reproduce(&variance::VarianceOptions::paper(), &folder, out, &progress::silent)?;
/// print!("{}", found.to_text(out));
/// # Ok::<(), favor_lab::Error>(())
/// ```
pub fn reproduce(
    options: &VarianceOptions,
    data: &DataFolder,
    out: &Path,
    listener: &Listener<'_>,
) -> Result<Reproduction> {
    let found = compare(options, data, out, listener)?;
    write_atomically(out.join("variance.csv"), found.to_csv().as_bytes())?;
    write_atomically(out.join("variance.svg"), found.to_svg().as_bytes())?;
    Ok(found)
}

/// Everything but the writing; the folder is made first, so that a wrong one is known at once.
fn compare(
    options: &VarianceOptions,
    data: &DataFolder,
    out: &Path,
    listener: &Listener<'_>,
) -> Result<Reproduction> {
    options.check()?;
    let (sources, missing) = data::load(data, &options.regimes)?;
    create_folder(out)?;
    let curves = compute::curves(options, &sources, listener)?;
    let findings = findings::compare(&curves);
    Ok(Reproduction { options: options.clone(), curves, findings, missing })
}
