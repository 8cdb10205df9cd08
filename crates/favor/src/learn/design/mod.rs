//! What a linear model behind a kernel sees of a row: features whose inner products estimate the kernel.
//!
//! [`DesignSpec`] says which, and makes a [`Design`] of the moments of the rows and a sample of them. A
//! design scales rows itself, and is nested: its first m features are a design of m features, so that
//! one matrix of products serves every smaller number of them.

mod gradient;
mod nystrom;
mod spec;
mod store;
mod tile;

pub use spec::{Basis, DesignSpec};
pub(crate) use tile::{PIECE, Tile, TileReal};

use super::{KernelShape, Scaling};
use crate::linalg::product_transposed;
use crate::{Error, FeatureMap, Float, Matrix, Result, Rows};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tile::Packings;

/// Scaled coordinates beyond this overflow in projections.
const LARGEST: f64 = 1e18;

/// Columns that a row becomes: `[1, linear part, φ]`, the same for every row of a model.
///
/// ```
/// use favor::learn::{Basis, DesignSpec, KernelShape};
/// use favor::{Matrix, Moments};
/// let rows = Matrix::from_fn(300, 2, |i, l| ((3 * i + 5 * l) as f64).sin());
/// let spec = DesignSpec::new(128).basis(Basis::Nystrom).shape(KernelShape::Matern32).bandwidth(1.5);
/// let design = spec.fit(&Moments::of(rows.view())?, rows.view())?;
/// let phi = design.transform(rows.view())?;
/// let estimate: f64 = phi.row(200).iter().zip(phi.row(201)).map(|(a, b)| a * b).sum();
/// let exact = design.kernel_matrix(rows.view().slice(200, 201), rows.view().slice(201, 202))?;
/// assert!((estimate - exact[(0, 0)]).abs() < 0.01);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct Design {
    record: Arc<Record>,
    packed: Arc<Packings>,
}

/// All that defines a design.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    spec: DesignSpec,
    /// How each coordinate is scaled; the bandwidth is in it.
    inputs: Vec<Scaling>,
    numbers: Numbers,
}

/// Where features come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Numbers {
    /// `√(2/M) cos(ωᵀx + θ)`.
    Waves { frequencies: Matrix<f64>, phases: Vec<f64> },
    /// The positive features of a map for the Gaussian kernel.
    Positive(Box<FeatureMap>),
    /// `L⁻¹ k(Z, x)` with landmarks `Z` and `k(Z, Z) = L Lᵀ`.
    Landmarks { rows: Matrix<f64>, whitening: Matrix<f64> },
}

impl PartialEq for Design {
    fn eq(&self, other: &Self) -> bool {
        self.record == other.record
    }
}

impl From<Design> for Record {
    fn from(design: Design) -> Self {
        Arc::unwrap_or_clone(design.record)
    }
}

impl TryFrom<Record> for Design {
    type Error = Error;
    fn try_from(record: Record) -> Result<Self> {
        let bad = |reason: String| Err(Error::invalid("design", reason));
        let Record { spec, inputs, numbers } = &record;
        let finite = |values: &[f64]| values.iter().all(|v| v.is_finite());
        let dim = inputs.len();
        if dim == 0
            || !inputs.iter().all(|s| s.centre.is_finite() && s.scale.is_finite() && s.scale > 0.0)
        {
            return bad("the scalings of the columns are not valid".into());
        }
        if spec.bandwidths.len() != 1 && spec.bandwidths.len() != dim {
            return bad(format!("{} bandwidths for {dim} columns", spec.bandwidths.len()));
        }
        let valid = match numbers {
            Numbers::Waves { frequencies, phases } => {
                frequencies.shape() == (phases.len(), dim)
                    && finite(frequencies.as_slice())
                    && finite(phases)
            }
            Numbers::Positive(map) => map.dim() == dim,
            Numbers::Landmarks { rows, whitening } => {
                rows.columns() == dim
                    && whitening.shape() == (rows.rows(), rows.rows())
                    && finite(rows.as_slice())
                    && finite(whitening.as_slice())
            }
        };
        if !valid {
            return bad("its numbers do not belong together".into());
        }
        Ok(Self { packed: Arc::default(), record: Arc::new(record) })
    }
}

impl Design {
    fn new(spec: DesignSpec, inputs: Vec<Scaling>, numbers: Numbers) -> Result<Self> {
        Record { spec, inputs, numbers }.try_into()
    }

    /// What it was made as.
    pub fn spec(&self) -> &DesignSpec {
        &self.record.spec
    }

    /// The kernel's shape.
    pub fn shape(&self) -> KernelShape {
        self.record.spec.shape
    }

    /// Columns of the rows that it takes.
    pub fn dim(&self) -> usize {
        self.record.inputs.len()
    }

    /// The number of features M. With landmarks it may be smaller than asked for.
    pub fn features(&self) -> usize {
        match &self.record.numbers {
            Numbers::Waves { phases, .. } => phases.len(),
            Numbers::Positive(map) => map.features(),
            Numbers::Landmarks { rows, .. } => rows.rows(),
        }
    }

    /// Columns before the features: the intercept's, and those of the linear part.
    pub fn offset(&self) -> usize {
        1 + if self.record.spec.linear { self.dim() } else { 0 }
    }

    /// All columns: [`offset`](Self::offset) and [`features`](Self::features).
    pub fn width(&self) -> usize {
        self.offset() + self.features()
    }

