//! What the tests share: random data, the theory they test against, and ways to compare.

pub(crate) mod cases;
pub(crate) mod sets;
pub(crate) mod theory;

use favor::draw::Stream;
use favor::{FeatureMap, Float, Kernel, LogScaled, Matrix, Moments, Rows, Side};

/// Normal numbers of mean `mean` and deviation `scale`, fixed by the seed.
pub(crate) fn normal(seed: u64, rows: usize, columns: usize, mean: f64, scale: f64) -> Matrix<f64> {
    let mut stream = Stream::new(seed, 77);
    Matrix::from_fn(rows, columns, |_, _| mean + scale * stream.normal())
}

/// The same numbers in another format.
pub(crate) fn cast<T: Float>(m: &Matrix<f64>) -> Matrix<T> {
    Matrix::from_fn(m.rows(), m.columns(), |i, j| T::from_f64(m[(i, j)]))
}

pub(crate) fn moments<T: Float>(m: &Matrix<T>) -> Moments {
    Moments::of(m.view()).unwrap()
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// `A B` by the definition.
pub(crate) fn matmul(a: &Matrix<f64>, b: &Matrix<f64>) -> Matrix<f64> {
    Matrix::from_fn(a.rows(), b.columns(), |i, j| {
        (0..a.columns()).map(|k| a[(i, k)] * b[(k, j)]).sum()
    })
}

/// The rows given by their numbers, in that order.
pub(crate) fn pick<T: Float>(rows: Rows<'_, T>, which: &[usize]) -> Matrix<T> {
    Matrix::from_fn(which.len(), rows.columns(), |i, j| rows.row(which[i])[j])
}

/// `log K` by the definition.
pub(crate) fn log_kernel(kernel: Kernel, x: &[f64], y: &[f64]) -> f64 {
    let s2 = kernel.scale() * kernel.scale();
    s2 * (dot(x, y) + kernel.alpha() * (dot(x, x) + dot(y, y)))
}

/// The features `f(ω_m, ·)` themselves, with neither `M^{-1/2}` nor a scale. For data of small norm.
pub(crate) fn plain_features<T: Float>(map: &FeatureMap, side: Side, x: &Matrix<T>) -> Matrix<f64> {
    let LogScaled { log_scale, values } = map.features_of(side, x.view()).unwrap();
    let root = (map.features() as f64).sqrt();
    Matrix::from_fn(values.rows(), values.columns(), |i, m| {
        values[(i, m)].to_f64() * log_scale[i].exp() * root
    })
}

/// The largest difference between two matrices of one shape.
pub(crate) fn largest_difference<T: Float>(a: &Matrix<T>, b: &Matrix<T>) -> f64 {
    assert_eq!(a.shape(), b.shape());
    let pairs = a.as_slice().iter().zip(b.as_slice());
    pairs.map(|(a, b)| (a.to_f64() - b.to_f64()).abs()).fold(0.0, |m, d| {
        assert!(!d.is_nan());
        m.max(d)
    })
}

/// The same numbers to the last bit.
#[track_caller]
pub(crate) fn assert_same_bits<T: Float>(what: &str, a: &Matrix<T>, b: &Matrix<T>) {
    assert_eq!(a.shape(), b.shape(), "{what}");
    for (k, (a, b)) in a.as_slice().iter().zip(b.as_slice()).enumerate() {
        assert!(a.to_f64().to_bits() == b.to_f64().to_bits(), "{what}, entry {k}: {a:?}, {b:?}");
    }
}

/// Asserts that a measured mean is what theory expects, within four standard errors.
#[track_caller]
pub(crate) fn assert_within(what: &str, measured: f64, expected: f64, standard_error: f64) {
    // Rounding, for statistics whose variance is zero or almost so.
    let error = standard_error.max(1e-12 * expected.abs());
    let off = (measured - expected) / error;
    assert!(off.abs() < 4.0, "{what}: {measured} for {expected}, {off:.2} standard errors off");
}

#[track_caller]
pub(crate) fn assert_close(what: &str, a: f64, b: f64, relative: f64) {
    let unit = a.abs().max(b.abs());
    assert!((a - b).abs() <= relative * unit, "{what}: {a} against {b}");
}
