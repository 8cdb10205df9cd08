//! Method and options of attention, owned: a call may compute on a thread of its own.

use crate::arguments::{KernelName, Maps, Unsigned, heads, work};
use crate::arrays::KeyMask;
use crate::choices::Choice;
use crate::errors;
use favor::{AttentionOptions, ExactKeys, FeatureMap, Kernel, Method};
use pyo3::prelude::*;
use std::sync::atomic::AtomicBool;

/// The heads to compute exactly: their numbers, or what was chosen for each head of each sequence.
pub(crate) enum ExactHeads {
    Numbers(Vec<usize>),
    Chosen(Vec<ExactKeys>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for ExactHeads {
    type Error = PyErr;
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let wrong =
            || errors::kind("exact_heads: numbers of heads, or what choose_heads gave, are needed");
        let items: PyResult<Vec<_>> = value.try_iter().map_err(|_| wrong())?.collect();
        let items = items?;
        if items.first().is_some_and(|first| first.is_instance_of::<Choice>()) {
            let chosen = items.iter().map(|c| c.cast::<Choice>().map(|c| c.get().exact_keys()));
            return Ok(Self::Chosen(chosen.collect::<Result<_, _>>().map_err(|_| wrong())?));
        }
        let numbers = items.iter().map(|n| n.extract::<Unsigned>().map(Unsigned::count));
        Ok(Self::Numbers(numbers.collect::<PyResult<_>>()?))
    }
}

/// How attention is computed.
pub(crate) enum OwnedMethod {
    Exact(Kernel),
    Features(Vec<FeatureMap>),
    Hybrid { maps: Vec<FeatureMap>, exact: Vec<ExactKeys> },
}

impl OwnedMethod {
    /// By the maps, but for the exact heads and keys; without maps exactly, with a kernel.
    pub(crate) fn new(
        maps: Option<Maps>,
        exact: Option<ExactHeads>,
        keys: ExactKeys,
        (kernel, scale): (Option<KernelName>, Option<f64>),
        queries: &[usize],
    ) -> PyResult<Self> {
        let (heads, dim) = heads(queries);
        let exact = match exact {
            None => vec![],
            // The keys of the call replace those that learned maps come with.
            Some(ExactHeads::Chosen(chosen)) if keys.is_none() => chosen,
            Some(ExactHeads::Chosen(chosen)) => {
                chosen.into_iter().map(|own| if own.is_all() { own } else { keys }).collect()
            }
            Some(ExactHeads::Numbers(numbers)) => {
                if let Some(n) = numbers.iter().find(|n| **n >= heads) {
                    return Err(errors::value(format!("exact_heads: head {n} of {heads}")));
                }
                let keys_of = |h| if numbers.contains(&h) { ExactKeys::ALL } else { keys };
                if numbers.is_empty() { vec![] } else { (0..heads).map(keys_of).collect() }
            }
        };
        match maps {
            None if !keys.is_none() => {
                Err(errors::value("near, global_keys, routed: without maps every key is exact"))
            }
            None if !exact.is_empty() => {
                Err(errors::value("exact_heads: without maps every head is exact"))
            }
            None => {
                let kernel = kernel.unwrap_or(KernelName::Attention);
                Ok(Self::Exact(kernel.kernel(scale.unwrap_or(1.0), dim)?))
            }
            Some(_) if kernel.is_some() || scale.is_some() => {
                Err(errors::value("kernel, scale: the maps carry them; give them to the fit"))
            }
            Some(Maps(maps)) if exact.is_empty() && keys.is_none() => Ok(Self::Features(maps)),
            Some(Maps(maps)) if exact.is_empty() => Ok(Self::Hybrid { maps, exact: vec![keys] }),
            Some(Maps(maps)) => Ok(Self::Hybrid { maps, exact }),
        }
    }

    pub(crate) fn borrow(&self) -> Method<'_> {
        match self {
            Self::Exact(kernel) => Method::Exact(*kernel),
            Self::Features(maps) => Method::Features(maps),
            Self::Hybrid { maps, exact } => Method::Hybrid { maps, exact },
        }
    }

    /// About how many multiplications a call takes.
    pub(crate) fn work(&self, q: &[usize], k: &[usize], v: &[usize]) -> f64 {
        match self {
            Self::Features(maps) => work(q, k, v, maps.first().map(FeatureMap::features)),
            Self::Hybrid { maps, exact } if !exact.iter().any(ExactKeys::is_all) => {
                4.0 * work(q, k, v, maps.first().map(FeatureMap::features))
            }
            Self::Exact(_) | Self::Hybrid { .. } => work(q, k, v, None),
        }
    }
}

/// What a call may see and use.
pub(crate) struct OwnedOptions {
    causal: bool,
    key_mask: Option<Vec<bool>>,
    offsets: Option<Vec<usize>>,
    threads: Option<usize>,
}

impl OwnedOptions {
    pub(crate) fn new(
        causal: bool,
        key_mask: Option<KeyMask>,
        offsets: Option<Vec<Unsigned>>,
        threads: Option<Unsigned>,
    ) -> Self {
        Self {
            causal,
            key_mask: key_mask.map(|mask| mask.0),
            offsets: offsets.map(|all| all.into_iter().map(Unsigned::count).collect()),
            threads: threads.map(Unsigned::count),
        }
    }

    pub(crate) fn borrow<'a>(&'a self, stop: &'a AtomicBool) -> AttentionOptions<'a> {
        AttentionOptions::new()
            .causal(self.causal)
            .key_mask(self.key_mask.as_deref())
            .offsets(self.offsets.as_deref())
            .threads(self.threads)
            .cancel(Some(stop))
    }
}
