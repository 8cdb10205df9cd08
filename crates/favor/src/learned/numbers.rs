//! The learned numbers, as one vector, and how they become the two sides of a map.
//!
//! Inputs are taken in the coordinates of the start, `z = T(sx + shift)`: its transform with every
//! direction divided by the standard deviation of the data along it. A step of the optimiser then
//! moves all directions equally, and the quadratic row term of the start, `−½‖R(x+s)‖²`, is
//! `−½ Σ ρ_l² z_l²`.

use crate::linalg::{product, scale_rows, transposed_product};
use crate::map::{Projection, RowTerm};
use crate::simd::Real;
use crate::{Error, FeatureMap, Matrix, Moments, Result, Side};

/// Log-features are base two while learning, as in the engine.
pub(super) const LOG2_E: f64 = std::f64::consts::LOG2_E;

/// Directions that vary less than this fraction of the average are treated as varying that much.
const LEAST_DEVIATION: f64 = 1e-3;

/// The coordinates of one side.
pub(super) struct Coordinates {
    /// `T`, one row per coordinate.
    pub(super) transform: Matrix<f64>,
    /// `T⁻¹`.
    inverse: Matrix<f64>,
    pub(super) start: Projection,
}

impl Coordinates {
    /// The coordinates of one side of a map, for data of these moments.
    pub(super) fn new(map: &FeatureMap, side: Side, moments: &Moments) -> Result<Self> {
        let Some(parameters) = map.parameters() else {
            let reason = "learning starts from a positive family in closed form";
            return Err(Error::invalid("family", reason));
        };
        let (own, other) = match side {
            Side::Query => (parameters.query_transform(), parameters.key_transform()),
            Side::Key => (parameters.key_transform(), parameters.query_transform()),
        };
        let scaled = moments.scaled(map.kernel().scale());
        let transformed = product(own, &scaled.covariance());
        let variance = |l: usize| crate::linalg::dot(transformed.row(l), own.row(l)).max(0.0);
        let deviations: Vec<f64> = (0..own.rows()).map(|l| variance(l).sqrt()).collect();
        let mean = deviations.iter().sum::<f64>() / deviations.len() as f64;
        let least = if mean > 0.0 { LEAST_DEVIATION * mean } else { 1.0 };
        let deviations: Vec<f64> = deviations.into_iter().map(|d| d.max(least)).collect();
        let inverses: Vec<f64> = deviations.iter().map(|d| 1.0 / d).collect();
        // Each transform is the inverse transpose of the other: T⁻¹ = otherᵀ · diag(deviations).
        let inverse = transposed_product(other, &diagonal(&deviations));
        let transform = scale_rows(own.clone(), &inverses);
        Ok(Self { transform, inverse, start: map.side(side).clone() })
    }

    /// Unscaled rows in these coordinates, and their row term without its quadratic part.
    pub(super) fn of(&self, rows: &Matrix<f64>, scale: f64) -> (Matrix<f64>, Vec<f64>) {
        let RowTerm::Exponential { linear, constant, alpha, .. } = &self.start.row else {
            return (Matrix::zeros(0, 0), vec![]);
        };
        let moved = Matrix::from_fn(rows.rows(), rows.columns(), |i, l| {
            scale * rows[(i, l)] + self.start.shift[l]
        });
        let terms = (0..rows.rows())
            .map(|i| {
                let numbers = rows.row(i).iter().zip(linear);
                numbers.map(|(x, l)| alpha * (scale * x).powi(2) - l * scale * x).sum::<f64>()
                    - constant
            })
            .collect();
        (crate::linalg::product_transposed(&moved, &self.transform), terms)
    }

    /// The start's weights in these coordinates, and ρ.
    fn start(&self) -> (Matrix<f64>, Vec<f64>) {
        let weights = product(&self.start.weights, &self.inverse);
        // T has the start's own directions, divided by their standard deviations: these are ρ.
        let rho = (0..self.transform.rows()).map(|l| self.deviation(l)).collect();
        (weights, rho)
    }

    fn deviation(&self, l: usize) -> f64 {
        let RowTerm::Exponential { transform, .. } = &self.start.row else { return 0.0 };
        let (own, transformed) = (transform.row(l), self.transform.row(l));
        let largest = (0..own.len()).max_by(|&a, &b| own[a].abs().total_cmp(&own[b].abs()));
        largest.map_or(0.0, |c| if transformed[c] == 0.0 { 0.0 } else { own[c] / transformed[c] })
    }

    /// A side with these weights, constants and row term.
    fn side(&self, weights: &Matrix<f64>, constants: Vec<f64>, rho: &[f64]) -> Projection {
        let mut side = self.start.clone();
        side.weights = product(weights, &self.transform);
        side.constants = constants;
        if let RowTerm::Exponential { transform, .. } = &mut side.row {
            *transform = scale_rows(self.transform.clone(), rho);
        }
        side
    }
}

