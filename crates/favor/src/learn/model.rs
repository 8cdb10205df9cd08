//! A design, its sums and a head together: fit, add, merge, subtract, predict.

use super::design::DesignSpec;
use super::gram::check_folds;
use super::ridge::check_penalty;
use super::sampling::sample;
use super::{
    Basis, DEFAULT_FOLDS, Design, DesignTrial, GramSums, Head, KernelShape, Known, LogisticFit,
    LogisticOptions, Outcome, Penalty, RidgeOptions, RidgeReport, Sample, Scaling,
    learned_bandwidths,
};
use crate::store::{Array, Kind};
use crate::{Error, Family, Float, Matrix, Moments, Result, Rows};
use safetensors::tensor::Dtype;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

const KIND: Kind = Kind::new("favor.model", "model with a head", 1);

named! {
    "head"
    /// What a model fits behind its features.
    ///
    /// ```
    /// use favor::learn::HeadKind;
    /// assert_eq!("gp".parse(), Ok(HeadKind::Gp));
    /// assert_eq!(HeadKind::ALL.map(HeadKind::name), ["ridge", "gp", "logistic"]);
    /// ```
    pub enum HeadKind {
        /// Ridge regression, of numbers or of one-hot classes.
        #[default]
        Ridge: "ridge",
        /// A Gaussian process: ridge regression that knows its variance.
        Gp: "gp",
        /// Logistic regression. It needs all rows at once.
        Logistic: "logistic",
    }
}

/// How to fit a [`HeadModel`].
///
/// ```
/// use favor::learn::{HeadKind, HeadOptions, KernelShape};
/// let options = HeadOptions::default().features(512).shape(KernelShape::Laplace).head(HeadKind::Gp);
/// assert_eq!(options.features, 512);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeadOptions {
    /// What is fitted behind the features.
    pub head: HeadKind,
    /// Where the features come from; several are compared by the folds.
    pub bases: Vec<Basis>,
    /// The shapes of the kernel; several are compared by the folds.
    pub shapes: Vec<KernelShape>,
    /// The number of features.
    pub features: usize,
    /// The bandwidth in standardised units; chosen by the folds when `None`.
    pub bandwidth: Option<f64>,
    /// The penalty; chosen by the folds (ridge, logistic) or by the evidence (Gaussian process) when `None`.
    pub penalty: Option<f64>,
    /// Whether a bandwidth per column is learned, and kept where the folds approve.
    pub metric: bool,
    /// Whether columns are brought to mean 0 and variance 1.
    pub standardise: bool,
    /// Whether the columns themselves come before the features.
    pub linear: bool,
    /// The number of folds.
    pub folds: usize,
    /// The most different rows that designs are compared on and landmarks are taken from.
    pub sample: usize,
    /// Decides draws and samples.
    pub seed: u64,
    /// The decrease of the mean loss that is not worth another pass of a logistic head.
    #[serde(default = "tolerance")]
    pub tolerance: f64,
    /// The most passes of a logistic head.
    #[serde(default = "passes")]
    pub passes: usize,
}

fn tolerance() -> f64 {
    LogisticOptions::TOLERANCE
}

fn passes() -> usize {
    LogisticOptions::PASSES
}

impl Default for HeadOptions {
    /// Ridge regression with 256 landmarks of the Gaussian kernel; bandwidth and penalty by four folds.
    fn default() -> Self {
        Self {
            head: HeadKind::default(),
            bases: vec![Basis::Nystrom],
            shapes: vec![KernelShape::Gaussian],
            features: 256,
            bandwidth: None,
            penalty: None,
            metric: false,
            standardise: true,
            linear: false,
            folds: DEFAULT_FOLDS,
            sample: 4096,
            seed: 0,
            tolerance: tolerance(),
            passes: passes(),
        }
    }
}

impl HeadOptions {
    /// Another head.
    #[must_use]
    pub fn head(self, head: HeadKind) -> Self {
        Self { head, ..self }
    }

    /// Another basis.
    #[must_use]
    pub fn basis(self, basis: impl Into<Basis>) -> Self {
        Self { bases: vec![basis.into()], ..self }
    }

    /// Bases to compare.
    #[must_use]
    pub fn bases(self, bases: Vec<Basis>) -> Self {
        Self { bases, ..self }
    }

