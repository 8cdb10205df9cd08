//! The gradient of a map's numbers through attention, for models that keep training their maps.
//!
//! With `g` the gradient of an output `o` and `D` its normaliser, the derivative with respect to an estimate
//! `k̂_ij` is `E_ij = g_i·(v_j − o_i)/D_i`, and zero for an exact key. From there on it is the gradient of
//! learning: `p ∘ (E s)` for the queries' log-features and `s ∘ (Eᵀ p)` for the keys'. All pairs are visited,
//! in time quadratic in the length: sequences in training are short.

use super::numbers::LOG2_E;
use super::routing::{Routes, Scores, exact_places};
use super::sequence::hidden;
use super::weights::{TILE, View, product, transpose};
use crate::attention::{AttentionOptions, ExactKeys, Method, Qkv, Shapes};
use crate::engine::tensor::{Scalar, Strided, Tensor};
use crate::map::{Projection, RowTerm};
use crate::reference::probe_errors;
use crate::simd::{Constants, Kernels, Layout, Real};
use crate::{Error, FeatureMap, Kernel, Matrix, Result, Side, threads};
use rayon::prelude::*;

/// The gradient of the numbers of a map that [`FeatureMap::with_weights`] takes.
///
/// [`map_gradients`] returns one per head; its page has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MapGradient {
    /// With respect to the weights of the queries, one row per feature.
    pub query: Matrix<f64>,
    /// With respect to the weights of the keys.
    pub key: Matrix<f64>,
    /// With respect to the constants, one per feature.
    pub constants: Vec<f64>,
}

impl MapGradient {
    fn zeros(map: &FeatureMap) -> Self {
        let (features, dim) = (map.features(), map.dim());
        let zeros = || Matrix::zeros(features, dim);
        Self { query: zeros(), key: zeros(), constants: vec![0.0; features] }
    }
}

/// The gradients of the maps of all heads, one per head and summed over the batch, given the output of
/// [`attention`](crate::attention()) and the gradient of that output, both
/// `[batch, heads, length, value dim]`. [`attention_backward`](crate::attention_backward) returns those of
/// queries, keys and values. Which keys are exact is treated as fixed: a small change of a map changes it
/// almost nowhere. A fully exact head has a zero gradient.
///
/// ```
/// use favor::learned::map_gradients;
/// use favor::{AttentionOptions, Family, FeatureSpec, Kernel, Method, Moments, Qkv, Rows, Tensor, attention};
/// let x: Vec<f64> = (0..32 * 4).map(|i| (i as f64).sin()).collect();
/// let m = Moments::of(Rows::new(&x, 32, 4)?)?;
/// let maps = [FeatureSpec::new(Family::Balanced, 8).kernel(Kernel::attention(4)).fit(&m, &m)?];
/// let t = Tensor::new(&x, [1, 1, 32, 4])?;
/// let (method, inputs, options) = (Method::Features(&maps), Qkv::new(t, t, t), AttentionOptions::new());
/// let out = attention(method, inputs, &options)?;
/// let out = Tensor::new(&out, [1, 1, 32, 4])?;
/// let gradients = map_gradients(method, inputs, out, t, &options)?;
/// assert_eq!(gradients[0].query.shape(), (8, 4));
/// # Ok::<(), favor::Error>(())
/// ```
pub fn map_gradients<T: Scalar>(
    method: Method<'_>,
    inputs: Qkv<'_, T>,
    out: Tensor<'_, T>,
    out_gradient: Tensor<'_, T>,
    options: &AttentionOptions<'_>,
) -> Result<Vec<MapGradient>> {
    let [batch, heads, queries, dim] = inputs.q.shape();
    let [.., keys, columns] = inputs.v.shape();
    let maps = method.maps();
    check(&method, &inputs, out, out_gradient, options)?;
    let exact = |head: usize| match method {
        Method::Hybrid { exact, .. } => exact[head % exact.len()],
        _ => ExactKeys::NONE,
    };
    threads::within(options.threads, || {
        (0..heads)
            .into_par_iter()
            .map(|head| {
                let map = &maps[head];
                let mut sum = MapGradient::zeros(map);
                if exact(head).is_all() {
                    return Ok(sum);
                }
                let (exact, causal) = (exact(head), options.causal);
                let view = View { exact, causal, switched_off: false };
                let packed = Packed::<T::Real>::new(map)?;
                for b in 0..batch {
                    let rows = |t: Tensor<'_, T>, n, c| real(t.head(b, head, 0, n), c);
                    let mask = options.key_mask.map(|mask| &mask[b * keys..(b + 1) * keys]);
                    let one = One {
                        q: rows(inputs.q, queries, dim),
                        k: rows(inputs.k, keys, dim),
                        v: rows(inputs.v, keys, columns),
                        out: rows(out, queries, columns),
                        grad: rows(out_gradient, queries, columns),
                        columns,
                        mask,
                    };
                    packed.add(map, &one, view, &mut sum)?;
                }
                Ok(sum)
            })
            .collect()
    })
}

