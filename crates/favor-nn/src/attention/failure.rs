//! Why a backward pass failed.

use crate::Error;
use std::sync::{Arc, Mutex, PoisonError};

/// The place where a backward pass leaves the reason of its failure. It has no result of its own to put
/// an error into: its gradients become NaN, and whoever finds them looks here. Clones share one place.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use favor_nn::attention::{AttendOptions, BackwardFailure, AttendMethod, attend};
/// let x = Tensor::<4>::ones([1, 1, 3, 2], &Device::flex().autodiff()).require_grad();
/// let failure = BackwardFailure::default();
/// let options = AttendOptions::default().failure(failure.clone());
/// let out = attend(x.clone(), x.clone(), x.clone(), &AttendMethod::Exact, &options)?;
/// let gradients = (out * f32::NAN).sum().backward();
/// assert!(x.grad(&gradients).unwrap().sum().into_scalar::<f32>().is_nan());
/// assert!(failure.take().unwrap().to_string().contains("NaN"));
/// assert!(failure.take().is_none());
/// # Ok::<(), favor_nn::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct BackwardFailure(Arc<Mutex<Option<Error>>>);

impl BackwardFailure {
    /// The first failure since the last call, if there was one.
    pub fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn report(&self, error: Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}
