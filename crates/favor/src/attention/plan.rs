//! The shapes, masks and threads of a call, checked once.

use super::head::{Head, HeadMethod};
use super::method::Method;
use super::options::AttentionOptions;
use super::{ExactKeys, Gradients, Qkv, Shapes};
use crate::engine::mode::{HeadGradients, HeadInputs};
use crate::engine::tensor::{Scalar, Strided, Tensor};
use crate::{Error, FeatureMap, Result, threads};
use rayon::prelude::*;

/// Checked shapes, and the resulting heads: every head of every sequence, in order.
pub(super) struct Plan {
    /// Outputs: `[batch, heads, queries, value columns]`.
    shape: [usize; 4],
    keys: usize,
    parts: Vec<SequenceHead>,
}

/// One head of one sequence.
#[derive(Clone, Copy)]
pub(super) struct SequenceHead {
    batch: usize,
    head: usize,
    /// First token and the one after the last, of the queries and of the keys.
    queries: (usize, usize),
    keys: (usize, usize),
}

impl Plan {
    pub(super) fn new<T: Scalar>(
        method: &Method<'_>,
        inputs: &Qkv<'_, T>,
        options: &AttentionOptions<'_>,
    ) -> Result<Self> {
        Self::of_shapes(method, Shapes::of(inputs), options)
    }

    pub(super) fn of_shapes(
        method: &Method<'_>,
        shapes: Shapes,
        options: &AttentionOptions<'_>,
    ) -> Result<Self> {
        shapes.check(method.has_window(), options.causal, options.key_mask)?;
        let Shapes { q, k, .. } = shapes;
        let [batch, heads, ..] = q;
        let sequences = sequences(q, k, options)?;
        let all = (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h)));
        let parts = all.flat_map(|(batch, head)| {
            let part = move |&(queries, keys)| SequenceHead { batch, head, queries, keys };
            sequences.iter().map(part)
        });
        let parts = parts.collect();
        let plan = Self { shape: shapes.output(), keys: k[2], parts };
        plan.check_method(method, q[3])?;
        Ok(plan)
    }

    fn check_method(&self, method: &Method<'_>, dim: usize) -> Result<()> {
        let [batch, heads, ..] = self.shape;
        let maps = method.maps();
        if matches!(method, Method::Exact(_)) {
            return Ok(());
        }
        if ![1, heads, batch * heads].contains(&maps.len()) {
            let reason = format!("{} maps for a batch of {batch} and {heads} heads", maps.len());
            return Err(Error::invalid("maps", reason));
        }
        if let Some(map) = maps.iter().find(|m| m.dim() != dim) {
            let reason = format!("a map of dimension {} for heads of {dim}", map.dim());
            return Err(Error::invalid("maps", reason));
        }
        let Method::Hybrid { exact, .. } = *method else { return Ok(()) };
        if ![1, heads, self.parts.len()].contains(&exact.len()) {
            let reason = format!(
                "{} entries for {heads} heads and {} sequences",
                exact.len(),
                self.parts.len() / heads
            );
            return Err(Error::invalid("exact keys", reason));
        }
        // Maps of different sizes: the slots of a head are those of its own map.
        let check = |place| self.exact(exact, place).check(self.map(maps, place).features());
        (0..self.parts.len()).try_for_each(check)
    }

    /// The map of the head with this index.
    pub(super) fn map<'m>(&self, maps: &'m [FeatureMap], place: usize) -> &'m FeatureMap {
        let SequenceHead { batch, head, .. } = self.parts[place];
        &maps[(batch * self.shape[1] + head) % maps.len()]
    }

    /// The exact keys of the head with this index.
    fn exact(&self, exact: &[ExactKeys], place: usize) -> ExactKeys {
        match exact.len() {
            1 => exact[0],
            n if n == self.parts.len() => exact[place],
            _ => exact[self.parts[place].head],
        }
    }

    /// How the head with this index is computed.
    pub(super) fn method<'m>(&self, method: &Method<'m>, place: usize) -> HeadMethod<'m> {
        match method {
            Method::Exact(kernel) => HeadMethod::Exact(*kernel),
            Method::Features(maps) => HeadMethod::Features(self.map(maps, place)),
            Method::Hybrid { maps, exact } => {
                HeadMethod::new(self.map(maps, place), self.exact(exact, place))
            }
        }
    }

    /// The inputs of every head, in order.
    pub(super) fn heads<'a, T: Scalar>(
        &'a self,
        inputs: &'a Qkv<'a, T>,
        options: &'a AttentionOptions<'a>,
    ) -> impl IndexedParallelIterator<Item = Head<'a, T>> {
        self.parts.par_iter().map(|part| self.head(part, inputs, options))
    }

    fn head<'a, T: Scalar>(
        &self,
        part: &SequenceHead,
        inputs: &Qkv<'a, T>,
        options: &AttentionOptions<'a>,
    ) -> Head<'a, T> {
        Head {
            q: part.queries_of(inputs.q),
            k: part.keys_of(inputs.k),
            v: part.keys_of(inputs.v),
            mask: self.mask(part, options),
            of: self.parts.len(),
        }
    }

    /// Writes the outputs of all heads to `out`; `one` gets the head's index and writes every
    /// number.
    pub(super) fn run_into<T: Scalar>(
        &self,
        inputs: &Qkv<'_, T>,
        options: &AttentionOptions<'_>,
        out: &mut [T],
        one: impl Fn(usize, Head<'_, T>, &mut [T]) -> Result<()> + Sync,
    ) -> Result<()> {
        if out.len() != self.shape.iter().product::<usize>() {
            let reason = format!("{} numbers where {:?} is to be written", out.len(), self.shape);
            return Err(Error::invalid("output", reason));
        }
        let parts = self.cut(out, |part| part.queries, self.shape[3]);
        threads::within(options.threads, || {
            parts.into_par_iter().enumerate().try_for_each(|(place, out)| {
                options.check_cancelled()?;
                one(place, self.head(&self.parts[place], inputs, options), out)
            })
        })
    }

    /// Gradients of all heads, each by `one`.
    pub(super) fn gradients<T: Scalar>(
        &self,
        inputs: &Qkv<'_, T>,
        (out, out_gradient): (Tensor<'_, T>, Tensor<'_, T>),
        options: &AttentionOptions<'_>,
        one: impl Fn(usize, HeadInputs<'_, T>, HeadGradients<'_, T>) -> Result<()> + Sync,
    ) -> Result<Gradients<T>> {
        Shapes::of(inputs).check_outputs(out.shape(), out_gradient.shape())?;
        let Qkv { q, k, v } = inputs;
        let zeros = |shape: [usize; 4]| vec![T::default(); shape.iter().product()];
        let mut g = Gradients { q: zeros(q.shape()), k: zeros(k.shape()), v: zeros(v.shape()) };
        let (dim, columns) = (q.shape()[3], v.shape()[3]);
        let of_queries = self.cut(&mut g.q, |part| part.queries, dim);
        let of_keys = self.cut(&mut g.k, |part| part.keys, dim);
        let of_values = self.cut(&mut g.v, |part| part.keys, columns);
        let outputs: Vec<_> = of_queries.into_iter().zip(of_keys).zip(of_values).collect();
        threads::within(options.threads, || {
            outputs.into_par_iter().enumerate().try_for_each(|(place, ((q_out, k_out), v_out))| {
                options.check_cancelled()?;
                let part = &self.parts[place];
                let Head { q, k, v, mask, .. } = self.head(part, inputs, options);
                let (out, grad) = (part.queries_of(out), part.queries_of(out_gradient));
                let head = HeadInputs { q, k, v, mask, out, grad };
                one(place, head, HeadGradients { q: q_out, k: k_out, v: v_out })
            })
        })?;
        Ok(g)
    }

    /// The parts of a buffer of `[batch, heads, tokens, columns]` in the order of the heads.
    fn cut<'o, T>(
        &self,
        mut buffer: &'o mut [T],
        tokens: impl Fn(&SequenceHead) -> (usize, usize),
        columns: usize,
    ) -> Vec<&'o mut [T]> {
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let (start, end) = tokens(part);
            let (own, rest) = std::mem::take(&mut buffer).split_at_mut((end - start) * columns);
            parts.push(own);
            buffer = rest;
        }
        parts
    }

    fn mask<'a>(&self, part: &SequenceHead, options: &AttentionOptions<'a>) -> Option<&'a [bool]> {
        let start = part.batch * self.keys;
        options.key_mask.map(|mask| &mask[start + part.keys.0..start + part.keys.1])
    }
}