fn check<T: Scalar>(
    method: &Method<'_>,
    inputs: &Qkv<'_, T>,
    out: Tensor<'_, T>,
    out_gradient: Tensor<'_, T>,
    options: &AttentionOptions<'_>,
) -> Result<()> {
    let shapes = Shapes::of(inputs);
    method.check([shapes.q, shapes.k, inputs.v.shape()], options)?;
    shapes.check_outputs(out.shape(), out_gradient.shape())?;
    let bad = |what: &'static str, reason: String| Err(Error::invalid(what, reason));
    let (heads, maps) = (shapes.q[1], method.maps());
    if maps.len() != heads {
        let reason = format!("{} maps for {heads} heads; one per head is needed", maps.len());
        return bad("maps", reason);
    }
    if let Method::Hybrid { exact, .. } = method
        && ![1, heads].contains(&exact.len())
    {
        return bad("exact keys", format!("{} entries for {heads} heads", exact.len()));
    }
    if options.offsets.is_some() {
        return bad("offsets", "packed sequences have no gradient of maps".into());
    }
    Ok(())
}

/// The numbers of a head, row by row.
fn real<T: Scalar>(matrix: Strided<'_, T>, columns: usize) -> Vec<T::Real> {
    let mut out = vec![T::Real::ZERO; matrix.rows * columns];
    for (i, row) in out.chunks_mut(columns.max(1)).enumerate() {
        matrix.widen_row(i, row);
    }
    out
}

/// One head of one sequence.
struct One<'a, R> {
    q: Vec<R>,
    k: Vec<R>,
    v: Vec<R>,
    out: Vec<R>,
    grad: Vec<R>,
    /// The width of values, outputs and gradients.
    columns: usize,
    mask: Option<&'a [bool]>,
}

/// A map in the form that products use, base two.
struct Packed<R: Real> {
    kernels: &'static Kernels<R>,
    kernel: Kernel,
    features: usize,
    dim: usize,
    features_padded: usize,
    dim_padded: usize,
    query: PackedSide<R>,
    key: PackedSide<R>,
}

struct PackedSide<R> {
    /// One row per coordinate.
    weights: Vec<R>,
    constants: Vec<f64>,
    shift: Vec<f64>,
    /// `Rᵀ`, one row per coordinate.
    transform: Vec<R>,
    linear: Vec<f64>,
    constant: f64,
    alpha: f64,
}

impl<R: Real> PackedSide<R> {
    fn new(side: &Projection, features_padded: usize, dim_padded: usize) -> Result<Self> {
        let RowTerm::Exponential { transform, linear, constant, alpha } = &side.row else {
            let reason = "trigonometric features have no gradient here; use a positive family";
            return Err(Error::invalid("maps", reason));
        };
        let transposed = |m: &Matrix<f64>, width: usize, factor: f64| {
            let mut out = vec![R::ZERO; m.columns() * width];
            for i in 0..m.rows() {
                for (l, x) in m.row(i).iter().enumerate() {
                    out[l * width + i] = R::from_f64(x * factor);
                }
            }
            out
        };
        Ok(Self {
            weights: transposed(&side.weights, features_padded, LOG2_E),
            constants: side.constants.iter().map(|c| c * LOG2_E).collect(),
            shift: side.shift.clone(),
            transform: transposed(transform, dim_padded, 1.0),
            linear: linear.clone(),
            constant: *constant,
            alpha: *alpha,
        })
    }
}

