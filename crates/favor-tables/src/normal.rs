//! The quantile function of the standard normal distribution.

/// The `z` with `P(Z ≤ z) = p` for standard-normal `Z`, to about 1e-9 of its value: P. J. Acklam's
/// rational approximation. Infinite at 0 and 1, NaN outside.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 6] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 5] =
        [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0];
    let polynomial = |c: &[f64], x: f64| c.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = p.min(1.0 - p);
    if tail < 0.02425 {
        let q = (-2.0 * tail.ln()).sqrt();
        let z = polynomial(&C, q) / polynomial(&D, q);
        return if tail == 0.0 { f64::INFINITY.copysign(p - 0.5) } else { z.copysign(p - 0.5) };
    }
    let q = p - 0.5;
    q * polynomial(&A, q * q) / polynomial(&B, q * q)
}
