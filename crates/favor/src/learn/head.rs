//! A head: what turns the columns of a design into predictions.

use super::design::{PIECE, Tile};
use super::{Design, Outcome};
use crate::linalg::product_transposed;
use crate::simd::{Aligned, Gemm, Prefetch, Real};
use crate::store::{Array, Kind};
use crate::{Error, Float, Matrix, Result, Rows};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

const KIND: Kind = Kind::new("favor.head", "head of a design", 1);

/// A linear readout of a design: intercepts and coefficients, and for a Gaussian process its variance.
///
/// [`GramSums::ridge`](super::GramSums::ridge), [`GramSums::gp`](super::GramSums::gp) and
/// [`LogisticFit`](super::LogisticFit) make them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Head {
    outcome: Outcome,
    /// Columns of the design before the features.
    offset: usize,
    intercepts: Vec<f64>,
    /// One row per column of the design without the first, one column per target.
    coefficients: Matrix<f64>,
    link: Link,
    penalty: f64,
    variance: Option<Variance>,
}

#[derive(Deserialize)]
struct Raw {
    outcome: Outcome,
    offset: usize,
    intercepts: Vec<f64>,
    coefficients: Matrix<f64>,
    link: Link,
    penalty: f64,
    variance: Option<Variance>,
}

/// What becomes of a readout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// Nothing.
    Identity,
    /// Probabilities: `exp(v_c) / Σ exp(v)`.
    Softmax,
}

/// What a Gaussian process knows of its errors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Variance {
    /// The variance of the noise of each target, as it is summed.
    pub(super) noise: Vec<f64>,
    pub(super) weight: f64,
    /// The means of the columns.
    pub(super) means: Vec<f64>,
    /// `L⁻¹` with `L Lᵀ = A + λI`.
    pub(super) factor: Matrix<f64>,
}

impl TryFrom<Raw> for Head {
    type Error = Error;
    fn try_from(raw: Raw) -> Result<Self> {
        let Raw { outcome, offset, intercepts, coefficients, link, penalty, variance } = raw;
        Self::new(outcome, offset, intercepts, coefficients, link, penalty, variance)
    }
}

impl Head {
    pub(super) fn new(
        outcome: Outcome,
        offset: usize,
        intercepts: Vec<f64>,
        coefficients: Matrix<f64>,
        link: Link,
        penalty: f64,
        variance: Option<Variance>,
    ) -> Result<Self> {
        let (size, targets) = coefficients.shape();
        let numbers = coefficients.as_slice().iter().chain(&intercepts);
        let known = variance.as_ref().is_none_or(|v| {
            v.noise.len() == targets
                && v.means.len() == size
                && v.factor.shape() == (size, size)
                && v.weight > 0.0
        });
        let fits = outcome.width() == targets
            && intercepts.len() == targets
            && offset >= 1
            && size >= offset
            && known
            && numbers.copied().all(f64::is_finite);
        if !fits {
            return Err(Error::invalid("head", "its numbers do not belong together"));
        }
        Ok(Self { outcome, offset, intercepts, coefficients, link, penalty, variance })
    }

    /// What is predicted.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Leading features of the design that it reads.
    pub fn features(&self) -> usize {
        self.coefficients.rows() + 1 - self.offset
    }

    /// The penalty that it was fitted with.
    pub fn penalty(&self) -> f64 {
        self.penalty
    }

    /// What becomes of the readout.
    pub fn link(&self) -> Link {
        self.link
    }

    /// Whether it knows its variance.
    pub fn has_variance(&self) -> bool {
        self.variance.is_some()
    }

    /// One per target, as the targets are summed.
    pub fn intercepts(&self) -> &[f64] {
        &self.intercepts
    }

    /// One row per column of the design without the first, one column per target, as they are summed.
    pub fn coefficients(&self) -> &Matrix<f64> {
        &self.coefficients
    }

    /// One row per row: numbers in their own units, or a value per class. Those of a softmax are
    /// probabilities; for others see [`class_probabilities`].
    pub fn predict<T: Float>(&self, design: &Design, rows: Rows<'_, T>) -> Result<Matrix<f64>> {
        self.check(design)?;
        design.check(rows)?;
        let targets = self.intercepts.len();
        let packed = PackedHead::of(&self.intercepts, &self.coefficients, design);
        let landmarks = design.landmark_weights(&self.coefficients);
        let mut out = Matrix::zeros(rows.rows(), targets);
        let pieces = out.as_mut_slice().par_chunks_mut(PIECE * targets.max(1));
        pieces.zip(rows.blocks(PIECE).collect::<Vec<_>>()).try_for_each(|(out, piece)| {
            let scaled = design.scaled(piece);
            let readouts = match &landmarks {
                Some(weights) => self.landmark_readouts(design, weights, &scaled, packed.columns),
                None => packed.readouts(&design.tile::<f64>(&scaled, 0)?),
            };
            for (row, sums) in
                out.chunks_exact_mut(targets.max(1)).zip(readouts.chunks_exact(packed.columns))
            {
                row.copy_from_slice(&sums[..targets]);
            }
            Ok::<(), Error>(())
        })?;
        self.finish(&mut out);
        Ok(out)
    }