impl<R: Real> Packed<R> {
    fn new(map: &FeatureMap) -> Result<Self> {
        let kernels = R::kernels();
        let pad = |n: usize| n.next_multiple_of(kernels.lanes);
        let (features, dim) = (map.features(), map.dim());
        let (features_padded, dim_padded) = (pad(features), pad(dim));
        let side = |side| PackedSide::new(map.side(side), features_padded, dim_padded);
        let (query, key) = (side(Side::Query)?, side(Side::Key)?);
        let kernel = map.kernel();
        Ok(Self { kernels, kernel, features, dim, features_padded, dim_padded, query, key })
    }

    /// The given rows, scaled and shifted for the side's weights, `dim_padded` numbers per row.
    fn moved(&self, side: &PackedSide<R>, x: &[R], rows: &[usize]) -> Vec<R> {
        let scale = self.kernel.scale();
        let mut out = vec![R::ZERO; rows.len() * self.dim_padded];
        for (out, &i) in out.chunks_mut(self.dim_padded).zip(rows) {
            let row = &x[i * self.dim..(i + 1) * self.dim];
            for ((out, x), shift) in out.iter_mut().zip(row).zip(&side.shift) {
                *out = R::from_f64(scale * x.to_f64() + shift);
            }
        }
        out
    }

    /// The base-two row terms of shifted rows.
    fn terms(&self, side: &PackedSide<R>, moved: &[R]) -> Vec<R> {
        let (count, width) = (moved.len() / self.dim_padded, self.dim_padded);
        let mut transformed = vec![R::ZERO; count * width];
        let left = (moved, (width, 1));
        let shape = (count, width, self.dim);
        product(
            self.kernels,
            shape,
            left,
            (&side.transform, width),
            (&mut transformed, width, false),
        );
        let rows = transformed.chunks(width).zip(moved.chunks(width));
        rows.map(|(transformed, moved)| {
            let square: f64 = transformed.iter().map(|t| t.to_f64().powi(2)).sum();
            let mut term = -0.5 * square - side.constant;
            for ((m, shift), linear) in moved.iter().zip(&side.shift).zip(&side.linear) {
                let x = m.to_f64() - shift;
                term += side.alpha * x * x - linear * x;
            }
            R::from_f64(term * LOG2_E)
        })
        .collect()
    }

