//! One head of one sequence, by its own method.

use super::ExactKeys;
use super::options::AttentionOptions;
use crate::engine::mode::{
    Field, HeadGradients, HeadInputs, backward, backward_causal, exact_backward, exact_head,
    forward, forward_causal,
};
use crate::engine::tensor::{Scalar, Strided};
use crate::reference::{Mask, feature_attention, hybrid_attention};
use crate::{Error, FeatureMap, Kernel, Matrix, Result};

/// How one head is computed.
#[derive(Clone, Copy)]
pub(super) enum HeadMethod<'a> {
    Exact(Kernel),
    Features(&'a FeatureMap),
    Hybrid(&'a FeatureMap, ExactKeys),
}

/// Queries, keys, values and key mask of one head.
pub(super) struct Head<'a, T> {
    pub(super) q: Strided<'a, T>,
    pub(super) k: Strided<'a, T>,
    pub(super) v: Strided<'a, T>,
    pub(super) mask: Option<&'a [bool]>,
    /// Heads that the call computes: with few of them a head is itself cut for the threads.
    pub(super) of: usize,
}

impl<'a> HeadMethod<'a> {
    /// The simplest way with these exact keys.
    pub(super) fn new(map: &'a FeatureMap, exact: ExactKeys) -> Self {
        if exact.is_all() {
            Self::Exact(map.kernel())
        } else if exact.is_none() {
            Self::Features(map)
        } else {
            Self::Hybrid(map, exact)
        }
    }

    pub(super) fn forward<T: Scalar>(
        self,
        head: Head<'_, T>,
        options: &AttentionOptions<'_>,
        out: &mut [T],
    ) -> Result<()> {
        match self {
            Self::Exact(kernel) => {
                exact_head(kernel, (head.q, head.k, head.v), head.mask, options.causal, out)
            }
            Self::Features(map) => features(map, head, options, out),
            Self::Hybrid(map, exact) => hybrid(map, exact, head, options, out),
        }
    }

    pub(super) fn backward<T: Scalar>(
        self,
        head: HeadInputs<'_, T>,
        options: &AttentionOptions<'_>,
        gradients: HeadGradients<'_, T>,
    ) -> Result<()> {
        match self {
            Self::Exact(kernel) => exact_backward(kernel, head, options.causal, gradients),
            Self::Features(map) => features_backward(map, head, options, gradients),
            Self::Hybrid(map, exact) => hybrid_backward(map, exact, head, options, gradients),
        }
    }
}

/// The engine, or the plain way where the engine's number format ends.
fn features<T: Scalar>(
    map: &FeatureMap,
    head: Head<'_, T>,
    options: &AttentionOptions<'_>,
    out: &mut [T],
) -> Result<()> {
    let Head { q, k, v, mask, of } = head;
    let causal = options.causal;
    let fast = match map.packed::<T::Real>() {
        None => return plain(map, ExactKeys::NONE, (q, k, v), mask, causal, out),
        Some(packed) if causal => forward_causal(packed, q, k, v, mask, of, out).map(|_| ()),
        Some(packed) => forward(packed, q, k, v, mask, out).map(|_| ()),
    };
    match fast {
        Err(Error::Overflow { .. }) => plain(map, ExactKeys::NONE, (q, k, v), mask, causal, out),
        other => other,
    }
}

fn hybrid<T: Scalar>(
    map: &FeatureMap,
    exact: ExactKeys,
    head: Head<'_, T>,
    options: &AttentionOptions<'_>,
    out: &mut [T],
) -> Result<()> {
    let Head { q, k, v, mask, .. } = head;
    plain(map, exact, (q, k, v), mask, options.causal, out)
}

fn features_backward<T: Scalar>(
    map: &FeatureMap,
    head: HeadInputs<'_, T>,
    options: &AttentionOptions<'_>,
    gradients: HeadGradients<'_, T>,
) -> Result<()> {
    let packed = map.packed::<T::Real>().ok_or_else(|| unpacked("gradients need"))?;
    if options.causal {
        backward_causal(packed, head, gradients)
    } else {
        backward(packed, head, gradients)
    }
}

fn hybrid_backward<T: Scalar>(
    map: &FeatureMap,
    exact: ExactKeys,
    head: HeadInputs<'_, T>,
    options: &AttentionOptions<'_>,
    gradients: HeadGradients<'_, T>,
) -> Result<()> {
    let packed = map.packed::<T::Real>().ok_or_else(|| unpacked("gradients need"))?;
    let field =
        Field { map: packed, kernel: map.kernel(), near: exact.near, causal: options.causal };
    field.backward(head, gradients)
}

fn unpacked(what: &str) -> Error {
    let reason = format!("{what} a positive family whose numbers fit the data's format");
    Error::invalid("maps", reason)
}

fn plain<T: Scalar>(
    map: &FeatureMap,
    exact: ExactKeys,
    (q, k, v): (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
    mask: Option<&[bool]>,
    causal: bool,
    out: &mut [T],
) -> Result<()> {
    let (q, k, v) = (q.to_matrix(), k.to_matrix(), v.to_matrix());
    let (q, k, v, mask) = (q.view(), k.view(), v.view(), Mask { causal, keys: mask });
    let result: Matrix<f64> = if exact.is_none() {
        feature_attention(map, q, k, v, mask)?
    } else {
        hybrid_attention(map, exact, q, k, v, mask)?
    };
    for (o, x) in out.iter_mut().zip(result.as_slice()) {
        *o = T::narrow_f64(*x);
    }
    Ok(())
}
