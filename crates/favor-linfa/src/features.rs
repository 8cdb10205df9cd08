//! Random features.

use crate::arrays::{array, matrix, weights};
use crate::params::parameters;
use crate::{Error, Result};
use linfa::Float;
use linfa::dataset::{AsTargets, DatasetBase};
use linfa::traits::{Fit, Transformer};
use ndarray::{Array2, ArrayBase, Data, Ix2};
use std::marker::PhantomData;

/// Features of a map fitted to records. Their inner products estimate the kernel: feed them to a
/// linear model.
///
/// ```
/// use favor_linfa::RandomFeatures;
/// use linfa::prelude::*;
/// use ndarray::Array;
///
/// let x = Array::from_shape_fn((100, 2), |(i, l)| ((3 * i + 5 * l) as f64).sin());
/// let data = Dataset::new(x, Array::from_shape_fn(100, |i| i % 2));
/// let map = RandomFeatures::params().features(32).bandwidth(2.0).fit(&data)?;
/// let features = map.transform(data);
/// assert_eq!((features.nsamples(), features.nfeatures()), (100, 32));
/// # Ok::<(), favor_linfa::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RandomFeatures<F> {
    model: favor::learn::RandomFeatures,
    types: PhantomData<F>,
}

parameters!(RandomFeaturesParams, RandomFeaturesValidParams<F>, RandomFeatures);

impl<F: Float> RandomFeatures<F> {
    /// The underlying map.
    pub fn model(&self) -> &favor::learn::RandomFeatures {
        &self.model
    }

    /// One row of features per record, or an error.
    pub fn try_transform<D: Data<Elem = F>>(&self, x: &ArrayBase<D, Ix2>) -> Result<Array2<F>> {
        Ok(array(&self.model.transform(matrix(x)?.view())?))
    }
}

impl<F: Float, D: Data<Elem = F>, T> Fit<ArrayBase<D, Ix2>, T, Error>
    for RandomFeaturesValidParams<F>
{
    type Object = RandomFeatures<F>;

    fn fit(&self, dataset: &DatasetBase<ArrayBase<D, Ix2>, T>) -> Result<Self::Object> {
        let (rows, weights) = (matrix(&dataset.records)?, weights(dataset));
        let model =
            favor::learn::RandomFeatures::fit(&self.options, rows.view(), weights.as_deref())?;
        Ok(RandomFeatures { model, types: PhantomData })
    }
}

impl<F: Float, D: Data<Elem = F>> Transformer<ArrayBase<D, Ix2>, Array2<F>> for RandomFeatures<F> {
    /// Panics where [`RandomFeatures::try_transform`] returns an error.
    fn transform(&self, x: ArrayBase<D, Ix2>) -> Array2<F> {
        match self.try_transform(&x) {
            Ok(features) => features,
            Err(error) => panic!("{error}"),
        }
    }
}

impl<F: Float, D: Data<Elem = F>, T: AsTargets>
    Transformer<DatasetBase<ArrayBase<D, Ix2>, T>, DatasetBase<Array2<F>, T>>
    for RandomFeatures<F>
{
    /// The same targets and weights with the features as records.
    fn transform(&self, x: DatasetBase<ArrayBase<D, Ix2>, T>) -> DatasetBase<Array2<F>, T> {
        let DatasetBase { records, targets, weights, .. } = x;
        DatasetBase::new(self.transform(records), targets).with_weights(weights)
    }
}