    /// Another shape of the kernel.
    #[must_use]
    pub fn shape(self, shape: KernelShape) -> Self {
        Self { shapes: vec![shape], ..self }
    }

    /// Shapes to compare.
    #[must_use]
    pub fn shapes(self, shapes: Vec<KernelShape>) -> Self {
        Self { shapes, ..self }
    }

    /// Landmarks, waves and balanced features, compared by the folds.
    #[must_use]
    pub fn auto(self) -> Self {
        let random = [Family::Trig, Family::Balanced].map(Basis::Random);
        Self { bases: [vec![Basis::Nystrom], random.to_vec()].concat(), ..self }
    }

    /// Another number of features.
    #[must_use]
    pub fn features(self, features: usize) -> Self {
        Self { features, ..self }
    }

    /// A given bandwidth; chosen by the folds when `None`.
    #[must_use]
    pub fn bandwidth(self, bandwidth: Option<f64>) -> Self {
        Self { bandwidth, ..self }
    }

    /// A given penalty; chosen by the folds, or the evidence of a Gaussian process, when `None`.
    #[must_use]
    pub fn penalty(self, penalty: Option<f64>) -> Self {
        Self { penalty, ..self }
    }

    /// Whether a bandwidth per column is learned.
    #[must_use]
    pub fn metric(self, metric: bool) -> Self {
        Self { metric, ..self }
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

    /// Another number of folds.
    #[must_use]
    pub fn folds(self, folds: usize) -> Self {
        Self { folds, ..self }
    }

    /// The most different rows that designs are compared on.
    #[must_use]
    pub fn sample(self, sample: usize) -> Self {
        Self { sample, ..self }
    }

    /// Another seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The decrease of the mean loss that is not worth another pass of a logistic head.
    #[must_use]
    pub fn tolerance(self, tolerance: f64) -> Self {
        Self { tolerance, ..self }
    }

    /// The most passes of a logistic head.
    #[must_use]
    pub fn passes(self, passes: usize) -> Self {
        Self { passes, ..self }
    }

    /// An error unless a head can be fitted with these options.
    ///
    /// ```
    /// use favor::learn::HeadOptions;
    /// assert!(HeadOptions::default().penalty(Some(0.0)).check().is_ok());
    /// assert!(HeadOptions::default().penalty(Some(-1.0)).check().is_err());
    /// assert!(HeadOptions::default().folds(0).check().is_err());
    /// ```
    pub fn check(&self) -> Result<()> {
        self.specs()?.iter().try_for_each(DesignSpec::check_options)?;
        self.penalty.map_or(Ok(()), check_penalty)?;
        check_folds(self.folds)
    }

    /// The designs to compare; with a given bandwidth, with that one.
    fn specs(&self) -> Result<Vec<DesignSpec>> {
        let each = |basis: Basis| {
            let supported = self.shapes.iter().filter(move |s| basis.supports(**s));
            // One design that is not supported says so when it is fitted.
            let only = (self.bases.len() * self.shapes.len() == 1).then_some(&self.shapes);
            only.map_or_else(|| supported.copied().collect(), Clone::clone).into_iter().map(
                move |shape: KernelShape| {
                    DesignSpec::new(self.features)
                        .basis(basis)
                        .shape(shape)
                        .seed(self.seed)
                        .standardise(self.standardise)
                        .linear(self.linear)
                        .bandwidth(self.bandwidth.unwrap_or(1.0))
                },
            )
        };
        let specs: Vec<_> = self.bases.iter().flat_map(|b| each(*b).collect::<Vec<_>>()).collect();
        if specs.is_empty() {
            return Err(Error::invalid("designs", "no basis has features of these kernels"));
        }
        Ok(specs)
    }
}

/// A model on arrays: a design, the sums of its columns, and a head.
///
/// ```
/// use favor::Matrix;
/// use favor::learn::{HeadModel, HeadOptions, Known};
/// let rows = Matrix::from_fn(900, 2, |i, l| ((i * (3 + l)) as f64 * 0.71).sin());
/// let y = Matrix::from_fn(900, 1, |i, _| (4.0 * rows[(i, 0)]).sin() * rows[(i, 1)]);
/// let part = |start, end| (rows.view().slice(start, end), y.view().slice(start, end));
///
/// let (x, known) = part(0, 500);
/// let options = HeadOptions::default().features(64);
/// let mut model = HeadModel::fit(&options, x, Known::Numbers(known), None, None)?;
/// let (x, known) = part(500, 900);
/// model.add(x, Known::Numbers(known), None)?; // more rows later
/// let found = model.predict(rows.view())?;
/// assert!((found[(7, 0)] - y[(7, 0)]).abs() < 0.1);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HeadModel {
    options: HeadOptions,
    design: Design,
    sums: GramSums,
    /// What was fitted to the sums; nothing after they have changed, until it is asked for.
    fitted: OnceLock<(Head, RidgeReport)>,
    trials: Vec<DesignTrial>,
    /// The slope along each column.
    slopes: Vec<f64>,
}

