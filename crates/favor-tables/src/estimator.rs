//! Classification and regression on arrays, by linfa's traits.
//!
//! ```
//! use favor_tables::estimator::KernelRegressor;
//! use linfa::prelude::*;
//! use ndarray::Array;
//!
//! let x = Array::from_shape_fn((200, 1), |(i, _)| i as f64 / 200.0);
//! let y = x.column(0).mapv(|v| (6.0 * v).sin());
//! let data = Dataset::new(x, y);
//! let model = KernelRegressor::new().features(64).sigma(8.0).fit(&data)?;
//! let found = model.predict(&data);
//! assert!((found[50] - 1.5_f64.sin()).abs() < 0.2);
//! # Ok::<(), favor_tables::Error>(())
//! ```

use crate::fit::{Goal, Request, Sigma, fit};
use crate::model::Model;
use crate::predict::{Predictor, Wishes};
use crate::progress::Progress;
use crate::source::{Table, session};
use crate::{Error, Result};
use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch,
};
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use favor::Family;
use linfa::dataset::{AsSingleTargets, DatasetBase};
use linfa::traits::{Fit, PredictInplace};
use linfa::{Float, Label, ParamGuard};
use ndarray::{Array1, ArrayBase, Data, Ix2};
use std::sync::Arc;

impl From<linfa::error::Error> for Error {
    fn from(error: linfa::error::Error) -> Self {
        Self::Engine(error.to_string())
    }
}

macro_rules! parameters {
    ($name:ident, $valid:ident, $what:literal) => {
        #[doc = concat!("How to fit a kernel ", $what, "; checked before it is used.")]
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $name($valid);

        #[doc = concat!("A checked way to fit a kernel ", $what, ".")]
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $valid(Request);

        impl $name {
            /// 256 balanced features, σ by validation, columns standardised.
            pub fn new() -> Self {
                Self::default()
            }

            /// Another number of features.
            pub fn features(mut self, features: usize) -> Self {
                self.0.0.features = features;
                self
            }

            /// Another family.
            pub fn family(mut self, family: Family) -> Self {
                self.0.0.family = family;
                self
            }

            /// A given factor of the vectors.
            pub fn sigma(mut self, sigma: f64) -> Self {
                self.0.0.sigma = Sigma::Fixed(sigma);
                self
            }

            /// What decides the draws.
            pub fn seed(mut self, seed: u64) -> Self {
                self.0.0.seed = seed;
                self
            }
        }

        impl ParamGuard for $name {
            type Checked = $valid;
            type Error = Error;

            fn check_ref(&self) -> Result<&$valid> {
                let request = &self.0.0;
                if request.features == 0 {
                    return Err(Error::request("features", "at least one is needed"));
                }
                match request.sigma {
                    Sigma::Fixed(sigma) if !(sigma.is_finite() && sigma > 0.0) => {
                        Err(Error::request("sigma", format!("{sigma} is not a positive number")))
                    }
                    _ => Ok(&self.0),
                }
            }

            fn check(self) -> Result<$valid> {
                self.check_ref()?;
                Ok(self.0)
            }
        }
    };
}

parameters!(KernelClassifier, ValidClassifier, "classifier");
parameters!(KernelRegressor, ValidRegressor, "regression");

/// A fitted classifier of labels `L`.
#[derive(Debug)]
pub struct FittedClassifier<L> {
    predictor: Predictor,
    labels: Vec<L>,
}

/// A fitted regression.
#[derive(Debug)]
pub struct FittedRegressor {
    predictor: Predictor,
}

impl<F, D, L, T> Fit<ArrayBase<D, Ix2>, T, Error> for ValidClassifier
where
    F: Float,
    D: Data<Elem = F>,
    L: Label,
    T: AsSingleTargets<Elem = L>,
{
    type Object = FittedClassifier<L>;

    fn fit(&self, dataset: &DatasetBase<ArrayBase<D, Ix2>, T>) -> Result<Self::Object> {
        let mut labels: Vec<L> = vec![];
        let index = |label: &L| match labels.iter().position(|l| l == label) {
            Some(k) => k as i64,
            None => {
                labels.push(label.clone());
                labels.len() as i64 - 1
            }
        };
        let targets: Vec<i64> = dataset.targets().as_single_targets().iter().map(index).collect();
        let target: ArrayRef = Arc::new(Int64Array::from(targets));
        let model = fit_arrays(&self.0, Goal::Classify, &dataset.records, target)?;
        Ok(FittedClassifier { predictor: Predictor::new(&model, &Wishes::default())?, labels })
    }
}

impl<F, D, T> Fit<ArrayBase<D, Ix2>, T, Error> for ValidRegressor
where
    F: Float,
    D: Data<Elem = F>,
    T: AsSingleTargets<Elem = F>,
{
    type Object = FittedRegressor;

    fn fit(&self, dataset: &DatasetBase<ArrayBase<D, Ix2>, T>) -> Result<Self::Object> {
        let targets = dataset.targets().as_single_targets();
        let numbers: Vec<f64> = targets.iter().map(|v| to_f64(*v)).collect();
        let target: ArrayRef = Arc::new(Float64Array::from(numbers));
        let model = fit_arrays(&self.0, Goal::Regress, &dataset.records, target)?;
        Ok(FittedRegressor { predictor: Predictor::new(&model, &Wishes::default())? })
    }
}

