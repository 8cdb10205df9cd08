//! `K(X,Y)·C ≈ P(SᵀC)`: sums over keys that are fed in pieces and merged, then applied to queries.

use crate::kernel::{check_sums, check_values};
use crate::linalg::transposed_product;
use crate::map::{BLOCK, Block};
use crate::{Element, Error, FeatureMap, LogScaled, Matrix, Result, Rows, Side};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// `SᵀC` of the keys seen so far: for each feature `m` the row `sums[m] · e^{log_scale[m]}`.
///
/// The scale of a feature is its largest value over the keys, kept as a running maximum, so that
/// neither huge nor tiny features are lost. The map is passed to every call; it must be the same
/// one throughout.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, KeySums, Moments, Rows};
/// let y = Rows::new(&[0.1_f64, 0.2, -0.3, 0.1], 2, 2)?;
/// let c = Rows::new(&[1.0, 2.0], 2, 1)?;
/// let m = Moments::of(y)?;
/// let map = FeatureSpec::new(Family::Balanced, 256).kernel(Kernel::gaussian()).fit(&m, &m)?;
/// let mut sums = KeySums::new(&map, 1);
/// sums.add(&map, y.slice(0, 1), c.slice(0, 1))?; // in pieces,
/// let mut other = KeySums::new(&map, 1);
/// other.add(&map, y.slice(1, 2), c.slice(1, 2))?;
/// sums.merge(&other)?;                            // merged,
/// let product = sums.apply(&map, y)?.to_matrix()?; // applied
/// let exact = Kernel::gaussian().product(y, y, c)?.to_matrix()?;
/// assert!((product[(0, 0)] - exact[(0, 0)]).abs() < 0.1);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawSums")]
pub struct KeySums {
    log_scale: Vec<f64>,
    sums: Matrix<f64>,
}

#[derive(Deserialize)]
struct RawSums {
    log_scale: Vec<f64>,
    sums: Matrix<f64>,
}

impl TryFrom<RawSums> for KeySums {
    type Error = Error;
    fn try_from(RawSums { log_scale, sums }: RawSums) -> Result<Self> {
        Self::from_parts(log_scale, sums)
    }
}

impl KeySums {
    /// The sums over no keys yet, for values of `columns` columns.
    pub fn new(map: &FeatureMap, columns: usize) -> Self {
        let m = map.features();
        Self { log_scale: vec![f64::NEG_INFINITY; m], sums: Matrix::zeros(m, columns) }
    }

    /// Puts together what [`KeySums::log_scale`] and [`KeySums::sums`] gave out.
    pub fn from_parts(log_scale: Vec<f64>, sums: Matrix<f64>) -> Result<Self> {
        let valid = |v: &f64| v.is_finite() || *v == f64::NEG_INFINITY;
        if log_scale.len() != sums.rows()
            || !log_scale.iter().all(valid)
            || !sums.as_slice().iter().all(|v| v.is_finite())
        {
            return Err(Error::invalid("key sums", "scales and sums do not belong together"));
        }
        Ok(Self { log_scale, sums })
    }

    /// The natural logarithm of each feature's factor; −∞ before the first key.
    pub fn log_scale(&self) -> &[f64] {
        &self.log_scale
    }

    /// One row a feature, one column a column of the values.
    pub fn sums(&self) -> &Matrix<f64> {
        &self.sums
    }

    /// Adds a piece of the keys with their values.
    pub fn add<T: Element>(
        &mut self,
        map: &FeatureMap,
        keys: Rows<'_, T>,
        values: Rows<'_, T>,
    ) -> Result<()> {
        check_values("add", keys, values)?;
        self.check_map(map)?;
        if values.columns() != self.sums.columns() {
            return Err(Error::Shape {
                operation: "add",
                left: "key sums",
                left_shape: self.sums.shape(),
                right: "values",
                right_shape: values.shape(),
            });
        }
        map.check_rows(Side::Key, keys)?;
        values.check_finite("values")?;
        // Blocks of a fixed size, merged in order: no dependence on the number of threads.
        let starts: Vec<usize> = (0..keys.rows()).step_by(BLOCK).collect();
        let mut total = self.clone();
        for group in starts.chunks(64) {
            let parts: Result<Vec<Self>> = group
                .par_iter()
                .map(|&start| {
                    let block = map.block(Side::Key, keys.slice(start, start + BLOCK))?;
                    Ok(Self::of_block(block, values.slice(start, start + BLOCK)))
                })
                .collect();
            parts?.iter().try_for_each(|part| total.merge(part))?;
        }
        *self = total;
        Ok(())
    }

