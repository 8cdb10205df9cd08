//! One pass over the rows: the loss and its gradient, as sums that merge.

use crate::learn::design::{PIECE, Tile};
use crate::learn::head::{PackedHead, softmax};
use crate::learn::{Design, Known, Outcome};
use crate::simd::{Aligned, Gemm, Prefetch, Real};
use crate::{Error, Float, Matrix, Result, Rows};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Rows whose sums are made before they are added up in order.
const BLOCK: usize = 64 * PIECE;

/// The sums `Φᵀ(p − y)` and the loss at given coefficients, over the rows that were added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
pub struct LogisticPass {
    offset: usize,
    intercepts: Vec<f64>,
    coefficients: Matrix<f64>,
    /// One row per column of the design, one column per class.
    gradient: Matrix<f64>,
    loss: f64,
    weight: f64,
}

#[derive(Deserialize)]
struct Raw {
    offset: usize,
    intercepts: Vec<f64>,
    coefficients: Matrix<f64>,
    gradient: Matrix<f64>,
    loss: f64,
    weight: f64,
}

impl TryFrom<Raw> for LogisticPass {
    type Error = Error;
    fn try_from(raw: Raw) -> Result<Self> {
        let Raw { offset, intercepts, coefficients, gradient, loss, weight } = raw;
        let (size, classes) = coefficients.shape();
        let fits = intercepts.len() == classes
            && gradient.shape() == (size + 1, classes)
            && (1..=size).contains(&offset);
        if !fits {
            return Err(Error::invalid("pass", "its numbers do not belong together"));
        }
        Ok(Self { offset, intercepts, coefficients, gradient, loss, weight })
    }
}

/// The sums of a few rows.
struct Part {
    gradient: Aligned<f64>,
    loss: f64,
    weight: f64,
}

impl LogisticPass {
    pub(super) fn new(offset: usize, intercepts: Vec<f64>, coefficients: Matrix<f64>) -> Self {
        let (size, classes) = coefficients.shape();
        let gradient = Matrix::zeros(size + 1, classes);
        Self { offset, intercepts, coefficients, gradient, loss: 0.0, weight: 0.0 }
    }

    /// Adds rows with the index of each row's class. Rows of weight 0 are not looked at. After an error the
    /// sums are as they were.
    pub fn add<T: Float>(
        &mut self,
        design: &Design,
        rows: Rows<'_, T>,
        classes: &[usize],
        weights: Option<&[f64]>,
    ) -> Result<()> {
        if design.offset() != self.offset || design.width() != self.coefficients.rows() + 1 {
            return Err(Error::invalid("pass", "the design is not the one of the sums"));
        }
        let outcome = Outcome::Classes(self.intercepts.len());
        Known::Classes(classes).check(&outcome, rows.rows())?;
        let used = used(rows.rows(), weights)?;
        design.check_some(rows, &used)?;
        let head = PackedHead::of(&self.intercepts, &self.coefficients, design);
        let before = (self.gradient.clone(), self.loss, self.weight);
        for block in used.chunks(BLOCK) {
            let parts: Result<Vec<Part>> = block
                .par_chunks(PIECE)
                .map(|piece| {
                    let scaled = design.scaled_some(rows, piece);
                    let tile = design.tile::<f64>(&scaled, 0)?;
                    Ok(part(&head, &tile, piece, classes, weights))
                })
                .collect();
            match parts {
                Ok(parts) => parts.iter().for_each(|part| self.take(part, head.columns())),
                Err(error) => {
                    (self.gradient, self.loss, self.weight) = before;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, part: &Part, columns: usize) {
        let classes = self.intercepts.len();
        let rows = part.gradient.chunks_exact(columns).take(self.gradient.rows());
        for (i, row) in rows.enumerate() {
            let own = self.gradient.row_mut(i).iter_mut();
            own.zip(&row[..classes]).for_each(|(g, v)| *g += v);
        }
        self.loss += part.loss;
        self.weight += part.weight;
    }

    /// Adds the sums over other rows.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if !other.is_at(&self.intercepts, &self.coefficients) {
            return Err(Error::invalid("pass", "the passes are not of the same step"));
        }
        let pairs = self.gradient.as_mut_slice().iter_mut().zip(other.gradient.as_slice());
        pairs.for_each(|(a, b)| *a += b);
        self.loss += other.loss;
        self.weight += other.weight;
        Ok(())
    }

    /// The weight of the rows so far.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// The sum of `−log p` of the rows so far.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    pub(super) fn gradient(&self) -> &Matrix<f64> {
        &self.gradient
    }

    pub(super) fn is_at(&self, intercepts: &[f64], coefficients: &Matrix<f64>) -> bool {
        self.intercepts == intercepts && self.coefficients == *coefficients
    }
}

/// The rows of positive weight.
fn used(rows: usize, weights: Option<&[f64]>) -> Result<Vec<usize>> {
    let Some(weights) = weights else { return Ok((0..rows).collect()) };
    if weights.len() != rows || !weights.iter().all(|w| w.is_finite() && *w >= 0.0) {
        return Err(Error::invalid("weights", format!("{rows} numbers ≥ 0 are needed")));
    }
    Ok((0..rows).filter(|&i| weights[i] > 0.0).collect())
}

fn part(
    head: &PackedHead,
    tile: &Tile<f64>,
    piece: &[usize],
    classes: &[usize],
    weights: Option<&[f64]>,
) -> Part {
    let (columns, targets) = (head.columns(), head.targets());
    let mut errors = head.readouts(tile);
    let (mut loss, mut total) = (0.0, 0.0);
    for (row, &i) in errors.chunks_exact_mut(columns).zip(piece) {
        let weight = weights.map_or(1.0, |w| w[i]);
        let logits = &mut row[..targets];
        let (own, largest) =
            (logits[classes[i]], logits.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        let sum: f64 = logits.iter().map(|v| (v - largest).exp()).sum();
        loss += weight * (sum.ln() + largest - own);
        total += weight;
        softmax(logits);
        logits[classes[i]] -= 1.0;
        logits.iter_mut().for_each(|v| *v *= weight);
    }
    let panel = tile.panels.panel;
    let mut gradient = Aligned::zeros(head.panels() * panel * columns);
    for p in 0..head.panels() {
        let shape = Gemm {
            rows: panel,
            columns,
            depth: tile.rows,
            a: (1, panel),
            b_row: columns,
            b_panel: panel,
            c_row: columns,
            accumulate: false,
            in_parts: false,
            prefetch: Prefetch::default(),
        };
        let out = &mut gradient[p * panel * columns..(p + 1) * panel * columns];
        f64::kernels().gemm(&shape, &tile.panels.data[p * panel * tile.rows..], &errors, out);
    }
    Part { gradient, loss, weight: total }
}
