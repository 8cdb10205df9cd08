//! A few rows of a design, in the layout in which their products are summed.
//!
//! All features begin as an affine projection of the row: the phases of waves, the logarithms of positive
//! features and the squared distances from landmarks. One product gives these, with the row extended by a
//! one and, where a feature has a term of the row alone, by that term.

use super::{Design, Numbers};
use crate::learn::KernelShape;
use crate::linalg::transposed_product;
use crate::map::Panels;
use crate::simd::{Aligned, Gemm, Prefetch, Real};
use crate::{Error, FeatureMap, Matrix, Result, Side};
use std::f64::consts::{LOG2_E, TAU};
use std::sync::OnceLock;

/// Rows of a tile: a panel of so many `f32` rows fits the first cache, and their sum in `f32` is accurate.
pub(crate) const PIECE: usize = 256;

/// Rows of a design and what is known of them: `[1, linear part, φ, targets]`, in panels of columns.
pub(crate) struct Tile<R> {
    /// One panel after the other, each with all rows of some columns.
    pub(crate) panels: Panels<R>,
    pub(crate) rows: usize,
}

impl<R: Real> Tile<R> {
    pub(crate) fn zeros(rows: usize, columns: usize) -> Self {
        Self { panels: Panels::zeros(columns, rows), rows }
    }

    fn place(&self, row: usize, column: usize) -> usize {
        let panel = self.panels.panel;
        column / panel * panel * self.rows + row * panel + column % panel
    }

    pub(crate) fn get(&self, row: usize, column: usize) -> f64 {
        self.panels.data[self.place(row, column)].to_f64()
    }

    pub(crate) fn set(&mut self, row: usize, column: usize, value: f64) {
        let place = self.place(row, column);
        self.panels.data[place] = R::from_f64(value);
    }

    /// Multiplies a row.
    pub(crate) fn scale_row(&mut self, row: usize, factor: f64) {
        let (panel, rows, factor) = (self.panels.panel, self.rows, R::from_f64(factor));
        for columns in self.panels.data.chunks_exact_mut(panel * rows) {
            columns[row * panel..(row + 1) * panel].iter_mut().for_each(|v| *v = *v * factor);
        }
    }

    fn converted<S: Real>(&self, columns: usize) -> Tile<S> {
        let mut out = Tile::zeros(self.rows, columns);
        let (from, to) = (self.panels.panel, out.panels.panel);
        let rows = self.rows;
        for start in (0..columns).step_by(from.min(to)) {
            let count = from.min(to).min(columns - start);
            for i in 0..rows {
                let (source, target) = (self.place(i, start), out.place(i, start));
                let source = &self.panels.data[source..source + count];
                let target = &mut out.panels.data[target..target + count];
                target.iter_mut().zip(source).for_each(|(t, s)| *t = S::from_f64(s.to_f64()));
            }
        }
        out
    }
}

/// A design packed for the products of one number format.
struct Packing<R> {
    /// Of the projection: one column per column of the design (waves, positive) or per landmark.
    weights: Panels<R>,
    /// `L⁻ᵀ`, one column per column of the design.
    whitening: Option<Panels<R>>,
}

/// The packings of a design, made when they are first asked for.
#[derive(Default)]
pub(super) struct Packings {
    single: OnceLock<Packing<f32>>,
    double: OnceLock<Packing<f64>>,
    /// What rounding to `f32` does to features of landmarks.
    error: OnceLock<f64>,
}

/// The largest error that features of landmarks may have from `f32`. The sums over n rows feel it as a penalty
/// of at most its square times n, 0.01 for a million rows.
const SINGLE: f64 = 1e-4;

impl std::fmt::Debug for Packings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Packings")
    }
}

/// A number format of tiles.
pub(crate) trait TileReal: Real {
    #[doc(hidden)]
    fn tile(design: &Design, scaled: &Matrix<f64>, columns: usize) -> Tile<Self>;
}