impl HeadModel {
    /// Chooses a design, sums its columns over the rows and fits the head. `classes` is the number of
    /// classes, where it is not the largest index plus one.
    pub fn fit<T: Float>(
        options: &HeadOptions,
        rows: Rows<'_, T>,
        known: Known<'_>,
        classes: Option<usize>,
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        options.check()?;
        rows.check_nonempty("rows")?;
        let mut moments = Moments::new(rows.columns());
        match weights {
            Some(weights) => moments.add_weighted(rows, weights)?,
            None => moments.add(rows)?,
        }
        if moments.count() == 0 {
            return Err(Error::invalid("weights", "all are zero; at least one must be positive"));
        }
        let outcome = outcome(known, classes, weights)?;
        known.check(&outcome, rows.rows())?;
        let chosen = sample(rows, weights, options.sample, options.seed);
        let part =
            Matrix::from_fn(chosen.len(), rows.columns(), |i, l| rows.row(chosen[i])[l].to_f64());
        let numbers;
        let indices: Vec<usize>;
        let part_known = match known {
            Known::Classes(of) => {
                indices = chosen.iter().map(|&i| of[i]).collect();
                Known::Classes(&indices)
            }
            Known::Numbers(values) => {
                numbers = Matrix::from_fn(chosen.len(), values.columns(), |i, t| {
                    values.row(chosen[i])[t]
                });
                Known::Numbers(numbers.view())
            }
            Known::Nothing => Known::Nothing,
        };
        let shares: Option<Vec<f64>> = weights.map(|w| chosen.iter().map(|&i| w[i]).collect());
        let sample = Sample::new(part.view(), part_known, &outcome, options.folds)
            .weights(shares.as_deref());
        let (spec, trials) = choose(options, &sample, &moments)?;
        let design = spec.fit(&moments, part.view())?;
        let mut sums = GramSums::new(&design, outcome.clone(), options.folds)?;
        sums.add(&design, rows, known, weights, None)?;
        let (head, report) = match options.head {
            HeadKind::Logistic => logistic(options, &design, &sums, rows, known, weights)?,
            _ => closed_form(options, &sums)?,
        };
        let slopes = head.slopes(&design, part.view(), shares.as_deref())?;
        let fitted = OnceLock::from((head, report));
        Ok(Self { options: options.clone(), design, sums, fitted, trials, slopes })
    }

    /// Adds rows; the design stays, and the head is fitted again when it is asked for. Not for a logistic head, which needs all rows.
    pub fn add<T: Float>(
        &mut self,
        rows: Rows<'_, T>,
        known: Known<'_>,
        weights: Option<&[f64]>,
    ) -> Result<()> {
        self.check_closed("add")?;
        self.sums.add(&self.design, rows, known, weights, None)?;
        self.fitted = OnceLock::new();
        Ok(())
    }

    /// Takes rows out that were added before.
    pub fn remove<T: Float>(
        &mut self,
        rows: Rows<'_, T>,
        known: Known<'_>,
        weights: Option<&[f64]>,
    ) -> Result<()> {
        self.check_closed("remove")?;
        let mut gone = self.sums.emptied();
        gone.add(&self.design, rows, known, weights, None)?;
        self.sums.subtract(&gone)?;
        self.fitted = OnceLock::new();
        Ok(())
    }

