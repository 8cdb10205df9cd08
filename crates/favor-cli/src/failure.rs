//! How a command ends.

#[cfg(feature = "tables")]
use crate::words;
use std::io;
use std::process::ExitCode;

/// The exit code for input or arguments that make no sense.
pub(crate) const BAD_INPUT: u8 = 2;

/// The exit code for what a person stopped by Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// The exit codes, for the help.
pub(crate) const EXIT_CODES: &str = "Exit codes:
  0    success, including when the reader of a pipe closes it early
  1    the output could not be written
  2    invalid arguments or input
  130  stopped by Ctrl-C";

/// What a command gives back.
pub(crate) type Outcome = Result<(), Failure>;

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A file could not be read or written.
    Io(favor_io::Error),
    /// The library refused an argument.
    Library(favor::Error),
    /// An inspection was refused.
    Inspect(favor_inspect::Error),
    /// An experiment was refused.
    Lab(favor_lab::Error),
    /// A table or a model was refused.
    #[cfg(feature = "tables")]
    Tables(favor_tables::Error),
    /// Work on a cluster was refused or not done.
    #[cfg(feature = "cluster")]
    Cluster {
        /// Why.
        error: favor_cluster::Error,
        /// The option that the scheduler's address was given by.
        scheduler: &'static str,
    },
    /// A model, a text, speech or a training was refused.
    #[cfg(feature = "nn")]
    Nn(favor_nn::Error),
    /// The output could not be printed.
    Print(io::Error),
}

impl From<favor_io::Error> for Failure {
    fn from(error: favor_io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<favor_io::OutputError> for Failure {
    fn from(error: favor_io::OutputError) -> Self {
        Self::Io(error.into())
    }
}

impl From<favor::Error> for Failure {
    fn from(error: favor::Error) -> Self {
        Self::Library(error)
    }
}

impl From<favor_inspect::Error> for Failure {
    fn from(error: favor_inspect::Error) -> Self {
        Self::Inspect(error)
    }
}

impl From<favor_lab::Error> for Failure {
    fn from(error: favor_lab::Error) -> Self {
        match error {
            favor_lab::Error::Io(error) => Self::Io(error),
            favor_lab::Error::Library { reason: favor::Error::Cancelled, .. } => {
                Self::Library(favor::Error::Cancelled)
            }
            other => Self::Lab(other),
        }
    }
}

#[cfg(feature = "tables")]
impl From<favor_tables::Error> for Failure {
    fn from(error: favor_tables::Error) -> Self {
        Self::Tables(error)
    }
}

#[cfg(feature = "nn")]
impl From<favor_nn::Error> for Failure {
    fn from(error: favor_nn::Error) -> Self {
        Self::Nn(error)
    }
}

/// Says in one line what went wrong. A reader that has seen enough, as in `favor … | head`, is
/// nothing wrong.
pub(crate) fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Print(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Print(e)) => {
            eprintln!("favor: the output cannot be written: {e}");
            ExitCode::FAILURE
        }
        Err(Failure::Io(e)) => match e {
            favor_io::Error::NoFolder { .. } => {
                complain(&format!("{e}; choose the folder with --data or FAVOR_DATA"), BAD_INPUT)
            }
            _ => complain(&e, BAD_INPUT),
        },
        Err(Failure::Library(favor::Error::Cancelled)) => {
            complain(&"stopped before the end; nothing was written", INTERRUPTED)
        }
        Err(Failure::Library(e)) => complain(&e, BAD_INPUT),
        Err(Failure::Inspect(e)) => complain(&e, BAD_INPUT),
        Err(Failure::Lab(e)) => complain(&e, BAD_INPUT),
        #[cfg(feature = "tables")]
        Err(Failure::Tables(e)) => complain(&words::of_tables(&e), BAD_INPUT),
        #[cfg(feature = "cluster")]
        Err(Failure::Cluster { error, scheduler }) => {
            complain(&words::of_cluster(&error, scheduler), BAD_INPUT)
        }
        #[cfg(feature = "nn")]
        Err(Failure::Nn(e)) => match e {
            favor_nn::Error::Stopped { .. } => complain(&e, INTERRUPTED),
            favor_nn::Error::OtherSettings { .. } => complain(&format!("{e} (--out)"), BAD_INPUT),
            favor_nn::Error::NoData { .. } => {
                complain(&format!("{e}; choose the folder with --data or FAVOR_DATA"), BAD_INPUT)
            }
            _ => complain(&e, BAD_INPUT),
        },
    }
}

fn complain(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    eprintln!("favor: {error}");
    ExitCode::from(code)
}
