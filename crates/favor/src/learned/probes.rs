//! Queries by which the error of a key is judged.

use super::numbers::{Coordinates, LOG2_E, Parts};
use super::sequence::Sequence;
use super::weights::{product, row_terms};
use crate::map::Probes;
use crate::reference::MOST_LOG;
use crate::simd::{Layout, Real};
use crate::{Kernel, Matrix};

/// Probes, laid out for products.
pub(super) struct ProbeRows<R> {
    count: usize,
    dim: usize,
    queries: Vec<R>,
    coordinates: Vec<R>,
    terms: Vec<R>,
    constants: Vec<f64>,
    log_means: Vec<f64>,
}

impl<R: Real> ProbeRows<R> {
    pub(super) fn new(probes: &Probes, kernel: Kernel, coordinates: &Coordinates) -> Self {
        let (z, terms) = coordinates.of(&probes.queries, kernel.scale());
        let factor = kernel.alpha() * kernel.scale().powi(2) * LOG2_E;
        let all = |numbers: &[f64], factor: f64| -> Vec<R> {
            numbers.iter().map(|v| R::from_f64(v * factor)).collect()
        };
        let square = |row: &[f64]| factor * crate::linalg::dot(row, row);
        Self {
            count: probes.queries.rows(),
            dim: probes.queries.columns(),
            queries: all(probes.queries.as_slice(), 1.0),
            coordinates: all(z.as_slice(), 1.0),
            terms: all(&terms, LOG2_E),
            constants: probes.queries.view().iter().map(square).collect(),
            log_means: probes.log_means.iter().map(|l| l * LOG2_E).collect(),
        }
    }

    /// The error of the map at each key of a sequence, with features lowered by this logarithm: the same as
    /// `reference` computes.
    pub(super) fn errors(
        &self,
        sequence: &Sequence<R>,
        parts: &Parts<'_, R>,
        constants: &[R],
        (key_features, stride): (&[R], usize),
        lowered: f64,
    ) -> Vec<f64> {
        let (count, dim, kernels) = (self.count, self.dim, R::kernels());
        let width = sequence.width;
        let (padded, features) = (constants.len(), key_features.len() / stride);
        let mut p = vec![R::ZERO; count * padded];
        let left = (&self.coordinates[..], (dim, 1));
        product(
            kernels,
            (count, padded, dim),
            left,
            (parts.query, padded),
            (&mut p, padded, false),
        );
        let mut exponents = vec![R::from_f64(f64::NEG_INFINITY); count];
        let (mut sums, mut shrink) = (vec![R::ZERO; count], vec![R::ZERO; count]);
        let tile = Layout { rows: count, columns: padded, stride: padded };
        kernels.softmax_rows(tile, &mut p, Some(constants), &mut exponents, &mut sums, &mut shrink);
        let mut estimates = vec![R::ZERO; count * width];
        let left = (&p[..], (padded, 1));
        let out = (&mut estimates[..], width, false);
        product(kernels, (count, width, features), left, (key_features, stride), out);
        let mut logits = vec![R::ZERO; count * width];
        let left = (&self.queries[..], (dim, 1));
        let out = (&mut logits[..], width, false);
        product(kernels, (count, width, dim), left, (&sequence.keys, stride), out);
        let mut terms = vec![];
        row_terms(&self.terms, &self.coordinates, dim, parts.query_rho, &mut terms);
        let most = MOST_LOG * LOG2_E;
        let mut errors = vec![0.0; sequence.key_places.len()];
        for i in 0..count {
            let mean = self.log_means[i];
            let features = (features as f64).log2() + lowered;
            let shift = exponents[i].to_f64() + terms[i].to_f64() - features - mean;
            for (j, error) in errors.iter_mut().enumerate() {
                let constant = sequence.key_constants[j].to_f64() + self.constants[i] - mean;
                let exact = logits[i * width + j].to_f64() + constant;
                let estimate = estimates[i * width + j].to_f64().log2() + shift;
                *error += (exact.min(most).exp2() - estimate.min(most).exp2()).abs();
            }
        }
        errors
    }
}

/// Probes from calibration queries, with their mean weights over calibration keys.
pub(super) fn probes(queries: Matrix<f64>, keys: &[&Matrix<f64>], kernel: Kernel) -> Probes {
    let scale = kernel.scale().powi(2);
    let square = |x: &[f64]| kernel.alpha() * scale * crate::linalg::dot(x, x);
    let log_mean = |x: &[f64]| {
        let logs: Vec<f64> = keys
            .iter()
            .flat_map(|keys| keys.view().iter())
            .map(|y| scale * crate::linalg::dot(x, y) + square(x) + square(y))
            .collect();
        let max = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        max + (logs.iter().map(|l| (l - max).exp()).sum::<f64>() / logs.len() as f64).ln()
    };
    let log_means = queries.view().iter().map(log_mean).collect();
    Probes { queries, log_means }
}
