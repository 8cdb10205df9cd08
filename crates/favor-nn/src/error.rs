//! What can go wrong, as one line for the person who asked.

use std::path::{Path, PathBuf};

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something was refused. Every message names what was wrong, where, and what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The attention refused its input.
    #[error("attention: {0}")]
    Attention(#[from] favor::Error),
    /// A file is missing, or is not what it should be.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file could not be written.
    #[error(transparent)]
    Output(#[from] favor_io::OutputError),
    /// A folder of data is not there.
    #[error("{}: no such folder; it should hold {wanted}", path.display())]
    NoData {
        /// The folder.
        path: PathBuf,
        /// What should be in it.
        wanted: &'static str,
    },
    /// A result or a checkpoint that other settings made.
    #[error("{}: made with other settings; remove it, or write to another folder", path.display())]
    OtherSettings {
        /// The file.
        path: PathBuf,
    },
    /// An argument outside its domain.
    #[error("{what}: {reason}")]
    Invalid {
        /// The argument.
        what: &'static str,
        /// What is wrong with it and what would be right.
        reason: String,
    },
    /// Training went astray.
    #[error("{0}")]
    Training(String),
    /// Training was stopped by the one who watches it, and can go on.
    #[error("stopped after step {step} of {steps}; run again to resume from {}", checkpoint.display())]
    Stopped {
        /// Steps made.
        step: u64,
        /// Steps in all.
        steps: u64,
        /// Where it is kept.
        checkpoint: PathBuf,
    },
}

impl Error {
    /// An argument is refused.
    pub fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { what, reason: reason.into() }
    }

    /// A file is refused.
    pub fn file(path: impl AsRef<Path>, reason: impl std::fmt::Display) -> Self {
        Self::File { path: path.as_ref().to_path_buf(), reason: reason.to_string() }
    }
}
