//! One head of one sequence, by its own method.

use super::options::AttentionOptions;
use crate::engine::mode::{
    Field, HeadGradients, HeadInputs, backward, backward_causal, exact_backward, exact_head,
    forward, forward_causal,
};
use crate::engine::tensor::{Scalar, Strided};
use crate::reference::{Mask, feature_attention};
use crate::{Error, FeatureMap, Kernel, Matrix, Result};

/// How one head is computed.
#[derive(Clone, Copy)]
pub(super) enum HeadMethod<'a> {
    Exact(Kernel),
    Features(&'a FeatureMap),
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

impl HeadMethod<'_> {
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
    let (near, causal) = (options.near, options.causal);
    let fast = match map.packed::<T::Real>() {
        None if near > 0 => return Err(unpacked("a near field needs")),
        None => return plain(map, (q, k, v), mask, causal, out),
        Some(packed) if near > 0 => {
            let field = Field { map: packed, kernel: map.kernel(), near, causal };
            return field.forward((q, k, v), mask, out);
        }
        Some(packed) if causal => forward_causal(packed, q, k, v, mask, of, out).map(|_| ()),
        Some(packed) => forward(packed, q, k, v, mask, out).map(|_| ()),
    };
    match fast {
        Err(Error::Overflow { .. }) => plain(map, (q, k, v), mask, causal, out),
        other => other,
    }
}

fn features_backward<T: Scalar>(
    map: &FeatureMap,
    head: HeadInputs<'_, T>,
    options: &AttentionOptions<'_>,
    gradients: HeadGradients<'_, T>,
) -> Result<()> {
    let packed = map.packed::<T::Real>().ok_or_else(|| unpacked("gradients need"))?;
    let (near, causal) = (options.near, options.causal);
    if near > 0 {
        let field = Field { map: packed, kernel: map.kernel(), near, causal };
        field.backward(head, gradients)
    } else if causal {
        backward_causal(packed, head, gradients)
    } else {
        backward(packed, head, gradients)
    }
}

fn unpacked(what: &str) -> Error {
    let reason = format!("{what} a positive family whose numbers fit the data's format");
    Error::invalid("maps", reason)
}

fn plain<T: Scalar>(
    map: &FeatureMap,
    (q, k, v): (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
    mask: Option<&[bool]>,
    causal: bool,
    out: &mut [T],
) -> Result<()> {
    let (q, k, v) = (q.to_matrix(), k.to_matrix(), v.to_matrix());
    let result: Matrix<f64> =
        feature_attention(map, q.view(), k.view(), v.view(), Mask { causal, keys: mask })?;
    for (o, x) in out.iter_mut().zip(result.as_slice()) {
        *o = T::narrow_f64(*x);
    }
    Ok(())
}