impl SequenceHead {
    fn queries_of<'a, T: Scalar>(&self, tensor: Tensor<'a, T>) -> Strided<'a, T> {
        tensor.head(self.batch, self.head, self.queries.0, self.queries.1)
    }

    fn keys_of<'a, T: Scalar>(&self, tensor: Tensor<'a, T>) -> Strided<'a, T> {
        tensor.head(self.batch, self.head, self.keys.0, self.keys.1)
    }
}

type Range = (usize, usize);

/// The tokens of queries and keys of each sequence.
fn sequences(
    q: [usize; 4],
    k: [usize; 4],
    options: &AttentionOptions<'_>,
) -> Result<Vec<(Range, Range)>> {
    let Some(offsets) = options.offsets else { return Ok(vec![((0, q[2]), (0, k[2]))]) };
    let rising = offsets.windows(2).all(|w| w[0] < w[1]);
    let whole = offsets.first() == Some(&0) && offsets.last() == Some(&q[2]);
    if q[0] != 1 || q[2] != k[2] || !rising || !whole {
        let reason = "packed sequences need a batch of one, as many queries as keys, and offsets that \
                      rise from 0 to the length";
        return Err(Error::invalid("offsets", reason));
    }
    Ok(offsets.windows(2).map(|w| ((w[0], w[1]), (w[0], w[1]))).collect())
}