fn diagonal(values: &[f64]) -> Matrix<f64> {
    Matrix::from_fn(values.len(), values.len(), |i, j| if i == j { values[i] } else { 0.0 })
}

/// The layout of the vector. Widths are padded to whole SIMD vectors; what is beyond the last
/// feature or coordinate stays zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) features: usize,
    pub(super) dim: usize,
    pub(super) features_padded: usize,
    pub(super) dim_padded: usize,
}

impl Shape {
    pub(super) fn new<R: Real>(features: usize, dim: usize) -> Self {
        let lanes = R::kernels().lanes;
        let pad = |n: usize| n.next_multiple_of(lanes);
        Self { features, dim, features_padded: pad(features), dim_padded: pad(dim) }
    }

    fn sizes(&self) -> [usize; 5] {
        let Self { features, dim, features_padded, dim_padded } = *self;
        [dim * features_padded, features * dim_padded, features_padded, dim, dim]
    }
}

/// The numbers of one head, or their gradient.
#[derive(Debug, Clone)]
pub(super) struct Numbers<R> {
    pub(super) shape: Shape,
    pub(super) values: Vec<R>,
}

/// The parts of the vector.
pub(super) struct Parts<'a, R> {
    /// Weights of the queries, transposed: one row per coordinate.
    pub(super) query: &'a [R],
    /// Weights of the keys: one row per feature.
    pub(super) key: &'a [R],
    /// One constant per feature; those of the other side would be redundant.
    pub(super) constants: &'a [R],
    /// ρ of the queries and of the keys.
    pub(super) query_rho: &'a [R],
    pub(super) key_rho: &'a [R],
}

/// The parts, mutable.
pub(super) struct PartsMut<'a, R> {
    pub(super) query: &'a mut [R],
    pub(super) key: &'a mut [R],
    pub(super) constants: &'a mut [R],
    pub(super) query_rho: &'a mut [R],
    pub(super) key_rho: &'a mut [R],
}

impl<R: Real> Numbers<R> {
    pub(super) fn zeros(shape: Shape) -> Self {
        Self { shape, values: vec![R::ZERO; shape.sizes().iter().sum()] }
    }

    /// The numbers of the start.
    pub(super) fn of_start(query: &Coordinates, key: &Coordinates) -> Self {
        let (features, dim) = query.start.weights.shape();
        let shape = Shape::new::<R>(features, dim);
        let mut numbers = Self::zeros(shape);
        let parts = numbers.parts_mut();
        let ((query_weights, query_rho), (key_weights, key_rho)) = (query.start(), key.start());
        for m in 0..features {
            for l in 0..dim {
                parts.query[l * shape.features_padded + m] =
                    R::from_f64(query_weights[(m, l)] * LOG2_E);
                parts.key[m * shape.dim_padded + l] = R::from_f64(key_weights[(m, l)] * LOG2_E);
            }
            let constant = query.start.constants[m] + key.start.constants[m];
            parts.constants[m] = R::from_f64(constant * LOG2_E);
        }
        for l in 0..dim {
            parts.query_rho[l] = R::from_f64(query_rho[l]);
            parts.key_rho[l] = R::from_f64(key_rho[l]);
        }
        numbers
    }

    pub(super) fn parts(&self) -> Parts<'_, R> {
        let [a, b, c, d, _] = self.shape.sizes();
        let (query, rest) = self.values.split_at(a);
        let (key, rest) = rest.split_at(b);
        let (constants, rest) = rest.split_at(c);
        let (query_rho, key_rho) = rest.split_at(d);
        Parts { query, key, constants, query_rho, key_rho }
    }

    pub(super) fn parts_mut(&mut self) -> PartsMut<'_, R> {
        let [a, b, c, d, _] = self.shape.sizes();
        let (query, rest) = self.values.split_at_mut(a);
        let (key, rest) = rest.split_at_mut(b);
        let (constants, rest) = rest.split_at_mut(c);
        let (query_rho, key_rho) = rest.split_at_mut(d);
        PartsMut { query, key, constants, query_rho, key_rho }
    }

    /// The two sides of the map with these numbers.
    pub(super) fn sides(&self, query: &Coordinates, key: &Coordinates) -> (Projection, Projection) {
        let Shape { features, dim, features_padded, dim_padded } = self.shape;
        let parts = self.parts();
        let number = |v: R| v.to_f64() / LOG2_E;
        let query_weights =
            Matrix::from_fn(features, dim, |m, l| number(parts.query[l * features_padded + m]));
        let key_weights =
            Matrix::from_fn(features, dim, |m, l| number(parts.key[m * dim_padded + l]));
        let constants = parts.constants[..features].iter().map(|v| number(*v)).collect();
        let rho = |part: &[R]| -> Vec<f64> { part.iter().map(|v| v.to_f64()).collect() };
        (
            query.side(&query_weights, constants, &rho(parts.query_rho)),
            key.side(&key_weights, vec![0.0; features], &rho(parts.key_rho)),
        )
    }
}