    /// The landmarks in the units of the rows, if it has any.
    pub fn landmarks(&self) -> Option<Matrix<f64>> {
        let Numbers::Landmarks { rows, .. } = &self.record.numbers else { return None };
        let inputs = &self.record.inputs;
        Some(Matrix::from_fn(rows.rows(), rows.columns(), |i, l| inputs[l].undo(rows[(i, l)])))
    }

    /// Whether no feature exceeds one in magnitude, so that `f32` sums of short blocks are accurate.
    pub fn is_bounded(&self) -> bool {
        !matches!(self.record.numbers, Numbers::Positive(_))
    }

    /// One row per row: the linear part, then the features. The column of ones is left out.
    pub fn transform<T: Float>(&self, rows: Rows<'_, T>) -> Result<Matrix<T>> {
        self.check(rows)?;
        let width = self.width() - 1;
        let mut out = Matrix::zeros(rows.rows(), width);
        let pieces = out.as_mut_slice().par_chunks_mut((PIECE * width).max(1));
        pieces.zip(rows.blocks(PIECE).collect::<Vec<_>>()).try_for_each(|(out, piece)| {
            let tile = self.tile::<f64>(&self.scaled(piece), 0)?;
            for (i, row) in out.chunks_exact_mut(width.max(1)).enumerate() {
                for (c, value) in row.iter_mut().enumerate() {
                    *value = T::from_f64(tile.get(i, c + 1));
                }
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// The exact kernel that the features estimate, one row per row of `a`, one column per row of `b`.
    /// The linear part, if there is one, is part of it.
    pub fn kernel_matrix<T: Float>(&self, a: Rows<'_, T>, b: Rows<'_, T>) -> Result<Matrix<f64>> {
        self.check(a)?;
        self.check(b)?;
        let (a, b) = (self.scaled(a), self.scaled(b));
        let mut out = kernel_matrix(self.shape(), &a, &b);
        if self.record.spec.linear {
            let linear = product_transposed(&self.linear_part(&a), &self.linear_part(&b));
            out.as_mut_slice().iter_mut().zip(linear.as_slice()).for_each(|(k, l)| *k += l);
        }
        Ok(out)
    }

    /// An error unless rows have the right number of columns and are finite.
    pub(crate) fn check<T: Float>(&self, rows: Rows<'_, T>) -> Result<()> {
        self.check_some(rows, &(0..rows.rows()).collect::<Vec<_>>())
    }

    pub(crate) fn check_columns<T: Float>(&self, rows: Rows<'_, T>) -> Result<()> {
        if rows.columns() != self.dim() {
            return Err(Error::Shape {
                operation: "design",
                left: "design",
                left_shape: (self.features(), self.dim()),
                right: "rows",
                right_shape: rows.shape(),
            });
        }
        Ok(())
    }

    /// An error that names the first number of some rows that is not finite or too far away to compute with.
    pub(crate) fn check_some<T: Float>(&self, rows: Rows<'_, T>, chosen: &[usize]) -> Result<()> {
        self.check_columns(rows)?;
        for &i in chosen {
            for (l, (value, scaling)) in rows.row(i).iter().zip(&self.record.inputs).enumerate() {
                let value = value.to_f64();
                if !value.is_finite() {
                    return Err(Error::NonFinite { what: "rows".into(), row: i, column: l, value });
                }
                if scaling.apply(value).abs() > LARGEST {
                    let reason = format!(
                        "{value} at row {i}, column {l} is more than 10¹⁸ bandwidths from the mean"
                    );
                    return Err(Error::invalid("rows", reason));
                }
            }
        }
        Ok(())
    }

    /// Rows in the units of the kernel.
    pub(crate) fn scaled<T: Float>(&self, rows: Rows<'_, T>) -> Matrix<f64> {
        self.scaled_rows(rows.iter())
    }

    /// Some rows in the units of the kernel.
    pub(crate) fn scaled_some<T: Float>(&self, rows: Rows<'_, T>, chosen: &[usize]) -> Matrix<f64> {
        self.scaled_rows(chosen.iter().map(|&i| rows.row(i)))
    }

    fn scaled_rows<'a, T: Float>(
        &self,
        rows: impl ExactSizeIterator<Item = &'a [T]>,
    ) -> Matrix<f64> {
        let mut out = Matrix::zeros(rows.len(), self.dim());
        for (row, target) in rows.zip(out.as_mut_slice().chunks_exact_mut(self.dim())) {
            for ((value, scaling), out) in row.iter().zip(&self.record.inputs).zip(target) {
                *out = scaling.apply(value.to_f64());
            }
        }
        out
    }

    /// Of scaled rows the columns of the linear part: without the bandwidth, and with a mean squared norm
    /// of about one, as the features have.
    pub(crate) fn linear_part(&self, scaled: &Matrix<f64>) -> Matrix<f64> {
        let unit = (self.dim() as f64).sqrt();
        let factor = |l: usize| self.record.spec.bandwidth_of(l) / unit;
        Matrix::from_fn(scaled.rows(), scaled.columns(), |i, l| scaled[(i, l)] * factor(l))
    }
}

/// The kernel of rows in its own units.
fn kernel_matrix(shape: KernelShape, a: &Matrix<f64>, b: &Matrix<f64>) -> Matrix<f64> {
    let mut out = product_transposed(a, b);
    let norms = |m: &Matrix<f64>| -> Vec<f64> {
        (0..m.rows()).map(|i| m.row(i).iter().map(|v| v * v).sum()).collect()
    };
    let (left, right) = (norms(a), norms(b));
    for (i, l) in left.iter().enumerate() {
        for (k, r) in out.row_mut(i).iter_mut().zip(&right) {
            *k = shape.value((l + r - 2.0 * *k).max(0.0));
        }
    }
    out
}
