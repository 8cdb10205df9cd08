//! The entry points of attention: a [`Method`] and three functions with the same inputs and options.

mod choose;
mod exact_keys;
mod head;
mod method;
mod options;
mod plan;
mod shapes;

pub(crate) use choose::choose_all;
pub use choose::{Choice, choose_heads};
pub use exact_keys::ExactKeys;
pub use method::Method;
pub use options::AttentionOptions;
pub(crate) use shapes::Shapes;

use crate::Result;
use crate::engine::tensor::{Scalar, Tensor};
use plan::Plan;

/// The inputs of attention, each `[batch, heads, length, dim]`. Keys and values have the same length,
/// queries and keys the same dimension.
///
/// ```
/// use favor::{Qkv, Tensor};
/// let x = vec![0.5_f32; 16 * 4];
/// let t = Tensor::new(&x, [1, 1, 16, 4])?;
/// let inputs = Qkv::new(t, t, t); // self-attention without projections
/// assert_eq!(inputs.q.shape(), [1, 1, 16, 4]);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Qkv<'a, T> {
    /// The queries.
    pub q: Tensor<'a, T>,
    /// The keys.
    pub k: Tensor<'a, T>,
    /// The values.
    pub v: Tensor<'a, T>,
}

impl<'a, T: Scalar> Qkv<'a, T> {
    /// Queries, keys and values.
    pub fn new(q: Tensor<'a, T>, k: Tensor<'a, T>, v: Tensor<'a, T>) -> Self {
        Self { q, k, v }
    }
}

/// Attention over tensors `[batch, heads, length, dim]`. The result is a contiguous
/// `[batch, heads, length, value dim]`. A query that sees no key gives zeros.
///
/// For bidirectional attention, fit maps on the same queries and keys. For causal attention, fit them
/// beforehand, on other data or on a prefix, since statistics of the whole sequence would leak the
/// future into the past.
///
/// ```
/// use favor::{AttentionOptions, Family, FeatureSpec, Kernel, Method, Moments, Qkv, Rows, Tensor};
/// use favor::attention;
/// let (x, v) = (vec![0.1_f32; 64 * 8], vec![1.0_f32; 64 * 8]);
/// let m = Moments::of(Rows::new(&x, 64, 8)?)?;
/// let map = FeatureSpec::new(Family::Balanced, 32).kernel(Kernel::attention(8)).fit(&m, &m)?;
/// let tensor = |data| Tensor::new(data, [1, 1, 64, 8]);
/// let inputs = Qkv::new(tensor(&x)?, tensor(&x)?, tensor(&v)?);
/// let out = attention(Method::Features(&[map]), inputs, &AttentionOptions::new())?;
/// assert!((out[0] - 1.0).abs() < 1e-5); // the values are all one
///
/// let exact = Method::Exact(Kernel::attention(8));
/// assert!((attention(exact, inputs, &AttentionOptions::new())?[0] - 1.0).abs() < 1e-5);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn attention<T: Scalar>(
    method: Method<'_>,
    inputs: Qkv<'_, T>,
    options: &AttentionOptions<'_>,
) -> Result<Vec<T>> {
    let ([batch, heads, length, _], [.., columns]) = (inputs.q.shape(), inputs.v.shape());
    let mut out = vec![T::default(); batch * heads * length * columns];
    T::attention_into(method, inputs, options, &mut out)?;
    Ok(out)
}

/// [`attention`] into an existing buffer, which it overwrites. This saves the allocation for repeated
/// calls of the same shape. After an error the buffer may hold anything.
///
/// ```
/// use favor::{AttentionOptions, Kernel, Method, Qkv, Tensor, attention_into};
/// let x = vec![0.5_f32; 16 * 4];
/// let t = Tensor::new(&x, [1, 1, 16, 4])?;
/// let mut out = vec![f32::NAN; 16 * 4];
/// let method = Method::Exact(Kernel::attention(4));
/// attention_into(method, Qkv::new(t, t, t), &AttentionOptions::new(), &mut out)?;
/// assert!((out[0] - 0.5).abs() < 1e-6);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn attention_into<T: Scalar>(
    method: Method<'_>,
    inputs: Qkv<'_, T>,
    options: &AttentionOptions<'_>,
    out: &mut [T],
) -> Result<()> {
    T::attention_into(method, inputs, options, out)
}

/// The gradients of attention, each contiguous and shaped like its input.
///
/// ```
/// use favor::{AttentionOptions, Kernel, Method, Qkv, Tensor, attention_backward};
/// // One query, one key: the output is the value, whatever the query is.
/// let t = Tensor::new(&[1.0, 2.0], [1, 1, 1, 2])?;
/// let (method, inputs) = (Method::Exact(Kernel::attention(2)), Qkv::new(t, t, t));
/// let gradients = attention_backward(method, inputs, t, t, &AttentionOptions::new())?;
/// assert_eq!((gradients.q, gradients.v), (vec![0.0, 0.0], vec![1.0, 2.0]));
/// # Ok::<(), favor::Error>(())
/// ```
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
/// gradient of its output, both `[batch, heads, length, value dim]`. Maps and choices are treated as
/// constants.
///
/// ```
/// use favor::{AttentionOptions, Kernel, Method, Qkv, Tensor, attention, attention_backward};
/// let x: Vec<f64> = (0..64 * 8).map(|i| (i as f64).sin()).collect();
/// let t = Tensor::new(&x, [1, 1, 64, 8])?;
/// let (method, inputs) = (Method::Exact(Kernel::attention(8)), Qkv::new(t, t, t));
/// let options = AttentionOptions::new();
/// let out = attention(method, inputs, &options)?;
/// let gradient = vec![1.0; out.len()];
/// let (out, gradient) = (Tensor::new(&out, t.shape())?, Tensor::new(&gradient, t.shape())?);
/// let g = attention_backward(method, inputs, out, gradient, &options)?;
/// assert_eq!(g.q.len(), x.len());
/// # Ok::<(), favor::Error>(())
/// ```
pub fn attention_backward<T: Scalar>(
    method: Method<'_>,
    inputs: Qkv<'_, T>,
    out: Tensor<'_, T>,
    out_gradient: Tensor<'_, T>,
    options: &AttentionOptions<'_>,
) -> Result<Gradients<T>> {
    T::attention_backward(method, inputs, out, out_gradient, options)
}

pub(crate) fn run_into<T: Scalar>(
    method: Method<'_>,
    inputs: Qkv<'_, T>,
    options: &AttentionOptions<'_>,
    out: &mut [T],
) -> Result<()> {
    let plan = Plan::new(&method, &inputs, options)?;
    plan.run_into(&inputs, options, out, |place, head, out| {
        plan.method(&method, place).forward(head, options, out)
    })
}

pub(crate) fn run_backward<T: Scalar>(
    method: Method<'_>,
    inputs: Qkv<'_, T>,
    out: Tensor<'_, T>,
    out_gradient: Tensor<'_, T>,
    options: &AttentionOptions<'_>,
) -> Result<Gradients<T>> {
    let plan = Plan::new(&method, &inputs, options)?;
    plan.gradients(&inputs, (out, out_gradient), options, |place, head, gradients| {
        plan.method(&method, place).backward(head, options, gradients)
    })
}
