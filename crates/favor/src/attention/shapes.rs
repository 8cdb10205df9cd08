//! Whether queries, keys and values fit each other, decided here for everything that takes them.

use super::Qkv;
use crate::engine::tensor::Scalar;
use crate::{Error, Result};
use std::fmt;

/// The shapes of a call, each `[batch, heads, length, dim]`.
#[derive(Clone, Copy)]
pub(crate) struct Shapes {
    pub(crate) q: [usize; 4],
    pub(crate) k: [usize; 4],
    /// Not everything that looks at queries and keys has values.
    pub(crate) v: Option<[usize; 4]>,
}

impl Shapes {
    pub(crate) fn of<T: Scalar>(inputs: &Qkv<'_, T>) -> Self {
        Self { q: inputs.q.shape(), k: inputs.k.shape(), v: Some(inputs.v.shape()) }
    }

    /// Refuses what cannot be attended; a window and causality need as many queries as keys.
    pub(crate) fn check(&self, window: bool, causal: bool, mask: Option<&[bool]>) -> Result<()> {
        if self.q.contains(&0) || self.k.contains(&0) || self.v.is_some_and(|v| v.contains(&0)) {
            return Err(Error::invalid("tensors", format!("empty axis in {self}")));
        }
        self.check_fit(window, causal)?;
        let ([batch, ..], [.., keys, _]) = (self.q, self.k);
        match mask {
            Some(mask) if mask.len() != batch * keys => {
                let reason = format!("{} entries for {batch} × {keys} keys", mask.len());
                Err(Error::invalid("key mask", reason))
            }
            _ => Ok(()),
        }
    }

    /// The same where there may be no tokens, and without a mask.
    pub(crate) fn check_fit(&self, window: bool, causal: bool) -> Result<()> {
        let Self { q, k, v } = *self;
        if k[..2] != q[..2] || k[3] != q[3] || v.is_some_and(|v| v[..3] != k[..3]) {
            return Err(Error::invalid("tensors", format!("{self} do not fit")));
        }
        if (window || causal) && q[2] != k[2] {
            let what = if window { "a window" } else { "causal attention" };
            let reason = format!("{what} with {} queries and {} keys", q[2], k[2]);
            return Err(Error::invalid("tensors", reason));
        }
        Ok(())
    }

    /// The shape of the output; keys take the place of values where there are none.
    pub(crate) fn output(&self) -> [usize; 4] {
        let ([batch, heads, queries, _], [.., columns]) = (self.q, self.v.unwrap_or(self.k));
        [batch, heads, queries, columns]
    }

    /// Refuses an output and its gradient that are not of these queries and values.
    pub(crate) fn check_outputs(&self, out: [usize; 4], gradient: [usize; 4]) -> Result<()> {
        let wanted = self.output();
        for (what, shape) in [("output", out), ("output gradient", gradient)] {
            if shape != wanted {
                let reason = format!("shape {shape:?} where {wanted:?} is needed");
                return Err(Error::invalid(what, reason));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Shapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { q, k, v } = self;
        match v {
            Some(v) => write!(f, "queries {q:?}, keys {k:?} and values {v:?}"),
            None => write!(f, "queries {q:?} and keys {k:?}"),
        }
    }
}
