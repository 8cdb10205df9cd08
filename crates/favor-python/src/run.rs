//! Calls of the library: without the interpreter's lock, interruptible, and without panics.
//!
//! A short call runs where it is. A long one runs on a thread of its own, while the calling thread
//! wakes up now and then to let Python look at its signals. If that raises (Ctrl-C), the call ends
//! at once; the thread behind it is told to stop, which it does before the next head, and what it
//! still computes is dropped. It owns everything that it reads.

use crate::errors;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Multiplications up to which a call is short: some tens of milliseconds, for which nobody waits and
/// in which the start of a thread would show.
const SHORT: f64 = 1e9;

/// How often a long call looks at the signals.
const LOOK: Duration = Duration::from_millis(50);

/// Runs `work`, which takes about so many multiplications. It gets the flag that tells it to stop.
pub(crate) fn run<R, E>(
    py: Python<'_>,
    multiplications: f64,
    work: impl FnOnce(&AtomicBool) -> Result<R, E> + Send + 'static,
) -> PyResult<R>
where
    R: Send + 'static,
    E: ToString + Send + 'static,
{
    run_watched(py, multiplications, work, |_| Ok(()))
}

/// The same with somebody who looks on, from the calling thread, as often as that looks at the signals.
/// An error of theirs ends the call too.
pub(crate) fn run_watched<R, E>(
    py: Python<'_>,
    multiplications: f64,
    work: impl FnOnce(&AtomicBool) -> Result<R, E> + Send + 'static,
    mut watch: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<R>
where
    R: Send + 'static,
    E: ToString + Send + 'static,
{
    check_process()?;
    let guarded = |stop: &AtomicBool| catch_unwind(AssertUnwindSafe(|| work(stop))).map_err(panic);
    let finish = |result: Result<Result<R, E>, String>| match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(errors::value(error.to_string())),
        Err(message) => Err(PyRuntimeError::new_err(message)),
    };
    if is_short(multiplications) {
        return finish(py.detach(|| guarded(&AtomicBool::new(false))));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (send, receive) = sync_channel(1);
    let flag = stop.clone();
    // A caller that has gone away is no reason to complain.
    let begin = std::thread::Builder::new().name("favor_sharp".into());
    begin.spawn(move || send.send(guarded(&flag)).unwrap_or(()))?;
    // The receiver is moved in and out because it may not be shared.
    let mut receive = receive;
    loop {
        let (result, back) = py.detach(move || (receive.recv_timeout(LOOK), receive));
        receive = back;
        match result {
            Ok(result) => return finish(result),
            Err(RecvTimeoutError::Disconnected) => return finish(Err("it ended early".into())),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals().and_then(|()| watch(py)).inspect_err(|_| {
                    stop.store(true, Ordering::Relaxed);
                })?;
            }
        }
    }
}

/// Whether `run` runs this many multiplications where it is, so that nothing can interrupt them.
pub(crate) fn is_short(multiplications: f64) -> bool {
    multiplications < SHORT
}

/// Runs very short work where it is, with the interpreter's lock.
pub(crate) fn at_once<R>(work: impl FnOnce() -> favor::Result<R>) -> PyResult<R> {
    check_process()?;
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(errors::library),
        Err(payload) => Err(PyRuntimeError::new_err(panic(payload))),
    }
}

/// Runs short work where it is, without the interpreter's lock. It may change what it borrows.
pub(crate) fn in_place<R: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> favor::Result<R> + Send,
) -> PyResult<R> {
    py.detach(|| at_once(work))
}

/// An error in a process that was forked from one that had computed: the threads of the pool stayed
/// behind, and a call would wait for them forever.
fn check_process() -> PyResult<()> {
    static FIRST: OnceLock<u32> = OnceLock::new();
    let own = std::process::id();
    if *FIRST.get_or_init(|| own) == own {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "this process was forked after favor_sharp had computed, and its threads stayed behind; \
         start processes by 'spawn' or 'forkserver'",
    ))
}

/// What a panic said: a defect of the library, told as one line.
fn panic(payload: Box<dyn std::any::Any + Send>) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    format!("internal error, please report it: {text}")
}

/// Panics inside a call, so that the tests can see what becomes of it.
#[pyfunction]
pub(crate) fn _panic(py: Python<'_>, long: bool) -> PyResult<()> {
    let work = if long { f64::INFINITY } else { 0.0 };
    run(py, work, |_| -> Result<(), String> { panic!("on purpose") })
}