    /// Adds the gradient of one sequence.
    fn add(
        &self,
        map: &FeatureMap,
        one: &One<'_, R>,
        view: View,
        sum: &mut MapGradient,
    ) -> Result<()> {
        let Self { kernels, features, dim, features_padded, dim_padded, .. } = *self;
        let (keys, columns) = (one.k.len() / dim, one.columns);
        let visible = |j: &usize| one.mask.is_none_or(|mask| mask[*j]);
        let key_places: Vec<usize> = (0..keys).filter(visible).collect();
        // Rows without a gradient, such as padding, contribute nothing.
        let counts =
            |i: &usize| one.grad[i * columns..(i + 1) * columns].iter().any(|g| g.to_f64() != 0.0);
        let query_places: Vec<usize> = (0..one.q.len() / dim).filter(counts).collect();
        if key_places.is_empty() || query_places.is_empty() {
            return Ok(());
        }
        let count = key_places.len();
        let width = count.next_multiple_of(kernels.lanes);
        let stride = width + kernels.lanes;

        // The features of the keys, one row per feature, and transposed.
        let key_rows = self.moved(&self.key, &one.k, &key_places);
        let mut key_terms = self.terms(&self.key, &key_rows);
        key_terms.resize(width, hidden::<R>());
        let key_columns = columns_of(&key_rows, (count, dim, dim_padded), stride);
        let mut s = vec![R::ZERO; features * stride];
        let left = (&self.key.weights[..], (1, features_padded));
        product(
            kernels,
            (features, width, dim),
            left,
            (&key_columns, stride),
            (&mut s, stride, false),
        );
        let logs: Vec<R> = if view.exact.is_routed() {
            let term = |n: usize| if n < width { key_terms[n] } else { R::ZERO };
            let rows = s.chunks(stride);
            rows.flat_map(|row| row.iter().enumerate().map(|(n, x)| *x + term(n))).collect()
        } else {
            vec![]
        };
        let lowest = R::from_f64(f64::NEG_INFINITY);
        let mut exponents = vec![lowest; features];
        let (mut sums, mut shrink) = (vec![R::ZERO; features], vec![R::ZERO; features]);
        let tile = Layout { rows: features, columns: width, stride };
        let terms = Some(&key_terms[..]);
        kernels.softmax_rows(tile, &mut s, terms, &mut exponents, &mut sums, &mut shrink);
        let mut s_by_key = vec![R::ZERO; width * features_padded];
        transpose(&s, stride, (features, width), (&mut s_by_key, features_padded));
        let mut constants = vec![hidden::<R>(); features_padded];
        for (m, constant) in constants.iter_mut().enumerate().take(features) {
            let own = self.query.constants[m] + self.key.constants[m];
            *constant = R::from_f64(own + exponents[m].to_f64());
        }
        let routes = self.routes(map, one, view, &key_places, (&logs, &s, stride))?;

        let value_rows: Vec<R> = key_places
            .iter()
            .flat_map(|j| one.v[j * columns..(j + 1) * columns].to_vec())
            .collect();
        let value_columns = columns_of(&value_rows, (count, columns, columns), stride);
        let mut by_key = vec![R::ZERO; features * stride];
        let mut query_gradient = vec![R::ZERO; dim_padded * features_padded];
        for queries in query_places.chunks(TILE) {
            let n = queries.len();
            let query_rows = self.moved(&self.query, &one.q, queries);
            let mut p = vec![R::ZERO; n * features_padded];
            let (left, right) =
                ((&query_rows[..], (dim_padded, 1)), (&self.query.weights[..], features_padded));
            let shape = (n, features_padded, dim);
            product(kernels, shape, left, right, (&mut p, features_padded, false));
            let tile = Layout { rows: n, columns: features_padded, stride: features_padded };
            let mut exponents = vec![lowest; n];
            let (mut sums, mut shrink) = (vec![R::ZERO; n], vec![R::ZERO; n]);
            let added = Some(&constants[..]);
            kernels.softmax_rows(tile, &mut p, added, &mut exponents, &mut sums, &mut shrink);

            let mut estimates = vec![R::ZERO; n * stride];
            let (left, right) = ((&p[..], (features_padded, 1)), (&s[..], stride));
            product(kernels, (n, width, features), left, right, (&mut estimates, stride, false));

            // g_i·v_j for all pairs.
            let mut residuals = vec![R::ZERO; n * stride];
            let grads: Vec<R> = queries
                .iter()
                .flat_map(|i| one.grad[i * columns..(i + 1) * columns].to_vec())
                .collect();
            let (left, right) = ((&grads[..], (columns, 1)), (&value_columns[..], stride));
            product(kernels, (n, width, columns), left, right, (&mut residuals, stride, false));

            let terms = if view.exact.is_none() {
                vec![R::ZERO; n]
            } else {
                self.terms(&self.query, &query_rows)
            };
            for (r, &i) in queries.iter().enumerate() {
                let seen =
                    if view.causal { key_places.partition_point(|&p| p <= i) } else { count };
                let own = &p[r * features_padded..][..features];
                let (window, others) =
                    exact_places(i, &key_places, seen, view.exact.near, routes.as_ref(), own);
                let exact: Vec<usize> = (window.0..window.1).chain(others).collect();
                let row = &mut residuals[r * stride..(r + 1) * stride];
                let estimates = &mut estimates[r * stride..(r + 1) * stride];
                estimates[seen..].fill(R::ZERO);
                exact.iter().for_each(|j| estimates[*j] = R::ZERO);
                let far: f64 = estimates[..seen].iter().map(|k| k.to_f64()).sum();
                let estimated =
                    exponents[r].to_f64() + terms[r].to_f64() - (features as f64).log2();
                let rate = self.rate(one, i, (&key_places, &exact), far, estimated);
                let range = i * columns..(i + 1) * columns;
                let pairs = one.grad[range.clone()].iter().zip(&one.out[range]);
                let mean: f64 = pairs.map(|(g, o)| g.to_f64() * o.to_f64()).sum();
                let (rate, mean) = (R::from_f64(rate), R::from_f64(mean));
                row[..seen].iter_mut().for_each(|e| *e = (*e - mean) * rate);
                row[seen..].fill(R::ZERO);
                exact.iter().for_each(|j| row[*j] = R::ZERO);
            }

            let mut by_query = vec![R::ZERO; n * features_padded];
            let (left, right) = ((&residuals[..], (stride, 1)), (&s_by_key[..], features_padded));
            let shape = (n, features_padded, count);
            product(kernels, shape, left, right, (&mut by_query, features_padded, false));
            by_query.iter_mut().zip(&p).for_each(|(g, p)| *g = *g * *p);
            let (left, right) = ((&p[..], (1, features_padded)), (&residuals[..], stride));
            product(kernels, (features, width, n), left, right, (&mut by_key, stride, true));
            let (left, right) =
                ((&query_rows[..], (1, dim_padded)), (&by_query[..], features_padded));
            let out = (&mut query_gradient[..], features_padded, true);
            product(kernels, (dim, features_padded, n), left, right, out);
            for row in by_query.chunks(features_padded) {
                sum.constants.iter_mut().zip(row).for_each(|(c, g)| *c += g.to_f64());
            }
        }
        by_key.iter_mut().zip(&s).for_each(|(g, s)| *g = *g * *s);
        let mut key_gradient = vec![R::ZERO; features * dim_padded];
        let (left, right) = ((&by_key[..], (stride, 1)), (&key_rows[..], dim_padded));
        let shape = (features, dim_padded, count);
        product(kernels, shape, left, right, (&mut key_gradient, dim_padded, false));
        for m in 0..features {
            for l in 0..dim {
                sum.query[(m, l)] += query_gradient[l * features_padded + m].to_f64();
                sum.key[(m, l)] += key_gradient[m * dim_padded + l].to_f64();
            }
        }
        Ok(())
    }

