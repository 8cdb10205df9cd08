//! The bandwidth of the kernel: given, or the best of a grid on rows that the sums have not seen.

use super::Examples;
use crate::{Error, FeatureSpec, Kernel, Moments, Result};
use serde::{Deserialize, Serialize};

/// The fewest rows that a bandwidth is chosen on.
pub(super) const LEAST_ROWS: usize = 8;

/// The kernel `exp(−‖u−v‖²/(2h²))` of bandwidth `h`.
///
/// ```
/// let kernel = favor::learn::gaussian(2.0)?;
/// assert!((kernel.value(&[0.0], &[2.0])? - (-0.5_f64).exp()).abs() < 1e-15);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn gaussian(bandwidth: f64) -> Result<Kernel> {
    check_bandwidth(bandwidth)?;
    Kernel::gaussian().scaled(1.0 / bandwidth)
}

/// An error unless the bandwidth is a positive number.
pub(super) fn check_bandwidth(bandwidth: f64) -> Result<()> {
    if bandwidth.is_finite() && bandwidth > 0.0 {
        return Ok(());
    }
    Err(Error::invalid("bandwidth", format!("{bandwidth} is not a positive number")))
}

/// The paper's ten bandwidths, equally far apart in logarithm from 10⁻² to 10², in ascending order.
/// The paper multiplies the vectors by their reciprocals.
pub fn bandwidths() -> Vec<f64> {
    (0..10).map(|k| 10_f64.powf(-2.0 + 4.0 * f64::from(k) / 9.0)).collect()
}

/// The bandwidth to fit with.
///
/// ```
/// use favor::learn::{Bandwidth, Search};
/// assert_eq!(Bandwidth::default(), Search::Validation.into());
/// assert_eq!(Bandwidth::from(0.5), Bandwidth::Fixed(0.5));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bandwidth {
    /// The best of [`bandwidths`].
    Auto(Search),
    /// A given one.
    Fixed(f64),
}

impl Bandwidth {
    /// An error unless it is a positive number, or can be chosen.
    pub(super) fn check(self) -> Result<()> {
        match self {
            Self::Auto(search) => search.check(),
            Self::Fixed(bandwidth) => check_bandwidth(bandwidth),
        }
    }
}

impl Default for Bandwidth {
    fn default() -> Self {
        Self::Auto(Search::default())
    }
}

impl From<f64> for Bandwidth {
    fn from(bandwidth: f64) -> Self {
        Self::Fixed(bandwidth)
    }
}

impl From<Search> for Bandwidth {
    fn from(search: Search) -> Self {
        Self::Auto(search)
    }
}

/// How a bandwidth is chosen.
///
/// ```
/// use favor::learn::{Bandwidth, Search};
/// let every_row_once = Bandwidth::Auto(Search::CrossValidation { folds: 5 });
/// assert_ne!(every_row_once, Bandwidth::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Search {
    /// Every fourth row of the sample is held out.
    #[default]
    Validation,
    /// Every part of the sample is held out once.
    CrossValidation {
        /// How many parts.
        folds: usize,
    },
}

impl Search {
    fn check(self) -> Result<()> {
        match self {
            Self::CrossValidation { folds } if folds < 2 => {
                Err(Error::invalid("folds", format!("{folds} parts; give 2 or more")))
            }
            _ => Ok(()),
        }
    }
}

/// One bandwidth and its scores.
///
/// ```
/// use favor::learn::Trial;
/// let trial = Trial { bandwidth: 0.5, score: 0.81, exact: 0.84 };
/// assert!(trial.exact > trial.score); // what more features could still gain
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The bandwidth.
    pub bandwidth: f64,
    /// The score of the features on the rows held out.
    pub score: f64,
    /// The score of the exact kernel there.
    pub exact: f64,
}

/// The scores of all bandwidths.
///
/// ```
/// use favor::learn::{Curve, Search, Trial};
/// let trial = |bandwidth, score| Trial { bandwidth, score, exact: score };
/// let trials = vec![trial(0.1, 0.7), trial(0.5, 0.8), trial(2.0, 0.6)];
/// let curve = Curve { search: Search::Validation, rows: 1000, trials };
/// assert_eq!(curve.best().map(|best| best.bandwidth), Some(0.5));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// How they were found.
    pub search: Search,
    /// Rows of the sample.
    pub rows: usize,
    /// In ascending order of the bandwidth.
    pub trials: Vec<Trial>,
}

impl Curve {
    /// The trial with the highest score; of several the widest, whose features are the most reliable.
    pub fn best(&self) -> Option<&Trial> {
        self.trials.iter().reduce(|best, t| if t.score >= best.score { t } else { best })
    }
}

/// Scores every one of [`bandwidths`] on examples: parts of them are held out, the sums are over the
/// rest. The map is fitted to `moments`, those of all rows; of `spec` the kernel is not used.
///
/// ```
/// use favor::learn::{Examples, Search, Targets, choose_bandwidth};
/// use favor::{Family, FeatureSpec, Matrix, Moments};
///
/// let rows = Matrix::from_fn(300, 1, |i, _| (1.7 * i as f64).sin());
/// let moments = Moments::of(rows.view())?;
/// let targets = Targets::Density { scales: vec![1.0] };
/// let examples = Examples::new(rows, vec![1.0; 300], targets)?;
/// let spec = FeatureSpec::new(Family::Balanced, 128);
/// let curve = choose_bandwidth(spec, &moments, &examples, Search::Validation)?;
/// assert!(curve.best().unwrap().bandwidth < 1.0);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn choose_bandwidth(
    spec: FeatureSpec,
    moments: &Moments,
    examples: &Examples,
    search: Search,
) -> Result<Curve> {
    let count = examples.rows().rows();
    let (parts, held_out) = match search {
        Search::Validation => (4, vec![3]),
        Search::CrossValidation { folds } => (folds, (0..folds).collect()),
    };
    search.check()?;
    if count < LEAST_ROWS.max(parts) {
        let reason = format!("{count} different rows are too few to choose it on; give a number");
        return Err(Error::invalid("bandwidth", reason));
    }
    let split = |part: usize| {
        let (held, kept): (Vec<usize>, Vec<usize>) = (0..count).partition(|i| i % parts == part);
        (examples.part(&kept), examples.part(&held))
    };
    let splits: Vec<(Examples, Examples)> = held_out.into_iter().map(split).collect();
    let mut trials = vec![];
    for bandwidth in bandwidths() {
        let map = spec.kernel(gaussian(bandwidth)?).fit(moments, moments)?;
        let mut trial = Trial { bandwidth, score: 0.0, exact: 0.0 };
        for (keys, queries) in &splits {
            let scores = keys.scores(&map, bandwidth, queries)?;
            trial.score += scores.features / splits.len() as f64;
            trial.exact += scores.exact / splits.len() as f64;
        }
        trials.push(trial);
    }
    Ok(Curve { search, rows: count, trials })
}
