//! Kernels of the distance: the Gaussian and its rougher relatives.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// A kernel `k(‖u−v‖/h)` of bandwidth `h`, with `k(0) = 1`. The Matérn kernels suit functions that are not
/// smooth: their sample paths have no, one or two derivatives, those of the Gaussian all.
///
/// ```
/// use favor::learn::KernelShape;
/// let shape: KernelShape = "laplace".parse()?;
/// assert!((shape.value(4.0) - (-2.0_f64).exp()).abs() < 1e-15); // at distance 2
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelShape {
    /// `exp(−r²/2)`.
    #[default]
    Gaussian,
    /// `exp(−r)`, the Matérn kernel of ν = 1/2.
    Laplace,
    /// `(1 + √3 r) exp(−√3 r)`, ν = 3/2.
    Matern32,
    /// `(1 + √5 r + 5r²/3) exp(−√5 r)`, ν = 5/2.
    Matern52,
}

impl KernelShape {
    /// Every shape, the roughest last.
    pub const ALL: [Self; 4] = [Self::Gaussian, Self::Matern52, Self::Matern32, Self::Laplace];

    /// The name in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gaussian => "gaussian",
            Self::Laplace => "laplace",
            Self::Matern32 => "matern32",
            Self::Matern52 => "matern52",
        }
    }

    /// The kernel at a squared distance, in units of the bandwidth.
    pub fn value(self, squared: f64) -> f64 {
        match self {
            Self::Gaussian => (-0.5 * squared).exp(),
            Self::Laplace => (-squared.sqrt()).exp(),
            Self::Matern32 => {
                let r = (3.0 * squared).sqrt();
                (1.0 + r) * (-r).exp()
            }
            Self::Matern52 => {
                let r = (5.0 * squared).sqrt();
                (1.0 + r + r * r / 3.0) * (-r).exp()
            }
        }
    }

    /// The derivative by the squared distance; for the Laplace kernel, whose slope at distance 0 is
    /// infinite, that of a distance of 10⁻⁶ there.
    pub(super) fn slope(self, squared: f64) -> f64 {
        match self {
            Self::Gaussian => -0.5 * (-0.5 * squared).exp(),
            Self::Laplace => {
                let r = squared.sqrt().max(1e-6);
                -0.5 * (-r).exp() / r
            }
            Self::Matern32 => -1.5 * (-(3.0 * squared).sqrt()).exp(),
            Self::Matern52 => {
                let r = (5.0 * squared).sqrt();
                -5.0 / 6.0 * (1.0 + r) * (-r).exp()
            }
        }
    }

    /// Twice ν: the degrees of freedom of the kernel's frequencies, which have Student's t distribution.
    /// Those of the Gaussian are normal.
    pub(super) fn degrees(self) -> Option<usize> {
        match self {
            Self::Gaussian => None,
            Self::Laplace => Some(1),
            Self::Matern32 => Some(3),
            Self::Matern52 => Some(5),
        }
    }
}

impl std::fmt::Display for KernelShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for KernelShape {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name).ok_or_else(|| {
            Error::invalid("kernel", crate::unknown_name(name, &Self::ALL.map(Self::name)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_differences_of_values() {
        for shape in KernelShape::ALL {
            assert_eq!(shape.value(0.0), 1.0);
            assert_eq!(shape.name().parse(), Ok(shape));
            for squared in [0.01, 0.5, 3.0, 20.0] {
                let step = 1e-4 * squared;
                let difference =
                    (shape.value(squared + step) - shape.value(squared - step)) / (2.0 * step);
                // A central difference of step h is off by h² f‴/6 and by rounding, ε f/h.
                let allowed = 1e-7 * difference.abs() + 1e-9;
                assert!((shape.slope(squared) - difference).abs() < allowed, "{shape} {squared}");
            }
        }
    }
}
