//! How far a pass over the table is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Rows done in the current pass. Shared with whoever shows it.
///
/// ```
/// let (stage, rows) = favor_tables::Progress::default().now();
/// assert_eq!((stage.total, rows), (None, 0));
/// ```
#[derive(Debug, Default)]
pub struct Progress {
    rows: AtomicU64,
    stage: Mutex<Stage>,
}

/// A pass over the table.
///
/// ```
/// # fn example(progress: &favor_tables::Progress) {
/// let (stage, rows) = progress.now();
/// match stage.total {
///     Some(total) => println!("{}: {rows} of {total} rows", stage.name),
///     None => println!("{}: {rows} rows", stage.name),
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stage {
    /// What it does, as in "moments".
    pub name: &'static str,
    /// How many rows it will see, where that is known.
    pub total: Option<u64>,
}

impl Progress {
    /// The current pass and its rows so far.
    pub fn now(&self) -> (Stage, u64) {
        let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (stage, self.rows.load(Ordering::Relaxed))
    }

    pub(crate) fn begin(&self, name: &'static str, total: Option<u64>) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = Stage { name, total };
        self.rows.store(0, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }
}
