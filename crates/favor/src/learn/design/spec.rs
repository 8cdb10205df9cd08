//! Which features a design has.

use super::nystrom::landmarks;
use super::{Design, Numbers};
use crate::draw::{Stream, draw_omega, offsets};
use crate::learn::bandwidth::check_bandwidth;
use crate::learn::options::check_features;
use crate::learn::{KernelShape, Scaling};
use crate::{Coupling, Error, Family, FeatureSpec, Kernel, Matrix, Moments, Result, Rows};
use serde::{Deserialize, Serialize};

/// What the stream that makes frequencies heavy-tailed is for.
const TAILS: u64 = 1 << 34;

/// Where the features of a design come from.
///
/// ```
/// use favor::{Family, learn::Basis};
/// assert_eq!("nystrom".parse(), Ok(Basis::Nystrom));
/// assert_eq!("trig".parse(), Ok(Basis::Random(Family::Trig)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Basis {
    /// Random features of a family. The positive ones are of the Gaussian kernel only.
    Random(Family),
    /// The kernel with rows of the data, the landmarks, made orthonormal (Nyström).
    #[default]
    Nystrom,
}

impl Basis {
    /// The name in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random(family) => family.name(),
            Self::Nystrom => "nystrom",
        }
    }

    /// Whether it has features of this shape.
    pub fn supports(self, shape: KernelShape) -> bool {
        match self {
            Self::Random(family) => shape == KernelShape::Gaussian || !family.is_positive(),
            Self::Nystrom => true,
        }
    }
}

impl From<Basis> for &'static str {
    fn from(basis: Basis) -> Self {
        basis.name()
    }
}

impl TryFrom<String> for Basis {
    type Error = Error;
    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

impl From<Family> for Basis {
    fn from(family: Family) -> Self {
        Self::Random(family)
    }
}

impl std::fmt::Display for Basis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Basis {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        if name == "nystrom" {
            return Ok(Self::Nystrom);
        }
        name.parse().map(Self::Random).map_err(|_| {
            let mut known = vec!["nystrom"];
            known.extend(Family::ALL.map(Family::name));
            Error::invalid("basis", crate::unknown_name(name, &known))
        })
    }
}

/// The features of a design: basis, kernel and number.
///
/// ```
/// use favor::learn::{DesignSpec, KernelShape};
/// let spec = DesignSpec::new(512).shape(KernelShape::Laplace).bandwidth(2.0).linear(true);
/// assert_eq!(spec.features, 512);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DesignSpec {
    /// Where the features come from.
    pub basis: Basis,
    /// The shape of the kernel.
    pub shape: KernelShape,
    /// Their number M.
    pub features: usize,
    /// How random draws depend on one another.
    pub coupling: Coupling,
    /// Decides random draws.
    pub seed: u64,
    /// The bandwidth of the kernel in the units of the standardised columns: one, or one per column.
    pub bandwidths: Vec<f64>,
    /// Whether columns are brought to mean 0 and variance 1.
    pub standardise: bool,
    /// Whether the columns themselves come before the features.
    pub linear: bool,
}

impl DesignSpec {
    /// That many landmarks for the Gaussian kernel of bandwidth 1, columns standardised, no linear part.
    pub fn new(features: usize) -> Self {
        Self {
            basis: Basis::default(),
            shape: KernelShape::default(),
            features,
            coupling: Coupling::default(),
            seed: 0,
            bandwidths: vec![1.0],
            standardise: true,
            linear: false,
        }
    }

    /// Another basis: [`Basis::Nystrom`], or a [`Family`].
    #[must_use]
    pub fn basis(self, basis: impl Into<Basis>) -> Self {
        Self { basis: basis.into(), ..self }
    }

    /// Another shape of the kernel.
    #[must_use]
    pub fn shape(self, shape: KernelShape) -> Self {
        Self { shape, ..self }
    }

    /// Another number of features.
    #[must_use]
    pub fn features(self, features: usize) -> Self {
        Self { features, ..self }
    }

    /// Another coupling.
    #[must_use]
    pub fn coupling(self, coupling: Coupling) -> Self {
        Self { coupling, ..self }
    }

    /// Another seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// One bandwidth for all columns.
    #[must_use]
    pub fn bandwidth(self, bandwidth: f64) -> Self {
        Self { bandwidths: vec![bandwidth], ..self }
    }

    /// A bandwidth for each column.
    #[must_use]
    pub fn bandwidths(self, bandwidths: Vec<f64>) -> Self {
        Self { bandwidths, ..self }
    }

    /// Whether columns are brought to mean 0 and variance 1.
    #[must_use]
    pub fn standardise(self, standardise: bool) -> Self {
        Self { standardise, ..self }
    }

    /// Whether the columns themselves come before the features.
    #[must_use]
    pub fn linear(self, linear: bool) -> Self {
        Self { linear, ..self }
    }

