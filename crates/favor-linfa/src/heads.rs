//! Ridge regression, Gaussian processes and logistic regression on kernel features.

use crate::arrays::{array, matrix, to_f64, weights};
use crate::params::head_parameters;
use crate::{Error, Result};
use favor::Matrix;
use favor::learn::{HeadKind, HeadModel, HeadOptions, Known, class_probabilities};
use linfa::dataset::{AsSingleTargets, DatasetBase};
use linfa::traits::{Fit, FitWith, PredictInplace};
use linfa::{Float, Label};
use ndarray::{Array1, Array2, ArrayBase, Data, Ix2};
use std::marker::PhantomData;

head_parameters!(KernelRidgeParams, KernelRidgeValidParams<F>, KernelRidge);
head_parameters!(RidgeClassifierParams, RidgeClassifierValidParams<F, L>, RidgeClassifier);

/// Ridge regression on kernel features. Exact cross-validation chooses the penalty and the bandwidth.
///
/// ```
/// use favor_linfa::KernelRidge;
/// use linfa::prelude::*;
/// use ndarray::Array;
///
/// let x = Array::from_shape_fn((300, 1), |(i, _)| i as f64 / 50.0);
/// let y = x.column(0).mapv(f64::sin);
/// let data = Dataset::new(x, y);
/// let model = KernelRidge::params().features(64).fit(&data)?;
/// assert!((model.predict(&data)[75] - 1.5_f64.sin()).abs() < 0.01);
///
/// // A Gaussian process gives the standard deviation of a new observation, too.
/// let process = KernelRidge::gaussian_process().features(64).fit(&data)?;
/// assert!(process.predict_with_deviation(data.records())?.1[75] < 0.1);
/// # Ok::<(), favor_linfa::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct KernelRidge<F> {
    model: HeadModel,
    types: PhantomData<F>,
}

impl<F: Float> KernelRidge<F> {
    /// Ridge regression with 256 landmarks of the Gaussian kernel.
    pub fn params() -> KernelRidgeParams<F> {
        KernelRidgeParams::new(HeadOptions::default())
    }

    /// The same as a Gaussian process, which also predicts its variance.
    pub fn gaussian_process() -> KernelRidgeParams<F> {
        KernelRidgeParams::new(HeadOptions::default().head(HeadKind::Gp))
    }

    /// The underlying model. It can be merged with others that share its design.
    pub fn model(&self) -> &HeadModel {
        &self.model
    }

    /// The predicted numbers, or an error.
    pub fn try_predict<D: Data<Elem = F>>(&self, x: &ArrayBase<D, Ix2>) -> Result<Array1<F>> {
        Ok(column(&self.model.predict(matrix(x)?.view())?))
    }

    /// Means and standard deviations of new observations, of a Gaussian process.
    pub fn predict_with_deviation<D: Data<Elem = F>>(
        &self,
        x: &ArrayBase<D, Ix2>,
    ) -> Result<(Array1<F>, Array1<F>)> {
        let (mean, deviation) = self.model.predict_with_deviation(matrix(x)?.view())?;
        Ok((column(&mean), column(&deviation)))
    }
}

fn column<F: Float>(m: &Matrix<f64>) -> Array1<F> {
    m.as_slice().iter().map(|v| F::cast(*v)).collect()
}

fn numbers<F: Float, T: AsSingleTargets<Elem = F>>(targets: &T) -> Result<Matrix<f64>> {
    let values: Vec<f64> = targets.as_single_targets().iter().map(|v| to_f64(*v)).collect();
    let count = values.len();
    Ok(Matrix::new(values, count, 1)?)
}

impl<F, D, T> Fit<ArrayBase<D, Ix2>, T, Error> for KernelRidgeValidParams<F>
where
    F: Float,
    D: Data<Elem = F>,
    T: AsSingleTargets<Elem = F>,
{
    type Object = KernelRidge<F>;

    fn fit(&self, dataset: &DatasetBase<ArrayBase<D, Ix2>, T>) -> Result<Self::Object> {
        let (rows, targets) = (matrix(&dataset.records)?, numbers(&dataset.targets)?);
        let (known, weights) = (Known::Numbers(targets.view()), weights(dataset));
        let model = HeadModel::fit(&self.options, rows.view(), known, None, weights.as_deref())?;
        Ok(KernelRidge { model, types: PhantomData })
    }
}

