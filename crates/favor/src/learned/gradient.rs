//! The gradient of the divergence between exact weights and those of the map.
//!
//! With `a` the exact weights of a query, `â` those of the map and `k̂` its estimates, the divergence is
//! `Σ a log(a/â)`. Its derivative with respect to an estimate is `E = (â − a)/k̂`, and zero for an exact key;
//! with respect to the log-features it is `p ∘ (E s)` for queries and `s ∘ (Eᵀ p)` for keys. Each of these is
//! a weight times the share of one slot in one estimate, so no feature's gradient exceeds one, however spiky
//! the head is.

use super::numbers::{LOG2_E, Numbers, Shape};
use super::sequence::{Sequence, Values};
use super::weights::{TILE, View, Weights, gather, product};
use crate::simd::{Layout, Real};

/// Estimates below this, relative to the query's largest feature, pull no harder than one at this value.
fn floor<R: Real>() -> R {
    R::from_f64((-100.0_f64).exp2())
}

/// Adds the gradient of the objective of these queries to `out`: the mean divergence, mixed with a fraction
/// `outputs` of the squared error of the outputs if there are values.
pub(super) fn add_gradient<R: Real>(
    weights: &mut Weights<R>,
    numbers: &Numbers<R>,
    sequence: &Sequence<R>,
    view: View,
    queries: &[usize],
    outputs: f64,
    out: &mut Numbers<R>,
) {
    let Shape { features, dim, features_padded, dim_padded } = weights.shape;
    let kernels = weights.kernels;
    weights.load(numbers, sequence, view);
    let (width, stride) = (weights.width, weights.stride);
    let mut by_query = vec![R::ZERO; TILE * features_padded];
    // With respect to the keys' log-features, one row per feature.
    let mut by_key = vec![R::ZERO; features * stride];
    // The numbers are base two, the divergence is not.
    let share = std::f64::consts::LN_2 / queries.len() as f64;
    for queries in queries.chunks(TILE) {
        weights.tile(numbers, sequence, view, queries);
        let count = queries.len();
        let per_row = |f: fn(&super::weights::Row<R>) -> R| -> Vec<R> {
            weights.rows.iter().map(f).collect()
        };
        let (rates, factors) = (per_row(|row| row.far), per_row(|row| row.whole));
        let tile = Layout { rows: count, columns: width, stride };
        let of_outputs = sequence
            .values
            .as_ref()
            .filter(|_| outputs > 0.0)
            .map(|values| output_residuals(weights, values, count, sequence.key_places.len()));
        kernels.residuals(tile, &mut weights.estimates, &weights.exact, &rates, &factors, floor());
        if let Some(of_outputs) = of_outputs {
            let (keep, take) = (R::from_f64(1.0 - outputs), R::from_f64(outputs));
            for (e, o) in weights.estimates.iter_mut().zip(&of_outputs) {
                *e = *e * keep + *o * take;
            }
        }
        let rows = weights.estimates.chunks_mut(stride).zip(&weights.rows);
        for (residuals, row) in rows {
            residuals[row.seen..].fill(R::ZERO);
            row.exact_keys().for_each(|j| residuals[j] = R::ZERO);
        }
        let left = (&weights.estimates[..], (stride, 1));
        let right = (&weights.key_features_by_key[..], features_padded);
        let shape = (count, features_padded, sequence.key_places.len());
        product(kernels, shape, left, right, (&mut by_query, features_padded, false));
        for (g, p) in by_query.iter_mut().zip(weights.query_features.iter()) {
            *g = *g * *p;
        }
        let left = (&weights.query_features[..], (1, features_padded));
        let right = (&weights.estimates[..], stride);
        product(kernels, (features, width, count), left, right, (&mut by_key, stride, true));
        query_side(sequence, numbers, (queries, &by_query, share), out);
    }
    let share = R::from_f64(share);
    for (g, s) in by_key.iter_mut().zip(weights.key_features.iter()) {
        *g = *g * *s * share;
    }
    let parts = out.parts_mut();
    let left = (&by_key[..], (stride, 1));
    let right = (&sequence.key_rows[..], dim_padded);
    let shape = (features, dim_padded, sequence.key_places.len());
    product(kernels, shape, left, right, (parts.key, dim_padded, true));
    let mut totals = vec![R::ZERO; width];
    for row in by_key.chunks(stride) {
        totals.iter_mut().zip(row).for_each(|(t, g)| *t = *t + *g);
    }
    let pairs = (&totals[..], &sequence.key_rows[..], dim_padded);
    rho_gradient(pairs, numbers.parts().key_rho, dim, parts.key_rho);
}

