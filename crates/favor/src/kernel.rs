//! The exact kernel: values, and products with a matrix. Everything else in this crate is tested
//! against this file.

use crate::linalg::{dot, product_transposed};
use crate::{Error, Float, Matrix, Result, Rows};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

const QUERY_BLOCK: usize = 64;
const KEY_BLOCK: usize = 512;

/// The scaled softmax kernel `K(x,y) = exp(α‖sx‖² + s²xᵀy + α‖sy‖²)` with input scale `s`.
///
/// `α = 0` is the softmax kernel `exp(xᵀy)`, `α = −1/2` the Gaussian `exp(−‖x−y‖²/2)`.
///
/// ```
/// use favor::Kernel;
/// let k = Kernel::gaussian();
/// assert!((k.value(&[0.0, 1.0], &[1.0, 1.0])? - (-0.5_f64).exp()).abs() < 1e-15);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawKernel")]
pub struct Kernel {
    alpha: f64,
    scale: f64,
}

#[derive(Deserialize)]
struct RawKernel {
    alpha: f64,
    scale: f64,
}

impl TryFrom<RawKernel> for Kernel {
    type Error = Error;
    fn try_from(raw: RawKernel) -> Result<Self> {
        Self::new(raw.alpha, raw.scale)
    }
}

impl Kernel {
    /// The kernel with any `α` and any positive input scale.
    pub fn new(alpha: f64, scale: f64) -> Result<Self> {
        if !alpha.is_finite() {
            return Err(Error::invalid("alpha", format!("{alpha} is not a finite number")));
        }
        if !(scale.is_finite() && scale > 0.0) {
            return Err(Error::invalid("scale", format!("{scale} is not a positive number")));
        }
        Ok(Self { alpha, scale })
    }

    /// `exp(xᵀy)`.
    pub fn softmax() -> Self {
        Self { alpha: 0.0, scale: 1.0 }
    }

    /// `exp(−‖x−y‖²/2)`.
    pub fn gaussian() -> Self {
        Self { alpha: -0.5, scale: 1.0 }
    }

    /// `exp(qᵀk/√d)`, the kernel of attention with heads of dimension `d`.
    pub fn attention(head_dim: usize) -> Self {
        Self { alpha: 0.0, scale: (head_dim.max(1) as f64).powf(-0.25) }
    }

    /// The same kernel on inputs multiplied by `scale` beforehand.
    pub fn scaled(self, scale: f64) -> Result<Self> {
        Self::new(self.alpha, self.scale * scale)
    }

    /// `α`.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// The factor that inputs are multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// `log K(x,y)`.
    pub fn log_value<T: Float>(&self, x: &[T], y: &[T]) -> Result<f64> {
        let (x, y) = (Rows::new(x, 1, x.len())?, Rows::new(y, 1, y.len())?);
        Ok(self.log_matrix(x, y)?[(0, 0)])
    }

    /// `K(x,y)`. Infinite or zero outside the range of `f64`: use [`Kernel::log_value`] there.
    pub fn value<T: Float>(&self, x: &[T], y: &[T]) -> Result<f64> {
        Ok(self.log_value(x, y)?.exp())
    }

    /// `log K` of every pair: one row per query, one column per key.
    pub fn log_matrix<T: Float>(&self, x: Rows<'_, T>, y: Rows<'_, T>) -> Result<Matrix<f64>> {
        let keys = self.prepare_keys("log_matrix", x, y)?;
        let mut out = Matrix::zeros(x.rows(), y.rows());
        for (i, logs) in self.log_rows(x, &keys, 0, y.rows()).enumerate() {
            out.row_mut(i).copy_from_slice(&logs);
        }
        finite_logs(&out)?;
        Ok(out)
    }

