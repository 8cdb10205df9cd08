//! Attention over whole tensors: which head goes where, masks, threads.

use super::backward::{HeadGradients, HeadInputs, backward};
use super::causal::forward_causal;
use super::causal_backward::backward_causal;
use super::forward::forward;
use super::near::Field;
use super::number::Number;
use super::strided::Strided;
use super::tensor::Tensor;
use crate::{Error, FeatureMap, Mask, Matrix, Result, feature_attention};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a call of [`attention`] may see and use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// A query sees its own and earlier keys only.
    pub causal: bool,
    /// `batch × keys`, false where a key is padding: it is then in no sum.
    pub key_mask: Option<&'a [bool]>,
    /// At least so many neighbours of each token, earlier ones only if causal, are attended exactly,
    /// and the rest by features, in one normalisation. 0 for features alone.
    pub near: usize,
    /// Sequences packed one after the other along the length, of a batch of one: sequence `i` has
    /// the tokens `offsets[i]..offsets[i+1]`, and sees nothing else.
    pub offsets: Option<&'a [usize]>,
    /// The number of threads; rayon's own by default. No result depends on it.
    pub threads: Option<usize>,
    /// Another thread may set this to true: no further head is then begun, and the call ends with
    /// [`Error::Cancelled`].
    pub cancel: Option<&'a AtomicBool>,
}

impl Options<'_> {
    fn check_cancelled(&self) -> Result<()> {
        match self.cancel.is_some_and(|c| c.load(Ordering::Relaxed)) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }
}

/// Attention by features over tensors `[batch, heads, length, dim]`: the fast way. `maps` holds one
/// map for all heads, one a head, or one a sequence of the batch and head. The result is `[batch, heads, length, value dim]`, one number
/// after the other.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Moments, Options, Rows, Tensor, attention};
/// let (q, k, v) = (vec![0.1_f32; 64 * 8], vec![0.2_f32; 64 * 8], vec![1.0_f32; 64 * 8]);
/// let m = Moments::of(Rows::new(&q, 64, 8)?)?;
/// let map = FeatureSpec::new(Family::Balanced, 32).kernel(Kernel::attention(8)).fit(&m, &m)?;
/// let tensor = |data| Tensor::new(data, [1, 1, 64, 8]);
/// let out = attention(&[map], tensor(&q)?, tensor(&k)?, tensor(&v)?, &Options::default())?;
/// assert!((out[0] - 1.0).abs() < 1e-5); // the values are all one
/// # Ok::<(), favor::Error>(())
/// ```
pub fn attention<T: Number>(
    maps: &[FeatureMap],
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    v: Tensor<'_, T>,
    options: &Options<'_>,
) -> Result<Vec<T>> {
    let plan = Plan::new(maps, q.shape(), k.shape(), v.shape(), options)?;
    plan.run(v.shape()[3], options, |_, task, out| {
        features_head(maps, &plan, (q, k, v), options, task, out)
    })
}

/// [`attention`] into memory that is already there, which it overwrites: whoever computes the same
/// shape again and again saves asking for memory. After an error the memory holds anything.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Moments, Options, Rows, Tensor, attention_into};
/// let x = vec![0.5_f32; 16 * 4];
/// let m = Moments::of(Rows::new(&x, 16, 4)?)?;
/// let map = [FeatureSpec::new(Family::Balanced, 8).kernel(Kernel::attention(4)).fit(&m, &m)?];
/// let t = Tensor::new(&x, [1, 1, 16, 4])?;
/// let mut out = vec![f32::NAN; 16 * 4];
/// attention_into(&map, t, t, t, &Options::default(), &mut out)?;
/// assert!((out[0] - 0.5).abs() < 1e-6);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn attention_into<T: Number>(
    maps: &[FeatureMap],
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    v: Tensor<'_, T>,
    options: &Options<'_>,
    out: &mut [T],
) -> Result<()> {
    let plan = Plan::new(maps, q.shape(), k.shape(), v.shape(), options)?;
    plan.run_into(v.shape()[3], options, out, |_, task, out| {
        features_head(maps, &plan, (q, k, v), options, task, out)
    })
}

