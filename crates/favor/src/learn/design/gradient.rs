//! The gradients of features.

use super::{Design, Numbers};
use crate::learn::importance::{pulls, transposed_apply};
use crate::linalg::{product, product_transposed, transposed_product};
use crate::map::RowTerm;
use crate::{Matrix, Side};

impl Design {
    /// The gradients of `Σ_m c_m φ_m` of the first features at scaled rows, by the scaled coordinates.
    pub(crate) fn feature_gradients(&self, scaled: &Matrix<f64>, c: &[f64]) -> Matrix<f64> {
        match &self.record.numbers {
            Numbers::Waves { frequencies, phases } => {
                let factor = (2.0 / phases.len() as f64).sqrt();
                let mut angles = product_transposed(scaled, frequencies);
                for i in 0..angles.rows() {
                    for (m, v) in angles.row_mut(i).iter_mut().enumerate() {
                        let c = c.get(m).copied().unwrap_or(0.0);
                        *v = -factor * c * (*v + phases[m]).sin();
                    }
                }
                product(&angles, frequencies)
            }
            Numbers::Landmarks { rows, whitening } => {
                let mut padded = c.to_vec();
                padded.resize(rows.rows(), 0.0);
                let values = transposed_apply(whitening, &padded);
                let norm = |v: &[f64]| v.iter().map(|a| a * a).sum::<f64>();
                let norms: Vec<f64> = (0..rows.rows()).map(|j| norm(rows.row(j))).collect();
                let mut weights = product_transposed(scaled, rows);
                for i in 0..weights.rows() {
                    let own = norm(scaled.row(i));
                    for (j, v) in weights.row_mut(i).iter_mut().enumerate() {
                        let squared = (own + norms[j] - 2.0 * *v).max(0.0);
                        *v = -2.0 * values[j] * self.shape().slope(squared);
                    }
                }
                pulls(&weights, rows, scaled)
            }
            Numbers::Positive(map) => {
                let tile = crate::learn::design::TileReal::tile(self, scaled, self.width());
                let values = |tile: &super::Tile<f64>| {
                    Matrix::from_fn(scaled.rows(), map.features(), |i, m| {
                        c.get(m).copied().unwrap_or(0.0) * tile.get(i, self.offset() + m)
                    })
                };
                let weighted = values(&tile);
                let mut out = Matrix::zeros(scaled.rows(), self.dim());
                for side in [Side::Query, Side::Key].map(|side| map.side(side)) {
                    let slopes = product(&weighted, &side.weights);
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
                    for i in 0..out.rows() {
                        let sum: f64 = weighted.row(i).iter().sum();
                        for (l, g) in out.row_mut(i).iter_mut().enumerate() {
                            let row = -quadratic[(i, l)] - linear[l] + 2.0 * alpha * scaled[(i, l)];
                            *g += 0.5 * (slopes[(i, l)] + sum * row);
                        }
                    }
                }
                out
            }
        }
    }
}
