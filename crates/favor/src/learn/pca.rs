//! Kernel principal components: the directions in which the features of the rows vary most.

use super::{Design, GramSums};
use crate::linalg::{eigen, product_transposed};
use crate::{Error, Float, Matrix, Result, Rows};
use serde::{Deserialize, Serialize};

/// Principal components of the columns of a design, from sums alone.
///
/// ```
/// use favor::learn::{DesignSpec, GramSums, KernelPca, Known, Outcome};
/// use favor::{Matrix, Moments};
/// let rows = Matrix::from_fn(400, 2, |i, l| [(0.1 * i as f64).cos(), (0.1 * i as f64).sin()][l]);
/// let design = DesignSpec::new(64).fit(&Moments::of(rows.view())?, rows.view())?;
/// let mut sums = GramSums::new(&design, Outcome::Numbers(vec![]), 1)?;
/// sums.add(&design, rows.view(), Known::Nothing, None, None)?;
/// let pca = KernelPca::new(&sums, 2)?;
/// assert_eq!(pca.transform(&design, rows.view())?.shape(), (400, 2));
/// assert!(pca.explained()[0] >= pca.explained()[1]); // in descending order
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelPca {
    means: Vec<f64>,
    /// One row per component.
    components: Matrix<f64>,
    variances: Vec<f64>,
    total: f64,
}

impl KernelPca {
    /// The first `count` components.
    pub fn new(sums: &GramSums, count: usize) -> Result<Self> {
        let size = sums.width() - 1;
        if count == 0 || count > size {
            return Err(Error::invalid("components", format!("{count}; give 1 to {size}")));
        }
        let products = sums.products(None, size);
        if products.weight() <= 0.0 {
            return Err(Error::invalid("rows", "there are none of positive weight"));
        }
        let (means, targets) = products.means();
        let centred = products.centred(&means, &targets);
        let found = eigen(&centred.gram)?;
        let variance = |v: &f64| v / centred.weight;
        Ok(Self {
            means,
            components: found.vectors.view().slice(0, count).to_f64(1.0),
            variances: found.values[..count].iter().map(variance).collect(),
            total: found.values.iter().map(variance).sum(),
        })
    }

    /// The variance along each component, in descending order.
    pub fn variances(&self) -> &[f64] {
        &self.variances
    }

    /// The share of each component in the variance of all features.
    pub fn explained(&self) -> Vec<f64> {
        let total = if self.total > 0.0 { self.total } else { 1.0 };
        self.variances.iter().map(|v| v / total).collect()
    }

    /// One row per row: its coordinates along the components, from the mean.
    pub fn transform<T: Float>(&self, design: &Design, rows: Rows<'_, T>) -> Result<Matrix<f64>> {
        if design.width() != self.means.len() + 1 {
            return Err(Error::invalid("components", "the design is not the one of the sums"));
        }
        let mut out = Vec::with_capacity(rows.rows() * self.components.rows());
        for block in rows.blocks(4096) {
            let mut features = design.transform(block)?.view().to_f64(1.0);
            for i in 0..features.rows() {
                features.row_mut(i).iter_mut().zip(&self.means).for_each(|(f, m)| *f -= m);
            }
            out.extend(product_transposed(&features, &self.components).into_vec());
        }
        Matrix::new(out, rows.rows(), self.components.rows())
    }
}
