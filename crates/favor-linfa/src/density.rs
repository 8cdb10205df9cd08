//! Density estimation.

use crate::arrays::{matrix, weights};
use crate::params::parameters;
use crate::{Error, Result};
use linfa::Float;
use linfa::dataset::DatasetBase;
use linfa::traits::{Fit, FitWith, PredictInplace};
use ndarray::{Array1, ArrayBase, Data, Ix2};
use std::marker::PhantomData;

/// A fitted density: the mean of Gaussians around the records. It predicts log-densities.
///
/// ```
/// use favor_linfa::KernelDensity;
/// use linfa::prelude::*;
/// use ndarray::{Array, array};
///
/// let x = Array::from_shape_fn((500, 1), |(i, _)| (0.61 * i as f64).fract());
/// let model = KernelDensity::params().fit(&Dataset::from(x))?;
/// let logs = model.predict(&array![[0.5], [1.5]]);
/// assert!(logs[0].abs() < 0.3 && logs[1] < -1.0); // uniform between 0 and 1
/// # Ok::<(), favor_linfa::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct KernelDensity<F> {
    model: favor::learn::KernelDensity,
    types: PhantomData<F>,
}

parameters!(KernelDensityParams, KernelDensityValidParams<F>, KernelDensity);

impl<F: Float> KernelDensity<F> {
    /// The underlying model. It can be merged with others that share its map.
    pub fn model(&self) -> &favor::learn::KernelDensity {
        &self.model
    }

    /// The log-density at records, or an error.
    pub fn try_predict<D: Data<Elem = F>>(&self, x: &ArrayBase<D, Ix2>) -> Result<Array1<F>> {
        Ok(self.model.log_density(matrix(x)?.view())?.into_iter().map(F::cast).collect())
    }
}

impl<F: Float, D: Data<Elem = F>, T> Fit<ArrayBase<D, Ix2>, T, Error>
    for KernelDensityValidParams<F>
{
    type Object = KernelDensity<F>;

    fn fit(&self, dataset: &DatasetBase<ArrayBase<D, Ix2>, T>) -> Result<Self::Object> {
        let (rows, weights) = (matrix(&dataset.records)?, weights(dataset));
        let model =
            favor::learn::KernelDensity::fit(&self.options, rows.view(), weights.as_deref())?;
        Ok(KernelDensity { model, types: PhantomData })
    }
}

impl<'a, F: Float, D: Data<Elem = F>, T> FitWith<'a, ArrayBase<D, Ix2>, T, Error>
    for KernelDensityValidParams<F>
{
    type ObjectIn = Option<KernelDensity<F>>;
    type ObjectOut = KernelDensity<F>;

    /// Adds records to a model; its map stays.
    fn fit_with(
        &self,
        model: Self::ObjectIn,
        dataset: &'a DatasetBase<ArrayBase<D, Ix2>, T>,
    ) -> Result<Self::ObjectOut> {
        let Some(mut model) = model else { return self.fit(dataset) };
        model.model.partial_fit(matrix(&dataset.records)?.view(), weights(dataset).as_deref())?;
        Ok(model)
    }
}

impl<F: Float, D: Data<Elem = F>> PredictInplace<ArrayBase<D, Ix2>, Array1<F>>
    for KernelDensity<F>
{
    /// Panics where [`KernelDensity::try_predict`] returns an error.
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