/// The derivatives of the squared output error, relative to the mean square, with respect to the estimates:
/// with `d` the difference of two outputs, `(d·v_j − d·ô) / Ẑ` up to a constant.
fn output_residuals<R: Real>(
    weights: &Weights<R>,
    values: &Values<R>,
    count: usize,
    keys: usize,
) -> Vec<R> {
    let (width, stride, kernels) = (weights.width, weights.stride, weights.kernels);
    let mut mapped = vec![R::ZERO; count * stride];
    let mut exact = vec![R::ZERO; count * stride];
    for (r, row) in weights.rows.iter().enumerate() {
        let (start, end) = (r * stride, r * stride + row.seen);
        let (estimates, whole) = (&weights.estimates[start..end], &weights.exact[start..end]);
        let pairs = mapped[start..end].iter_mut().zip(estimates);
        pairs.for_each(|(weight, estimate)| *weight = *estimate * row.far);
        let pairs = exact[start..end].iter_mut().zip(whole);
        pairs.for_each(|(weight, e)| *weight = *e * row.whole);
        row.exact_keys().for_each(|j| mapped[start + j] = weights.exact[start + j] * row.near);
    }
    let outputs = |of: &[R]| {
        let mut out = vec![R::ZERO; count * values.width];
        let right = (&values.numbers[..], values.width);
        let shape = (count, values.width, keys);
        product(kernels, shape, (of, (stride, 1)), right, (&mut out, values.width, false));
        out
    };
    let (mapped, exact) = (outputs(&mapped), outputs(&exact));
    let power = exact.iter().map(|v| v.to_f64().powi(2)).sum::<f64>() / count as f64;
    let scale = R::from_f64(2.0 / power.max(f64::MIN_POSITIVE));
    let off: Vec<R> = mapped.iter().zip(&exact).map(|(m, e)| (*m - *e) * scale).collect();
    let mut residuals = vec![R::ZERO; count * stride];
    let shape = (count, width, values.columns.len() / stride);
    let (left, right) = ((&off[..], (values.width, 1)), (&values.columns[..], stride));
    product(kernels, shape, left, right, (&mut residuals, stride, false));
    for (r, row) in weights.rows.iter().enumerate() {
        let range = r * values.width..(r + 1) * values.width;
        let pairs = off[range.clone()].iter().zip(&mapped[range]);
        let mean = pairs.fold(R::ZERO, |sum, (d, out)| sum + *d * *out);
        for residual in &mut residuals[r * stride..(r + 1) * stride] {
            *residual = (*residual - mean) * row.far;
        }
    }
    residuals
}

/// Adds the contribution of the queries' log-features.
fn query_side<R: Real>(
    sequence: &Sequence<R>,
    numbers: &Numbers<R>,
    (queries, by_query, share): (&[usize], &[R], f64),
    out: &mut Numbers<R>,
) {
    let Shape { features, dim, features_padded, .. } = out.shape;
    let share = R::from_f64(share);
    let mut scaled = vec![R::ZERO; queries.len() * features_padded];
    scaled.iter_mut().zip(by_query).for_each(|(s, g)| *s = *g * share);
    let coordinates = gather(&sequence.query_coordinates, dim, queries);
    let parts = out.parts_mut();
    let left = (&coordinates[..], (1, dim));
    let right = (&scaled[..], features_padded);
    let shape = (dim, features_padded, queries.len());
    product(R::kernels(), shape, left, right, (parts.query, features_padded, true));
    let mut totals = Vec::with_capacity(queries.len());
    for row in scaled.chunks(features_padded) {
        parts.constants.iter_mut().zip(row).for_each(|(c, g)| *c = *c + *g);
        totals.push(row[..features].iter().fold(R::ZERO, |sum, g| sum + *g));
    }
    let pairs = (&totals[..], &coordinates[..], dim);
    rho_gradient(pairs, numbers.parts().query_rho, dim, parts.query_rho);
}

/// Adds the gradient of ρ, given those of the base-two logarithms: `∂/∂ρ_l = −ρ_l log₂e Σ_i g_i z_il²`.
fn rho_gradient<R: Real>(
    (totals, z, stride): (&[R], &[R], usize),
    rho: &[R],
    dim: usize,
    out: &mut [R],
) {
    let mut sums = vec![R::ZERO; dim];
    for (z, total) in z.chunks(stride).zip(totals) {
        sums.iter_mut().zip(z).for_each(|(s, z)| *s = *s + *total * *z * *z);
    }
    let factor = R::from_f64(-LOG2_E);
    for ((out, sum), rho) in out.iter_mut().zip(sums).zip(rho) {
        *out = *out + factor * *rho * sum;
    }
}
