//! Errors, with one line each.

use favor_tables::Cause;

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why work on a cluster was refused or failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A table, a request or a model was rejected, here or by a process of the cluster.
    #[error(transparent)]
    Tables(#[from] favor_tables::Error),
    /// A text that is not an address.
    #[error("'{text}' is not an address; give HOST:PORT")]
    Address {
        /// What it was given for.
        endpoint: Endpoint,
        /// The text.
        text: String,
    },
    /// Nothing answers like a scheduler.
    #[error("no scheduler answers at {address} ({why}); start one there")]
    NoScheduler {
        /// Where.
        address: String,
        /// What happened instead.
        why: String,
    },
    /// The scheduler has no executors.
    #[error("the scheduler at {address} has no executors; start some")]
    NoExecutors {
        /// Where it is.
        address: String,
    },
    /// The scheduler disappeared during work, or lost its executors.
    #[error("the cluster was lost: the scheduler at {address} {why}")]
    Lost {
        /// Where it was.
        address: String,
        /// What happened.
        why: String,
    },
    /// The scheduler aborted a job.
    #[error("the cluster gave up: {reason}")]
    GaveUp {
        /// Why, in its words.
        reason: String,
    },
    /// A process of the cluster reported an error.
    #[error("{reason}")]
    Refused {
        /// Why, in its words.
        reason: String,
    },
    /// Predictions that could not be matched to rows.
    #[error("predictions come in no fixed order; keep columns that tell the rows apart")]
    Unordered,
    /// An address that a process cannot listen on.
    #[error("cannot listen at {address}: {reason}")]
    Listen {
        /// The address.
        address: String,
        /// Why not.
        reason: String,
    },
    /// An executor without a core.
    #[error("an executor needs at least one core")]
    NoCores,
    /// A folder that an executor cannot use for its results.
    #[error("{folder}: {reason}")]
    WorkFolder {
        /// The folder.
        folder: String,
        /// Why not.
        reason: String,
    },
    /// An error of Ballista.
    #[error("{what}: {reason}")]
    Ballista {
        /// Which part of it.
        what: &'static str,
        /// Why, in one line.
        reason: String,
        /// Its own error.
        source: Option<Cause>,
    },
}

/// What an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// The scheduler.
    Scheduler,
    /// The process itself.
    Bind,
}

impl Error {
    pub(crate) fn ballista(
        what: &'static str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let reason = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Ballista { what, reason, source: Some(Cause::new(error)) }
    }
}