    /// The bandwidth of a column.
    pub fn bandwidth_of(&self, column: usize) -> f64 {
        self.bandwidths.get(column).or(self.bandwidths.first()).copied().unwrap_or(1.0)
    }

    /// The design for rows with these moments. `sample` are some of the rows in an order that has nothing
    /// to do with them: the first become landmarks, but for those that depend on earlier ones. A random
    /// basis does not look at them.
    pub fn fit(&self, moments: &Moments, sample: Rows<'_, f64>) -> Result<Design> {
        self.check(moments)?;
        let dim = moments.dim();
        let units = if self.standardise {
            Scaling::standard(moments)
        } else {
            vec![Scaling::IDENTITY; dim]
        };
        let widen =
            |(l, s): (usize, Scaling)| Scaling { scale: s.scale * self.bandwidth_of(l), ..s };
        let inputs: Vec<Scaling> = units.into_iter().enumerate().map(widen).collect();
        let numbers = match self.basis {
            Basis::Random(family) if family.is_positive() => {
                let (centres, scales): (Vec<f64>, Vec<f64>) =
                    inputs.iter().map(|s| (s.centre, s.scale)).unzip();
                let moments = moments.standardised(&centres, &scales)?;
                let spec = FeatureSpec::new(family, self.features)
                    .kernel(Kernel::gaussian())
                    .coupling(self.coupling)
                    .seed(self.seed);
                Numbers::Positive(Box::new(spec.fit(&moments, &moments)?))
            }
            Basis::Random(family) => self.waves(family, dim)?,
            Basis::Nystrom => {
                if sample.columns() != dim {
                    let reason = format!("{} columns where the rows have {dim}", sample.columns());
                    return Err(Error::invalid("sample", reason));
                }
                sample.check_nonempty("sample")?;
                sample.check_finite("sample")?;
                let scaled =
                    Matrix::from_fn(sample.rows(), dim, |i, l| inputs[l].apply(sample.row(i)[l]));
                let (rows, whitening) = landmarks(self.shape, &scaled, self.features);
                Numbers::Landmarks { rows, whitening }
            }
        };
        Design::new(self.clone(), inputs, numbers)
    }

    fn check(&self, moments: &Moments) -> Result<()> {
        self.check_options()?;
        if moments.dim() == 0 || moments.count() == 0 {
            return Err(Error::Empty {
                what: "rows".into(),
                rows: moments.count() as usize,
                columns: moments.dim(),
            });
        }
        let count = self.bandwidths.len();
        if count != 1 && count != moments.dim() {
            let reason = format!("{count} for {} columns", moments.dim());
            return Err(Error::invalid("bandwidths", reason));
        }
        Ok(())
    }

    /// What can be said without rows.
    pub(in crate::learn) fn check_options(&self) -> Result<()> {
        check_features(self.features)?;
        self.bandwidths.iter().try_for_each(|h| check_bandwidth(*h))?;
        if self.basis.supports(self.shape) {
            return Ok(());
        }
        let (basis, shape) = (self.basis, self.shape);
        let reason =
            format!("{basis} features are of the Gaussian kernel; use trig or nystrom for {shape}");
        Err(Error::invalid("kernel", reason))
    }

    /// Frequencies and phases, pairs of the same frequency for the family of pairs.
    fn waves(&self, family: Family, dim: usize) -> Result<Numbers> {
        let Self { features, seed, .. } = *self;
        let paired = family == Family::TrigPair;
        let draws = if paired { features.div_ceil(2) } else { features };
        let mut base = draw_omega(self.coupling, seed, draws, dim)?;
        if let Some(degrees) = self.shape.degrees() {
            // A normal vector over √(χ²/ν) has Student's t distribution, the Matérn kernel's spectrum.
            let mut stream = Stream::new(seed, TAILS);
            for m in 0..draws {
                let chi2: f64 = (0..degrees).map(|_| stream.normal().powi(2)).sum();
                let factor = (degrees as f64 / chi2.max(f64::MIN_POSITIVE)).sqrt();
                base.row_mut(m).iter_mut().for_each(|w| *w *= factor);
            }
        }
        let mut phases = offsets(seed, features);
        if !paired {
            return Ok(Numbers::Waves { frequencies: base, phases });
        }
        // cos(t − π/2) = sin t. An odd last draw keeps its random phase, which is unbiased alone.
        for (m, phase) in phases.iter_mut().enumerate().take(features / 2 * 2) {
            *phase = if m % 2 == 0 { 0.0 } else { -std::f64::consts::FRAC_PI_2 };
        }
        let frequencies = Matrix::from_fn(features, dim, |m, l| base[(m / 2, l)]);
        Ok(Numbers::Waves { frequencies, phases })
    }
}
