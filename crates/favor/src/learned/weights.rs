//! The weights of a sequence, exact and estimated by the map, a tile of queries at a time.

use super::numbers::{LOG2_E, Numbers, Shape};
use super::probes::ProbeRows;
use super::routing::{Routes, Scores, exact_places};
use super::sequence::{Sequence, hidden};
use crate::ExactKeys;
use crate::simd::{Aligned, Gemm, Kernels, Layout, Prefetch, Real};
use std::borrow::Cow;
use std::sync::Arc;

/// Queries per tile.
pub(super) const TILE: usize = 96;

/// A logarithm by which features are lowered to switch them off: they then vanish compared with any exact
/// key, and still carry a query that has none.
pub(super) const OFF: f64 = 1000.0;

/// What a query may see, which keys of it are exact, and whether features carry the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) exact: ExactKeys,
    pub(super) causal: bool,
    pub(super) switched_off: bool,
}

impl View {
    /// The logarithm, base two, by which features are lowered.
    fn lowered(self) -> f64 {
        if self.switched_off { OFF * LOG2_E } else { 0.0 }
    }
}

#[cfg(test)]
thread_local! {
    /// Pairs of a query and a key that this thread has looked at.
    pub(super) static PAIRS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Buffers for the sequences of one head.
pub(super) struct Weights<R: Real> {
    pub(super) kernels: &'static Kernels<R>,
    pub(super) shape: Shape,
    /// Features of the keys, one row per feature, `· 2^{−n_m}`; and transposed.
    pub(super) key_features: Aligned<R>,
    pub(super) key_features_by_key: Aligned<R>,
    /// Logarithms of the same, if queries are routed.
    key_logs: Vec<R>,
    key_terms: Vec<R>,
    /// Constants of the queries' features: those of the map, and `n_m`.
    constants: Vec<R>,
    /// A tile: features of the queries, exact weights and estimates.
    pub(super) query_features: Aligned<R>,
    pub(super) exact: Aligned<R>,
    pub(super) estimates: Aligned<R>,
    routes: Option<Routes<R>>,
    probes: Option<Arc<ProbeRows<R>>>,
    pub(super) width: usize,
    pub(super) stride: usize,
    pub(super) rows: Vec<Row<R>>,
}

/// A query of a tile. With `e` the exact weights of the tile and `k̂` its estimates, an exact key has the
/// weight `near · e`, any other `far · k̂`, and the true weight of every key is `whole · e`.
#[derive(Debug, Clone)]
pub(super) struct Row<R> {
    /// The number of keys that it sees.
    pub(super) seen: usize,
    /// The exact ones: a range, and others outside it, in order.
    pub(super) window: (usize, usize),
    pub(super) others: Vec<usize>,
    pub(super) whole: R,
    pub(super) near: R,
    pub(super) far: R,
    /// `log(Ẑ/Z)`, and the logarithm of the divisor that converts `e` to the units of `k̂`.
    pub(super) log_ratio: f64,
    pub(super) log_unit: f64,
}

impl<R> Row<R> {
    /// The exact keys.
    pub(super) fn exact_keys(&self) -> impl Iterator<Item = usize> {
        (self.window.0..self.window.1).chain(self.others.iter().copied())
    }

    /// The number of exact keys.
    pub(super) fn exact_count(&self) -> usize {
        self.window.1 - self.window.0 + self.others.len()
    }
}

impl<R: Real> Weights<R> {
    /// Buffers; global keys are judged by these probes.
    pub(super) fn new(shape: Shape, probes: Option<Arc<ProbeRows<R>>>) -> Self {
        Self {
            kernels: R::kernels(),
            shape,
            key_features: Aligned::zeros(0),
            key_features_by_key: Aligned::zeros(0),
            key_logs: vec![],
            key_terms: vec![],
            constants: vec![],
            query_features: Aligned::zeros(TILE * shape.features_padded),
            exact: Aligned::zeros(0),
            estimates: Aligned::zeros(0),
            routes: None,
            probes,
            width: 0,
            stride: 0,
            rows: vec![],
        }
    }

    /// The features of all keys, and their routing.
    pub(super) fn load(&mut self, numbers: &Numbers<R>, sequence: &Sequence<R>, view: View) {
        let Shape { features, dim, features_padded, dim_padded } = self.shape;
        let (width, stride) = (sequence.width, sequence.stride);
        let keys = sequence.key_places.len();
        if self.width != width {
            (self.width, self.stride) = (width, stride);
            self.key_features = Aligned::zeros(features * stride);
            self.key_features_by_key = Aligned::zeros(width * features_padded);
            self.exact = Aligned::zeros(TILE * stride);
            self.estimates = Aligned::zeros(TILE * stride);
        }
        let parts = numbers.parts();
        row_terms(
            &sequence.key_terms,
            &sequence.key_rows,
            dim_padded,
            parts.key_rho,
            &mut self.key_terms,
        );
        self.key_terms.resize(width, R::ZERO);
        self.key_terms[keys..].fill(hidden::<R>());
        let right = (&sequence.key_coordinates[..], stride);
        let left = (parts.key, (dim_padded, 1));
        product(
            self.kernels,
            (features, width, dim),
            left,
            right,
            (&mut self.key_features, stride, false),
        );
        if view.exact.is_routed() {
            self.key_logs.clear();
            self.key_logs.extend_from_slice(&self.key_features);
            for row in self.key_logs.chunks_mut(stride) {
                row.iter_mut().zip(&self.key_terms).for_each(|(x, t)| *x = *x + *t);
            }
        }
        let tile = Layout { rows: features, columns: width, stride };
        let mut exponents = vec![R::from_f64(f64::NEG_INFINITY); features];
        let (mut sums, mut shrink) = (vec![R::ZERO; features], vec![R::ZERO; features]);
        let terms = Some(&self.key_terms[..]);
        let projected = &mut self.key_features;
        self.kernels.softmax_rows(tile, projected, terms, &mut exponents, &mut sums, &mut shrink);
        let out = (&mut self.key_features_by_key[..], features_padded);
        transpose(&self.key_features, stride, (features, width), out);
        self.constants.clear();
        self.constants.resize(features_padded, hidden::<R>());
        let sums = parts.constants.iter().zip(&exponents).map(|(c, e)| *c + *e);
        self.constants.iter_mut().zip(sums).for_each(|(constant, sum)| *constant = sum);
        let (_, worst) = view.exact.split_global(self.probes.is_some());
        let errors = match &self.probes {
            Some(probes) if worst > 0 => {
                let features = (&self.key_features[..], stride);
                probes.errors(sequence, &parts, &self.constants, features, view.lowered())
            }
            _ => vec![],
        };
        self.routes = view.exact.depend_on_map().then(|| {
            let scores = Scores {
                logs: &self.key_logs,
                features: &self.key_features,
                stride,
                errors: &errors,
                places: &sequence.key_places,
            };
            Routes::new(view.exact, scores, self.probes.is_some(), view.causal)
        });
    }

    /// The weights of these queries. Estimates of exact keys and of keys that are not seen are zero.
    pub(super) fn tile(
        &mut self,
        numbers: &Numbers<R>,
        sequence: &Sequence<R>,
        view: View,
        queries: &[usize],
    ) {
        let Shape { features, dim, features_padded, .. } = self.shape;
        let (count, width, kernels) = (queries.len(), self.width, self.kernels);
        let stride = self.stride;
        #[cfg(test)]
        PAIRS.set(PAIRS.get() + count * sequence.key_places.len());
        let (mut sums, mut shrink) = (vec![R::ZERO; count], vec![R::ZERO; count]);
        let lowest = R::from_f64(f64::NEG_INFINITY);

        // Features of the queries, relative to their largest.
        let parts = numbers.parts();
        let coordinates = gather(&sequence.query_coordinates, dim, queries);
        let right = (parts.query, features_padded);
        let out = (&mut self.query_features[..], features_padded, false);
        product(kernels, (count, features_padded, dim), (&coordinates, (dim, 1)), right, out);
        let tile = Layout { rows: count, columns: features_padded, stride: features_padded };
        let mut exponents = vec![lowest; count];
        let constants = Some(&self.constants[..]);
        let p = &mut self.query_features;
        kernels.softmax_rows(tile, p, constants, &mut exponents, &mut sums, &mut shrink);

        // Exact weights, relative to the largest visible one.
        let left = gather(&sequence.queries, dim, queries);
        let right = (&sequence.keys[..], stride);
        product(
            kernels,
            (count, width, dim),
            (&left, (dim, 1)),
            right,
            (&mut self.exact, stride, false),
        );
        if view.causal {
            for (row, &i) in self.exact.chunks_mut(stride).zip(queries) {
                row[sequence.seen(i, true)..].fill(hidden::<R>());
            }
        }
        let tile = Layout { rows: count, columns: width, stride };
        let mut exact_exponents = vec![lowest; count];
        let mut denominators = vec![R::ZERO; count];
        let constants = Some(&sequence.key_constants[..]);
        kernels.softmax_rows(
            tile,
            &mut self.exact,
            constants,
            &mut exact_exponents,
            &mut denominators,
            &mut shrink,
        );

        // Estimates, except those of exact keys.
        let left = (&self.query_features[..], (features_padded, 1));
        let out = (&mut self.estimates[..], stride, false);
        product(kernels, (count, width, features), left, (&self.key_features, stride), out);
        self.rows.clear();
        let mut near = vec![0.0; count];
        for (r, &i) in queries.iter().enumerate() {
            let row = self.exact_set(sequence, view, i, r);
            let estimates = &mut self.estimates[r * stride..(r + 1) * stride];
            estimates[row.seen..].fill(R::ZERO);
            for j in row.exact_keys() {
                estimates[j] = R::ZERO;
                near[r] += self.exact[r * stride + j].to_f64();
            }
            self.rows.push(row);
        }
        kernels.row_sums(tile, &self.estimates, &mut sums);

        // One normalisation.
        let mut terms = vec![];
        row_terms(
            &queries.iter().map(|&i| sequence.query_terms[i]).collect::<Vec<_>>(),
            &coordinates,
            dim,
            parts.query_rho,
            &mut terms,
        );
        let mean = (features as f64).log2();
        for (r, row) in self.rows.iter_mut().enumerate() {
            let exact = exact_exponents[r].to_f64() + sequence.query_constants[queries[r]];
            let estimated = exponents[r].to_f64() + terms[r].to_f64() - mean - view.lowered();
            let unit = if near[r] > 0.0 { exact.max(estimated) } else { estimated };
            // Without exact keys, their unit may be infinite compared with features that are switched off.
            let near_unit = if near[r] > 0.0 { (exact - unit).exp2() } else { 0.0 };
            let far_unit = (estimated - unit).exp2();
            let total = near[r] * near_unit + sums[r].to_f64() * far_unit;
            let whole = denominators[r].to_f64();
            // A query whose estimates all vanish has nothing to learn from.
            let inverse = if total > 0.0 { 1.0 / total } else { 0.0 };
            row.whole = R::from_f64(1.0 / whole);
            row.near = R::from_f64(near_unit * inverse);
            row.far = R::from_f64(far_unit * inverse);
            let ln = |x: f64| x.max(f64::MIN_POSITIVE).ln();
            row.log_unit = (estimated - exact) * std::f64::consts::LN_2;
            row.log_ratio = ln(total) - ln(whole) + (unit - exact) * std::f64::consts::LN_2;
        }
    }

    fn exact_set(&self, sequence: &Sequence<R>, view: View, i: usize, r: usize) -> Row<R> {
        let (place, keys) = (sequence.query_places[i], &sequence.key_places);
        let seen = sequence.seen(i, view.causal);
        let Shape { features, features_padded, .. } = self.shape;
        let own = &self.query_features[r * features_padded..][..features];
        let (window, others) =
            exact_places(place, keys, seen, view.exact.near, self.routes.as_ref(), own);
        let zero = R::ZERO;
        Row {
            seen,
            window,
            others,
            whole: zero,
            near: zero,
            far: zero,
            log_ratio: 0.0,
            log_unit: 0.0,
        }
    }
}

/// `out_ji = x_ij`, in blocks that stay in cache.
pub(super) fn transpose<R: Real>(
    x: &[R],
    stride: usize,
    (rows, columns): (usize, usize),
    (out, out_stride): (&mut [R], usize),
) {
    const BLOCK: usize = 16;
    for first in (0..rows).step_by(BLOCK) {
        for j in 0..columns {
            let out = &mut out[j * out_stride + first..j * out_stride + rows.min(first + BLOCK)];
            for (i, out) in out.iter_mut().enumerate() {
                *out = x[(first + i) * stride + j];
            }
        }
    }
}

/// The given rows of a matrix, without a copy if they are consecutive.
pub(super) fn gather<'a, R: Real>(from: &'a [R], dim: usize, rows: &[usize]) -> Cow<'a, [R]> {
    match (rows.first(), rows.last()) {
        (Some(first), Some(last)) if last - first + 1 == rows.len() => {
            Cow::Borrowed(&from[first * dim..(last + 1) * dim])
        }
        _ => {
            let mut out = Vec::with_capacity(rows.len() * dim);
            rows.iter().for_each(|i| out.extend_from_slice(&from[i * dim..(i + 1) * dim]));
            Cow::Owned(out)
        }
    }
}

