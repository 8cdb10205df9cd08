//! The paper's kernel classification (its Figure 6) on eight sets of the UCI repository.
//!
//! A set is shuffled and divided once into 90 % training, 5 % validation and 5 % test. Words become
//! columns of zeros and ones, and all columns are scaled to mean 0 and variance 1 over the training
//! part. The class of a point `u` is the largest entry of `Σ_i K(u/h, u_i/h) r_i` over the training
//! part, with the Gaussian kernel and `r_i` the class of `u_i` as a row of zeros with a single one;
//! of equal entries the first counts. Features estimate these sums with M = 16, …, 128 orthogonal
//! draws.
//!
//! For every set, family and M, the bandwidth h is the one of ten values from 10⁻² to 10² whose accuracy
//! on the validation part, averaged over the draws, is best; of equal ones the largest. The accuracy on
//! the test part with it is averaged over the same draws. The exact kernel chooses a bandwidth of its
//! own. The paper says as much, of σ = 1/h; it does not say whether h may differ with M, nor which points
//! the parameters of the families are fitted to. Here h may, since each M is a classifier of its own.
//!
//! Parameters are fitted to the training part on both sides ([`QueryMoments::Training`]): the sums
//! over the training part are to be ready before the first query comes. Then GE, SADE and ADE are the
//! same up to a rotation of the draws, because both sides have the same second moments, and so are
//! SDE and balanced, because the mean is zero. With [`QueryMoments::Queries`] the query side has the
//! moments of the points to be classified, without their classes, as the paper's objective can also
//! be read.

mod classify;
mod compute;
mod findings;
mod plot;
mod ranking;
mod read;
mod report;
mod set;
mod split;
mod text;

pub use ranking::Rank;
pub use report::{Curve, Exact, Point, Reproduction, SetResult};
pub use set::Set;

use crate::families::paper;
use crate::{Error, Result};
use favor::Family;
use favor::draw::Stream;
use favor::learn::bandwidths;
use favor_io::data::DataFolder;
use favor_io::progress::Listener;
use favor_io::{create_folder, write_atomically};
use split::Split;
use std::path::Path;

/// The folder of the sets inside the folder of data.
const FOLDER: &str = "uci8";

/// Which points stand for the queries when parameters are fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryMoments {
    /// Those of the training part.
    Training,
    /// Those that are to be classified, without their classes.
    Queries,
}

/// The size of the experiment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UciOptions {
    /// The sets.
    pub sets: Vec<Set>,
    /// The families.
    pub families: Vec<Family>,
    /// The numbers of features.
    pub features: Vec<usize>,
    /// The bandwidths that are tried. Of equally good ones the first is taken.
    pub bandwidths: Vec<f64>,
    /// The number of draws.
    pub seeds: u64,
    /// What parameters are fitted to.
    pub moments: QueryMoments,
    /// Decides the division of the sets and the draws.
    pub seed: u64,
}

setters! { UciOptions {
    sets: Vec<Set>,
    families: Vec<Family>,
    features: Vec<usize>,
    bandwidths: Vec<f64>,
    seeds: u64,
    moments: QueryMoments,
    seed: u64,
} }

impl UciOptions {
    /// The experiment as in the paper, with the balanced family next to the paper's.
    pub fn paper() -> Self {
        let families = paper().into_iter().chain([Family::Balanced]).collect();
        Self {
            sets: Set::ALL.to_vec(),
            families,
            features: vec![16, 32, 64, 128],
            bandwidths: bandwidths().into_iter().rev().collect(),
            seeds: 50,
            moments: QueryMoments::Training,
            seed: 0,
        }
    }

    fn check(&self) -> Result<()> {
        // One draw has no error.
        if !(2..=1 << 20).contains(&self.seeds) {
            let reason = format!("{} is out of range; give between 2 and {}", self.seeds, 1 << 20);
            return Err(Error::invalid("seeds", reason));
        }
        let missing = [("sets", self.sets.is_empty()), ("families", self.families.is_empty())];
        if let Some((what, _)) = missing.into_iter().find(|(_, missing)| *missing) {
            return Err(Error::invalid(what, "give at least one"));
        }
        if self.features.is_empty() || self.features.contains(&0) {
            return Err(Error::invalid("features", "give at least one number, each above zero"));
        }
        if self.bandwidths.is_empty() || !self.bandwidths.iter().all(|s| *s > 0.0) {
            return Err(Error::invalid("bandwidths", "give at least one, each above zero"));
        }
        Ok(())
    }
}

/// Runs the experiment and writes `uci.csv` and `uci.svg` into the folder `out`, which is made if it
/// is not there.
///
/// ```no_run
/// use favor_io::{data, progress};
/// use favor_lab::uci;
/// let folder = data::data_folder(None);
/// let out = std::path::Path::new("favor-uci");
/// let options = uci::UciOptions::paper().seeds(5);
/// let found = uci::reproduce(&options, &folder, out, &progress::silent)?;
/// print!("{}", found.to_text(out));
/// # Ok::<(), favor_lab::Error>(())
/// ```
pub fn reproduce(
    options: &UciOptions,
    data: &DataFolder,
    out: &Path,
    listener: &Listener<'_>,
) -> Result<Reproduction> {
    options.check()?;
    let splits = load(options, data)?;
    create_folder(out)?;
    let sets = compute::results(options, &splits, listener)?;
    let found = Reproduction::new(options.clone(), sets);
    write_atomically(out.join("uci.csv"), found.to_csv().as_bytes())?;
    write_atomically(out.join("uci.svg"), found.to_svg().as_bytes())?;
    Ok(found)
}

/// Reads and divides the sets.
fn load(options: &UciOptions, data: &DataFolder) -> Result<Vec<(Set, Split)>> {
    let files: Vec<&str> = options.sets.iter().map(|s| s.format().file).collect();
    data.check(&format!("the files {} in {FOLDER}/", files.join(", ")))?;
    let folder = data.path.join(FOLDER);
    let load = |&set: &Set| {
        let examples = read::read(set, &folder)?;
        // A stream of its own for each set: the others may come or go.
        let mut stream = Stream::new(options.seed, set as u64);
        let split = Split::new(&examples, &mut stream)
            .map_err(|e| Error::at(format!("{}: ", set.name()), e))?;
        Ok((set, split))
    };
    options.sets.iter().map(load).collect()
}
