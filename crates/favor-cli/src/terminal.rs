//! What a person sees: results on standard output, progress on standard error.

use crate::failure::{Failure, Outcome};
use favor_io::progress::Tick;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether progress is hidden.
static QUIET: AtomicBool = AtomicBool::new(false);

pub(crate) fn be_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Where progress is drawn: indicatif hides it if standard error is not a terminal.
pub(crate) fn progress_target() -> ProgressDrawTarget {
    if QUIET.load(Ordering::Relaxed) {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    }
}

/// Set by Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

/// What Ctrl-C sets from now on; a second one ends the process at once.
pub(crate) fn stopped() -> &'static AtomicBool {
    // A process has one handler: the second command of a process, as in tests, keeps the first's.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(crate::failure::INTERRUPTED));
        }
    });
    &STOP
}

/// Prints a result.
pub(crate) fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Print)
}

/// A progress bar on standard error, hidden when that is not a terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new(what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), progress_target());
        let template = "{prefix} [{bar:30}] {pos}/{len} {wide_msg} {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(what);
        Self(bar)
    }

    /// Takes one report of an experiment.
    pub(crate) fn show(&self, tick: Tick<'_>) {
        let another = self.0.length() != Some(tick.total);
        self.0.set_length(tick.total);
        // Threads may report out of order; the bar never goes back within one piece of work.
        if another || tick.done >= self.0.position() {
            self.0.set_position(tick.done);
        }
        if !tick.what.is_empty() && !self.0.is_hidden() {
            self.0.set_message(tick.what.to_owned());
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
