//! Models with a head: ridge regression, Gaussian processes and logistic regression on features.

use crate::arguments::Unsigned;
use crate::arrays::{self, Array, give, give_matrix, rows};
use crate::errors;
use crate::run::run;
use favor::learn::{self, Basis, HeadOptions, KernelShape, Known, LogisticOptions};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// A design, its sums and a head. Calls that read it share it.
#[pyclass(module = "favor_sharp")]
pub(crate) struct HeadModel(Arc<learn::HeadModel>);

/// What is known of rows: the indices of their classes, or numbers.
enum Targets {
    Classes(Vec<usize>),
    Numbers(Array<f64>),
}

impl Targets {
    /// One axis of integers for classes, two of numbers.
    fn read(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = arrays::array("targets", value)?;
        if numpy::PyUntypedArrayMethods::ndim(&array) == 2 {
            return Ok(Self::Numbers(arrays::read_doubles("targets", &array)?));
        }
        let index = |v: f64| {
            let valid = v >= 0.0 && v.fract() == 0.0 && v < 2_f64.powi(32);
            valid.then_some(v as usize).ok_or_else(|| {
                errors::value(format!("targets holds {v}; the index of a class is needed"))
            })
        };
        let values = arrays::vector("targets", value)?;
        Ok(Self::Classes(values.into_iter().map(index).collect::<PyResult<_>>()?))
    }

    fn known(&self) -> favor::Result<Known<'_>> {
        Ok(match self {
            Self::Classes(of) => Known::Classes(of),
            Self::Numbers(values) => Known::Numbers(values.rows()?),
        })
    }
}

