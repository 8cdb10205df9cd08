//! One feature as an estimator of the kernel: its variance at every pair, in closed form.

use crate::kernel::check_sides;
use crate::linalg::{dot, product_transposed};
use crate::parameters::{log_excess, objective_floor, overflow};
use crate::{Error, Family, FeatureMap, Float, Kernel, Matrix, Moments, Parameters, Result, Rows};

/// Relative variances below the square of the `f64` rounding error are indistinguishable from zero;
/// their logarithm is reported as this.
pub(super) const LEAST_LOG_VARIANCE: f64 = -72.0;

/// A family with its parameters, for one kernel.
///
/// ```
/// use favor::{Family, Kernel, Moments, Rows, diagnose::Estimator};
/// let x = Rows::new(&[0.3, 0.1, -0.2, 0.4], 2, 2)?;
/// let m = Moments::of(x)?;
/// let pos = Estimator::fit(Family::Pos, Kernel::softmax(), &m, &m)?;
/// // Pos has the relative variance e^{‖x+y‖²} − 1.
/// let v = pos.log_relative_variances(x, x)?;
/// assert!((v[(0, 0)].exp() - (0.4_f64.exp() - 1.0)).abs() < 1e-12);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Estimator {
    family: Family,
    kernel: Kernel,
    parameters: Option<Parameters>,
}

impl Estimator {
    /// The estimator of a map. A learned map is an error: its features do not estimate the kernel, and
    /// their error has no closed form; measure it, for example with
    /// [`attention_error`](super::attention_error).
    pub fn of(map: &FeatureMap) -> Result<Self> {
        if map.learned().is_some() {
            let reason = "a learned map has no variance in closed form; measure its error instead";
            return Err(Error::invalid("estimator", reason));
        }
        let (family, kernel) = (map.spec().family, map.kernel());
        Ok(Self { family, kernel, parameters: map.parameters().cloned() })
    }

    /// A family fitted to the moments of the two unscaled sets.
    pub fn fit(family: Family, kernel: Kernel, queries: &Moments, keys: &Moments) -> Result<Self> {
        let scale = kernel.scale();
        let parameters = family.fit(&queries.scaled(scale), &keys.scaled(scale))?;
        Ok(Self { family, kernel, parameters })
    }

