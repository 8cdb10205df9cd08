//! What was measured, as text or JSON.

use super::Work;
use serde::Serialize;
use std::fmt::Write;

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The kind of work.
    pub work: Work,
    /// Tokens, or points.
    pub length: usize,
    /// Features; for exact work the number that features beside it would use.
    pub features: usize,
    /// Dimension.
    pub dim: usize,
    /// Heads.
    pub heads: usize,
    /// The best time; for decoding, of one token.
    pub seconds: f64,
    /// Useful floating-point operations a second, in 10⁹.
    pub gflops: f64,
    /// Memory beyond inputs and maps, outputs included, where the system tells.
    pub extra_bytes: Option<u64>,
    /// Error against the exact result, where it was computed.
    pub relative_error: Option<f64>,
}

/// Measurements as JSON.
pub fn to_json(measured: &[Measured]) -> String {
    // Plain structs of numbers and names: nothing in them can fail to be written.
    serde_json::to_string_pretty(measured).unwrap_or_default() + "\n"
}

/// A table of measurements.
pub fn to_text(measured: &[Measured]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<16} {:>9} {:>9} {:>12} {:>9} {:>11} {:>9}",
        "work", "length", "features", "time", "GFLOP/s", "memory", "error"
    );
    for m in measured {
        let features = if m.work.uses_features() { m.features.to_string() } else { "-".into() };
        let memory =
            m.extra_bytes.map_or("-".into(), |b| format!("{:.1} MiB", b as f64 / 1_048_576.0));
        let error = m.relative_error.map_or("-".into(), |e| format!("{:.1} %", 100.0 * e));
        let _ = writeln!(
            out,
            "{:<16} {:>9} {:>9} {:>12} {:>9.1} {:>11} {:>9}",
            m.work.name(),
            m.length,
            features,
            duration(m.seconds),
            m.gflops,
            memory,
            error
        );
    }
    out
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