    /// `K(X,Y)·C` exactly, in blocks; the whole kernel matrix is never stored. The result has a
    /// logarithmic scale per row, so no kernel value overflows.
    ///
    /// ```
    /// use favor::{Kernel, Rows};
    /// let x = Rows::new(&[100.0, 0.0], 1, 2)?;
    /// let y = Rows::new(&[100.0, 0.0, 0.0, 1.0], 2, 2)?;
    /// let c = Rows::new(&[1.0, 1.0], 2, 1)?;
    /// let product = Kernel::softmax().product(x, y, c)?; // e^10000 + 1
    /// assert_eq!(product.log_scale, vec![10_000.0]);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn product<T: Float>(
        &self,
        x: Rows<'_, T>,
        y: Rows<'_, T>,
        c: Rows<'_, T>,
    ) -> Result<LogScaled<T>> {
        check_values("product", y, c)?;
        c.check_finite("values")?;
        let keys = self.prepare_keys("product", x, y)?;
        let blocks: Vec<_> = x.blocks(QUERY_BLOCK).collect();
        let parts: Result<Vec<_>> =
            blocks.into_par_iter().map(|block| self.product_block(block, &keys, c)).collect();
        let mut out = LogScaled { log_scale: vec![], values: Matrix::zeros(x.rows(), c.columns()) };
        for (scale, row) in parts?.into_iter().flatten() {
            let target = out.values.row_mut(out.log_scale.len());
            target.iter_mut().zip(row).for_each(|(t, v)| *t = T::from_f64(v));
            out.log_scale.push(scale);
        }
        check_sums(&out.values)?;
        Ok(out)
    }

    /// The rows of one block of queries, each with its logarithmic scale.
    fn product_block<T: Float>(
        &self,
        x: Rows<'_, T>,
        keys: &Keys,
        c: Rows<'_, T>,
    ) -> Result<Vec<(f64, Vec<f64>)>> {
        let n = keys.rows.rows();
        let mut out = vec![(f64::NEG_INFINITY, vec![0.0; c.columns()]); x.rows()];
        for start in (0..n).step_by(KEY_BLOCK) {
            let end = (start + KEY_BLOCK).min(n);
            for ((max, sums), logs) in out.iter_mut().zip(self.log_rows(x, keys, start, end)) {
                let block_max = logs.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
                // A NaN (from ∞ − ∞) hides from the maximum.
                if !block_max.is_finite() || logs.iter().any(|log| log.is_nan()) {
                    return Err(overflow());
                }
                if block_max > *max {
                    let shrink = (*max - block_max).exp();
                    sums.iter_mut().for_each(|s| *s *= shrink);
                    *max = block_max;
                }
                for (j, log) in logs.iter().enumerate() {
                    let weight = (log - *max).exp();
                    for (s, v) in sums.iter_mut().zip(c.row(start + j)) {
                        *s += weight * v.to_f64();
                    }
                }
            }
        }
        Ok(out)
    }

    /// Checks the two sides and converts the keys to the form that `log_rows` uses.
    fn prepare_keys<T: Float>(
        &self,
        operation: &'static str,
        x: Rows<'_, T>,
        y: Rows<'_, T>,
    ) -> Result<Keys> {
        check_sides(operation, x, y)?;
        x.check_finite("queries")?;
        y.check_finite("keys")?;
        let mut rows = y.to_f64(self.scale);
        let norms = (0..rows.rows()).map(|j| dot(rows.row(j), rows.row(j))).collect();
        // Shifting both sides does not change distances, and near the centre they cancel less.
        let centre = if self.alpha == 0.0 { vec![0.0; y.columns()] } else { column_means(&rows) };
        subtract(&mut rows, &centre);
        let centred_norms = (0..rows.rows()).map(|j| dot(rows.row(j), rows.row(j))).collect();
        Ok(Keys { rows, norms, centre, centred_norms })
    }

    /// `log K` of each query of `x` with the keys `start..end`.
    fn log_rows<'a, T: Float>(
        &'a self,
        x: Rows<'_, T>,
        keys: &'a Keys,
        start: usize,
        end: usize,
    ) -> impl Iterator<Item = Vec<f64>> + 'a {
        let mut rows = x.to_f64(self.scale);
        let norms: Vec<f64> = (0..rows.rows()).map(|i| dot(rows.row(i), rows.row(i))).collect();
        subtract(&mut rows, &keys.centre);
        let block = keys.rows.view().slice(start, end).to_f64(1.0);
        let mut inner = product_transposed(&rows, &block);
        (0..rows.rows()).map(move |i| {
            let row = inner.row_mut(i);
            if self.alpha != 0.0 {
                let centred_norm = dot(rows.row(i), rows.row(i));
                for (j, v) in row.iter_mut().enumerate() {
                    let distance =
                        (centred_norm + keys.centred_norms[start + j] - 2.0 * *v).max(0.0);
                    let outer = (self.alpha + 0.5) * (norms[i] + keys.norms[start + j]);
                    *v = outer - 0.5 * distance;
                }
            }
            row.to_vec()
        })
    }
}