impl TileReal for f64 {
    fn tile(design: &Design, scaled: &Matrix<f64>, columns: usize) -> Tile<f64> {
        let packing = design.packed.double.get_or_init(|| design.packing());
        match &design.record.numbers {
            Numbers::Waves { .. } => design.wave_tile(packing, scaled, columns),
            Numbers::Positive(map) => design.positive_tile(packing, map, scaled, columns),
            Numbers::Landmarks { .. } => design.landmark_tile(packing, scaled, columns),
        }
    }
}

impl TileReal for f32 {
    fn tile(design: &Design, scaled: &Matrix<f64>, columns: usize) -> Tile<f32> {
        match design.record.numbers {
            Numbers::Waves { .. } => {
                let packing = design.packed.single.get_or_init(|| design.packing());
                design.wave_tile(packing, scaled, columns)
            }
            Numbers::Landmarks { .. } if design.single_error() <= SINGLE => {
                let packing = design.packed.single.get_or_init(|| design.packing());
                design.landmark_tile(packing, scaled, columns)
            }
            _ => f64::tile(design, scaled, columns).converted(columns),
        }
    }
}

impl Design {
    /// The columns of a few scaled rows, with room for `targets` more.
    pub(crate) fn tile<R: TileReal>(
        &self,
        scaled: &Matrix<f64>,
        targets: usize,
    ) -> Result<Tile<R>> {
        let mut tile = R::tile(self, scaled, self.width() + targets);
        for i in 0..tile.rows {
            tile.set(i, 0, 1.0);
        }
        if self.record.spec.linear {
            let linear = self.linear_part(scaled);
            for i in 0..tile.rows {
                for (l, value) in linear.row(i).iter().enumerate() {
                    tile.set(i, 1 + l, *value);
                }
            }
        }
        // Not `all`, which looks at one number after the other.
        if tile.panels.data.iter().fold(true, |finite, v| finite & v.is_finite()) {
            return Ok(tile);
        }
        Err(Error::Overflow {
            operation: "the features of a row",
            format: R::NAME,
            hint: "use a larger bandwidth, or trig or nystrom features",
        })
    }

    fn packing<R: Real>(&self) -> Packing<R> {
        let (dim, features, offset) = (self.dim(), self.features(), self.offset());
        // The columns before the features are written later, and those beyond the last by nobody.
        let shifted = |weight: &dyn Fn(usize, usize) -> f64, depth: usize| {
            Panels::from_fn(self.width(), depth, |c, l| match c.checked_sub(offset) {
                Some(m) if m < features => R::from_f64(weight(m, l)),
                _ => R::ZERO,
            })
        };
        match &self.record.numbers {
            Numbers::Waves { frequencies, phases } => {
                // Only the fraction of a turn counts.
                let weight = |m: usize, l: usize| match l {
                    l if l < dim => frequencies[(m, l)] / TAU,
                    _ => (phases[m] / TAU).fract(),
                };
                Packing { weights: shifted(&weight, dim + 1), whitening: None }
            }
            Numbers::Positive(map) => {
                let sides = [Side::Query, Side::Key].map(|side| map.side(side));
                let half_log = 0.5 * (features as f64).ln();
                let constants: Vec<f64> = (0..features)
                    .map(|m| {
                        let each = sides.map(|side| {
                            side.constants[m] + crate::linalg::dot(side.weights.row(m), &side.shift)
                        });
                        0.5 * (each[0] + each[1]) - half_log
                    })
                    .collect();
                let weight = |m: usize, l: usize| {
                    LOG2_E
                        * match l {
                            l if l < dim => {
                                0.5 * (sides[0].weights[(m, l)] + sides[1].weights[(m, l)])
                            }
                            l if l == dim => constants[m],
                            _ => 1.0,
                        }
                };
                Packing { weights: shifted(&weight, dim + 2), whitening: None }
            }
            Numbers::Landmarks { rows, whitening } => {
                let norms: Vec<f64> =
                    (0..features).map(|m| rows.row(m).iter().map(|v| v * v).sum::<f64>()).collect();
                // −½‖x−z‖², for the Gaussian to the base two.
                let unit = if self.shape() == KernelShape::Gaussian { LOG2_E } else { 1.0 };
                let weight = |m: usize, l: usize| {
                    unit * match l {
                        l if l < dim => rows[(m, l)],
                        l if l == dim => -0.5 * norms[m],
                        _ => 1.0,
                    }
                };
                let weights = Panels::from_fn(features, dim + 2, |m, l| {
                    R::from_f64(if m < features { weight(m, l) } else { 0.0 })
                });
                let whiten = |m: usize, l: usize| if l <= m { whitening[(m, l)] } else { 0.0 };
                Packing { weights, whitening: Some(shifted(&whiten, features)) }
            }
        }
    }

