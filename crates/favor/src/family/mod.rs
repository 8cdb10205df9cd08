//! The families: moments of both sides in, parameters out. One file a family.
//!
//! Each file minimises the shifted log-variance objective over its own class of parameters, in
//! closed form. The classes contain one another, so on any data
//! `balanced ≤ every other of them`, `SDE ≤ GE ≤ Pos` and `ADE ≤ SADE ≤ GE`. The trigonometric families
//! and Hyperbolic are not of these classes, and can be lower where vectors are short.

mod ade;
mod balanced;
mod ge;
mod pos;
mod sade;
mod sde;

use crate::parameters::check_dims;
use crate::{Error, Matrix, Moments, Parameters, Result};
use serde::{Deserialize, Serialize};

/// Variances of a direction below this fraction of the average are taken as this fraction, so
/// that constant columns, duplicate rows and too few rows leave every transform invertible.
const FLOOR: f64 = 1e-12;

/// A family of random features of the softmax kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Random kitchen sinks, `√2 exp(‖x‖²/2) cos(ωᵀx+θ)`. Not positive.
    Trig,
    /// Random kitchen sinks with sine and cosine of each draw. Not positive.
    TrigPair,
    /// Positive features (FAVOR+): `a = 0`, `G = I`.
    Pos,
    /// Positive features of the pair `ω, −ω` (FAVOR+).
    Hyperbolic,
    /// Generalised exponential (FAVOR++): one `a` for all dimensions.
    Ge,
    /// Simplified asymmetric dense exponential (FAVOR# without decompositions): diagonal `G`.
    Sade,
    /// Asymmetric dense exponential: full `G`, one `a` for all dimensions.
    Ade,
    /// Symmetric dense exponential (FAVOR#): orthogonal `G`, one `a` a dimension.
    Sde,
    /// SDE after both sides are moved to their means.
    SdeShifted,
    /// ADE after both sides are moved to their means.
    AdeShifted,
    /// The optimum of the whole class: shift, balancing transform, one `a` a dimension.
    #[default]
    Balanced,
}

impl Family {
    /// Every family, the sine and cosine form of Trig included.
    pub const ALL: [Self; 11] = [
        Self::Trig,
        Self::TrigPair,
        Self::Pos,
        Self::Hyperbolic,
        Self::Ge,
        Self::Sade,
        Self::Ade,
        Self::Sde,
        Self::SdeShifted,
        Self::AdeShifted,
        Self::Balanced,
    ];

    /// The name in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trig => "trig",
            Self::TrigPair => "trig_pair",
            Self::Pos => "pos",
            Self::Hyperbolic => "hyperbolic",
            Self::Ge => "ge",
            Self::Sade => "sade",
            Self::Ade => "ade",
            Self::Sde => "sde",
            Self::SdeShifted => "sde_shifted",
            Self::AdeShifted => "ade_shifted",
            Self::Balanced => "balanced",
        }
    }

    /// The name in text and figures.
    pub fn title(self) -> &'static str {
        match self {
            Self::Trig => "Trig (RKS)",
            Self::TrigPair => "Trig (sin, cos)",
            Self::Pos => "Pos (FAVOR+)",
            Self::Hyperbolic => "Hyperbolic (FAVOR+)",
            Self::Ge => "GE (FAVOR++)",
            Self::Sade => "SADE (FAVOR#)",
            Self::Ade => "ADE",
            Self::Sde => "SDE (FAVOR#)",
            Self::SdeShifted => "SDE + shift",
            Self::AdeShifted => "ADE + shift",
            Self::Balanced => "Balanced (ours)",
        }
    }

    /// Whether every feature is positive, so that it has a logarithm.
    pub fn is_positive(self) -> bool {
        !matches!(self, Self::Trig | Self::TrigPair)
    }

    /// The parameters that minimise the objective within this family on the two sets, or `None`
    /// for the trigonometric families, which have none.
    ///
    /// ```
    /// use favor::{Family, Moments, Rows};
    /// let queries = Moments::of(Rows::new(&[1.0, 0.0, 0.0, 2.0], 2, 2)?)?;
    /// let keys = Moments::of(Rows::new(&[0.5, 1.0, 1.0, 0.0], 2, 2)?)?;
    /// let sde = Family::Sde.fit(&queries, &keys)?.unwrap();
    /// let best = Family::Balanced.fit(&queries, &keys)?.unwrap();
    /// assert!(best.objective(&queries, &keys)? <= sde.objective(&queries, &keys)?);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn fit(self, queries: &Moments, keys: &Moments) -> Result<Option<Parameters>> {
        check_dims(queries.dim(), queries, keys)?;
        let parameters = match self {
            Self::Trig | Self::TrigPair => return Ok(None),
            Self::Pos | Self::Hyperbolic => pos::fit(queries.dim()),
            Self::Ge => ge::fit(queries, keys),
            Self::Sade => sade::fit(queries, keys),
            Self::Ade => ade::fit(queries, keys),
            Self::Sde => sde::fit(queries, keys),
            Self::SdeShifted => sde::fit_shifted(queries, keys),
            Self::AdeShifted => ade::fit_shifted(queries, keys),
            Self::Balanced => balanced::fit(queries, keys),
        }?;
        Ok(Some(parameters))
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Family {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid("family", format!("'{name}' is none of {names}"))
        })
    }
}

/// The least variance that a direction is taken to have, given the traces of its own side's moment
/// and of the other's: a side that is zero throughout borrows the other's measure, and two such
/// sides the number one.
fn floor_of(own_trace: f64, other_trace: f64, dim: usize) -> f64 {
    let measure = [own_trace, other_trace].into_iter().find(|t| *t > f64::MIN_POSITIVE / FLOOR);
    measure.map_or(1.0, |t| FLOOR * t / dim as f64)
}

/// The shift that moves a set to its mean.
fn centring_shift(moments: &Moments) -> Vec<f64> {
    moments.mean().iter().map(|m| -m).collect()
}

/// Parameters of transform `G` (with its inverse transpose) and shifts, before their diagonal is
/// chosen.
fn with_transform(
    transform: Matrix<f64>,
    inverse_transpose: Matrix<f64>,
    query_shift: Vec<f64>,
    key_shift: Vec<f64>,
) -> Result<Parameters> {
    let zeros = vec![0.0; transform.rows()];
    Parameters::checked(zeros, transform, inverse_transpose, query_shift, key_shift)
}
