//! What approximations are compared with: attention to some of the keys, and the mean of the values.

use super::{Mask, check_inputs, weighted_mean};
use crate::{Error, Float, Kernel, Matrix, Result, Rows};
use std::ops::Range;

/// Exact attention of each query to the keys that `keys_of` names. A query without any gives zeros.
///
/// ```
/// use favor::reference::attention_to;
/// use favor::{Kernel, Matrix};
/// let x = Matrix::from_fn(4, 2, |i, l| (i + l) as f64);
/// let own = attention_to(Kernel::attention(2), x.view(), x.view(), x.view(), |i| vec![i])?;
/// assert_eq!(own, x); // each query sees itself alone
/// # Ok::<(), favor::Error>(())
/// ```
pub fn attention_to<T: Float, K: IntoIterator<Item = usize>>(
    kernel: Kernel,
    q: Rows<'_, T>,
    k: Rows<'_, T>,
    v: Rows<'_, T>,
    keys_of: impl Fn(usize) -> K,
) -> Result<Matrix<T>> {
    check_inputs(q, k, v, &Mask::none())?;
    let mut out = Matrix::zeros(q.rows(), v.columns());
    for i in 0..q.rows() {
        let log = |j: usize| {
            if j >= k.rows() {
                return Err(Error::invalid("keys", format!("there is no number {j}")));
            }
            Ok((j, kernel.log_value(q.row(i), k.row(j))?))
        };
        let logs = keys_of(i).into_iter().map(log).collect::<Result<Vec<_>>>()?;
        weighted_mean(&logs, v, out.row_mut(i))?;
    }
    Ok(out)
}

/// The keys at most `near` away from query `i`, and none that are later if causal.
///
/// ```
/// use favor::reference::window_keys;
/// assert_eq!(window_keys(3, 1, 10, false), 2..5);
/// assert_eq!(window_keys(3, 1, 10, true), 2..4);
/// ```
pub fn window_keys(i: usize, near: usize, length: usize, causal: bool) -> Range<usize> {
    let end = if causal { i + 1 } else { i.saturating_add(near).saturating_add(1) };
    i.saturating_sub(near)..end.min(length)
}

/// The plain mean of the values that each query sees; zeros if there are none.
///
/// ```
/// use favor::{Matrix, reference::mean_of_values};
/// let v = Matrix::from_fn(3, 1, |i, _| i as f64);
/// assert_eq!(mean_of_values(v.view(), 3, true).as_slice(), [0.0, 0.5, 1.0]);
/// ```
pub fn mean_of_values<T: Float>(v: Rows<'_, T>, queries: usize, causal: bool) -> Matrix<T> {
    let mut out = Matrix::zeros(queries, v.columns());
    let mut sums = vec![0.0; v.columns()];
    let mut seen = 0;
    for i in 0..queries {
        let end = if causal { (i + 1).min(v.rows()) } else { v.rows() };
        for j in seen..end {
            sums.iter_mut().zip(v.row(j)).for_each(|(s, v)| *s += v.to_f64());
        }
        seen = end;
        let mean = |s: &f64| T::from_f64(s / seen.max(1) as f64);
        out.row_mut(i).iter_mut().zip(&sums).for_each(|(o, s)| *o = mean(s));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::exact_attention;

    #[test]
    fn all_keys_are_exact_attention_and_equal_ones_the_mean() {
        let entry =
            |phase: f64| move |i: usize, l: usize| (phase + 1.7 * i as f64 + l as f64).sin();
        let (q, k) = (Matrix::from_fn(7, 3, entry(0.0)), Matrix::from_fn(7, 3, entry(1.0)));
        let v = Matrix::from_fn(7, 2, entry(2.0));
        let (kernel, zeros) = (Kernel::attention(3), Matrix::zeros(7, 3));
        for causal in [false, true] {
            let all = |i: usize| window_keys(i, usize::MAX, 7, causal);
            // Sums of seven numbers below one, in another order.
            let close = |a: &Matrix<f64>, b: &Matrix<f64>| {
                let pairs = a.as_slice().iter().zip(b.as_slice());
                pairs
                    .for_each(|(a, b)| assert!((a - b).abs() < 32.0 * f64::EPSILON, "{a} but {b}"));
            };
            let mask = Mask::new(causal, None);
            let exact = exact_attention(kernel, q.view(), k.view(), v.view(), mask).unwrap();
            close(&attention_to(kernel, q.view(), k.view(), v.view(), all).unwrap(), &exact);
            let mean = attention_to(kernel, zeros.view(), zeros.view(), v.view(), all).unwrap();
            close(&mean_of_values(v.view(), 7, causal), &mean);
        }
        assert_eq!(window_keys(6, 2, 7, false), 4..7);
        let with =
            |keys: Vec<usize>| attention_to(kernel, q.view(), k.view(), v.view(), |_| keys.clone());
        assert_eq!(with(vec![]).unwrap(), Matrix::zeros(7, 2));
        assert!(with(vec![7]).unwrap_err().to_string().contains("no number 7"));
        assert_eq!(mean_of_values(v.view().slice(0, 0), 2, false), Matrix::zeros(2, 2));
    }
}