    /// `√(2/M) cos(2π(…))`.
    fn wave_tile<R: Real>(
        &self,
        packing: &Packing<R>,
        scaled: &Matrix<f64>,
        columns: usize,
    ) -> Tile<R> {
        let mut tile = project(packing, scaled, None, columns);
        let factor = R::from_f64((2.0 / self.features() as f64).sqrt());
        let used = packing.weights.width * tile.rows;
        R::kernels().cosines(factor, &mut tile.panels.data[..used]);
        clear_after(&mut tile, self.width());
        tile
    }

    /// The geometric mean of the features of both sides, which differ by a constant factor.
    fn positive_tile(
        &self,
        packing: &Packing<f64>,
        map: &FeatureMap,
        scaled: &Matrix<f64>,
        columns: usize,
    ) -> Tile<f64> {
        let mut terms = vec![0.0; scaled.rows()];
        for side in [Side::Query, Side::Key].map(|side| map.side(side)) {
            let moved = Matrix::from_fn(scaled.rows(), scaled.columns(), |i, l| {
                scaled[(i, l)] + side.shift[l]
            });
            let values = side.row.values(scaled, &moved);
            terms.iter_mut().zip(values).for_each(|(t, v)| *t += 0.5 * v);
        }
        let mut tile = project(packing, scaled, Some(&terms), columns);
        let used = packing.weights.width * tile.rows;
        f64::kernels().exp2(&mut tile.panels.data[..used], used);
        clear_after(&mut tile, self.width());
        tile
    }

    /// `L⁻¹ k(Z, x)`.
    fn landmark_tile<R: Real>(
        &self,
        packing: &Packing<R>,
        scaled: &Matrix<f64>,
        columns: usize,
    ) -> Tile<R> {
        let kernels = R::kernels();
        let mut tile = Tile::zeros(scaled.rows(), columns);
        let Some(whitening) = &packing.whitening else { return tile };
        let values = self.landmark_values(packing, scaled);
        let (rows, stride) = (scaled.rows(), packing.weights.width);
        let Panels { data, panel, depth, width } = whitening;
        for start in (0..*width).step_by(*panel) {
            // A feature depends on its own landmark and those before it.
            let last = (start + panel).saturating_sub(self.offset()).min(*depth);
            let shape = Gemm {
                rows,
                columns: *panel,
                depth: last,
                a: (stride, 1),
                b_row: *panel,
                b_panel: *panel,
                c_row: *panel,
                accumulate: false,
                in_parts: false,
                prefetch: Prefetch::default(),
            };
            let out = &mut tile.panels.data[start * rows..(start + panel) * rows];
            kernels.gemm(&shape, &values, &data[start * depth..], out);
        }
        tile
    }

    /// The largest error of a feature in `f32`, 0 for features of no landmarks. Whitening enlarges what
    /// rounding leaves of the kernel, how much depends on the landmarks; at these themselves, where a distance
    /// is 0, rounding shows most.
    pub(crate) fn single_error(&self) -> f64 {
        let Numbers::Landmarks { rows, .. } = &self.record.numbers else { return 0.0 };
        *self.packed.error.get_or_init(|| {
            let some = rows.view().slice(0, PIECE.min(rows.rows())).to_f64(1.0);
            let width = self.width();
            let exact = f64::tile(self, &some, width);
            let packing = self.packed.single.get_or_init(|| self.packing());
            let single = self.landmark_tile(packing, &some, width);
            let error = |i: usize, c: usize| (exact.get(i, c) - single.get(i, c)).abs();
            let places = (0..some.rows()).flat_map(|i| (0..width).map(move |c| (i, c)));
            // NaN is not small.
            places.fold(0.0, |most, (i, c)| match error(i, c) {
                error if error.is_nan() => f64::INFINITY,
                error => error.max(most),
            })
        })
    }

