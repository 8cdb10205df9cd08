//! What was measured, as text or JSON.

use super::Work;
use favor::ExactKeys;
use favor_io::numbers::{duration, mebibytes, percent};
use favor_io::table::Table;
use serde::Serialize;

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The kind of work.
    pub work: Work,
    /// Tokens, or points.
    pub length: usize,
    /// Features; for exact work the number that features next to it would use.
    pub features: usize,
    /// Keys that were attended exactly beside the features.
    pub exact: ExactKeys,
    /// Dimension.
    pub dim: usize,
    /// Heads.
    pub heads: usize,
    /// Sequences.
    pub batch: usize,
    /// Whether a fifth of the keys was padding.
    pub masked: bool,
    /// Whether each sequence was several, packed one after the other.
    pub packed: bool,
    /// The best time; for decoding, of one token of every sequence.
    pub seconds: f64,
    /// Useful floating-point operations per second, in 10⁹.
    pub gflops: f64,
    /// Memory beyond inputs and maps, outputs included, where the system tells; for prompts and decoding, the
    /// size of the state.
    pub extra_bytes: Option<u64>,
    /// Error against the exact result, where it was computed.
    pub relative_error: Option<f64>,
    /// Features that are as fast as exact attention over this length, by
    /// [`break_even`](favor::diagnose::break_even).
    pub break_even: f64,
}

/// Measurements as JSON.
pub fn to_json(measured: &[Measured]) -> String {
    // Plain structs of numbers and names: nothing in them can fail to be written.
    serde_json::to_string_pretty(measured).unwrap_or_default() + "\n"
}

/// A table of measurements.
pub fn to_text(measured: &[Measured]) -> String {
    let mut table = Table::new("work");
    for name in ["length", "features", "exact keys", "time", "GFLOP/s", "memory", "error"] {
        table.column("", name);
    }
    let dash = || "-".to_owned();
    for m in measured {
        table.row(vec![
            m.work.name().to_owned(),
            m.length.to_string(),
            if m.work.uses_features() { m.features.to_string() } else { dash() },
            if m.exact.is_none() { dash() } else { m.exact.to_string() },
            duration(m.seconds),
            format!("{:.1}", m.gflops),
            m.extra_bytes.map_or_else(dash, mebibytes),
            m.relative_error.map_or_else(dash, percent),
        ]);
    }
    table.render("")
}
