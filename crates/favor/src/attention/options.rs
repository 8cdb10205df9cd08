//! What a call of attention may see and use.

use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a call of [`attention`](crate::attention()) may see and use.
///
/// ```
/// use favor::AttentionOptions;
/// let padding = [true, true, false]; // the last key is padding
/// let options = AttentionOptions::new().causal(true).key_mask(Some(&padding));
/// assert!(options.causal);
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct AttentionOptions<'a> {
    /// A query sees only its own and earlier keys.
    pub causal: bool,
    /// `batch × keys`, false where a key is padding, which enters no sum.
    pub key_mask: Option<&'a [bool]>,
    /// Sequences packed one after the other along the length, in a batch of one: sequence `i` has
    /// the tokens `offsets[i]..offsets[i+1]` and sees nothing else.
    pub offsets: Option<&'a [usize]>,
    /// The number of threads; rayon's default if not set. No result depends on it.
    pub threads: Option<usize>,
    /// Another thread may set this to true: no further head is then started, and the call ends with
    /// [`Error::Cancelled`].
    pub cancel: Option<&'a AtomicBool>,
}

impl<'a> AttentionOptions<'a> {
    /// Every query sees every key; rayon's default threads.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a query sees only its own and earlier keys.
    #[must_use]
    pub fn causal(self, causal: bool) -> Self {
        Self { causal, ..self }
    }

    /// `batch × keys`, false where a key is padding; or `None`, as without this call.
    #[must_use]
    pub fn key_mask(self, mask: Option<&'a [bool]>) -> Self {
        Self { key_mask: mask, ..self }
    }

    /// Where packed sequences start and end.
    #[must_use]
    pub fn offsets(self, offsets: Option<&'a [usize]>) -> Self {
        Self { offsets, ..self }
    }

    /// The number of threads.
    #[must_use]
    pub fn threads(self, threads: Option<usize>) -> Self {
        Self { threads, ..self }
    }

    /// The flag that ends the call early.
    #[must_use]
    pub fn cancel(self, cancel: Option<&'a AtomicBool>) -> Self {
        Self { cancel, ..self }
    }

    pub(super) fn check_cancelled(&self) -> Result<()> {
        if self.cancel.is_some_and(|c| c.load(Ordering::Relaxed)) {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}