/// Keys in `f64`, scaled, shifted by `centre`, with their squared norms before and after.
struct Keys {
    rows: Matrix<f64>,
    norms: Vec<f64>,
    centre: Vec<f64>,
    centred_norms: Vec<f64>,
}

/// A matrix whose row `i` represents `values[i] · exp(log_scale[i])`.
///
/// ```
/// use favor::{LogScaled, Matrix};
/// let values = Matrix::new(vec![2.0, 4.0], 1, 2)?;
/// let small = LogScaled { log_scale: vec![0.0], values: values.clone() };
/// assert_eq!(small.to_matrix()?, values);
/// let huge = LogScaled { log_scale: vec![1000.0], values };
/// assert!(huge.to_matrix().is_err()); // e^1000 is beyond f64, the ratio of the entries is not
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LogScaled<T> {
    /// The natural logarithm of each row's factor.
    pub log_scale: Vec<f64>,
    /// The rows without their factor.
    pub values: Matrix<T>,
}

impl<T: Float> LogScaled<T> {
    /// The plain matrix; an error if an entry overflows the number format.
    pub fn to_matrix(&self) -> Result<Matrix<T>> {
        let mut out = self.values.clone();
        for (i, scale) in self.log_scale.iter().enumerate() {
            for v in out.row_mut(i) {
                // Through the logarithm: e^scale alone may overflow even if the product does not.
                let value = v.to_f64();
                *v = T::from_f64(value.signum() * (value.abs().ln() + scale).exp());
                if value == 0.0 {
                    *v = T::from_f64(0.0);
                }
                if !v.is_finite() {
                    return Err(Error::Overflow {
                        operation: "kernel product",
                        format: T::NAME,
                        hint: "use the logarithmic scale of each row instead of the plain matrix",
                    });
                }
            }
        }
        Ok(out)
    }
}

/// Checks that both sides are not empty and have the same dimension.
pub(crate) fn check_sides<T: Float>(
    operation: &'static str,
    x: Rows<'_, T>,
    y: Rows<'_, T>,
) -> Result<()> {
    x.check_nonempty("queries")?;
    y.check_nonempty("keys")?;
    if x.columns() != y.columns() {
        return Err(Error::Shape {
            operation,
            left: "queries",
            left_shape: x.shape(),
            right: "keys",
            right_shape: y.shape(),
        });
    }
    Ok(())
}

/// Checks that there are as many values as keys.
pub(crate) fn check_values<T: Float>(
    operation: &'static str,
    y: Rows<'_, T>,
    c: Rows<'_, T>,
) -> Result<()> {
    c.check_nonempty("values")?;
    if y.rows() != c.rows() {
        return Err(Error::Shape {
            operation,
            left: "keys",
            left_shape: y.shape(),
            right: "values",
            right_shape: c.shape(),
        });
    }
    Ok(())
}

/// Checks that sums of values do not overflow.
pub(crate) fn check_sums<T: Float>(sums: &Matrix<T>) -> Result<()> {
    if sums.as_slice().iter().all(|v| v.is_finite()) {
        Ok(())
    } else {
        Err(Error::Overflow {
            operation: "the sum over the keys",
            format: T::NAME,
            hint: "divide the values by a constant",
        })
    }
}

fn finite_logs(m: &Matrix<f64>) -> Result<()> {
    if m.as_slice().iter().all(|v| v.is_finite()) { Ok(()) } else { Err(overflow()) }
}

fn overflow() -> Error {
    Error::Overflow {
        operation: "the logarithm of the kernel",
        format: "f64",
        hint: "divide the data by a constant",
    }
}

fn column_means(m: &Matrix<f64>) -> Vec<f64> {
    let mut mean = vec![0.0; m.columns()];
    for i in 0..m.rows() {
        // Divided before the sum, so that huge rows do not overflow it.
        mean.iter_mut().zip(m.row(i)).for_each(|(a, b)| *a += b / m.rows() as f64);
    }
    mean
}

fn subtract(m: &mut Matrix<f64>, centre: &[f64]) {
    for i in 0..m.rows() {
        m.row_mut(i).iter_mut().zip(centre).for_each(|(a, b)| *a -= b);
    }
}