    /// Adds the rows of another model with the same design.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.check_closed("merge")?;
        self.check_design("merge", other)?;
        self.sums.merge(&other.sums)?;
        self.fitted = OnceLock::new();
        Ok(())
    }

    /// Takes the rows of another model out that are in this one.
    pub fn subtract(&mut self, other: &Self) -> Result<()> {
        self.check_closed("subtract")?;
        self.check_design("subtract", other)?;
        self.sums.subtract(&other.sums)?;
        self.fitted = OnceLock::new();
        Ok(())
    }

    /// A model of other rows with the same design: for a worker elsewhere, whose model is merged later.
    pub fn elsewhere<T: Float>(
        &self,
        rows: Rows<'_, T>,
        known: Known<'_>,
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        self.check_closed("elsewhere")?;
        let mut other = Self { sums: self.sums.emptied(), fitted: OnceLock::new(), ..self.clone() };
        other.add(rows, known, weights)?;
        Ok(other)
    }

    fn fitted(&self) -> Result<&(Head, RidgeReport)> {
        if let Some(fitted) = self.fitted.get() {
            return Ok(fitted);
        }
        let found = closed_form(&self.options, &self.sums)?;
        Ok(self.fitted.get_or_init(|| found))
    }

    fn check_closed(&self, operation: &'static str) -> Result<()> {
        if self.options.head == HeadKind::Logistic {
            let reason = "a logistic head needs all rows at once; fit it again";
            return Err(Error::invalid(operation, reason));
        }
        Ok(())
    }

    fn check_design(&self, operation: &'static str, other: &Self) -> Result<()> {
        if self.design == other.design {
            return Ok(());
        }
        let reason = "the designs differ; make models of other rows by `elsewhere`";
        Err(Error::invalid(operation, reason))
    }

    /// One row per row: numbers in their own units, or the values of the classes. See [`Head::predict`].
    pub fn predict<T: Float>(&self, rows: Rows<'_, T>) -> Result<Matrix<f64>> {
        self.head()?.predict(&self.design, rows)
    }

    /// Means and standard deviations of new observations, of a Gaussian process.
    pub fn predict_with_deviation<T: Float>(
        &self,
        rows: Rows<'_, T>,
    ) -> Result<(Matrix<f64>, Matrix<f64>)> {
        self.head()?.predict_with_deviation(&self.design, rows)
    }

    /// How it was fitted.
    pub fn options(&self) -> &HeadOptions {
        &self.options
    }

    /// The design.
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// The sums.
    pub fn sums(&self) -> &GramSums {
        &self.sums
    }

    /// The head; an error if it cannot be fitted to the rows that there are now.
    pub fn head(&self) -> Result<&Head> {
        self.fitted().map(|(head, _)| head)
    }

    /// How the head was chosen; for a logistic head, how its start was.
    pub fn report(&self) -> Result<&RidgeReport> {
        self.fitted().map(|(_, report)| report)
    }

    /// The designs that were compared.
    pub fn trials(&self) -> &[DesignTrial] {
        &self.trials
    }

    /// The root mean square of the slope along each column when it was fitted: which columns count.
    pub fn slopes(&self) -> &[f64] {
        &self.slopes
    }

    /// The model as the bytes of a safetensors file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let bytes = |name: &str, bytes: Vec<u8>| Array::new(name, Dtype::U8, [bytes.len()], bytes);
        let header = Header {
            options: self.options.clone(),
            report: self.report()?.clone(),
            trials: self.trials.clone(),
            slopes: self.slopes.clone(),
        };
        let arrays = vec![
            bytes("design", self.design.to_bytes()?),
            bytes("sums", self.sums.to_bytes()?),
            bytes("head", self.head()?.to_bytes()?),
        ];
        KIND.write(&header, arrays)
    }

    /// Reads the bytes that [`HeadModel::to_bytes`] made.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let file = KIND.read::<Header>(bytes)?;
        let part = |name: &str| file.array_of(name, Dtype::U8).map(|view| view.data().to_vec());
        let design = Design::from_bytes(&part("design")?)?;
        let sums = GramSums::from_bytes(&part("sums")?)?;
        let head = Head::from_bytes(&part("head")?)?;
        if sums.width() != design.width() || head.outcome() != sums.outcome() {
            return Err(KIND.bad("design, sums and head do not belong together"));
        }
        let Header { options, report, trials, slopes } = file.contents;
        Ok(Self { options, design, sums, fitted: OnceLock::from((head, report)), trials, slopes })
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    options: HeadOptions,
    report: RidgeReport,
    trials: Vec<DesignTrial>,
    slopes: Vec<f64>,
}

