//! The families: moments of both sides in, parameters out. One file per family.
//!
//! Each file minimises the shifted log-variance objective over its own class of parameters, in closed
//! form. The classes are nested, so on any data `balanced ≤ every other of them`, `SDE ≤ GE ≤ Pos` and
//! `ADE ≤ SADE ≤ GE`. The trigonometric families and Hyperbolic are outside these classes and can be
//! lower if vectors are short.

mod ade;
mod balanced;
mod ge;
mod pos;
mod sade;
mod sde;

use crate::parameters::check_dims;
use crate::{Matrix, Moments, Parameters, Result};
use serde::{Deserialize, Serialize};

/// Variances below this fraction of the average are raised to it, so that constant columns, duplicate
/// rows and too few rows leave every transform invertible.
const FLOOR: f64 = 1e-12;

/// The optimal parameters of a family for the moments of queries and keys.
type Fit = fn(&Moments, &Moments) -> Result<Parameters>;

/// Each family once: documentation, variant, name in commands and files, name in text and figures, and
/// how its parameters are fitted, if it has any.
macro_rules! families {
    ($($(#[$attribute:meta])* $variant:ident: $name:literal, $title:literal, $fit:expr;)*) => {
        /// A family of random features of the softmax kernel.
        ///
        /// ```
        /// use favor::Family;
        /// assert_eq!(Family::default(), Family::Balanced);
        /// assert_eq!("sade".parse(), Ok(Family::Sade));
        /// assert_eq!(Family::Sade.title(), "SADE (FAVOR#)");
        /// assert!(Family::Balanced.is_positive() && !Family::Trig.is_positive());
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "&'static str")]
        pub enum Family {
            $($(#[$attribute])* $variant,)*
        }

        impl Family {
            /// Every family, including the sine and cosine form of Trig.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name in commands and files.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The name in text and figures.
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            fn fitted_by(self) -> Option<Fit> {
                match self { $(Self::$variant => $fit,)* }
            }
        }
    };
}

families! {
    /// Random kitchen sinks, `√2 exp(‖x‖²/2) cos(ωᵀx+θ)`. Not positive.
    Trig: "trig", "Trig (RKS)", None;
    /// Random kitchen sinks with sine and cosine of each draw. Not positive.
    TrigPair: "trig_pair", "Trig (sin, cos)", None;
    /// Positive features (FAVOR+): `a = 0`, `G = I`.
    Pos: "pos", "Pos (FAVOR+)", Some(pos::fit);
    /// Positive features of the pair `ω, −ω` (FAVOR+).
    Hyperbolic: "hyperbolic", "Hyperbolic (FAVOR+)", Some(pos::fit);
    /// Generalised exponential (FAVOR++): one `a` for all dimensions.
    Ge: "ge", "GE (FAVOR++)", Some(ge::fit);
    /// Simplified asymmetric dense exponential (FAVOR# without decompositions): diagonal `G`.
    Sade: "sade", "SADE (FAVOR#)", Some(sade::fit);
    /// Asymmetric dense exponential: full `G`, one `a` for all dimensions.
    Ade: "ade", "ADE", Some(ade::fit);
    /// Symmetric dense exponential (FAVOR#): orthogonal `G`, one `a` per dimension.
    Sde: "sde", "SDE (FAVOR#)", Some(sde::fit);
    /// SDE after both sides are centred.
    SdeShifted: "sde_shifted", "SDE + shift", Some(sde::fit_shifted);
    /// ADE after both sides are centred.
    AdeShifted: "ade_shifted", "ADE + shift", Some(ade::fit_shifted);
    /// The optimum of the whole class: shift, balancing transform, one `a` per dimension.
    #[default]
    Balanced: "balanced", "Balanced (ours)", Some(balanced::fit);
}

impl Family {
    /// Whether every feature is positive, so that it has a logarithm.
    pub fn is_positive(self) -> bool {
        self.fitted_by().is_some()
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
        self.fitted_by().map(|fit| fit(queries, keys)).transpose()
    }
}

by_name! { "family" Family }

/// The floor of a direction's variance, given the traces of its own side's moment and of the other's: a
/// side that is all zeros borrows the other's, and two such sides use one.
fn floor_of(own_trace: f64, other_trace: f64, dim: usize) -> f64 {
    let measure = [own_trace, other_trace].into_iter().find(|t| *t > f64::MIN_POSITIVE / FLOOR);
    measure.map_or(1.0, |t| FLOOR * t / dim as f64)
}

/// The shift that centres a set.
fn centring_shift(moments: &Moments) -> Vec<f64> {
    moments.mean().iter().map(|m| -m).collect()
}

/// Parameters with transform `G` (with its inverse transpose) and shifts, before the diagonal is
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