    /// The means of a Gaussian process and the standard deviations of new observations, noise included:
    /// `s²(1 + 1/n + φᵀ(A + λ)⁻¹φ)` with centred φ.
    pub fn predict_with_deviation<T: Float>(
        &self,
        design: &Design,
        rows: Rows<'_, T>,
    ) -> Result<(Matrix<f64>, Matrix<f64>)> {
        let Some(variance) = &self.variance else {
            let reason = "it knows no variance; fit a Gaussian process";
            return Err(Error::invalid("head", reason));
        };
        let mean = self.predict(design, rows)?;
        let (size, targets) = self.coefficients.shape();
        let mut out = Matrix::zeros(rows.rows(), targets);
        let scale = |t: usize| match &self.outcome {
            Outcome::Numbers(scalings) => scalings[t].scale,
            Outcome::Classes(_) => 1.0,
        };
        let pieces = out.as_mut_slice().par_chunks_mut(PIECE * targets.max(1));
        pieces.zip(rows.blocks(PIECE).collect::<Vec<_>>()).try_for_each(|(out, piece)| {
            let tile = design.tile::<f64>(&design.scaled(piece), 0)?;
            let centred =
                Matrix::from_fn(tile.rows, size, |i, c| tile.get(i, c + 1) - variance.means[c]);
            let transformed = product_transposed(&centred, &variance.factor);
            for (i, row) in out.chunks_exact_mut(targets).enumerate() {
                let spread: f64 = transformed.row(i).iter().map(|v| v * v).sum();
                for (t, value) in row.iter_mut().enumerate() {
                    let total = variance.noise[t] * (1.0 + 1.0 / variance.weight + spread);
                    *value = total.sqrt() * scale(t).abs();
                }
            }
            Ok::<(), Error>(())
        })?;
        Ok((mean, out))
    }

    /// The readouts of rows by the kernel with the landmarks, padded to so many columns.
    fn landmark_readouts(
        &self,
        design: &Design,
        weights: &Matrix<f64>,
        scaled: &Matrix<f64>,
        columns: usize,
    ) -> Aligned<f64> {
        let (values, stride) = design.landmark_kernel(scaled);
        let (count, targets) = weights.shape();
        let mut right = Aligned::zeros(count * columns);
        for j in 0..count {
            right[j * columns..j * columns + targets].copy_from_slice(weights.row(j));
        }
        let mut out = Aligned::zeros(scaled.rows() * columns);
        for row in out.chunks_exact_mut(columns) {
            row[..targets].copy_from_slice(&self.intercepts);
        }
        let shape = Gemm {
            rows: scaled.rows(),
            columns,
            depth: count,
            a: (stride, 1),
            b_row: columns,
            b_panel: 2 * f64::kernels().lanes,
            c_row: columns,
            accumulate: true,
            in_parts: false,
            prefetch: Prefetch::default(),
        };
        f64::kernels().gemm(&shape, &values, &right, &mut out);
        if self.offset > 1 {
            let linear = design.linear_part(scaled);
            for (i, row) in out.chunks_exact_mut(columns).enumerate() {
                for (l, value) in linear.row(i).iter().enumerate() {
                    let own = row.iter_mut().zip(self.coefficients.row(l));
                    own.for_each(|(o, c)| *o += value * c);
                }
            }
        }
        out
    }

    /// From the readout to predictions.
    fn finish(&self, out: &mut Matrix<f64>) {
        match (&self.outcome, self.link) {
            (Outcome::Numbers(scalings), _) => {
                for i in 0..out.rows() {
                    let row = out.row_mut(i).iter_mut().zip(scalings);
                    row.for_each(|(v, scaling)| *v = scaling.undo(*v));
                }
            }
            (Outcome::Classes(_), Link::Softmax) => {
                (0..out.rows()).for_each(|i| softmax(out.row_mut(i)));
            }
            (Outcome::Classes(_), Link::Identity) => {}
        }
    }

    fn check(&self, design: &Design) -> Result<()> {
        if self.offset == design.offset() && self.coefficients.rows() < design.width() {
            return Ok(());
        }
        let (found, wanted) = (design.features(), self.features());
        let reason = format!("a design of {found} features where the head reads {wanted}");
        Err(Error::invalid("head", reason))
    }

