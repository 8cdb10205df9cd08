//! What the tests share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// burn's generator is one for the whole process: whoever relies on its draws holds this.
pub(crate) fn generator() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
