//! The gradients of features.

use super::{Design, Numbers};
use crate::learn::importance::pulls;
use crate::linalg::{product, product_transposed, transposed_product};
use crate::map::RowTerm;
use crate::{Matrix, Side};

impl Design {
    /// For each column `c` of coefficients the gradients of `Σ_m c_m φ_m` of the first features at scaled
    /// rows, by the scaled coordinates.
    pub(crate) fn feature_gradients(
        &self,
        scaled: &Matrix<f64>,
        coefficients: &Matrix<f64>,
    ) -> Vec<Matrix<f64>> {
        let targets = 0..coefficients.columns();
        let coefficient =
            |m: usize, t: usize| if m < coefficients.rows() { coefficients[(m, t)] } else { 0.0 };
        match &self.record.numbers {
            Numbers::Waves { frequencies, phases } => {
                let factor = (2.0 / phases.len() as f64).sqrt();
                let mut slopes = product_transposed(scaled, frequencies);
                for i in 0..slopes.rows() {
                    let row = slopes.row_mut(i).iter_mut().zip(phases);
                    row.for_each(|(v, phase)| *v = -factor * (*v + phase).sin());
                }
                let one =
                    |t: usize| product(&weighted(&slopes, |m| coefficient(m, t)), frequencies);
                targets.map(one).collect()
            }
            Numbers::Landmarks { rows, whitening } => {
                let padded = Matrix::from_fn(rows.rows(), coefficients.columns(), coefficient);
                let values = transposed_product(whitening, &padded);
                let norm = |v: &[f64]| v.iter().map(|a| a * a).sum::<f64>();
                let norms: Vec<f64> = (0..rows.rows()).map(|j| norm(rows.row(j))).collect();
                let mut slopes = product_transposed(scaled, rows);
                for i in 0..slopes.rows() {
                    let own = norm(scaled.row(i));
                    for (v, other) in slopes.row_mut(i).iter_mut().zip(&norms) {
                        let squared = (own + other - 2.0 * *v).max(0.0);
                        *v = -2.0 * self.shape().slope(squared);
                    }
                }
                let one = |t: usize| pulls(&weighted(&slopes, |j| values[(j, t)]), rows, scaled);
                targets.map(one).collect()
            }
            Numbers::Positive(map) => {
                let tile: super::Tile<f64> =
                    crate::learn::design::TileReal::tile(self, scaled, self.width());
                let features = Matrix::from_fn(scaled.rows(), map.features(), |i, m| {
                    tile.get(i, self.offset() + m)
                });
                // The slope of each side's logarithm, without that of the projection, at every row.
                let sides = [Side::Query, Side::Key].map(|side| map.side(side));
                let slopes = sides.map(|side| {
                    let moved = Matrix::from_fn(scaled.rows(), self.dim(), |i, l| {
                        scaled[(i, l)] + side.shift[l]
                    });
                    let (quadratic, linear, alpha) = match &side.row {
                        RowTerm::Exponential { transform, linear, alpha, .. } => {
                            let gram = transposed_product(transform, transform);
                            (product(&moved, &gram), linear.clone(), *alpha)
                        }
                        RowTerm::Trigonometric { alpha } => {
                            (Matrix::zeros(moved.rows(), self.dim()), vec![0.0; self.dim()], *alpha)
                        }
                    };
                    let slope = |i: usize, l: usize| {
                        -quadratic[(i, l)] - linear[l] + 2.0 * alpha * scaled[(i, l)]
                    };
                    (&side.weights, Matrix::from_fn(scaled.rows(), self.dim(), slope))
                });
                let one = |t: usize| {
                    let own = weighted(&features, |m| coefficient(m, t));
                    let mut out = Matrix::zeros(scaled.rows(), self.dim());
                    for (weights, rest) in &slopes {
                        let projected = product(&own, weights);
                        for i in 0..out.rows() {
                            let sum: f64 = own.row(i).iter().sum();
                            for (l, g) in out.row_mut(i).iter_mut().enumerate() {
                                *g += 0.5 * (projected[(i, l)] + sum * rest[(i, l)]);
                            }
                        }
                    }
                    out
                };
                targets.map(one).collect()
            }
        }
    }
}

/// A matrix with its columns multiplied.
fn weighted(m: &Matrix<f64>, weight: impl Fn(usize) -> f64) -> Matrix<f64> {
    let weights: Vec<f64> = (0..m.columns()).map(weight).collect();
    let mut out = m.clone();
    for i in 0..out.rows() {
        out.row_mut(i).iter_mut().zip(&weights).for_each(|(v, w)| *v *= w);
    }
    out
}
