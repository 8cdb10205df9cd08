//! Regression.

use crate::arrays::{matrix, to_f64, weights};
use crate::params::parameters;
use crate::{Error, Result};
use favor::Matrix;
use linfa::Float;
use linfa::dataset::{AsSingleTargets, DatasetBase};
use linfa::traits::{Fit, FitWith, PredictInplace};
use ndarray::{Array1, ArrayBase, Data, Ix2};
use std::marker::PhantomData;

/// A fitted regression: the mean of the targets, weighted by the kernel (Nadaraya–Watson).
#[derive(Debug, Clone, PartialEq)]
pub struct KernelRegressor<F> {
    model: favor::learn::KernelRegressor,
    types: PhantomData<F>,
}

parameters!(KernelRegressorParams, KernelRegressorValidParams<F>, KernelRegressor);

impl<F: Float> KernelRegressor<F> {
    /// The underlying model. It can be merged with others that share its map.
    pub fn model(&self) -> &favor::learn::KernelRegressor {
        &self.model
    }

    /// The predicted numbers, or an error.
    pub fn try_predict<D: Data<Elem = F>>(&self, x: &ArrayBase<D, Ix2>) -> Result<Array1<F>> {
        let found = self.model.predict(matrix(x)?.view())?;
        Ok(found.as_slice().iter().map(|v| F::cast(*v)).collect())
    }
}

fn targets<F: Float, T: AsSingleTargets<Elem = F>>(targets: &T) -> Result<Matrix<f64>> {
    let values: Vec<f64> = targets.as_single_targets().iter().map(|v| to_f64(*v)).collect();
    let count = values.len();
    Ok(Matrix::new(values, count, 1)?)
}

impl<F, D, T> Fit<ArrayBase<D, Ix2>, T, Error> for KernelRegressorValidParams<F>
where
    F: Float,
    D: Data<Elem = F>,
    T: AsSingleTargets<Elem = F>,
{
    type Object = KernelRegressor<F>;

    fn fit(&self, dataset: &DatasetBase<ArrayBase<D, Ix2>, T>) -> Result<Self::Object> {
        let (rows, targets) = (matrix(&dataset.records)?, targets(&dataset.targets)?);
        let weights = weights(dataset);
        let model = favor::learn::KernelRegressor::fit(
            &self.options,
            rows.view(),
            targets.view(),
            weights.as_deref(),
        )?;
        Ok(KernelRegressor { model, types: PhantomData })
    }
}

impl<'a, F, D, T> FitWith<'a, ArrayBase<D, Ix2>, T, Error> for KernelRegressorValidParams<F>
where
    F: Float,
    D: Data<Elem = F>,
    T: AsSingleTargets<Elem = F>,
{
    type ObjectIn = Option<KernelRegressor<F>>;
    type ObjectOut = KernelRegressor<F>;

    /// Adds records to a model; its map stays.
    fn fit_with(
        &self,
        model: Self::ObjectIn,
        dataset: &'a DatasetBase<ArrayBase<D, Ix2>, T>,
    ) -> Result<Self::ObjectOut> {
        let Some(mut model) = model else { return self.fit(dataset) };
        let (rows, targets) = (matrix(&dataset.records)?, targets(&dataset.targets)?);
        model.model.partial_fit(rows.view(), targets.view(), weights(dataset).as_deref())?;
        Ok(model)
    }
}

impl<F: Float, D: Data<Elem = F>> PredictInplace<ArrayBase<D, Ix2>, Array1<F>>
    for KernelRegressor<F>
{
    /// Panics where [`KernelRegressor::try_predict`] returns an error.
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