    /// One over the normaliser of query `i`, in the units of its estimates: their sum is `far`, to be
    /// multiplied by two to the power of `estimated`.
    fn rate(
        &self,
        one: &One<'_, R>,
        i: usize,
        (key_places, exact): (&[usize], &[usize]),
        far: f64,
        estimated: f64,
    ) -> f64 {
        if exact.is_empty() {
            return if far > 0.0 { 1.0 / far } else { 0.0 };
        }
        let (dim, scale) = (self.dim, self.kernel.scale());
        let row = |x: &'_ [R], n: usize| -> Vec<f64> {
            x[n * dim..(n + 1) * dim].iter().map(|x| scale * x.to_f64()).collect()
        };
        let norm = |x: &[f64]| self.kernel.alpha() * crate::linalg::dot(x, x);
        let q = row(&one.q, i);
        let log = |j: &usize| {
            let k = row(&one.k, key_places[*j]);
            LOG2_E * (crate::linalg::dot(&q, &k) + norm(&q) + norm(&k))
        };
        let logs: Vec<f64> = exact.iter().map(log).collect();
        let unit = logs.iter().copied().fold(estimated, f64::max);
        let near: f64 = logs.iter().map(|log| (log - unit).exp2()).sum();
        let far_unit = (estimated - unit).exp2();
        far_unit / (near + far * far_unit)
    }

    fn routes(
        &self,
        map: &FeatureMap,
        one: &One<'_, R>,
        view: View,
        key_places: &[usize],
        (logs, features, stride): (&[R], &[R], usize),
    ) -> Result<Option<Routes<R>>> {
        if !view.exact.is_routed() && view.exact.global == 0 {
            return Ok(None);
        }
        let has_probes = map.probes().is_some();
        let (_, worst) = view.exact.split_global(has_probes);
        let errors = if worst > 0 {
            let number = |n: usize, l: usize| one.k[key_places[n] * self.dim + l].to_f64();
            probe_errors(map, &Matrix::from_fn(key_places.len(), self.dim, number))?
        } else {
            vec![]
        };
        let scores = Scores { logs, features, stride, errors: &errors, places: key_places };
        Ok(Some(Routes::new(view.exact, scores, has_probes, view.causal)))
    }
}

/// Rows of `width` numbers, of which `columns` count, as columns `stride` apart.
fn columns_of<R: Real>(
    rows: &[R],
    (count, columns, width): (usize, usize, usize),
    stride: usize,
) -> Vec<R> {
    let mut out = vec![R::ZERO; columns * stride];
    transpose(rows, width, (count, columns), (&mut out, stride));
    out
}