/// One head by features: the engine, or the plain way where the engine's number format ends.
pub(super) fn features_head<T: Number>(
    maps: &[FeatureMap],
    plan: &Plan,
    (q, k, v): (Tensor<'_, T>, Tensor<'_, T>, Tensor<'_, T>),
    options: &Options<'_>,
    task: &Task,
    out: &mut [T],
) -> Result<()> {
    let map = task.map(maps, plan);
    let (q, k, v) = task.views(q, k, v);
    let (mask, causal) = (task.mask(options, plan), options.causal);
    let heads = plan.batch * plan.heads * plan.sequences.len();
    let fast = match map.packed::<T::Real>() {
        None if options.near > 0 => return Err(no_near_field()),
        None => return plain(map, q, k, v, mask, causal, out),
        Some(packed) if options.near > 0 => {
            let field = Field { map: packed, kernel: map.kernel(), near: options.near, causal };
            return field.forward((q, k, v), mask, out);
        }
        Some(packed) if causal => forward_causal(packed, q, k, v, mask, heads, out),
        Some(packed) => forward(packed, q, k, v, mask, out),
    };
    match fast {
        Err(Error::Overflow { .. }) => plain(map, q, k, v, mask, causal, out),
        other => other.map(|_| ()),
    }
}

fn no_near_field() -> Error {
    let reason = "a near field needs a positive family whose numbers fit the data's format";
    Error::invalid("maps", reason)
}

fn plain<T: Number>(
    map: &FeatureMap,
    q: Strided<'_, T>,
    k: Strided<'_, T>,
    v: Strided<'_, T>,
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

/// The gradients of attention, each shaped as its input, one number after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients<T> {
    /// With respect to the queries.
    pub q: Vec<T>,
    /// With respect to the keys; zero at masked ones.
    pub k: Vec<T>,
    /// With respect to the values; zero at masked ones.
    pub v: Vec<T>,
}

/// The gradients of [`attention`] with respect to queries, keys and values, given its output and the
/// gradient of its output, both `[batch, heads, length, value dim]`. The maps are constants.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Moments, Options, Rows, Tensor};
/// use favor::{attention, attention_backward};
/// let x: Vec<f64> = (0..64 * 8).map(|i| (i as f64).sin()).collect();
/// let m = Moments::of(Rows::new(&x, 64, 8)?)?;
/// let map = [FeatureSpec::new(Family::Balanced, 32).kernel(Kernel::attention(8)).fit(&m, &m)?];
/// let t = Tensor::new(&x, [1, 1, 64, 8])?;
/// let out = attention(&map, t, t, t, &Options::default())?;
/// let gradient = vec![1.0; out.len()];
/// let (out, gradient) = (Tensor::new(&out, t.shape())?, Tensor::new(&gradient, t.shape())?);
/// let g = attention_backward(&map, t, t, t, out, gradient, &Options::default())?;
/// assert_eq!(g.q.len(), x.len());
/// # Ok::<(), favor::Error>(())
/// ```
pub fn attention_backward<T: Number>(
    maps: &[FeatureMap],
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    v: Tensor<'_, T>,
    out: Tensor<'_, T>,
    out_gradient: Tensor<'_, T>,
    options: &Options<'_>,
) -> Result<Gradients<T>> {
    let plan = Plan::new(maps, q.shape(), k.shape(), v.shape(), options)?;
    plan.gradients((q, k, v), (out, out_gradient), options, |_, task, head, gradients| {
        features_head_backward(task.map(maps, &plan), head, options, gradients)
    })
}

/// The gradients of one head by features.
pub(super) fn features_head_backward<T: Number>(
    map: &FeatureMap,
    head: HeadInputs<'_, T>,
    options: &Options<'_>,
    gradients: HeadGradients<'_, T>,
) -> Result<()> {
    let Some(packed) = map.packed::<T::Real>() else {
        let reason = "gradients need a positive family whose numbers fit the data's format";
        return Err(Error::invalid("maps", reason));
    };
    let causal = options.causal;
    if options.near > 0 {
        let field = Field { map: packed, kernel: map.kernel(), near: options.near, causal };
        return field.backward(head, gradients);
    }
    match causal {
        true => backward_causal(packed, head, gradients),
        false => backward(packed, head, gradients),
    }
}

/// Checked shapes, and the tasks that they make.
pub(super) struct Plan {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    /// First and last token of each sequence of queries, and of keys.
    sequences: Vec<(usize, usize, usize, usize)>,
}

/// One head of one sequence.
pub(super) struct Task {
    batch: usize,
    head: usize,
    queries: (usize, usize),
    keys: (usize, usize),
}

impl Plan {
    pub(super) fn new(
        maps: &[FeatureMap],
        q: [usize; 4],
        k: [usize; 4],
        v: [usize; 4],
        options: &Options<'_>,
    ) -> Result<Self> {
        let plan = Self::without_maps(q, k, v, options)?;
        let [batch, heads, _, dim] = q;
        if ![1, heads, batch * heads].contains(&maps.len()) {
            let reason = format!("{} maps for a batch of {batch} and {heads} heads", maps.len());
            return Err(Error::invalid("maps", reason));
        }
        if let Some(map) = maps.iter().find(|m| m.dim() != dim) {
            let reason = format!("a map of dimension {} for heads of {dim}", map.dim());
            return Err(Error::invalid("maps", reason));
        }
        Ok(plan)
    }

    pub(super) fn without_maps(
        q: [usize; 4],
        k: [usize; 4],
        v: [usize; 4],
        options: &Options<'_>,
    ) -> Result<Self> {
        let invalid = |what, reason| Err(Error::invalid(what, reason));
        let [batch, heads, length, dim] = q;
        if q.contains(&0) || k.contains(&0) || v.contains(&0) {
            return invalid(
                "tensors",
                format!("empty axis in queries {q:?}, keys {k:?}, values {v:?}"),
            );
        }
        if k[..2] != q[..2] || k[3] != dim || v[..3] != k[..3] {
            return invalid(
                "tensors",
                format!("queries {q:?}, keys {k:?} and values {v:?} do not fit"),
            );
        }
        if options.near > 0 && length != k[2] {
            let reason = format!("a near field with {length} queries and {} keys", k[2]);
            return invalid("tensors", reason);
        }
        if options.causal && length != k[2] {
            return invalid("tensors", format!("causal with {length} queries and {} keys", k[2]));
        }
        if let Some(mask) = options.key_mask
            && mask.len() != batch * k[2]
        {
            return invalid(
                "key mask",
                format!("{} entries for {batch} × {} keys", mask.len(), k[2]),
            );
        }
        let sequences = match options.offsets {
            None => vec![(0, length, 0, k[2])],
            Some(offsets) => {
                let rising = offsets.windows(2).all(|w| w[0] < w[1]);
                let whole = offsets.first() == Some(&0) && offsets.last() == Some(&length);
                if batch != 1 || length != k[2] || !rising || !whole {
                    let reason = "packed sequences need a batch of one, as many queries as keys, and \
                                  offsets that rise from 0 to the length";
                    return invalid("offsets", reason.into());
                }
                offsets.windows(2).map(|w| (w[0], w[1], w[0], w[1])).collect()
            }
        };
        Ok(Self { batch, heads, queries: length, keys: k[2], sequences })
    }

    /// Outputs of all heads, each by `one`, which gets the number of the task.
    pub(super) fn run<T: Number>(
        &self,
        columns: usize,
        options: &Options<'_>,
        one: impl Fn(usize, &Task, &mut [T]) -> Result<()> + Sync,
    ) -> Result<Vec<T>> {
        let mut out = vec![T::default(); self.batch * self.heads * self.queries * columns];
        self.run_into(columns, options, &mut out, one)?;
        Ok(out)
    }

    /// [`run`](Self::run) into memory that is there; `one` writes every number.
    fn run_into<T: Number>(
        &self,
        columns: usize,
        options: &Options<'_>,
        out: &mut [T],
        one: impl Fn(usize, &Task, &mut [T]) -> Result<()> + Sync,
    ) -> Result<()> {
        let shape = [self.batch, self.heads, self.queries, columns];
        if out.len() != shape.iter().product::<usize>() {
            let reason = format!("{} numbers where {shape:?} is to be written", out.len());
            return Err(Error::invalid("output", reason));
        }
        let tasks: Vec<_> = self.cut(out, columns).into_iter().enumerate().collect();
        super::threads::within(options.threads, || {
            tasks.into_par_iter().try_for_each(|(i, (task, out))| {
                options.check_cancelled()?;
                one(i, &task, out)
            })
        })
    }

    /// Gradients of all heads, each by `one`.
    pub(super) fn gradients<T: Number>(
        &self,
        (q, k, v): (Tensor<'_, T>, Tensor<'_, T>, Tensor<'_, T>),
        (out, out_gradient): (Tensor<'_, T>, Tensor<'_, T>),
        options: &Options<'_>,
        one: impl Fn(usize, &Task, HeadInputs<'_, T>, HeadGradients<'_, T>) -> Result<()> + Sync,
    ) -> Result<Gradients<T>> {
        let expected = [q.shape()[0], q.shape()[1], q.shape()[2], v.shape()[3]];
        for (what, shape) in [("output", out.shape()), ("output gradient", out_gradient.shape())] {
            if shape != expected {
                let reason = format!("shape {shape:?} where {expected:?} is needed");
                return Err(Error::invalid(what, reason));
            }
        }
        let zeros = |shape: [usize; 4]| vec![T::default(); shape.iter().product()];
        let mut g = Gradients { q: zeros(q.shape()), k: zeros(k.shape()), v: zeros(v.shape()) };
        let (dim, columns) = (q.shape()[3], v.shape()[3]);
        let parts = self.cut_keys(&mut g.k, dim).into_iter().zip(self.cut_keys(&mut g.v, columns));
        let tasks: Vec<_> = self.cut(&mut g.q, dim).into_iter().zip(parts).enumerate().collect();
        super::threads::within(options.threads, || {
            tasks.into_par_iter().try_for_each(|(i, ((task, q_out), (k_out, v_out)))| {
                options.check_cancelled()?;
                let (q, k, v) = task.views(q, k, v);
                let head = HeadInputs {
                    q,
                    k,
                    v,
                    mask: task.mask(options, self),
                    out: task.query_rows(out),
                    grad: task.query_rows(out_gradient),
                };
                one(i, &task, head, HeadGradients { q: q_out, k: k_out, v: v_out })
            })
        })?;
        Ok(g)
    }

    /// The parts of a buffer of `[batch, heads, keys, columns]` in the order of the tasks.
    fn cut_keys<'o, T>(&self, mut out: &'o mut [T], columns: usize) -> Vec<&'o mut [T]> {
        let part = |task: Task| {
            let size = (task.keys.1 - task.keys.0) * columns;
            let (own, rest) = std::mem::take(&mut out).split_at_mut(size);
            out = rest;
            own
        };
        self.tasks().into_iter().map(part).collect()
    }

    /// The tasks in order.
    pub(super) fn tasks(&self) -> Vec<Task> {
        let heads = (0..self.batch).flat_map(|b| (0..self.heads).map(move |h| (b, h)));
        heads
            .flat_map(|(batch, head)| {
                let task = move |&(q0, q1, k0, k1): &(usize, usize, usize, usize)| Task {
                    batch,
                    head,
                    queries: (q0, q1),
                    keys: (k0, k1),
                };
                self.sequences.iter().map(task)
            })
            .collect()
    }

    /// The tasks, each with its part of a buffer of `[batch, heads, length, columns]`.
    fn cut<'o, T>(&self, mut out: &'o mut [T], columns: usize) -> Vec<(Task, &'o mut [T])> {
        let part = |task: Task| {
            let size = (task.queries.1 - task.queries.0) * columns;
            let (own, rest) = std::mem::take(&mut out).split_at_mut(size);
            out = rest;
            (task, own)
        };
        self.tasks().into_iter().map(part).collect()
    }
}

impl Task {
    pub(super) fn map<'m>(&self, maps: &'m [FeatureMap], plan: &Plan) -> &'m FeatureMap {
        &maps[(self.batch * plan.heads + self.head) % maps.len()]
    }

    pub(super) fn views<'a, T: Number>(
        &self,
        q: Tensor<'a, T>,
        k: Tensor<'a, T>,
        v: Tensor<'a, T>,
    ) -> (Strided<'a, T>, Strided<'a, T>, Strided<'a, T>) {
        let keys = |t: Tensor<'a, T>| t.head(self.batch, self.head, self.keys.0, self.keys.1);
        (self.query_rows(q), keys(k), keys(v))
    }

    fn query_rows<'a, T: Number>(&self, t: Tensor<'a, T>) -> Strided<'a, T> {
        t.head(self.batch, self.head, self.queries.0, self.queries.1)
    }

    pub(super) fn mask<'a>(&self, options: &Options<'a>, plan: &Plan) -> Option<&'a [bool]> {
        let start = self.batch * plan.keys;
        options.key_mask.map(|mask| &mask[start + self.keys.0..start + self.keys.1])
    }
}
