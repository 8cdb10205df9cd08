//! Linear attention with features that do not estimate the softmax kernel: ELU and ReLU.

use super::{Mask, check_inputs, normalise};
use crate::linalg::product_transposed;
use crate::{Error, Float, Matrix, Result, Rows};

/// A feature function for linear attention.
///
/// ```
/// use favor::{Matrix, reference::{Baseline, Mask, baseline_attention}};
/// let x = Matrix::from_fn(10, 4, |i, l| ((7 * i + l) as f64).sin());
/// let ones = Matrix::from_fn(10, 1, |_, _| 1.0);
/// let relu = Baseline::Relu { epsilon: 1e-3 };
/// let out = baseline_attention(&relu, x.view(), x.view(), ones.view(), Mask::causal())?;
/// assert!((out[(9, 0)] - 1.0).abs() < 1e-12); // a mean of ones
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Baseline {
    /// `elu(x) + 1`, in each dimension.
    Elu,
    /// `relu(x) + ε`, in each dimension; ε > 0 keeps the denominator from vanishing.
    Relu {
        /// ε.
        epsilon: f64,
    },
    /// `relu(ωᵀx) + ε` for each row of ω.
    ReluProjected {
        /// ω, one row per feature.
        omega: Matrix<f64>,
        /// ε.
        epsilon: f64,
    },
}

impl Baseline {
    fn check(&self, dim: usize) -> Result<()> {
        match self {
            Self::Relu { epsilon } | Self::ReluProjected { epsilon, .. }
                if !(epsilon.is_finite() && *epsilon > 0.0) =>
            {
                Err(Error::invalid("epsilon", format!("{epsilon} is not a positive number")))
            }
            Self::ReluProjected { omega, .. } if omega.columns() != dim || omega.rows() == 0 => {
                let shape = omega.shape();
                let reason = format!("has shape {shape:?} where the dimension is {dim}");
                Err(Error::invalid("omega", reason))
            }
            Self::ReluProjected { omega, .. } => omega.view().check_finite("omega"),
            _ => Ok(()),
        }
    }

    fn features(&self, rows: Matrix<f64>) -> Matrix<f64> {
        let (mut out, function): (_, Box<dyn Fn(f64) -> f64>) = match self {
            Self::Elu => (rows, Box::new(|x| if x > 0.0 { x + 1.0 } else { x.exp() })),
            Self::Relu { epsilon } => (rows, Box::new(move |x| x.max(0.0) + epsilon)),
            Self::ReluProjected { omega, epsilon } => {
                (product_transposed(&rows, omega), Box::new(move |x| x.max(0.0) + epsilon))
            }
        };
        out.as_mut_slice().iter_mut().for_each(|v| *v = function(*v));
        out
    }
}

/// Linear attention with a baseline's features.
///
/// ```
/// use favor::{Rows, reference::{Baseline, Mask, baseline_attention}};
/// let q = Rows::new(&[1.0_f32, 0.0], 1, 2)?;
/// let k = Rows::new(&[0.0_f32, 1.0, 1.0, 0.0], 2, 2)?;
/// let v = Rows::new(&[0.0_f32, 1.0], 2, 1)?;
/// let out = baseline_attention(&Baseline::Elu, q, k, v, Mask::none())?;
/// assert!((out[(0, 0)] - 5.0 / 9.0).abs() < 1e-6);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn baseline_attention<T: Float>(
    baseline: &Baseline,
    q: Rows<'_, T>,
    k: Rows<'_, T>,
    v: Rows<'_, T>,
    mask: Mask<'_>,
) -> Result<Matrix<T>> {
    check_inputs(q, k, v, &mask)?;
    baseline.check(q.columns())?;
    let columns = v.columns();
    let queries = baseline.features(q.to_f64(1.0));
    let mut sums = Matrix::zeros(queries.columns(), columns + 1);
    let add = |j: usize, sums: &mut Matrix<f64>| {
        if !mask.allows(j) {
            return;
        }
        let features = baseline.features(k.slice(j, j + 1).to_f64(1.0));
        for (m, feature) in features.as_slice().iter().enumerate() {
            let row = sums.row_mut(m);
            row[columns] += feature;
            row.iter_mut().zip(v.row(j)).for_each(|(s, v)| *s += feature * v.to_f64());
        }
    };
    if !mask.causal {
        (0..k.rows()).for_each(|j| add(j, &mut sums));
    }
    let mut out = Matrix::zeros(q.rows(), columns);
    for i in 0..q.rows() {
        if mask.causal {
            add(i, &mut sums);
        }
        let mut total = vec![0.0; columns + 1];
        for (m, feature) in queries.row(i).iter().enumerate() {
            total.iter_mut().zip(sums.row(m)).for_each(|(t, s)| *t += feature * s);
        }
        normalise(&total, out.row_mut(i))?;
    }
    Ok(out)
}
