//! The paper's comparison of variances (its Figures 1 and 5).
//!
//! Six kinds of data of dimension 64, five pairs of sets of 1024 vectors each, vectors multiplied
//! by σ = 0.1, …, 1. The parameters of every family are fitted to each pair of sets. Reported is
//! the mean over all pairs of vectors and all sets of the logarithm of the variance of one feature,
//! relative to `K` as in the paper and relative to `K²` beside it, from the closed forms.
//!
//! The paper does not say how pixels become numbers. Here a pixel is its byte divided by 255, so
//! that images lie in [0, 1] before they are multiplied by σ; with that the gaps that the paper
//! reports appear between σ = 0.5 and σ = 0.9. Images centred at their mean give gaps that are far
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

use crate::families::SHOWN;
use crate::{Error, Result};
use favor::Family;
use favor_io::data::DataFolder;
use favor_io::progress::Listener;
use favor_io::{create_folder, write_atomically};
use std::path::Path;

/// The size of the experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// The kinds of data.
    pub regimes: Vec<Regime>,
    /// The factors of the vectors.
    pub sigmas: Vec<f64>,
    /// The families.
    pub families: Vec<Family>,
    /// Vectors in a set.
    pub rows: usize,
    /// Pairs of sets.
    pub sets: usize,
    /// Decides the sets.
    pub seed: u64,
}

impl Setup {
    /// The experiment as in the paper, with all families.
    pub fn paper() -> Self {
        Self {
            regimes: Regime::ALL.to_vec(),
            sigmas: (1..=10).map(|s| f64::from(s) / 10.0).collect(),
            families: SHOWN.to_vec(),
            rows: 1024,
            sets: 5,
            seed: 0,
        }
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
/// let found = variance::reproduce(&variance::Setup::paper(), &folder, out, &progress::silent)?;
/// print!("{}", found.to_text(out));
/// # Ok::<(), favor_lab::Error>(())
/// ```
pub fn reproduce(
    setup: &Setup,
    data: &DataFolder,
    out: &Path,
    listener: &Listener<'_>,
) -> Result<Reproduction> {
    let found = compare(setup, data, out, listener)?;
    write_atomically(out.join("variance.csv"), found.to_csv().as_bytes())?;
    write_atomically(out.join("variance.svg"), found.to_svg().as_bytes())?;
    Ok(found)
}

/// Everything but the writing; the folder is made first, so that a wrong one is known at once.
fn compare(
    setup: &Setup,
    data: &DataFolder,
    out: &Path,
    listener: &Listener<'_>,
) -> Result<Reproduction> {
    let usable = |s: &f64| s.is_finite() && *s > 0.0;
    if setup.rows == 0
        || setup.sets == 0
        || setup.sigmas.is_empty()
        || !setup.sigmas.iter().all(usable)
    {
        let reason = "the variance experiment needs rows, sets and factors above zero";
        return Err(Error::Invalid(reason.to_owned()));
    }
    let (sources, missing) = data::load(data, &setup.regimes)?;
    create_folder(out)?;
    let curves = compute::curves(setup, &sources, listener)?;
    let findings = findings::compare(&curves);
    Ok(Reproduction { setup: setup.clone(), curves, findings, missing })
}
