//! One side of a feature map in the form that the tiles use: the dense transform is already in the
//! weights, so every positive family projects at the same cost. Log-features are base two here:
//! `log₂ e` is in the weights too.

use super::side::{Projection, RowTerm};
use crate::linalg::upper_triangle;
use crate::simd::{Aligned, Real, Transpose};
use crate::{FeatureMap, Kernel, Matrix};
use std::f64::consts::LOG2_E;
use std::sync::OnceLock;

/// A matrix of weights, laid out for `C = A · weights` in panels of two vectors of columns.
#[derive(Debug, Clone)]
pub(crate) struct Panels<R> {
    pub(crate) data: Aligned<R>,
    /// Number of rows of the weights: the depth of the product.
    pub(crate) depth: usize,
    /// Number of columns, padded to whole panels.
    pub(crate) width: usize,
    /// Columns per panel.
    pub(crate) panel: usize,
}

impl<R: Real> Panels<R> {
    /// Packs the transpose of `rows`: one column of the result per row. Columns beyond the last are
    /// copies of it, so they always hold ordinary numbers.
    fn of_rows(rows: &Matrix<f64>, factor: f64) -> Self {
        let (count, depth) = rows.shape();
        Self::from_fn(count, depth, |j, l| R::from_f64(rows[(j.min(count - 1), l)] * factor))
    }

    /// All zeros.
    pub(crate) fn zeros(count: usize, depth: usize) -> Self {
        let panel = 2 * R::kernels().lanes;
        let width = count.next_multiple_of(panel);
        Self { data: Aligned::zeros(width * depth), depth, width, panel }
    }

    /// Packs the transpose of `count` rows of `depth` numbers; zero beyond the last.
    pub(crate) fn transpose_rows(&mut self, rows: &[R], row_stride: usize, count: usize) {
        let Self { data, depth, width, panel } = self;
        let (panel, depth) = (*panel, *depth);
        for start in (0..*width).step_by(panel) {
            let transpose = Transpose {
                rows: count.saturating_sub(start).min(panel),
                columns: depth,
                row_stride,
                width: panel,
                out_stride: panel,
            };
            let from = &rows[(start * row_stride).min(rows.len())..];
            R::kernels().transpose(&transpose, from, &mut data[start * depth..][..panel * depth]);
        }
    }

    /// Packs `entry(column, depth)`; it is also called for the columns beyond `count`.
    pub(crate) fn from_fn(count: usize, depth: usize, entry: impl Fn(usize, usize) -> R) -> Self {
        let panel = 2 * R::kernels().lanes;
        let width = count.next_multiple_of(panel);
        let mut data = Vec::with_capacity(width * depth);
        for start in (0..width).step_by(panel) {
            for l in 0..depth {
                data.extend((start..start + panel).map(|j| entry(j, l)));
            }
        }
        Self { data: Aligned::copied(&data), depth, width, panel }
    }
}

/// One side, packed.
#[derive(Debug, Clone)]
pub(crate) struct PackedSide<R> {
    /// Number of features.
    pub(crate) features: usize,
    /// Dimension of the vectors.
    pub(crate) dim: usize,
    /// The dimension, padded to whole vectors.
    pub(crate) dim_padded: usize,
    /// The factor of the inputs, and the shift added afterwards.
    pub(crate) scale: R,
    pub(crate) shift: Vec<R>,
    /// `W log₂ e` for projecting, and `W` itself, row by row, for the backward pass.
    pub(crate) weights: Panels<R>,
    pub(crate) weight_rows: Vec<R>,
    /// `k_m log₂ e` for each column of the projection.
    pub(crate) constants: Vec<R>,
    /// The base-two row term is `constant + Σ (a v + b) v − ½‖Rv‖²`, in the shifted vector `v`; if `R`
    /// is diagonal or orthogonal, it is folded into `a`.
    pub(crate) row_constant: R,
    pub(crate) row_a: Vec<R>,
    pub(crate) row_b: Vec<R>,
    pub(crate) dense: Option<Dense<R>>,
}

/// `R` of a row term, if it is neither diagonal nor orthogonal: for `‖Rv‖`, and `RᵀR` for the
/// gradient.
#[derive(Debug, Clone)]
pub(crate) struct Dense<R> {
    /// The upper triangular matrix with the same `‖Rv‖`: its zeros are not multiplied.
    pub(crate) triangle: Panels<R>,
    pub(crate) gram: Panels<R>,
    /// −½ for every column of `Rv`, and zeros: its share of the row term.
    pub(crate) halves: Vec<R>,
    pub(crate) zeros: Vec<R>,
}