/// What is predicted: the classes that there are, or numbers scaled to variance 1.
fn outcome(known: Known<'_>, classes: Option<usize>, weights: Option<&[f64]>) -> Result<Outcome> {
    match known {
        Known::Classes(of) => {
            let seen = of.iter().max().map_or(0, |c| c + 1);
            Ok(Outcome::Classes(classes.unwrap_or(seen)))
        }
        Known::Numbers(values) => {
            let mut moments = Moments::new(values.columns());
            match weights {
                Some(weights) => moments.add_weighted(values, weights)?,
                None => moments.add(values)?,
            }
            Ok(Outcome::Numbers(Scaling::standard(&moments)))
        }
        Known::Nothing => Err(Error::invalid("targets", "there are none to predict")),
    }
}

/// The spec to fit with, and all that were compared.
fn choose(
    options: &HeadOptions,
    sample: &Sample<'_>,
    moments: &Moments,
) -> Result<(DesignSpec, Vec<DesignTrial>)> {
    let specs = options.specs()?;
    let (mut best, mut trials) = match (&specs[..], options.bandwidth) {
        ([only], Some(_)) if !options.metric => return Ok((only.clone(), vec![])),
        (several, Some(_)) => {
            let scored = several.iter().map(|spec| sample.score(spec, moments));
            let trials = scored.collect::<Result<Vec<DesignTrial>>>()?;
            let best = trials.iter().reduce(|a, b| if b.score > a.score { b } else { a });
            (best.cloned().unwrap_or_else(|| trials[0].clone()), trials)
        }
        // Too few rows to compare anything: standardised rows are about this far apart.
        (specs, None) if sample.rows.rows() < 8.max(options.folds) => {
            let width = (moments.dim() as f64).sqrt();
            return Ok((specs[0].clone().bandwidth(width), vec![]));
        }
        (specs, None) => sample.choose(specs, moments)?,
    };
    if options.metric && moments.dim() > 1 {
        let stretched = stretched(&best, sample, moments)?;
        let (found, more) = match options.bandwidth {
            Some(_) => {
                let trial = sample.score(&stretched, moments)?;
                (trial.clone(), vec![trial])
            }
            None => sample.choose(&[stretched], moments)?,
        };
        if found.score > best.score {
            best = found;
        }
        trials.extend(more);
    }
    Ok((best.spec, trials))
}

/// The spec with bandwidths by the slopes of its own fit to the sample.
fn stretched(best: &DesignTrial, sample: &Sample<'_>, moments: &Moments) -> Result<DesignSpec> {
    let design = best.spec.fit(moments, sample.rows)?;
    let mut sums = GramSums::new(&design, sample.outcome.clone(), 1)?;
    sums.add(&design, sample.rows, sample.known, sample.weights, None)?;
    let options = RidgeOptions::default().penalty(Penalty::Fixed(best.penalty));
    let head = sums.ridge(&options)?.head;
    let slopes = head.slopes(&design, sample.rows, sample.weights)?;
    Ok(learned_bandwidths(&best.spec, &slopes))
}

fn closed_form(options: &HeadOptions, sums: &GramSums) -> Result<(Head, RidgeReport)> {
    let penalty = options.penalty.map_or(Penalty::Folds, Penalty::Fixed);
    let ridge = RidgeOptions::default().penalty(penalty);
    let fit = match options.head {
        HeadKind::Gp => sums.gp(&ridge)?,
        _ => sums.ridge(&ridge)?,
    };
    Ok((fit.head, fit.report))
}

fn logistic<T: Float>(
    options: &HeadOptions,
    design: &Design,
    sums: &GramSums,
    rows: Rows<'_, T>,
    known: Known<'_>,
    weights: Option<&[f64]>,
) -> Result<(Head, RidgeReport)> {
    let Known::Classes(classes) = known else {
        return Err(Error::invalid("targets", "a logistic regression needs classes"));
    };
    let report = sums.ridge(&RidgeOptions::default())?.report;
    let logistic = LogisticOptions::default()
        .penalty(options.penalty)
        .start(Some(report.penalty))
        .tolerance(options.tolerance)
        .passes(options.passes);
    let mut fit = LogisticFit::new(sums, &logistic)?;
    loop {
        let mut pass = fit.pass();
        pass.add(design, rows, classes, weights)?;
        if fit.step(&pass)? {
            return Ok((fit.head()?, report));
        }
    }
}
