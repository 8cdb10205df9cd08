//! The progress of a long run.

use std::sync::atomic::{AtomicU64, Ordering};

/// One report: `done` of `total` steps, and what was just finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick<'a> {
    /// Steps finished.
    pub done: u64,
    /// All steps.
    pub total: u64,
    /// What was finished, in a few words.
    pub what: &'a str,
}

/// Receives the reports. It is called from several threads.
pub type Listener<'a> = dyn Fn(Tick<'_>) + Sync + 'a;

/// A listener that ignores the reports.
pub fn silent(_: Tick<'_>) {}

/// Counts the steps of one run.
pub struct Counter<'a> {
    listener: &'a Listener<'a>,
    done: AtomicU64,
    total: u64,
}

impl<'a> Counter<'a> {
    /// Starts at 0, which it reports at once.
    pub fn new(listener: &'a Listener<'a>, total: usize) -> Self {
        let counter = Self { listener, done: AtomicU64::new(0), total: total as u64 };
        (counter.listener)(Tick { done: 0, total: counter.total, what: "" });
        counter
    }

    /// Reports one more step, which finished `what`.
    pub fn step(&self, what: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        (self.listener)(Tick { done, total: self.total, what });
    }
}