    /// The head as the bytes of a safetensors file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (rows, columns) = self.coefficients.shape();
        let mut arrays = vec![
            Array::f64("intercepts", [self.intercepts.len()], &self.intercepts),
            Array::f64("coefficients", [rows, columns], self.coefficients.as_slice()),
        ];
        if let Some(v) = &self.variance {
            arrays.push(Array::f64("noise", [v.noise.len()], &v.noise));
            arrays.push(Array::f64("means", [v.means.len()], &v.means));
            arrays.push(Array::f64("factor", [rows, rows], v.factor.as_slice()));
        }
        let header = Header {
            outcome: self.outcome.clone(),
            offset: self.offset,
            link: self.link,
            penalty: self.penalty,
            weight: self.variance.as_ref().map(|v| v.weight),
        };
        KIND.write(&header, arrays)
    }

    /// Reads the bytes that [`Head::to_bytes`] made.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let file = KIND.read::<Header>(bytes)?;
        let vector = |name: &str| file.f64(name).map(|(_, values)| values);
        let Header { outcome, offset, link, penalty, weight } = &file.contents;
        let variance = match *weight {
            None => None,
            Some(weight) => Some(Variance {
                noise: vector("noise")?,
                weight,
                means: vector("means")?,
                factor: file.matrix("factor")?,
            }),
        };
        let (intercepts, coefficients) = (vector("intercepts")?, file.matrix("coefficients")?);
        Self::new(outcome.clone(), *offset, intercepts, coefficients, *link, *penalty, variance)
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    outcome: Outcome,
    offset: usize,
    link: Link,
    penalty: f64,
    weight: Option<f64>,
}

/// Intercepts and coefficients, packed for tiles.
pub(super) struct PackedHead {
    /// One row per column of the design, padded to whole panels; one column per target, padded to vectors.
    weights: Aligned<f64>,
    columns: usize,
    targets: usize,
    panels: usize,
}

impl PackedHead {
    pub(super) fn of(intercepts: &[f64], coefficients: &Matrix<f64>, design: &Design) -> Self {
        let lanes = f64::kernels().lanes;
        let (size, targets) = coefficients.shape();
        let columns = targets.next_multiple_of(lanes).max(lanes);
        let panels = design.width().div_ceil(2 * lanes);
        let mut weights = Aligned::zeros(panels * 2 * lanes * columns);
        weights[..targets].copy_from_slice(intercepts);
        for i in 0..size {
            let start = (i + 1) * columns;
            weights[start..start + targets].copy_from_slice(coefficients.row(i));
        }
        Self { weights, columns, targets, panels }
    }

    /// Numbers from one row of readouts to the next.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn targets(&self) -> usize {
        self.targets
    }

    pub(super) fn panels(&self) -> usize {
        self.panels
    }

    /// The readout of each row of a tile, padded.
    pub(super) fn readouts(&self, tile: &Tile<f64>) -> Aligned<f64> {
        let panel = tile.panels.panel;
        let mut sums = Aligned::zeros(tile.rows * self.columns);
        for p in 0..self.panels {
            let shape = Gemm {
                rows: tile.rows,
                columns: self.columns,
                depth: panel,
                a: (panel, 1),
                b_row: self.columns,
                b_panel: panel,
                c_row: self.columns,
                accumulate: true,
                in_parts: false,
                prefetch: Prefetch::default(),
            };
            let (a, b) = (&tile.panels.data[p * panel * tile.rows..], &self.weights);
            f64::kernels().gemm(&shape, a, &b[p * panel * self.columns..], &mut sums);
        }
        sums
    }
}

/// Turns logits into probabilities.
pub(super) fn softmax(row: &mut [f64]) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter_mut().for_each(|v| *v = (*v - largest).exp());
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|v| *v /= sum);
}

/// Turns the values of a ridge head for classes into probabilities: what is below zero is cut off, and the
/// rest divided by its sum.
///
/// ```
/// use favor::{Matrix, learn::class_probabilities};
/// let mut values = Matrix::new(vec![1.2, 0.3, -0.5], 1, 3)?;
/// class_probabilities(&mut values);
/// assert!((values[(0, 0)] - 0.8).abs() < 1e-12 && values[(0, 2)] == 0.0);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn class_probabilities(values: &mut Matrix<f64>) {
    for i in 0..values.rows() {
        let row = values.row_mut(i);
        row.iter_mut().for_each(|v| *v = v.max(0.0));
        let sum: f64 = row.iter().sum();
        let count = row.len() as f64;
        row.iter_mut().for_each(|v| *v = if sum > 0.0 { *v / sum } else { 1.0 / count });
    }
}