fn read_weights(weights: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<f64>>> {
    weights.map(|w| arrays::vector("weights", w)).transpose()
}

/// A basis or "auto", a shape or "auto", by name.
fn listed<T>(name: &str, all: &[T]) -> PyResult<Vec<T>>
where
    T: Copy + std::str::FromStr<Err = favor::Error>,
{
    match name {
        "auto" => Ok(all.to_vec()),
        name => Ok(vec![name.parse().map_err(errors::library)?]),
    }
}

#[pymethods]
impl HeadModel {
    /// Fits a model to rows; one axis of class indices, or two axes of numbers, are the targets.
    #[staticmethod]
    #[pyo3(signature = (rows, targets, weights=None, *, head, classes=None, basis="nystrom",
                        kernel="gaussian", features=Unsigned(256), bandwidth=None, penalty=None,
                        metric=false, standardise=true, linear=false, folds=Unsigned(4),
                        sample=Unsigned(4096), seed=Unsigned(0),
                        tolerance=LogisticOptions::TOLERANCE,
                        passes=Unsigned(LogisticOptions::PASSES as u64)))]
    #[allow(clippy::too_many_arguments)]
    fn fit(
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        weights: Option<&Bound<'_, PyAny>>,
        head: &str,
        classes: Option<Unsigned>,
        basis: &str,
        kernel: &str,
        features: Unsigned,
        bandwidth: Option<f64>,
        penalty: Option<f64>,
        metric: bool,
        standardise: bool,
        linear: bool,
        folds: Unsigned,
        sample: Unsigned,
        seed: Unsigned,
        tolerance: f64,
        passes: Unsigned,
    ) -> PyResult<Self> {
        let all: Vec<Basis> = HeadOptions::default().auto().bases;
        let options = HeadOptions::default()
            .head(head.parse().map_err(errors::library)?)
            .bases(listed(basis, &all)?)
            .shapes(listed(kernel, &KernelShape::ALL)?)
            .features(features.count())
            .bandwidth(bandwidth)
            .penalty(penalty)
            .metric(metric)
            .standardise(standardise)
            .linear(linear)
            .folds(folds.count())
            .sample(sample.count())
            .seed(seed.0)
            .tolerance(tolerance)
            .passes(passes.count());
        let (targets, weights) = (Targets::read(targets)?, read_weights(weights)?);
        let classes = classes.map(Unsigned::count);
        let model = rows!(|T, rows| {
            let work = work(rows.shape[0], &options);
            run(py, work, move |_| {
                let weights = weights.as_deref();
                learn::HeadModel::fit(&options, rows.rows()?, targets.known()?, classes, weights)
            })
        })?;
        Ok(Self(Arc::new(model)))
    }

    /// Adds rows.
    #[pyo3(signature = (rows, targets, weights=None))]
    fn add(
        &mut self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        weights: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.change(py, rows, targets, weights, Change::Add)
    }

    /// Takes rows out that were added before.
    #[pyo3(signature = (rows, targets, weights=None))]
    fn remove(
        &mut self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        weights: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.change(py, rows, targets, weights, Change::Remove)
    }

    /// A model of other rows with the same design.
    #[pyo3(signature = (rows, targets, weights=None))]
    fn elsewhere(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        weights: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut other = Self(self.0.clone());
        other.change(py, rows, targets, weights, Change::Elsewhere)?;
        Ok(other)
    }

    /// Adds the rows of another model with the same design.
    fn merge(&mut self, other: &Self) -> PyResult<()> {
        let mut all = learn::HeadModel::clone(&self.0);
        all.merge(&other.0).map_err(errors::library)?;
        self.0 = Arc::new(all);
        Ok(())
    }

    /// Takes the rows of another model out.
    fn subtract(&mut self, other: &Self) -> PyResult<()> {
        let mut all = learn::HeadModel::clone(&self.0);
        all.subtract(&other.0).map_err(errors::library)?;
        self.0 = Arc::new(all);
        Ok(())
    }

    /// One row per row: numbers, or a value per class.
    fn predict(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let model = self.0.clone();
        rows!(|T, rows| {
            let work = predict_work(rows.shape[0], &model);
            give_matrix(py, run(py, work, move |_| model.predict(rows.rows()?))?)
        })
    }

    /// The same for classes as probabilities.
    fn probabilities(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let model = self.0.clone();
        rows!(|T, rows| {
            let work = predict_work(rows.shape[0], &model);
            let found = run(py, work, move |_| {
                let mut found = model.predict(rows.rows()?)?;
                if model.head()?.link() == learn::Link::Identity {
                    learn::class_probabilities(&mut found);
                }
                Ok::<_, favor::Error>(found)
            })?;
            give_matrix(py, found)
        })
    }

    /// Means and standard deviations of new observations.
    fn predict_with_deviation(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
    ) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let model = self.0.clone();
        rows!(|T, rows| {
            let features = model.design().features() as f64;
            let work =
                predict_work(rows.shape[0], &model) + rows.shape[0] as f64 * features * features;
            let (mean, deviation) =
                run(py, work, move |_| model.predict_with_deviation(rows.rows()?))?;
            Ok((give_matrix(py, mean)?, give_matrix(py, deviation)?))
        })
    }

    /// The features of rows.
    fn transform(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let model = self.0.clone();
        rows!(|T, rows| {
            let work = predict_work(rows.shape[0], &model);
            give_matrix(py, run(py, work, move |_| model.design().transform(rows.rows()?))?)
        })
    }

    /// How it was chosen, as JSON.
    fn report(&self) -> PyResult<String> {
        let report = self.0.report().map_err(errors::library)?;
        serde_json::to_string(report).map_err(|e| errors::value(e.to_string()))
    }

    /// What was compared, as JSON.
    fn trials(&self) -> PyResult<String> {
        serde_json::to_string(self.0.trials()).map_err(|e| errors::value(e.to_string()))
    }

    /// The spec of the design, as JSON.
    fn spec(&self) -> PyResult<String> {
        serde_json::to_string(self.0.design().spec()).map_err(|e| errors::value(e.to_string()))
    }

    /// The landmarks in the units of the rows, if it has any.
    #[getter]
    fn landmarks(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.0.design().landmarks().map(|found| give_matrix(py, found)).transpose()
    }

    #[getter]
    fn slopes(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        give(py, self.0.slopes().to_vec(), &[self.0.slopes().len()])
    }

    #[getter]
    fn penalty(&self) -> PyResult<f64> {
        self.0.head().map(learn::Head::penalty).map_err(errors::library)
    }

    #[getter]
    fn features(&self) -> usize {
        self.0.design().features()
    }

    #[getter]
    fn width(&self) -> usize {
        self.0.design().width() - 1
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.0.sums().rows()
    }

    #[getter]
    fn weight(&self) -> f64 {
        self.0.sums().weight()
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.to_bytes().map_err(errors::library)?))
    }

    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        let model = learn::HeadModel::from_bytes(bytes).map_err(errors::library)?;
        Ok(Self(Arc::new(model)))
    }

    fn copy(&self) -> Self {
        Self(self.0.clone())
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let make = py.get_type::<Self>().getattr("from_bytes")?.unbind();
        let parts = (self.to_bytes(py)?,).into_pyobject(py)?;
        Ok((make, parts.into_any().unbind()))
    }
}

enum Change {
    Add,
    Remove,
    Elsewhere,
}

impl HeadModel {
    fn change(
        &mut self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        weights: Option<&Bound<'_, PyAny>>,
        change: Change,
    ) -> PyResult<()> {
        let (targets, weights) = (Targets::read(targets)?, read_weights(weights)?);
        let model = self.0.clone();
        // The model stays as it is until all is done, so that an interrupted call leaves no trace.
        let all = rows!(|T, rows| {
            let work = work(rows.shape[0], model.options());
            run(py, work, move |_| {
                let (rows, known, weights) = (rows.rows()?, targets.known()?, weights.as_deref());
                let mut all = learn::HeadModel::clone(&model);
                match change {
                    Change::Add => all.add(rows, known, weights)?,
                    Change::Remove => all.remove(rows, known, weights)?,
                    Change::Elsewhere => all = model.elsewhere(rows, known, weights)?,
                }
                Ok::<_, favor::Error>(all)
            })
        })?;
        self.0 = Arc::new(all);
        Ok(())
    }
}

/// About how many multiplications a fit takes.
fn work(rows: usize, options: &HeadOptions) -> f64 {
    let features = options.features as f64;
    rows as f64 * features * features + 60.0 * features.powi(3).min(1e12)
}

fn predict_work(rows: usize, model: &learn::HeadModel) -> f64 {
    let features = model.design().features() as f64;
    rows as f64 * features * features
}
