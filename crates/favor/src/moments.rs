//! Count, mean and scatter of a set of vectors: all that fitting needs to know about the data.

use crate::linalg::transposed_product;
use crate::{Error, Float, Matrix, Result, Rows};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

const BLOCK: usize = 4096;

/// Weighted mean and scatter of a set, kept in `f64`, fed in pieces and merged exactly.
///
/// ```
/// use favor::{Moments, Rows};
/// let first = Moments::of(Rows::new(&[0.0, 0.0, 2.0, 0.0], 2, 2)?)?;
/// let mut all = Moments::of(Rows::new(&[1.0, 3.0], 1, 2)?)?;
/// all.merge(&first)?;
/// assert_eq!(all.count(), 3);
/// assert_eq!(all.mean(), &[1.0, 1.0]);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawMoments")]
pub struct Moments {
    count: u64,
    weight: f64,
    mean: Vec<f64>,
    /// `Σ w (x−mean)(x−mean)ᵀ`.
    scatter: Matrix<f64>,
}

#[derive(Deserialize)]
struct RawMoments {
    count: u64,
    weight: f64,
    mean: Vec<f64>,
    scatter: Matrix<f64>,
}

impl TryFrom<RawMoments> for Moments {
    type Error = Error;
    fn try_from(raw: RawMoments) -> Result<Self> {
        let RawMoments { count, weight, mean, scatter } = raw;
        Self::from_scatter(count, weight, mean, scatter)
    }
}

impl Moments {
    /// The moments of an empty set of dimension `dim`.
    pub fn new(dim: usize) -> Self {
        Self { count: 0, weight: 0.0, mean: vec![0.0; dim], scatter: Matrix::zeros(dim, dim) }
    }

    /// Builds moments from what the methods of these names returned.
    pub fn from_scatter(
        count: u64,
        weight: f64,
        mean: Vec<f64>,
        scatter: Matrix<f64>,
    ) -> Result<Self> {
        let mut numbers = mean.iter().chain(scatter.as_slice());
        if scatter.shape() != (mean.len(), mean.len())
            || !(weight.is_finite() && weight >= 0.0)
            || !numbers.all(|v| v.is_finite())
        {
            return Err(Error::invalid(
                "moments",
                "inconsistent shapes, or numbers that are not finite",
            ));
        }
        Ok(Self { count, weight, mean, scatter })
    }