impl<R: Real> PackedSide<R> {
    /// Packs one side of a positive map; `None` for a trigonometric one.
    pub(crate) fn new(kernel: Kernel, side: &Projection) -> Option<Self> {
        let RowTerm::Exponential { transform, linear, constant, alpha } = &side.row else {
            return None;
        };
        let (features, dim) = side.weights.shape();
        let lanes = R::kernels().lanes;
        let dim_padded = dim.next_multiple_of(lanes);
        let pad = |v: Vec<f64>| {
            let mut out: Vec<R> = v.into_iter().map(R::from_f64).collect();
            out.resize(dim_padded, R::ZERO);
            out
        };
        let weights = Panels::of_rows(&side.weights, LOG2_E);
        let constants = (0..weights.width)
            .map(|j| R::from_f64(side.constants[j.min(features - 1)] * LOG2_E))
            .collect();
        let mut weight_rows = vec![R::ZERO; features * dim_padded];
        for (m, row) in weight_rows.chunks_mut(dim_padded).enumerate() {
            row.iter_mut().zip(side.weights.row(m)).for_each(|(o, w)| *o = R::from_f64(*w));
        }
        let gram = crate::linalg::transposed_product(transform, transform);
        let diagonal = diagonal_of(&gram);
        // In terms of v = x + s: −lᵀx + α‖x‖² = αv² − (l + 2αs)v + (lᵀs + α‖s‖²).
        let a = |l: usize| alpha - diagonal.as_ref().map_or(0.0, |d| 0.5 * d[l]);
        let b = |l: usize| -linear[l] - 2.0 * alpha * side.shift[l];
        let moved: f64 = side.shift.iter().zip(linear).map(|(s, l)| l * s + alpha * s * s).sum();
        let dense = diagonal.is_none().then(|| Dense {
            triangle: Panels::of_rows(&upper_triangle(transform), LOG2_E.sqrt()),
            gram: Panels::of_rows(&gram, LOG2_E),
            halves: pad(vec![-0.5; dim]),
            zeros: pad(vec![]),
        });
        Some(Self {
            features,
            dim,
            dim_padded,
            scale: R::from_f64(kernel.scale()),
            shift: pad(side.shift.clone()),
            weights,
            weight_rows,
            constants,
            row_constant: R::from_f64((moved - constant) * LOG2_E),
            row_a: pad((0..dim).map(|l| a(l) * LOG2_E).collect()),
            row_b: pad((0..dim).map(|l| b(l) * LOG2_E).collect()),
            dense,
        })
    }

    /// Whether every number survived the conversion to this format.
    pub(crate) fn is_finite(&self) -> bool {
        let dense =
            self.dense.iter().flat_map(|d| d.triangle.data.iter().chain(d.gram.data.iter()));
        self.weights
            .data
            .iter()
            .chain(&self.constants)
            .chain(&self.shift)
            .chain(&self.row_a)
            .chain(&self.row_b)
            .chain([&self.row_constant, &self.scale])
            .chain(dense)
            .all(|v| v.is_finite())
    }
}

/// The diagonal, if everything else is rounding error.
fn diagonal_of(m: &Matrix<f64>) -> Option<Vec<f64>> {
    let n = m.rows();
    let diagonal: Vec<f64> = (0..n).map(|l| m[(l, l)]).collect();
    let small = |i: usize, j: usize| {
        i == j || m[(i, j)].abs() <= 1e-12 * (diagonal[i] * diagonal[j]).sqrt()
    };
    (0..n).all(|i| (0..n).all(|j| small(i, j))).then_some(diagonal)
}

/// Both sides, packed once for a map.
#[derive(Debug, Clone)]
pub(crate) struct PackedMap<R> {
    pub(crate) query: PackedSide<R>,
    pub(crate) key: PackedSide<R>,
}

impl<R: Real> PackedMap<R> {
    /// `None` for a trigonometric map, or if its numbers overflow the format.
    fn new(kernel: Kernel, query: &Projection, key: &Projection) -> Option<Self> {
        let (query, key) = (PackedSide::new(kernel, query)?, PackedSide::new(kernel, key)?);
        (query.is_finite() && key.is_finite()).then_some(Self { query, key })
    }
}

/// The packed forms of a map, made on first use. They are derived from the map, so two caches are
/// always equal.
#[derive(Default)]
pub(crate) struct PackedCache {
    single: OnceLock<Option<PackedMap<f32>>>,
    double: OnceLock<Option<PackedMap<f64>>>,
}

impl PartialEq for PackedCache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for PackedCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PackedCache")
    }
}

/// A number format with its slot in the cache.
pub(crate) trait Cached: Real {
    fn slot(cache: &PackedCache) -> &OnceLock<Option<PackedMap<Self>>>;
}

impl Cached for f32 {
    fn slot(cache: &PackedCache) -> &OnceLock<Option<PackedMap<f32>>> {
        &cache.single
    }
}

impl Cached for f64 {
    fn slot(cache: &PackedCache) -> &OnceLock<Option<PackedMap<f64>>> {
        &cache.double
    }
}

impl FeatureMap {
    /// The map packed for the engine; `None` if only the reference implementation can be used: for a
    /// trigonometric map, or numbers beyond the format.
    pub(crate) fn packed<R: Cached>(&self) -> Option<&PackedMap<R>> {
        R::slot(&self.packed)
            .get_or_init(|| PackedMap::new(self.kernel(), &self.query, &self.key))
            .as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, FeatureSpec, Moments, Rows};

    #[test]
    fn only_full_transforms_take_the_dense_path() {
        let numbers: Vec<f64> = (0..40 * 6).map(|i| (0.7 * i as f64).sin()).collect();
        let (q, k) = numbers.split_at(20 * 6);
        let [q, k] = [q, k].map(|x| Moments::of(Rows::new(x, 20, 6).unwrap()).unwrap());
        let dense = |family: Family| {
            let map = FeatureSpec::new(family, 8).kernel(Kernel::attention(6)).fit(&q, &k).unwrap();
            let packed = map.packed::<f32>().unwrap();
            [&packed.query, &packed.key].map(|side| side.dense.is_some())
        };
        for family in Family::ALL.into_iter().filter(|family| family.is_positive()) {
            let full = matches!(family, Family::Ade | Family::AdeShifted | Family::Balanced);
            assert_eq!(dense(family), [full; 2], "{family}");
        }
    }
}
