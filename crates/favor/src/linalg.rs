//! The few dense `f64` operations that fitting and the reference paths need, by faer.
//!
//! Everything here is sequential, so no result depends on a thread count.

use crate::simd::clear_upper_halves;
use crate::{Error, Matrix, Result};
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_inverse::invert_lower_triangular;
use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_upper_triangular_in_place,
};
use faer::{Accum, Mat, MatMut, MatRef, Par, Side};

fn as_faer(m: &Matrix<f64>) -> MatRef<'_, f64> {
    MatRef::from_row_major_slice(m.as_slice(), m.rows(), m.columns())
}

fn multiply(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Matrix<f64> {
    let (rows, columns) = (a.nrows(), b.ncols());
    let mut out = Matrix::zeros(rows, columns);
    let dst = MatMut::from_row_major_slice_mut(out.as_mut_slice(), rows, columns);
    matmul(dst, Accum::Replace, a, b, 1.0, Par::Seq);
    clear_upper_halves();
    out
}

/// `A B`.
pub(crate) fn product(a: &Matrix<f64>, b: &Matrix<f64>) -> Matrix<f64> {
    multiply(as_faer(a), as_faer(b))
}

/// `A Bᵀ`: the inner products of the rows of `A` with those of `B`.
pub(crate) fn product_transposed(a: &Matrix<f64>, b: &Matrix<f64>) -> Matrix<f64> {
    multiply(as_faer(a), as_faer(b).transpose())
}

/// `Aᵀ B`.
pub(crate) fn transposed_product(a: &Matrix<f64>, b: &Matrix<f64>) -> Matrix<f64> {
    multiply(as_faer(a).transpose(), as_faer(b))
}

/// `A v`.
pub(crate) fn apply(a: &Matrix<f64>, v: &[f64]) -> Vec<f64> {
    (0..a.rows()).map(|i| dot(a.row(i), v)).collect()
}

/// The inner product of two vectors.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(p, q)| p * q).sum()
}

/// The sum of the diagonal.
pub(crate) fn trace(m: &Matrix<f64>) -> f64 {
    (0..m.rows()).map(|i| m[(i, i)]).sum()
}

/// The sum of two matrices of the same shape.
pub(crate) fn sum(a: &Matrix<f64>, b: &Matrix<f64>) -> Matrix<f64> {
    Matrix::from_fn(a.rows(), a.columns(), |i, j| a[(i, j)] + b[(i, j)])
}

/// `diag(scale) M`.
pub(crate) fn scale_rows(mut m: Matrix<f64>, scale: &[f64]) -> Matrix<f64> {
    for (i, s) in scale.iter().enumerate() {
        m.row_mut(i).iter_mut().for_each(|v| *v *= s);
    }
    m
}

/// `M = Qᵀ Λ Q` for symmetric `M`, with the eigenvectors as the *rows* of `vectors`, in descending
/// order of eigenvalues. Each eigenvector's largest entry is positive, so that the same matrix
/// always gives the same vectors.
pub(crate) struct Eigen {
    pub(crate) values: Vec<f64>,
    pub(crate) vectors: Matrix<f64>,
}

/// Decomposes a symmetric positive semi-definite matrix; eigenvalues below zero are set to zero.
pub(crate) fn eigen(m: &Matrix<f64>) -> Result<Eigen> {
    let n = m.rows();
    let unit = unit_of(m);
    let scaled = Matrix::from_fn(n, n, |i, j| 0.5 * (m[(i, j)] + m[(j, i)]) / unit);
    let found = as_faer(&scaled).self_adjoint_eigen(Side::Lower);
    clear_upper_halves();
    let found = found.map_err(|_| no_convergence())?;
    let (values, vectors) = (found.S(), found.U());
    let order: Vec<usize> = (0..n).rev().collect();
    let mut rows = Matrix::from_fn(n, n, |i, j| vectors[(j, order[i])]);
    fix_signs(&mut rows);
    let values = order.iter().map(|&k| values.column_vector()[k].max(0.0) * unit).collect();
    Ok(Eigen { values, vectors: rows })
}

/// The left singular vectors, as the rows of the result, and the singular values in descending
/// order.
pub(crate) fn left_singular(m: &Matrix<f64>) -> Result<(Matrix<f64>, Vec<f64>)> {
    let n = m.rows();
    let unit = unit_of(m);
    let scaled = Matrix::from_fn(n, m.columns(), |i, j| m[(i, j)] / unit);
    let found = as_faer(&scaled).svd();
    clear_upper_halves();
    let found = found.map_err(|_| no_convergence())?;
    let (values, vectors) = (found.S(), found.U());
    let mut rows = Matrix::from_fn(n, n, |i, j| vectors[(j, i)]);
    fix_signs(&mut rows);
    Ok((rows, (0..n).map(|k| values.column_vector()[k] * unit).collect()))
}