    /// Of coefficients of the columns after the first those of the kernel with the landmarks, if there are
    /// any: `Σ β_m φ_m = Σ γ_j k(z_j, ·)` with `γ = L⁻ᵀβ`. A readout then needs no whitening.
    pub(crate) fn landmark_weights(&self, coefficients: &Matrix<f64>) -> Option<Matrix<f64>> {
        let Numbers::Landmarks { whitening, .. } = &self.record.numbers else { return None };
        let (before, targets) = (self.offset() - 1, coefficients.columns());
        let count = coefficients.rows() - before;
        let own = Matrix::from_fn(whitening.rows(), targets, |m, t| match m {
            m if m < count => coefficients[(before + m, t)],
            _ => 0.0,
        });
        Some(transposed_product(whitening, &own))
    }

    /// `k(Z, x)` of scaled rows, and how far one row is from the next.
    pub(crate) fn landmark_kernel(&self, scaled: &Matrix<f64>) -> (Aligned<f64>, usize) {
        let packing = self.packed.double.get_or_init(|| self.packing());
        (self.landmark_values(packing, scaled), packing.weights.width)
    }

    /// `k(Z, x)`, row after row, each padded to whole panels.
    fn landmark_values<R: Real>(&self, packing: &Packing<R>, scaled: &Matrix<f64>) -> Aligned<R> {
        let (rows, weights) = (scaled.rows(), &packing.weights);
        let halves: Vec<f64> =
            (0..rows).map(|i| -0.5 * scaled.row(i).iter().map(|v| v * v).sum::<f64>()).collect();
        let extended = extended::<R>(scaled, Some(&halves));
        let mut out = Aligned::zeros(rows * weights.width);
        R::kernels().gemm(
            &Gemm { c_row: weights.width, columns: weights.width, ..shape_of(weights, rows) },
            &extended,
            &weights.data,
            &mut out,
        );
        apply_shape(self.shape(), &mut out);
        out
    }
}

/// From `−½‖x−z‖²` to the kernel.
fn apply_shape<R: Real>(shape: KernelShape, values: &mut [R]) {
    let kernels = R::kernels();
    let Some(degrees) = shape.degrees() else {
        // Rounding may leave a distance below zero.
        values.iter_mut().for_each(|v| *v = if *v < R::ZERO { *v } else { R::ZERO });
        return kernels.exp2(values, values.len());
    };
    let factor = 2.0 * degrees as f64;
    let power = |v: f64| -(factor * (-v).max(0.0)).sqrt() * LOG2_E;
    values.iter_mut().for_each(|v| *v = R::from_f64(power(v.to_f64())));
    let radii: Vec<R> = match degrees {
        1 => vec![],
        _ => values.iter().map(|v| R::from_f64(-v.to_f64() / LOG2_E)).collect(),
    };
    kernels.exp2(values, values.len());
    let third = R::from_f64(1.0 / 3.0);
    match degrees {
        1 => {}
        3 => values.iter_mut().zip(&radii).for_each(|(v, r)| *v = *v * (R::ONE + *r)),
        _ => {
            let pairs = values.iter_mut().zip(&radii);
            pairs.for_each(|(v, r)| *v = *v * (R::ONE + *r + third * *r * *r));
        }
    }
}

