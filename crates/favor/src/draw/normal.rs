//! The quantile function of the standard normal distribution.
//!
//! It makes one normal number from one uniform number and preserves even spacing, so the same
//! function works for random and quasi-random points. M. J. Wichura, "Algorithm AS 241: The
//! Percentage Points of the Normal Distribution", Applied Statistics 37 (1988) 477–484, routine
//! PPND16: rational approximations in three ranges, with relative error below 1e-16 before
//! rounding.

/// The `z` with `P(Z ≤ z) = p` for standard-normal `Z`; ±∞ at 0 and 1, NaN outside.
pub(crate) fn quantile(p: f64) -> f64 {
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180625 - q * q;
        return q * polynomial(&A, r) / polynomial(&B, r);
    }
    let tail = if q < 0.0 { p } else { 1.0 - p };
    if tail == 0.0 {
        return f64::INFINITY.copysign(q);
    }
    // libm and not the standard library, whose logarithm differs between platforms.
    let r = (-libm::log(tail)).sqrt();
    let z = if r <= 5.0 {
        polynomial(&C, r - 1.6) / polynomial(&D, r - 1.6)
    } else {
        polynomial(&E, r - 5.0) / polynomial(&F, r - 5.0)
    };
    z.copysign(q)
}

/// Horner's rule, from the constant term up.
fn polynomial(coefficients: &[f64; 8], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// Numerator for |p − ½| ≤ 0.425.
const A: [f64; 8] = [
    3.3871328727963665,
    133.14166789178438,
    1971.5909503065513,
    13731.69376550946,
    45921.95393154987,
    67265.7709270087,
    33430.57558358813,
    2509.0809287301227,
];

/// Denominator for |p − ½| ≤ 0.425.
const B: [f64; 8] = [
    1.0,
    42.31333070160091,
    687.1870074920579,
    5394.196021424751,
    21213.794301586597,
    39307.89580009271,
    28729.085735721943,
    5226.495278852854,
];

/// Numerator for √(−ln tail) ≤ 5.
const C: [f64; 8] = [
    1.4234371107496835,
    4.630337846156546,
    5.769497221460691,
    3.6478483247632045,
    1.2704582524523684,
    0.2417807251774506,
    0.022723844989269184,
    0.0007745450142783414,
];

/// Denominator for √(−ln tail) ≤ 5.
const D: [f64; 8] = [
    1.0,
    2.053191626637759,
    1.6763848301838038,
    0.6897673349851,
    0.14810397642748008,
    0.015198666563616457,
    0.0005475938084995345,
    1.0507500716444169e-09,
];

/// Numerator beyond.
const E: [f64; 8] = [
    6.657904643501103,
    5.463784911164114,
    1.7848265399172913,
    0.29656057182850487,
    0.026532189526576124,
    0.0012426609473880784,
    2.7115555687434876e-05,
    2.0103343992922881e-07,
];

/// Denominator beyond.
const F: [f64; 8] = [
    1.0,
    0.599832206555888,
    0.1369298809227358,
    0.014875361290850615,
    0.0007868691311456133,
    1.8463183175100548e-05,
    1.421511758316446e-07,
    2.0442631033899397e-15,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // Computed with 60 digits (mpmath) at the exact binary value of p, then rounded.
        let known = [
            (1.1102230246251565e-16, -8.209536151601387),
            (1e-12, -7.034483825301132),
            (1e-06, -4.753424308822899),
            (0.001, -3.0902323061678136),
            (0.01, -2.326347874040841),
            (0.024997, -1.9600153173715422),
            (0.05, -1.6448536269514726),
            (0.0750001, -1.4395307645017297),
            (0.1, -1.2815515655446004),
            (0.25, -0.6744897501960817),
            (0.4, -0.2533471031357997),
            (0.4999999999999, -2.506016240416926e-13),
            (0.5000000001, 2.506628482030354e-10),
            (0.6, 0.2533471031357997),
            (0.75, 0.6744897501960817),
            (0.92499, 1.4394608308216257),
            (0.975, 1.9599639845400538),
            (0.999, 3.090232306167813),
            (0.999999, 4.753424308817087),
            (0.9999999999999998, 8.125890664701906),
            (0.9999999999999999, 8.209536151601387),
            (1e-300, -37.0470962993612),
        ];
        for (p, z) in known {
            let relative = (quantile(p) - z).abs() / z.abs();
            assert!(relative <= 1e-15, "p = {p:e}: {} for {z}, off by {relative:e}", quantile(p));
        }
    }

    #[test]
    fn inverts_the_distribution_function() {
        for step in 1..20_000 {
            for p in [f64::from(step) / 40_000.0, libm::exp(-f64::from(step) / 550.0) / 2.0] {
                let back = libm::erfc(-quantile(p) / std::f64::consts::SQRT_2) / 2.0;
                // The distribution function magnifies relative errors by about z² in the tail.
                let z = quantile(p);
                assert!((back - p).abs() <= 1e-15 * (2.0 + z * z) * p, "{p:e} became {back:e}");
            }
        }
    }

    #[test]
    fn odd_about_one_half_and_increasing() {
        let mut last = f64::NEG_INFINITY;
        for cell in 1..4096 {
            let p = f64::from(cell) / 4096.0;
            assert_eq!(quantile(1.0 - p), -quantile(p));
            assert!(quantile(p) > last);
            last = quantile(p);
        }
    }

    #[test]
    fn edges() {
        assert_eq!(quantile(0.5), 0.0);
        assert_eq!(quantile(0.0), f64::NEG_INFINITY);
        assert_eq!(quantile(1.0), f64::INFINITY);
        assert!([-0.1, 1.1, f64::NAN, f64::INFINITY].iter().all(|&p| quantile(p).is_nan()));
    }
}
