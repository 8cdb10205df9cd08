//! What can go wrong, as values with one line each.

use favor_tables::Cause;

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why work on a cluster was refused or not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A table, a request or a model was refused, here or by a process of the cluster.
    #[error(transparent)]
    Tables(#[from] favor_tables::Error),
    /// A text that is no address.
    #[error("'{text}' is no address; give HOST:PORT")]
    Address {
        /// What it was given for.
        endpoint: Endpoint,
        /// The text.
        text: String,
    },
    /// Nothing answers as a scheduler does.
    #[error("no scheduler answers at {address} ({why}); start one there")]
    NoScheduler {
        /// Where.
        address: String,
        /// What happened instead.
        why: String,
    },
    /// The scheduler has nobody to give work to.
    #[error("the scheduler at {address} has no executors; start some")]
    NoExecutors {
        /// Where it is.
        address: String,
    },
    /// The scheduler went away during work, or lost its executors.
    #[error("the cluster was lost: the scheduler at {address} {why}")]
    Lost {
        /// Where it was.
        address: String,
        /// What happened.
        why: String,
    },
    /// The scheduler ended a job.
    #[error("the cluster gave up: {reason}")]
    GaveUp {
        /// Why, in its words.
        reason: String,
    },
    /// A process of the cluster refused.
    #[error("{reason}")]
    Refused {
        /// Why, in its words.
        reason: String,
    },
    /// Predictions that nobody could tell apart.
    #[error("predictions come in no fixed order; keep columns that tell the rows apart")]
    Unordered,
    /// An address that a process cannot listen at.
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
    /// A folder that an executor cannot keep its results in.
    #[error("{folder}: {reason}")]
    WorkFolder {
        /// The folder.
        folder: String,
        /// Why not.
        reason: String,
    },
    /// Ballista refused.
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
