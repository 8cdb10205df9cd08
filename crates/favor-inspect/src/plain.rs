//! Attention to some of the keys, by its plain definition: the baseline for features.

use favor::{Kernel, Matrix, Result};

/// Exact attention of each query to the keys that `keys_of` names. A query without any gives zeros.
///
/// ```
/// use favor::{Kernel, Matrix};
/// use favor_inspect::attention_to;
/// let x = Matrix::from_fn(4, 2, |i, l| (i + l) as f64);
/// let own = attention_to(Kernel::attention(2), &x, &x, &x, |i| vec![i])?;
/// assert_eq!(own, x); // each query sees itself alone
/// # Ok::<(), favor::Error>(())
/// ```
pub fn attention_to(
    kernel: Kernel,
    q: &Matrix<f64>,
    k: &Matrix<f64>,
    v: &Matrix<f64>,
    keys_of: impl Fn(usize) -> Vec<usize>,
) -> Result<Matrix<f64>> {
    let mut out = Matrix::zeros(q.rows(), v.columns());
    for i in 0..q.rows() {
        let keys = keys_of(i);
        let log = |&j: &usize| kernel.log_value(q.row(i), k.row(j));
        let logs = keys.iter().map(log).collect::<Result<Vec<f64>>>()?;
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logs.iter().map(|l| (l - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (&j, w) in keys.iter().zip(&weights) {
            let row = out.row_mut(i).iter_mut().zip(v.row(j));
            row.for_each(|(o, v)| *o += w / total * v);
        }
    }
    Ok(out)
}

/// The keys at most `near` away from query `i`, and none that are later if causal.
///
/// ```
/// use favor_inspect::window_keys;
/// assert_eq!(window_keys(3, 1, 10, false), [2, 3, 4]);
/// assert_eq!(window_keys(3, 1, 10, true), [2, 3]);
/// ```
pub fn window_keys(i: usize, near: usize, length: usize, causal: bool) -> Vec<usize> {
    let end = if causal { i + 1 } else { i.saturating_add(near).saturating_add(1).min(length) };
    (i.saturating_sub(near)..end).collect()
}

/// The plain mean of the values that each query sees.
///
/// ```
/// use favor::Matrix;
/// let v = Matrix::from_fn(3, 1, |i, _| i as f64);
/// assert_eq!(favor_inspect::mean_of_values(&v, 3, true).as_slice(), [0.0, 0.5, 1.0]);
/// ```
pub fn mean_of_values(v: &Matrix<f64>, queries: usize, causal: bool) -> Matrix<f64> {
    let mut out = Matrix::zeros(queries, v.columns());
    let mut sums = vec![0.0; v.columns()];
    let mut seen = 0;
    for i in 0..queries {
        let end = if causal { i + 1 } else { v.rows() };
        for j in seen..end {
            sums.iter_mut().zip(v.row(j)).for_each(|(s, v)| *s += v);
        }
        seen = end;
        out.row_mut(i).iter_mut().zip(&sums).for_each(|(o, s)| *o = s / seen as f64);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use favor::reference::{Mask, exact_attention};

    #[test]
    fn all_keys_are_exact_attention_and_equal_ones_the_mean() {
        let entry =
            |phase: f64| move |i: usize, l: usize| (phase + 1.7 * i as f64 + l as f64).sin();
        let (q, k) = (Matrix::from_fn(7, 3, entry(0.0)), Matrix::from_fn(7, 3, entry(1.0)));
        let v = Matrix::from_fn(7, 2, entry(2.0));
        let kernel = Kernel::attention(3);
        for causal in [false, true] {
            let mask = if causal { Mask::causal() } else { Mask::none() };
            let all = |i: usize| window_keys(i, usize::MAX, 7, causal);
            let close = |a: &Matrix<f64>, b: &Matrix<f64>| {
                let pairs = a.as_slice().iter().zip(b.as_slice());
                pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-12, "{a} but {b}"));
            };
            let exact = exact_attention(kernel, q.view(), k.view(), v.view(), mask).unwrap();
            close(&attention_to(kernel, &q, &k, &v, all).unwrap(), &exact);
            let zeros = Matrix::zeros(7, 3);
            let mean = attention_to(kernel, &zeros, &zeros, &v, all).unwrap();
            close(&mean_of_values(&v, 7, causal), &mean);
        }
        assert_eq!(window_keys(6, 2, 7, false), [4, 5, 6]);
        assert_eq!(attention_to(kernel, &q, &k, &v, |_| vec![]).unwrap(), Matrix::zeros(7, 2));
    }
}
