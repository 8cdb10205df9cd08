//! Conversion between ndarray's arrays and favor's matrices.

use crate::Result;
use favor::Matrix;
use linfa::{DatasetBase, Float};
use ndarray::{Array2, ArrayBase, Data, Ix2};

pub(crate) fn to_f64<F: Float>(value: F) -> f64 {
    value.to_f64().unwrap_or(f64::NAN)
}

pub(crate) fn matrix<F: Float, D: Data<Elem = F>>(x: &ArrayBase<D, Ix2>) -> Result<Matrix<f64>> {
    Ok(Matrix::new(x.iter().map(|v| to_f64(*v)).collect(), x.nrows(), x.ncols())?)
}

pub(crate) fn array<F: Float>(matrix: &Matrix<f64>) -> Array2<F> {
    Array2::from_shape_fn(matrix.shape(), |place| F::cast(matrix[place]))
}

/// The weights of records, if they have any.
pub(crate) fn weights<R, T>(dataset: &DatasetBase<R, T>) -> Option<Vec<f64>>
where
    R: linfa::dataset::Records,
{
    dataset.weights().map(|weights| weights.iter().map(|w| f64::from(*w)).collect())
}
