//! Numbers for tests: from a stream of our own, since burn's generator is one for the whole process.

use burn::tensor::TensorData;
use favor::draw::Stream;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A test that seeds burn's generator, by itself or by training, holds this.
pub(crate) fn generator() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Normal numbers of this mean and deviation.
pub(crate) fn normal<const D: usize>(
    shape: [usize; D],
    mean: f64,
    deviation: f64,
    seed: u64,
) -> TensorData {
    let mut stream = Stream::new(seed, 0);
    let mut draw = || (mean + deviation * stream.normal()) as f32;
    TensorData::new((0..shape.iter().product()).map(|_| draw()).collect(), shape)
}
