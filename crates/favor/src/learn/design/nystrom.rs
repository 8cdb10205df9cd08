//! Landmarks and their whitening.

use super::kernel_matrix;
use crate::Matrix;
use crate::learn::KernelShape;

/// A landmark is left out if less than this of its squared norm is new: the features of what is left
/// would be rounding.
const NEW: f64 = 1e-10;

/// The first `most` rows that depend on no earlier ones, and `L⁻¹` of their kernel matrix `L Lᵀ`.
///
/// With `L` a triangle, the first m features are those of the first m landmarks alone.
pub(super) fn landmarks(
    shape: KernelShape,
    sample: &Matrix<f64>,
    most: usize,
) -> (Matrix<f64>, Matrix<f64>) {
    let mut kept: Vec<usize> = vec![];
    let mut triangle: Vec<Vec<f64>> = vec![];
    let mut seen = 0;
    while kept.len() < most && seen < sample.rows() {
        let wanted = (most - kept.len()).max(64);
        let next: Vec<usize> = (seen..sample.rows().min(seen + wanted)).collect();
        seen += next.len();
        let others: Vec<usize> = kept.iter().chain(&next).copied().collect();
        let values = kernel_matrix(shape, &gathered(sample, &next), &gathered(sample, &others));
        let known = kept.len();
        let mut places: Vec<usize> = (0..known).collect();
        for (c, &candidate) in next.iter().enumerate() {
            let mut row = Vec::with_capacity(places.len() + 1);
            for (j, &place) in places.iter().enumerate() {
                let earlier = &triangle[j];
                row.push((values[(c, place)] - inner(&row, &earlier[..j])) / earlier[j]);
            }
            let new = 1.0 - inner(&row, &row);
            if new > NEW && kept.len() < most {
                row.push(new.sqrt());
                triangle.push(row);
                kept.push(candidate);
                places.push(known + c);
            }
        }
    }
    (gathered(sample, &kept), inverse(&triangle))
}

/// The inverse of a lower triangle.
fn inverse(triangle: &[Vec<f64>]) -> Matrix<f64> {
    let n = triangle.len();
    let mut out = Matrix::zeros(n, n);
    for (i, row) in triangle.iter().enumerate() {
        let (done, rest) = out.as_mut_slice().split_at_mut(i * n);
        let own = &mut rest[..n];
        for (k, factor) in row[..i].iter().enumerate() {
            let earlier = &done[k * n..k * n + k + 1];
            own.iter_mut().zip(earlier).for_each(|(o, e)| *o -= factor * e);
        }
        own[i] = 1.0;
        own[..=i].iter_mut().for_each(|o| *o /= row[i]);
    }
    out
}

/// The inner product in eight parts, which a processor can add at once.
fn inner(a: &[f64], b: &[f64]) -> f64 {
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for l in 0..8 {
            sums[l] += a[l] * b[l];
        }
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

fn gathered(rows: &Matrix<f64>, chosen: &[usize]) -> Matrix<f64> {
    Matrix::from_fn(chosen.len(), rows.columns(), |i, l| rows[(chosen[i], l)])
}
