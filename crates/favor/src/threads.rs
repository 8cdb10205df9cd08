//! The number of threads as an argument.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Runs `work` with the given number of threads, or with rayon's default.
pub(crate) fn within<R: Send>(threads: Option<usize>, work: impl FnOnce() -> R + Send) -> R {
    // Failing to create a pool (no more threads available) is not an error: results do not depend
    // on the number of threads.
    match threads.and_then(pool) {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

/// The pool of a given size, created once.
fn pool(threads: usize) -> Option<Arc<ThreadPool>> {
    static POOLS: OnceLock<Mutex<HashMap<usize, Arc<ThreadPool>>>> = OnceLock::new();
    let threads = threads.max(1);
    let mut pools =
        POOLS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&threads) {
        return Some(pool.clone());
    }
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(threads).build().ok()?);
    pools.insert(threads, pool.clone());
    Some(pool)
}
