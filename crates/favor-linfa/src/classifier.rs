//! Classification.

use crate::arrays::{array, matrix, weights};
use crate::params::parameters;
use crate::{Error, Result};
use linfa::dataset::{AsSingleTargets, DatasetBase};
use linfa::traits::{Fit, FitWith, PredictInplace};
use linfa::{Float, Label};
use ndarray::{Array1, Array2, ArrayBase, Data, Ix2};
use std::marker::PhantomData;

/// A fitted classifier of labels `L`: the class with the largest sum of kernel values.
///
/// ```
/// use favor_linfa::KernelClassifier;
/// use linfa::prelude::*;
/// use ndarray::{Array, array};
///
/// let x = Array::from_shape_fn((60, 1), |(i, _)| (i % 3) as f64 + 0.01 * i as f64);
/// let y = Array::from_shape_fn(60, |i| ["low", "middle", "high"][i % 3]);
/// let data = Dataset::new(x, y);
/// let params = KernelClassifier::params().features(64).bandwidth(0.3);
/// let model = params.fit(&data)?;
/// assert_eq!(model.predict(&array![[0.2], [1.3], [2.4]]), array!["low", "middle", "high"]);
/// // More records later.
/// let model = params.fit_with(Some(model), &data)?;
/// assert_eq!(model.predict_proba(&array![[0.2]])?.ncols(), 3);
/// # Ok::<(), favor_linfa::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct KernelClassifier<F, L> {
    model: favor::learn::KernelClassifier<L>,
    types: PhantomData<F>,
}

parameters!(KernelClassifierParams, KernelClassifierValidParams<F, L>, KernelClassifier);

impl<F: Float, L: Label> KernelClassifier<F, L> {
    /// The underlying model. It can be merged with others that share its map.
    pub fn model(&self) -> &favor::learn::KernelClassifier<L> {
        &self.model
    }

    /// The labels of records, or an error.
    pub fn try_predict<D: Data<Elem = F>>(&self, x: &ArrayBase<D, Ix2>) -> Result<Array1<L>> {
        Ok(self.model.predict(matrix(x)?.view())?.into())
    }

    /// One row per record: the probabilities of the labels, which are in ascending order.
    pub fn predict_proba<D: Data<Elem = F>>(&self, x: &ArrayBase<D, Ix2>) -> Result<Array2<F>> {
        Ok(array(&self.model.probabilities(matrix(x)?.view())?))
    }
}

impl<F, D, L, T> Fit<ArrayBase<D, Ix2>, T, Error> for KernelClassifierValidParams<F, L>
where
    F: Float,
    D: Data<Elem = F>,
    L: Label,
    T: AsSingleTargets<Elem = L>,
{
    type Object = KernelClassifier<F, L>;

    fn fit(&self, dataset: &DatasetBase<ArrayBase<D, Ix2>, T>) -> Result<Self::Object> {
        let labels: Vec<L> = dataset.as_single_targets().iter().cloned().collect();
        let (rows, weights) = (matrix(&dataset.records)?, weights(dataset));
        let model = favor::learn::KernelClassifier::fit(
            &self.options,
            rows.view(),
            &labels,
            weights.as_deref(),
        )?;
        Ok(KernelClassifier { model, types: PhantomData })
    }
}

impl<'a, F, D, L, T> FitWith<'a, ArrayBase<D, Ix2>, T, Error> for KernelClassifierValidParams<F, L>
where
    F: Float,
    D: Data<Elem = F>,
    L: Label + 'a,
    T: AsSingleTargets<Elem = L>,
{
    type ObjectIn = Option<KernelClassifier<F, L>>;
    type ObjectOut = KernelClassifier<F, L>;

    /// Adds records to a model; its map stays.
    fn fit_with(
        &self,
        model: Self::ObjectIn,
        dataset: &'a DatasetBase<ArrayBase<D, Ix2>, T>,
    ) -> Result<Self::ObjectOut> {
        let Some(mut model) = model else { return self.fit(dataset) };
        let labels: Vec<L> = dataset.as_single_targets().iter().cloned().collect();
        let (rows, weights) = (matrix(&dataset.records)?, weights(dataset));
        model.model.partial_fit(rows.view(), &labels, weights.as_deref())?;
        Ok(model)
    }
}

impl<F: Float, D: Data<Elem = F>, L: Label> PredictInplace<ArrayBase<D, Ix2>, Array1<L>>
    for KernelClassifier<F, L>
{
    /// Panics where [`KernelClassifier::try_predict`] returns an error.
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
