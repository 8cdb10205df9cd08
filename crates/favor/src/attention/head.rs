//! One head of one sequence, computed by its own method.

use super::ExactKeys;
use super::options::AttentionOptions;
use crate::engine::mode::{
    HeadGradients, HeadInputs, Hybrid, backward, backward_causal, exact_backward, exact_head,
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
    /// The number of heads in the call: if there are few, a head is itself split over threads.
    pub(super) of: usize,
}

impl<'a> HeadMethod<'a> {
    /// The simplest method with these exact keys.
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

/// The engine, or the reference implementation beyond the engine's number format.
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

/// The engine, in `f64` if `f32` would lose digits, or the reference implementation if even `f64` would.
fn hybrid<T: Scalar>(
    map: &FeatureMap,
    exact: ExactKeys,
    head: Head<'_, T>,
    options: &AttentionOptions<'_>,
    out: &mut [T],
) -> Result<()> {
    let Head { q, k, v, mask, .. } = head;
    let causal = options.causal;
    if let Some(engine) = Hybrid::<T::Real>::new(map, exact) {
        match run_hybrid(&engine, (q, k, v), mask, causal, out) {
            Err(Error::Overflow { .. }) => {}
            other => return other,
        }
    }
    if size_of::<T::Real>() < size_of::<f64>()
        && let Some(engine) = Hybrid::<f64>::new(map, exact)
    {
        let (q, k, v) = (q.to_matrix(), k.to_matrix(), v.to_matrix());
        let inputs = (Strided::of(q.view()), Strided::of(k.view()), Strided::of(v.view()));
        let mut wide = vec![0.0; out.len()];
        match run_hybrid(&engine, inputs, mask, causal, &mut wide) {
            Err(Error::Overflow { .. }) => {}
            other => {
                out.iter_mut().zip(&wide).for_each(|(o, x)| *o = T::narrow_f64(*x));
                return other;
            }
        }
    }
    plain(map, exact, (q, k, v), mask, causal, out)
}

fn run_hybrid<T: Scalar>(
    engine: &Hybrid<'_, T::Real>,
    inputs: (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
    mask: Option<&[bool]>,
    causal: bool,
    out: &mut [T],
) -> Result<()> {
    if causal {
        engine.forward_causal(inputs, mask, out)
    } else {
        engine.forward(inputs, mask, out)
    }
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
    let causal = options.causal;
    let HeadGradients { q, k, v } = gradients;
    let unpacked = || unpacked("gradients need");
    let engine = Hybrid::<T::Real>::new(map, exact).ok_or_else(unpacked)?;
    let own = HeadGradients { q: &mut *q, k: &mut *k, v: &mut *v };
    match run_hybrid_backward(&engine, head, causal, own) {
        Err(Error::Overflow { .. }) if size_of::<T::Real>() < size_of::<f64>() => {}
        other => return other,
    }
    let engine = Hybrid::<f64>::new(map, exact).ok_or_else(unpacked)?;
    let wide = [head.q, head.k, head.v, head.out, head.grad].map(|m| m.to_matrix());
    let [wide_q, wide_k, wide_v, out, grad] = wide.each_ref().map(|m| Strided::of(m.view()));
    let wide_head = HeadInputs { q: wide_q, k: wide_k, v: wide_v, mask: head.mask, out, grad };
    let mut sums = [vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]];
    let [sums_q, sums_k, sums_v] = &mut sums;
    let own = HeadGradients { q: sums_q, k: sums_k, v: sums_v };
    run_hybrid_backward(&engine, wide_head, causal, own)?;
    for (out, sums) in [q, k, v].into_iter().zip(&sums) {
        out.iter_mut().zip(sums).for_each(|(o, x)| *o = T::narrow_f64(*x));
    }
    Ok(())
}

fn run_hybrid_backward<T: Scalar>(
    engine: &Hybrid<'_, T::Real>,
    head: HeadInputs<'_, T>,
    causal: bool,
    gradients: HeadGradients<'_, T>,
) -> Result<()> {
    if causal { engine.backward_causal(head, gradients) } else { engine.backward(head, gradients) }
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
    let (q, k, v, mask) = (q.view(), k.view(), v.view(), Mask::new(causal, mask));
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
