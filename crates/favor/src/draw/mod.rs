//! Drawing ω: a seed in, M standard-normal rows of dimension d out.
//!
//! Every estimator of the library averages over rows ω ~ N(0, I_d). The rows need not be
//! independent: any joint distribution whose rows are each N(0, I_d) leaves the average unbiased,
//! and one whose rows avoid each other lowers its variance. Such a distribution is a [`Coupling`].
//!
//! A draw is a pure function of (coupling, seed, M, d), the same to the last bit on every machine
//! and for every number of threads. Hence the rules of this module: a counter-based generator, only
//! `+ − × ÷ √` in a fixed order (IEEE 754 specifies their results), and a logarithm from a Rust
//! library instead of the platform's own.
//!
//! Every coupling has the prefix property: asking for more rows never changes the first ones. Rows
//! are drawn in blocks, and each block reads its own random stream.

mod antithetic;
mod iid;
mod normal;
mod orthogonal;
mod simplex;
mod sobol;
mod stream;

pub(crate) use normal::quantile as normal_quantile;
pub use stream::Stream;

use crate::{Error, Matrix, Result};
use stream::Purpose;

named! {
    "coupling"
    /// How the rows of ω depend on one another. Each row alone is always N(0, I).
    ///
    /// ```
    /// use favor::{Coupling, Family, FeatureSpec};
    /// let spec = FeatureSpec::new(Family::Balanced, 64);
    /// assert_eq!(spec.coupling, Coupling::Orthogonal);
    /// assert_eq!(spec.coupling("simplex".parse()?).coupling, Coupling::Simplex);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub enum Coupling {
        /// Independent rows: the baseline.
        Iid: "iid",
        /// Blocks of d rows at right angles, with independent lengths.
        #[default]
        Orthogonal: "orthogonal",
        /// Blocks of d rows at equal obtuse angles, with independent lengths.
        Simplex: "simplex",
        /// Orthogonal rows, each followed by its negative.
        Antithetic: "antithetic",
        /// A scrambled Sobol sequence. It pays off only with many rows for its dimension.
        Sobol: "sobol",
    }
}

/// Draws ω: `features` rows of dimension `dim`, each N(0, I), coupled as `coupling` says.
///
/// The cost is O(M·d) numbers, and O(M·d²) operations for the couplings that keep rows at fixed
/// angles. It is an error to ask for no rows, no columns, or more than fits into memory.
///
/// ```
/// use favor::draw::{Coupling, draw_omega};
///
/// let omega = draw_omega(Coupling::Orthogonal, 7, 6, 4)?;
/// assert_eq!(omega.shape(), (6, 4));
/// let dot: f64 = omega.row(0).iter().zip(omega.row(3)).map(|(a, b)| a * b).sum();
/// assert!(dot.abs() < 1e-12);
///
/// // The same seed gives the same rows, however many are asked for.
/// let more = draw_omega(Coupling::Orthogonal, 7, 100, 4)?;
/// assert_eq!(omega.row(5), more.row(5));
/// # Ok::<(), favor::Error>(())
/// ```
pub fn draw_omega(
    coupling: Coupling,
    seed: u64,
    features: usize,
    dim: usize,
) -> Result<Matrix<f64>> {
    if features == 0 || dim == 0 {
        return Err(Error::Empty { what: "ω".into(), rows: features, columns: dim });
    }
    let mut omega = allocate(features, dim)?;
    match coupling {
        Coupling::Iid => iid::fill(seed, &mut omega),
        Coupling::Orthogonal => orthogonal::fill(seed, &mut omega, dim),
        Coupling::Simplex => simplex::fill(seed, &mut omega, dim),
        Coupling::Antithetic => antithetic::fill(seed, &mut omega, dim),
        Coupling::Sobol => sobol::fill(seed, &mut omega, dim),
    }
    Matrix::new(omega, features, dim)
}

/// Draws the phases of trigonometric features: `features` numbers uniform in [0, 2π), independent
/// of the rows that [`draw_omega`] returns for the same seed.
///
/// ```
/// let phases = favor::draw::offsets(7, 100);
/// assert!(phases.iter().all(|phase| (0.0..std::f64::consts::TAU).contains(phase)));
/// ```
pub fn offsets(seed: u64, features: usize) -> Vec<f64> {
    let mut stream = Stream::block(seed, Purpose::Offsets, 0);
    (0..features).map(|_| stream.uniform() * std::f64::consts::TAU).collect()
}

/// Zeros for ω, or an error where `vec!` would panic.
fn allocate(features: usize, dim: usize) -> Result<Vec<f64>> {
    let mut omega = Vec::new();
    match features.checked_mul(dim) {
        Some(count) if omega.try_reserve_exact(count).is_ok() => {
            omega.resize(count, 0.0);
            Ok(omega)
        }
        _ => Err(Error::invalid(
            "ω",
            format!("{features} rows of {dim} columns do not fit in memory"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_text_and_in_files() {
        for coupling in Coupling::ALL {
            assert_eq!(coupling.name().parse(), Ok(coupling));
            assert_eq!(coupling.to_string(), coupling.name());
            let json = format!("\"{coupling}\"");
            assert_eq!(serde_json::to_string(&coupling).unwrap(), json);
            assert_eq!(serde_json::from_str::<Coupling>(&json).unwrap(), coupling);
        }
        assert_eq!(Coupling::default(), Coupling::Orthogonal);
        assert_eq!(format!("{:>6}", Coupling::Iid), "   iid");
        let message = "Sobol".parse::<Coupling>().unwrap_err().to_string();
        assert_eq!(
            message,
            "coupling: 'Sobol' is not one of iid, orthogonal, simplex, antithetic, sobol; did you mean 'sobol'?"
        );
    }

    #[test]
    fn impossible_shapes_are_errors() {
        for coupling in Coupling::ALL {
            assert!(matches!(draw_omega(coupling, 1, 0, 3), Err(Error::Empty { rows: 0, .. })));
            assert!(matches!(draw_omega(coupling, 1, 3, 0), Err(Error::Empty { columns: 0, .. })));
            assert!(matches!(draw_omega(coupling, 1, usize::MAX, 2), Err(Error::Invalid { .. })));
            assert!(matches!(draw_omega(coupling, 1, 1, usize::MAX), Err(Error::Invalid { .. })));
        }
    }
}