/// The upper triangle `T` with `‖Tv‖ = ‖Mv‖` for every `v`.
pub(crate) fn upper_triangle(m: &Matrix<f64>) -> Matrix<f64> {
    let found = as_faer(m).qr();
    clear_upper_halves();
    let triangle = found.R();
    let n = m.columns();
    Matrix::from_fn(n, n, |i, j| if i <= j { triangle[(i, j)] } else { 0.0 })
}

/// `M⁻ᵀ`, or an error that says the matrix has no inverse.
pub(crate) fn inverse_transpose(m: &Matrix<f64>, what: &'static str) -> Result<Matrix<f64>> {
    use faer::linalg::solvers::DenseSolveCore;
    let inverse = as_faer(m).full_piv_lu().inverse();
    clear_upper_halves();
    let n = m.rows();
    let out = Matrix::from_fn(n, n, |i, j| inverse[(j, i)]);
    if out.as_slice().iter().all(|v| v.is_finite()) {
        Ok(out)
    } else {
        Err(Error::invalid(what, "the transform has no inverse"))
    }
}

/// `A_s B` for the leading block of `s` rows and columns of a square `A`; `B` has `s` rows.
pub(crate) fn leading_product(a: &Matrix<f64>, b: &Matrix<f64>) -> Matrix<f64> {
    let size = b.rows();
    multiply(as_faer(a).submatrix(0, 0, size, size), as_faer(b))
}

/// `M + ridge · I = L Lᵀ`.
pub(crate) struct Cholesky {
    lower: Mat<f64>,
}

impl Cholesky {
    /// Decomposes a symmetric matrix; `None` if, after rounding, it is not positive definite.
    pub(crate) fn new(m: &Matrix<f64>, ridge: f64) -> Option<Self> {
        let n = m.rows();
        let mut sum = m.clone();
        (0..n).for_each(|i| sum[(i, i)] += ridge);
        let found = as_faer(&sum).llt(Side::Lower);
        clear_upper_halves();
        let lower = found.ok()?.L().to_owned();
        let sound = (0..n).all(|i| lower[(i, i)].is_finite() && lower[(i, i)] > 0.0);
        sound.then_some(Self { lower })
    }

    /// `L⁻¹ B`.
    pub(crate) fn forward(&self, b: &Matrix<f64>) -> Matrix<f64> {
        let mut out = b.clone();
        let (rows, columns) = b.shape();
        let right = MatMut::from_row_major_slice_mut(out.as_mut_slice(), rows, columns);
        solve_lower_triangular_in_place(self.lower.as_ref(), right, Par::Seq);
        clear_upper_halves();
        out
    }

    /// `L_s⁻ᵀ Z_s` of the leading `s` rows: with `Z = L⁻¹B` the solution of the leading block.
    pub(crate) fn backward(&self, z: &Matrix<f64>, size: usize) -> Matrix<f64> {
        let columns = z.columns();
        let mut out = z.view().slice(0, size).to_f64(1.0);
        let right = MatMut::from_row_major_slice_mut(out.as_mut_slice(), size, columns);
        let block = self.lower.as_ref().submatrix(0, 0, size, size);
        solve_upper_triangular_in_place(block.transpose(), right, Par::Seq);
        clear_upper_halves();
        out
    }

    /// `(M + ridge · I)⁻¹ B`.
    pub(crate) fn solve(&self, b: &Matrix<f64>) -> Matrix<f64> {
        self.backward(&self.forward(b), b.rows())
    }

    /// `log det L Lᵀ`.
    pub(crate) fn log_determinant(&self) -> f64 {
        (0..self.lower.nrows()).map(|i| 2.0 * self.lower[(i, i)].ln()).sum()
    }

    /// `L⁻¹`.
    pub(crate) fn inverse_factor(&self) -> Matrix<f64> {
        let n = self.lower.nrows();
        let mut inverse = Mat::zeros(n, n);
        invert_lower_triangular(inverse.as_mut(), self.lower.as_ref(), Par::Seq);
        clear_upper_halves();
        Matrix::from_fn(n, n, |i, j| if j <= i { inverse[(i, j)] } else { 0.0 })
    }
}

/// The largest magnitude of the entries (1 for the zero matrix). Decompositions work on numbers
/// near one, so that tiny and huge data neither underflow nor overflow.
fn unit_of(m: &Matrix<f64>) -> f64 {
    let largest = m.as_slice().iter().fold(0.0_f64, |a, v| a.max(v.abs()));
    if largest > 0.0 { largest } else { 1.0 }
}

fn fix_signs(rows: &mut Matrix<f64>) {
    for i in 0..rows.rows() {
        let row = rows.row_mut(i);
        // Among nearly equal entries the first decides, so that rounding does not: the vectors of
        // two standardised columns are (1, ±1)/√2.
        let larger = |v: f64, than: f64| v.abs() > than.abs() * (1.0 + 1e-9);
        let largest = row.iter().fold(0.0_f64, |a, &v| if larger(v, a) { v } else { a });
        if largest < 0.0 {
            row.iter_mut().for_each(|v| *v = -*v);
        }
    }
}

fn no_convergence() -> Error {
    Error::invalid("moments", "the decomposition of the second moments did not converge")
}