impl<'a, F, D, T> FitWith<'a, ArrayBase<D, Ix2>, T, Error> for KernelRidgeValidParams<F>
where
    F: Float,
    D: Data<Elem = F>,
    T: AsSingleTargets<Elem = F>,
{
    type ObjectIn = Option<KernelRidge<F>>;
    type ObjectOut = KernelRidge<F>;

    /// Adds records to a model; its design stays.
    fn fit_with(
        &self,
        model: Self::ObjectIn,
        dataset: &'a DatasetBase<ArrayBase<D, Ix2>, T>,
    ) -> Result<Self::ObjectOut> {
        let Some(mut model) = model else { return self.fit(dataset) };
        let (rows, targets) = (matrix(&dataset.records)?, numbers(&dataset.targets)?);
        let known = Known::Numbers(targets.view());
        model.model.add(rows.view(), known, weights(dataset).as_deref())?;
        Ok(model)
    }
}

impl<F: Float, D: Data<Elem = F>> PredictInplace<ArrayBase<D, Ix2>, Array1<F>> for KernelRidge<F> {
    /// Panics where [`KernelRidge::try_predict`] returns an error.
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

/// A classifier on kernel features: ridge regression of one-hot labels, or logistic regression.
///
/// ```
/// use favor_linfa::RidgeClassifier;
/// use linfa::prelude::*;
/// use ndarray::{Array, array};
///
/// let x = Array::from_shape_fn((90, 1), |(i, _)| (i % 3) as f64 + 0.005 * i as f64);
/// let y = Array::from_shape_fn(90, |i| ["low", "middle", "high"][i % 3]);
/// let data = Dataset::new(x, y);
/// for params in [RidgeClassifier::params(), RidgeClassifier::logistic()] {
///     let model = params.features(32).fit(&data)?;
///     assert_eq!(model.predict(&array![[0.2], [1.2], [2.2]]), array!["low", "middle", "high"]);
/// }
/// # Ok::<(), favor_linfa::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RidgeClassifier<F, L> {
    model: HeadModel,
    /// In ascending order.
    labels: Vec<L>,
    types: PhantomData<F>,
}

impl<F: Float, L: Label> RidgeClassifier<F, L> {
    /// Ridge regression with 256 landmarks of the Gaussian kernel.
    pub fn params() -> RidgeClassifierParams<F, L> {
        RidgeClassifierParams::new(HeadOptions::default())
    }

    /// Logistic regression with the same features.
    pub fn logistic() -> RidgeClassifierParams<F, L> {
        RidgeClassifierParams::new(HeadOptions::default().head(HeadKind::Logistic))
    }

    /// The underlying model, which predicts indices of the [labels](Self::labels).
    pub fn model(&self) -> &HeadModel {
        &self.model
    }

    /// The labels, in ascending order.
    pub fn labels(&self) -> &[L] {
        &self.labels
    }

    /// The labels of records, or an error.
    pub fn try_predict<D: Data<Elem = F>>(&self, x: &ArrayBase<D, Ix2>) -> Result<Array1<L>> {
        let values = self.model.predict(matrix(x)?.view())?;
        let label = |i: usize| self.labels[favor::learn::argmax(values.row(i))].clone();
        Ok((0..values.rows()).map(label).collect())
    }

    /// One row per record: the probabilities of the labels.
    pub fn predict_proba<D: Data<Elem = F>>(&self, x: &ArrayBase<D, Ix2>) -> Result<Array2<F>> {
        let mut values = self.model.predict(matrix(x)?.view())?;
        if self.model.head()?.link() == favor::learn::Link::Identity {
            class_probabilities(&mut values);
        }
        Ok(array(&values))
    }
}

/// The distinct labels, and the index of each record's label.
fn places<L: Label>(labels: &[L]) -> (Vec<L>, Vec<usize>) {
    let mut distinct = labels.to_vec();
    distinct.sort();
    distinct.dedup();
    let of = labels.iter().map(|l| distinct.partition_point(|d| d < l)).collect();
    (distinct, of)
}

impl<F, D, L, T> Fit<ArrayBase<D, Ix2>, T, Error> for RidgeClassifierValidParams<F, L>
where
    F: Float,
    D: Data<Elem = F>,
    L: Label,
    T: AsSingleTargets<Elem = L>,
{
    type Object = RidgeClassifier<F, L>;

    fn fit(&self, dataset: &DatasetBase<ArrayBase<D, Ix2>, T>) -> Result<Self::Object> {
        let labels: Vec<L> = dataset.as_single_targets().iter().cloned().collect();
        let (labels, of) = places(&labels);
        let (rows, weights) = (matrix(&dataset.records)?, weights(dataset));
        let (known, count) = (Known::Classes(&of), Some(labels.len()));
        let model = HeadModel::fit(&self.options, rows.view(), known, count, weights.as_deref())?;
        Ok(RidgeClassifier { model, labels, types: PhantomData })
    }
}

impl<F: Float, D: Data<Elem = F>, L: Label> PredictInplace<ArrayBase<D, Ix2>, Array1<L>>
    for RidgeClassifier<F, L>
{
    /// Panics where [`RidgeClassifier::try_predict`] returns an error.
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
