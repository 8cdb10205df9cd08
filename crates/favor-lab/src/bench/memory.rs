//! Memory beyond what was there before, where the system tells (Linux).

/// The largest memory of this process since the last [`forget_peak`], in bytes.
fn field(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kb| kb * 1024)
}

/// Runs `work` and tells how far the memory rose above where it was.
pub(super) fn rise<T>(work: impl FnOnce() -> T) -> (T, Option<u64>) {
    // Writing 5 there sets the peak back to the present.
    let reset = std::fs::write("/proc/self/clear_refs", "5").is_ok();
    let before = field("VmRSS:");
    let result = work();
    let peak = field("VmHWM:");
    let rise = match (reset, before, peak) {
        (true, Some(before), Some(peak)) => Some(peak.saturating_sub(before)),
        _ => None,
    };
    (result, rise)
}