    /// Moments computed elsewhere: the number of vectors, the sum of their weights, their weighted
    /// mean, and their covariance with the total weight as divisor.
    ///
    /// ```
    /// use favor::{Moments, Rows};
    /// let m = Moments::of(Rows::new(&[0.0, 0.0, 2.0, 0.0], 2, 2)?)?;
    /// let again = Moments::from_covariance(2, 2.0, m.mean().to_vec(), m.covariance())?;
    /// assert_eq!(again, m);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn from_covariance(
        count: u64,
        weight: f64,
        mean: Vec<f64>,
        mut covariance: Matrix<f64>,
    ) -> Result<Self> {
        covariance.as_mut_slice().iter_mut().for_each(|c| *c *= weight);
        Self::try_from(RawMoments { count, weight, mean, scatter: covariance })
    }

    /// The moments of a set.
    pub fn of<T: Float>(rows: Rows<'_, T>) -> Result<Self> {
        let mut moments = Self::new(rows.columns());
        moments.add(rows)?;
        Ok(moments)
    }

    /// The moments of the rows whose mask is true. Masked rows are never read.
    pub fn of_masked<T: Float>(rows: Rows<'_, T>, mask: &[bool]) -> Result<Self> {
        let weights: Vec<f64> = mask.iter().map(|&m| f64::from(u8::from(m))).collect();
        let mut moments = Self::new(rows.columns());
        moments.add_weighted(rows, &weights)?;
        Ok(moments)
    }

    /// Adds a piece of the set.
    pub fn add<T: Float>(&mut self, rows: Rows<'_, T>) -> Result<()> {
        self.add_pieces(rows, None)
    }

    /// Adds a piece of the set with one weight ≥ 0 per row. Rows of weight 0 are never read.
    pub fn add_weighted<T: Float>(&mut self, rows: Rows<'_, T>, weights: &[f64]) -> Result<()> {
        if weights.len() != rows.rows() {
            return Err(Error::Shape {
                operation: "moments",
                left: "rows",
                left_shape: rows.shape(),
                right: "weights",
                right_shape: (weights.len(), 1),
            });
        }
        if let Some(i) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            let reason = format!("weight {} of row {i} is not a number ≥ 0", weights[i]);
            return Err(Error::invalid("weights", reason));
        }
        self.add_pieces(rows, Some(weights))
    }

    fn add_pieces<T: Float>(&mut self, rows: Rows<'_, T>, weights: Option<&[f64]>) -> Result<()> {
        if rows.columns() != self.mean.len() {
            return Err(Error::Shape {
                operation: "moments",
                left: "moments",
                left_shape: (self.mean.len(), self.mean.len()),
                right: "rows",
                right_shape: rows.shape(),
            });
        }
        // Blocks of a fixed size, merged in order: no dependence on the number of threads.
        let pieces: Result<Vec<Self>> = (0..rows.rows().div_ceil(BLOCK))
            .into_par_iter()
            .map(|b| Self::of_block(rows, b * BLOCK, weights))
            .collect();
        let mut total = self.clone();
        for piece in pieces? {
            total.merge(&piece)?;
        }
        *self = total;
        Ok(())
    }

    fn of_block<T: Float>(
        rows: Rows<'_, T>,
        start: usize,
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        let dim = rows.columns();
        let weight_of = |i: usize| weights.map_or(1.0, |w| w[i]);
        let used: Vec<usize> =
            (start..(start + BLOCK).min(rows.rows())).filter(|&i| weight_of(i) > 0.0).collect();
        for &row in &used {
            let values = rows.row(row);
            if let Some(column) = values.iter().position(|v| !v.is_finite()) {
                let value = values[column].to_f64();
                return Err(Error::NonFinite { what: "rows".into(), row, column, value });
            }
        }
        let weight: f64 = used.iter().map(|&i| weight_of(i)).sum();
        let mut mean = vec![0.0; dim];
        for &i in &used {
            let share = weight_of(i) / weight;
            mean.iter_mut().zip(rows.row(i)).for_each(|(m, v)| *m += share * v.to_f64());
        }
        let mut centred = Matrix::zeros(used.len(), dim);
        for (r, &i) in used.iter().enumerate() {
            let root = weight_of(i).sqrt();
            for ((out, v), m) in centred.row_mut(r).iter_mut().zip(rows.row(i)).zip(&mean) {
                *out = root * (v.to_f64() - m);
            }
        }
        let scatter = transposed_product(&centred, &centred);
        Ok(Self { count: used.len() as u64, weight, mean, scatter })
    }

    /// Adds another set's moments; the result covers both sets together.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if other.mean.len() != self.mean.len() {
            return Err(Error::Shape {
                operation: "merge",
                left: "moments",
                left_shape: self.scatter.shape(),
                right: "moments",
                right_shape: other.scatter.shape(),
            });
        }
        if other.count == 0 {
            return Ok(());
        }
        let weight = self.weight + other.weight;
        let share = other.weight / weight;
        let delta: Vec<f64> = other.mean.iter().zip(&self.mean).map(|(b, a)| b - a).collect();
        let factor = if self.count == 0 { 0.0 } else { self.weight * share };
        let mut scatter = self.scatter.clone();
        for (i, di) in delta.iter().enumerate() {
            let pairs = scatter.row_mut(i).iter_mut().zip(other.scatter.row(i)).zip(&delta);
            pairs.for_each(|((s, o), dj)| *s += o + factor * di * dj);
        }
        if !scatter.as_slice().iter().all(|v| v.is_finite()) || !weight.is_finite() {
            return Err(Error::Overflow {
                operation: "the second moment of the data",
                format: "f64",
                hint: "divide the data by a constant",
            });
        }
        if self.count == 0 {
            self.mean.clone_from(&other.mean);
        } else {
            self.mean.iter_mut().zip(&delta).for_each(|(m, d)| *m += share * d);
        }
        self.count += other.count;
        self.weight = weight;
        self.scatter = scatter;
        Ok(())
    }

    /// Number of vectors with positive weight.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the weights.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Dimension of the vectors.
    pub fn dim(&self) -> usize {
        self.mean.len()
    }

    /// The weighted mean.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// `Σ w (x−μ)(x−μ)ᵀ`.
    pub fn scatter(&self) -> &Matrix<f64> {
        &self.scatter
    }

    /// The covariance `mean (x−μ)(x−μ)ᵀ`, with the total weight as divisor.
    pub fn covariance(&self) -> Matrix<f64> {
        let weight = if self.weight > 0.0 { self.weight } else { 1.0 };
        Matrix::from_fn(self.dim(), self.dim(), |i, j| self.scatter[(i, j)] / weight)
    }

    /// The second moment `mean xxᵀ`.
    pub fn second_moment(&self) -> Matrix<f64> {
        let mut m = self.covariance();
        for i in 0..self.dim() {
            for j in 0..self.dim() {
                m[(i, j)] += self.mean[i] * self.mean[j];
            }
        }
        m
    }

    /// The moments of the set with every vector multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        let mut out = self.clone();
        out.mean.iter_mut().for_each(|m| *m *= factor);
        out.scatter.as_mut_slice().iter_mut().for_each(|s| *s *= factor * factor);
        out
    }

    /// The moments of the set with every vector's coordinates shifted by `centre` and divided by
    /// `scale`: `(x_l − centre_l) / scale_l`.
    ///
    /// ```
    /// use favor::{Moments, Rows};
    /// let m = Moments::of(Rows::new(&[1.0, 3.0, 5.0], 3, 1)?)?;
    /// assert_eq!(m.standardised(&[1.0], &[2.0])?.mean(), &[1.0]); // of 0, 1, 2
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn standardised(&self, centre: &[f64], scale: &[f64]) -> Result<Self> {
        if centre.len() != self.dim() || scale.len() != self.dim() {
            return Err(Error::Shape {
                operation: "standardised",
                left: "moments",
                left_shape: self.scatter.shape(),
                right: "centre and scale",
                right_shape: (centre.len(), scale.len()),
            });
        }
        let mean = (0..self.dim()).map(|l| (self.mean[l] - centre[l]) / scale[l]).collect();
        let entry = |i: usize, j: usize| self.scatter[(i, j)] / scale[i] / scale[j];
        let scatter = Matrix::from_fn(self.dim(), self.dim(), entry);
        Self::from_scatter(self.count, self.weight, mean, scatter)
    }

    /// The moments with every weight multiplied by `factor`: the same mean and covariance, with
    /// another weight in a merge.
    pub fn weighted(&self, factor: f64) -> Self {
        let mut out = self.clone();
        out.weight *= factor;
        out.scatter.as_mut_slice().iter_mut().for_each(|s| *s *= factor);
        out
    }

    /// An error if no vector was added or if the dimension is zero.
    pub(crate) fn check_nonempty(&self, what: &'static str) -> Result<()> {
        if self.count == 0 || self.dim() == 0 {
            Err(Error::Empty { what: what.into(), rows: self.count as usize, columns: self.dim() })
        } else {
            Ok(())
        }
    }
}