    /// A family with the caller's own parameters, for inputs multiplied by the kernel's scale.
    pub fn new(family: Family, kernel: Kernel, parameters: Option<Parameters>) -> Result<Self> {
        if parameters.is_some() == family.is_positive() {
            Ok(Self { family, kernel, parameters })
        } else {
            let reason = format!("{family} with the wrong kind of parameters");
            Err(Error::invalid("estimator", reason))
        }
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The kernel.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The parameters, or `None` for a trigonometric family.
    pub fn parameters(&self) -> Option<&Parameters> {
        self.parameters.as_ref()
    }

    /// `log(Var/K²)` of one feature at every pair: one row per query, one column per key.
    pub fn log_relative_variances<T: Float>(
        &self,
        x: Rows<'_, T>,
        y: Rows<'_, T>,
    ) -> Result<Matrix<f64>> {
        let mut out = self.exponents(x, y)?;
        out.as_mut_slice().iter_mut().for_each(|v| *v = v.max(0.0));
        let constant = self.constant();
        for v in out.as_mut_slice() {
            // `v` is Σ γ w² for positive families and ‖x−y‖² for trigonometric ones.
            let log = match self.family {
                Family::Trig => v.exp() + 0.5 * (-*v).exp() - 1.0,
                Family::TrigPair => v.exp_m1() * -(-*v).exp_m1(),
                _ => (constant + *v).exp_m1(),
            };
            *v = if log.is_finite() { log.ln() } else { *v + constant };
        }
        if self.family == Family::Hyperbolic {
            self.pair_up(x, y, &mut out)?;
        }
        out.as_mut_slice().iter_mut().for_each(|v| *v = v.max(LEAST_LOG_VARIANCE));
        if out.as_slice().iter().all(|v| v.is_finite()) {
            Ok(out)
        } else {
            Err(overflow("the logarithm of the variance"))
        }
    }

    /// `log E[f₁²f₂²]` of one feature at every pair, for this kernel: the shifted log-variance.
    pub fn log_second_moments<T: Float>(
        &self,
        x: Rows<'_, T>,
        y: Rows<'_, T>,
    ) -> Result<Matrix<f64>> {
        let mut out = self.log_relative_variances(x, y)?;
        let kernel = self.kernel.log_matrix(x, y)?;
        for (v, k) in out.as_mut_slice().iter_mut().zip(kernel.as_slice()) {
            // log(1 + Var/K²) + 2 log K
            *v = if *v > 0.0 { *v + (-*v).exp().ln_1p() } else { v.exp().ln_1p() } + 2.0 * k;
        }
        Ok(out)
    }

    /// The objective `L̄`, the mean of [`Estimator::log_second_moments`] over all pairs. `O(d³)` from
    /// the moments for families of the dense-exponential class; the others (Trig, Hyperbolic) have no
    /// such form and return `None`.
    pub fn objective(&self, queries: &Moments, keys: &Moments) -> Result<Option<f64>> {
        let (Some(p), false) = (&self.parameters, self.family == Family::Hyperbolic) else {
            return Ok(None);
        };
        let scale = self.kernel.scale();
        let (x, y) = (queries.scaled(scale), keys.scaled(scale));
        let objective =
            p.objective(&x, &y)? - objective_floor(&x, &y) + self.objective_floor(queries, keys);
        if objective.is_finite() { Ok(Some(objective)) } else { Err(overflow("the objective")) }
    }

    /// The lower bound of the objective: twice the mean of `log K`.
    pub fn objective_floor(&self, queries: &Moments, keys: &Moments) -> f64 {
        let scale = self.kernel.scale();
        let (x, y) = (queries.scaled(scale), keys.scaled(scale));
        let norm = |m: &Moments| crate::linalg::trace(&m.second_moment());
        objective_floor(&x, &y) + 2.0 * self.kernel.alpha() * (norm(&x) + norm(&y))
    }

    /// `Σ_l log(1−4a_l) − ½log(1−8a_l)`: the part of the exponent that all pairs share.
    pub(super) fn constant(&self) -> f64 {
        let a = self.parameters.as_ref().map_or(&[][..], |p| p.quadratic());
        a.iter().map(|&a| log_excess(a, 0.0)).sum()
    }

    /// `Σ_l γ_l w_l²` of each pair, or `‖x−y‖²` for trigonometric families.
    fn exponents<T: Float>(&self, x: Rows<'_, T>, y: Rows<'_, T>) -> Result<Matrix<f64>> {
        let ones;
        let gamma = match &self.parameters {
            Some(p) => {
                ones = p.quadratic().iter().map(|a| 1.0 / (1.0 - 8.0 * a)).collect::<Vec<_>>();
                &ones
            }
            None => {
                ones = vec![1.0; x.columns()];
                &ones
            }
        };
        let (u, v) = self.transformed(x, y)?;
        Ok(squared_sums(&u, &v, gamma))
    }

    /// `R₁(x+c)` and `R₂(y+e)`, whose sum is `w`; `x` and `−y` for trigonometric families.
    pub(super) fn transformed<T: Float>(
        &self,
        x: Rows<'_, T>,
        y: Rows<'_, T>,
    ) -> Result<(Matrix<f64>, Matrix<f64>)> {
        check_sides("variance", x, y)?;
        x.check_finite("queries")?;
        y.check_finite("keys")?;
        let scale = self.kernel.scale();
        let Some(p) = &self.parameters else {
            return Ok((x.to_f64(scale), y.to_f64(-scale)));
        };
        if p.dim() != x.columns() {
            return Err(Error::Shape {
                operation: "variance",
                left: "parameters",
                left_shape: (p.dim(), p.dim()),
                right: "queries",
                right_shape: x.shape(),
            });
        }
        let side = |rows: Rows<'_, T>, shift: &[f64], transform: &Matrix<f64>| {
            let mut moved = rows.to_f64(scale);
            for i in 0..moved.rows() {
                moved.row_mut(i).iter_mut().zip(shift).for_each(|(v, s)| *v += s);
            }
            product_transposed(&moved, transform)
        };
        let queries = side(x, p.query_shift(), p.query_transform());
        Ok((queries, side(y, p.key_shift(), p.key_transform())))
    }

    /// The pair `ω, −ω`: per feature, `e^r + e^{r⁻} − 2` with `r⁻ = constant − ‖w‖²`.
    fn pair_up<T: Float>(
        &self,
        x: Rows<'_, T>,
        y: Rows<'_, T>,
        logs: &mut Matrix<f64>,
    ) -> Result<()> {
        let (u, v) = self.transformed(x, y)?;
        let squares = squared_sums(&u, &v, &vec![1.0; u.columns()]);
        let constant = self.constant();
        for (v, s) in logs.as_mut_slice().iter_mut().zip(squares.as_slice()) {
            let s = s.max(0.0);
            *v = if constant == 0.0 {
                s + 2.0 * (-(-s).exp_m1()).ln()
            } else {
                *v + ((constant - s).exp_m1() * (-*v).exp()).max(-1.0).ln_1p()
            };
        }
        Ok(())
    }
}

/// `Σ_l γ_l (u_il + v_jl)²` for every pair.
fn squared_sums(u: &Matrix<f64>, v: &Matrix<f64>, gamma: &[f64]) -> Matrix<f64> {
    let root: Vec<f64> = gamma.iter().map(|g| g.sqrt()).collect();
    let weigh =
        |m: &Matrix<f64>| Matrix::from_fn(m.rows(), m.columns(), |i, l| m[(i, l)] * root[l]);
    let (u, v) = (weigh(u), weigh(v));
    let norms =
        |m: &Matrix<f64>| (0..m.rows()).map(|i| dot(m.row(i), m.row(i))).collect::<Vec<_>>();
    let (nu, nv) = (norms(&u), norms(&v));
    let mut out = product_transposed(&u, &v);
    for (i, nu) in nu.iter().enumerate() {
        out.row_mut(i).iter_mut().zip(&nv).for_each(|(o, nv)| *o = nu + nv + 2.0 * *o);
    }
    out
}