/// The product with the packed weights, in panels.
fn project<R: Real>(
    packing: &Packing<R>,
    scaled: &Matrix<f64>,
    terms: Option<&[f64]>,
    columns: usize,
) -> Tile<R> {
    let (rows, weights) = (scaled.rows(), &packing.weights);
    let extended = extended::<R>(scaled, terms);
    let mut tile = Tile::zeros(rows, columns);
    let shape = shape_of(weights, rows);
    for start in (0..weights.width).step_by(weights.panel) {
        let out = &mut tile.panels.data[start * rows..(start + weights.panel) * rows];
        R::kernels().gemm(&shape, &extended, &weights.data[start * weights.depth..], out);
    }
    tile
}

/// The product of extended rows with one panel.
fn shape_of<R>(weights: &Panels<R>, rows: usize) -> Gemm {
    Gemm {
        rows,
        columns: weights.panel,
        depth: weights.depth,
        a: (weights.depth, 1),
        b_row: weights.panel,
        b_panel: weights.panel * weights.depth,
        c_row: weights.panel,
        accumulate: false,
        in_parts: false,
        prefetch: Prefetch::default(),
    }
}

/// Rows with a one behind them, and a term of each.
fn extended<R: Real>(scaled: &Matrix<f64>, terms: Option<&[f64]>) -> Vec<R> {
    let mut out = Vec::with_capacity(scaled.rows() * (scaled.columns() + 2));
    for i in 0..scaled.rows() {
        out.extend(scaled.row(i).iter().map(|v| R::from_f64(*v)));
        out.push(R::ONE);
        out.extend(terms.map(|t| R::from_f64(t[i])));
    }
    out
}

/// Padding holds the features of nothing; targets and sums want zeros there.
fn clear_after<R: Real>(tile: &mut Tile<R>, width: usize) {
    let panel = tile.panels.panel;
    for column in width..width.next_multiple_of(panel) {
        for i in 0..tile.rows {
            let place = tile.place(i, column);
            tile.panels.data[place] = R::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moments;
    use crate::draw::Stream;
    use crate::learn::{Basis, DesignSpec};

    /// What rounding does to features of landmarks, measured at these, is what it does to other rows; where
    /// it is too much, features are computed in `f64`.
    #[test]
    fn landmarks_round_as_measured() {
        let mut stream = Stream::new(5, 20);
        let rows = Matrix::from_fn(3000, 4, |_, _| stream.normal());
        let moments = Moments::of(rows.view()).unwrap();
        let (mut single, mut double) = (0, 0);
        for shape in KernelShape::ALL {
            for bandwidth in [0.5, 2.0, 8.0, 32.0] {
                let spec = DesignSpec::new(60).basis(Basis::Nystrom).shape(shape);
                let design = spec.bandwidth(bandwidth).fit(&moments, rows.view()).unwrap();
                let scaled = design.scaled(rows.view().slice(1000, 3000));
                let exact = f64::tile(&design, &scaled, design.width());
                let rounded = f32::tile(&design, &scaled, design.width());
                let (mut worst, mut converted) = (0.0_f64, true);
                for i in 0..scaled.rows() {
                    for c in design.offset()..design.width() {
                        let (found, wanted) = (rounded.get(i, c), exact.get(i, c));
                        worst = worst.max((found - wanted).abs());
                        converted &= found == f64::from(wanted as f32);
                    }
                }
                let measured = design.single_error();
                if measured > SINGLE {
                    double += 1;
                    assert!(converted, "{shape} {bandwidth}");
                    continue;
                }
                single += 1;
                assert!(!converted, "{shape} {bandwidth}: nothing was rounded");
                // Distances are rounded by a share of the squared norms, which other rows may have larger.
                let most = |m: &Matrix<f64>| {
                    let norm = |i: usize| m.row(i).iter().map(|v| v * v).sum::<f64>();
                    1.0 + (0..m.rows()).map(norm).fold(0.0, f64::max)
                };
                let landmarks = design.scaled(design.landmarks().unwrap().view());
                let allowed = 2.0 * measured * most(&scaled) / most(&landmarks);
                assert!(worst <= allowed, "{shape} {bandwidth}: {worst} over {allowed}");
            }
        }
        assert!(single > 4 && double > 4, "{single} {double}");
    }
}