impl<L: Label> FittedClassifier<L> {
    /// The model, to save or to merge.
    pub fn model(&self) -> &Model {
        self.predictor.model()
    }

    /// The labels of the rows, or why there are none.
    pub fn try_predict<F: Float, D: Data<Elem = F>>(
        &self,
        x: &ArrayBase<D, Ix2>,
    ) -> Result<Array1<L>> {
        let found = self.predictor.predict(&columns(x, self.model())?)?;
        let indices = found.as_primitive::<Int64Type>().values();
        Ok(indices.iter().map(|&k| self.labels[k as usize].clone()).collect())
    }
}

impl FittedRegressor {
    /// The model, to save or to merge.
    pub fn model(&self) -> &Model {
        self.predictor.model()
    }

    /// The numbers for the rows, or why there are none.
    pub fn try_predict<F: Float, D: Data<Elem = F>>(
        &self,
        x: &ArrayBase<D, Ix2>,
    ) -> Result<Array1<F>> {
        let found = self.predictor.predict(&columns(x, self.model())?)?;
        let numbers = found.as_primitive::<Float64Type>().values();
        Ok(numbers.iter().map(|&v| F::cast(v)).collect())
    }
}

/// Rows must have the columns of the model and be finite: linfa's trait has no place for an error,
/// so others panic. [`FittedClassifier::try_predict`] returns it.
impl<F: Float, D: Data<Elem = F>, L: Label + Default> PredictInplace<ArrayBase<D, Ix2>, Array1<L>>
    for FittedClassifier<L>
{
    fn predict_inplace(&self, x: &ArrayBase<D, Ix2>, y: &mut Array1<L>) {
        match self.try_predict(x) {
            Ok(found) => y.assign(&found),
            Err(error) => panic!("{error}"),
        }
    }

    fn default_target(&self, x: &ArrayBase<D, Ix2>) -> Array1<L> {
        Array1::default(x.nrows())
    }
}

/// As for [`FittedClassifier`].
impl<F: Float, D: Data<Elem = F>> PredictInplace<ArrayBase<D, Ix2>, Array1<F>> for FittedRegressor {
    fn predict_inplace(&self, x: &ArrayBase<D, Ix2>, y: &mut Array1<F>) {
        match self.try_predict(x) {
            Ok(found) => y.assign(&found),
            Err(error) => panic!("{error}"),
        }
    }

    fn default_target(&self, x: &ArrayBase<D, Ix2>) -> Array1<F> {
        Array1::zeros(x.nrows())
    }
}

fn to_f64<F: Float>(value: F) -> f64 {
    value.to_f64().unwrap_or(f64::NAN)
}

fn arrays<F: Float, D: Data<Elem = F>>(x: &ArrayBase<D, Ix2>) -> Vec<ArrayRef> {
    let column = |c: usize| -> ArrayRef {
        Arc::new(x.column(c).iter().map(|v| Some(to_f64(*v))).collect::<Float64Array>())
    };
    (0..x.ncols()).map(column).collect()
}

fn columns<F: Float, D: Data<Elem = F>>(
    x: &ArrayBase<D, Ix2>,
    model: &Model,
) -> Result<Vec<ArrayRef>> {
    let wanted = model.about().encoder.columns.len();
    match x.ncols() == wanted {
        true => Ok(arrays(x)),
        false => {
            let reason = format!("{} columns where the model has {wanted}", x.ncols());
            Err(Error::request("records", reason))
        }
    }
}

/// Fits by the same way as any table.
fn fit_arrays<F: Float, D: Data<Elem = F>>(
    request: &Request,
    goal: Goal,
    x: &ArrayBase<D, Ix2>,
    target: ArrayRef,
) -> Result<Model> {
    if target.len() != x.nrows() {
        let reason = format!("{} targets for {} records", target.len(), x.nrows());
        return Err(Error::request("targets", reason));
    }
    let mut named: Vec<(String, ArrayRef)> =
        arrays(x).into_iter().enumerate().map(|(c, array)| (format!("x{c}"), array)).collect();
    named.push(("target".into(), target));
    let batch = RecordBatch::try_from_iter(named)?;
    let request = Request { goal: Some(goal), target: Some("target".into()), ..request.clone() };
    let work = async {
        let table = Table::from(session(None).read_batch(batch)?);
        fit(&table, &request, &Arc::new(Progress::default())).await
    };
    // On a thread of its own: the caller may be inside a runtime already.
    std::thread::scope(|scope| {
        let run = || crate::runtime(None)?.block_on(work);
        scope.spawn(run).join().unwrap_or_else(|_| Err(Error::Engine("fitting failed".into())))
    })
}