    fn of_block<T: Element>(block: Block, values: Rows<'_, T>) -> Self {
        let (log_scale, features) = match block {
            Block::Positive(mut logs) => {
                let mut max = vec![f64::NEG_INFINITY; logs.columns()];
                for i in 0..logs.rows() {
                    max.iter_mut().zip(logs.row(i)).for_each(|(m, v)| *m = m.max(*v));
                }
                for i in 0..logs.rows() {
                    logs.row_mut(i).iter_mut().zip(&max).for_each(|(v, m)| *v = (*v - m).exp());
                }
                (max, logs)
            }
            // Features of either sign share the scale of the largest key.
            Block::Signed { row_log, mut values } => {
                let max = row_log.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                for (i, log) in row_log.iter().enumerate() {
                    let factor = (log - max).exp();
                    values.row_mut(i).iter_mut().for_each(|v| *v *= factor);
                }
                (vec![max; values.columns()], values)
            }
        };
        Self { log_scale, sums: transposed_product(&features, &values.to_f64(1.0)) }
    }

    /// Adds the sums over other keys: the result is that of all keys together.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if self.sums.shape() != other.sums.shape() {
            return Err(Error::Shape {
                operation: "merge",
                left: "key sums",
                left_shape: self.sums.shape(),
                right: "key sums",
                right_shape: other.sums.shape(),
            });
        }
        for m in 0..self.log_scale.len() {
            let (own, new) = (self.log_scale[m], other.log_scale[m]);
            let max = own.max(new);
            if max == f64::NEG_INFINITY {
                continue;
            }
            let (keep, take) = ((own - max).exp(), (new - max).exp());
            for (s, o) in self.sums.row_mut(m).iter_mut().zip(other.sums.row(m)) {
                *s = *s * keep + *o * take;
            }
            self.log_scale[m] = max;
        }
        check_sums(&self.sums)
    }

    /// `P (SᵀC)` for a set of queries. Before the first key every row is zero.
    pub fn apply<T: Element>(
        &self,
        map: &FeatureMap,
        queries: Rows<'_, T>,
    ) -> Result<LogScaled<T>> {
        self.check_map(map)?;
        map.check_rows(Side::Query, queries)?;
        let blocks: Vec<_> = queries.blocks(BLOCK).collect();
        let parts: Result<Vec<_>> = blocks
            .into_par_iter()
            .map(|block| Ok(self.apply_block(map.block(Side::Query, block)?)))
            .collect();
        let mut log_scale = Vec::with_capacity(queries.rows());
        let mut values = Vec::with_capacity(queries.rows() * self.sums.columns());
        for (scales, part) in parts? {
            log_scale.extend(scales);
            values.extend(part.as_slice().iter().map(|v| T::from_f64(*v)));
        }
        let values = Matrix::new(values, queries.rows(), self.sums.columns())?;
        check_sums(&values)?;
        Ok(LogScaled { log_scale, values })
    }

    /// The rows of a block of queries and their logarithmic scales.
    pub(crate) fn apply_block(&self, block: Block) -> (Vec<f64>, Matrix<f64>) {
        let weight = -(self.log_scale.len() as f64).ln();
        let (mut scales, features) = match block {
            Block::Positive(mut logs) => {
                for i in 0..logs.rows() {
                    let pairs = logs.row_mut(i).iter_mut().zip(&self.log_scale);
                    pairs.for_each(|(v, s)| *v += s);
                }
                Block::Positive(logs).row_scaled()
            }
            Block::Signed { mut row_log, values } => {
                row_log.iter_mut().for_each(|v| *v += self.log_scale[0]);
                (row_log, values)
            }
        };
        scales.iter_mut().for_each(|s| *s += weight);
        if self.log_scale[0] == f64::NEG_INFINITY {
            return (vec![0.0; scales.len()], Matrix::zeros(scales.len(), self.sums.columns()));
        }
        (scales, crate::linalg::product(&features, &self.sums))
    }

    pub(crate) fn check_map(&self, map: &FeatureMap) -> Result<()> {
        match map.features() == self.log_scale.len() {
            true => Ok(()),
            false => Err(Error::Shape {
                operation: "key sums",
                left: "feature map",
                left_shape: (map.features(), map.dim()),
                right: "key sums",
                right_shape: self.sums.shape(),
            }),
        }
    }
}