/// `out = terms − ½ Σ ρ_l² z_l²`, base two.
pub(super) fn row_terms<R: Real>(terms: &[R], z: &[R], stride: usize, rho: &[R], out: &mut Vec<R>) {
    let half = R::from_f64(-0.5 * LOG2_E);
    let squares: Vec<R> = rho.iter().map(|r| *r * *r * half).collect();
    out.clear();
    out.extend(z.chunks(stride).zip(terms).map(|(z, term)| {
        let pairs = z.iter().zip(&squares);
        *term + pairs.fold(R::ZERO, |sum, (z, s)| sum + *z * *z * *s)
    }));
}

/// `C (+)= A B` for `rows × columns` with this depth; `B` and `C` have contiguous rows.
pub(super) fn product<R: Real>(
    kernels: &Kernels<R>,
    (rows, columns, depth): (usize, usize, usize),
    (left, a): (&[R], (usize, usize)),
    (right, b_row): (&[R], usize),
    (out, c_row, accumulate): (&mut [R], usize, bool),
) {
    let b_panel = 2 * kernels.lanes;
    let prefetch = Prefetch::default();
    let in_parts = false;
    let shape =
        Gemm { rows, columns, depth, a, b_row, b_panel, c_row, accumulate, in_parts, prefetch };
    kernels.gemm(&shape, left, right, out);
}
