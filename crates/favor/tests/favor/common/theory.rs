//! The moments of one draw's estimate, from the definitions and Gaussian integrals. Nothing here
//! calls the library's own closed forms.

use super::{dot, log_kernel};
use favor::{Family, Kernel, Parameters};

/// Moments of the estimate of one draw (or of one pair of draws, for the families that work in
/// pairs) divided by the kernel, so that its mean is one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relative {
    pub(crate) second: f64,
    pub(crate) fourth: f64,
}

impl Relative {
    pub(crate) fn variance(&self) -> f64 {
        self.second - 1.0
    }

    /// The variance of the square, which decides how well a second moment can be measured.
    pub(crate) fn variance_of_square(&self) -> f64 {
        self.fourth - self.second * self.second
    }
}

/// Features that one independent draw makes.
pub(crate) fn features_per_draw(family: Family) -> usize {
    if matches!(family, Family::TrigPair | Family::Hyperbolic) { 2 } else { 1 }
}

/// The moments of one draw at the pair `x, y`. `parameters` are those of a positive family.
pub(crate) fn relative_moments(
    family: Family,
    parameters: Option<&Parameters>,
    kernel: Kernel,
    x: &[f64],
    y: &[f64],
) -> Relative {
    match (family, parameters) {
        (Family::Trig, _) => trig(kernel, x, y),
        (Family::TrigPair, _) => trig_pair(kernel, x, y),
        (Family::Hyperbolic, Some(p)) => hyperbolic(&transformed_sum(p, kernel, x, y)),
        (_, Some(p)) => {
            let w = transformed_sum(p, kernel, x, y);
            Relative {
                second: exponential(p.quadratic(), &w, 2.0),
                fourth: exponential(p.quadratic(), &w, 4.0),
            }
        }
        _ => panic!("{family} needs parameters"),
    }
}

/// `w = R₁(x+c) + R₂(y+e)` of inputs that are scaled first.
pub(crate) fn transformed_sum(p: &Parameters, kernel: Kernel, x: &[f64], y: &[f64]) -> Vec<f64> {
    let moved = |x: &[f64], shift: &[f64]| -> Vec<f64> {
        x.iter().zip(shift).map(|(x, s)| kernel.scale() * x + s).collect()
    };
    let (u, v) = (moved(x, p.query_shift()), moved(y, p.key_shift()));
    (0..p.dim())
        .map(|l| dot(p.query_transform().row(l), &u) + dot(p.key_transform().row(l), &v))
        .collect()
}

/// `E[(Z/K)^p]` of the dense-exponential class: per coordinate
/// `E exp(2paω² + p√(1−4a)wω) = (1−4pa)^{−½} exp(p²(1−4a)w²/(2(1−4pa)))`, times `D^{2p}`, over
/// `e^{pw²/2}`.
pub(crate) fn exponential(a: &[f64], w: &[f64], p: f64) -> f64 {
    let logs = a.iter().zip(w).map(|(a, w)| {
        let (one, many) = (1.0 - 4.0 * a, 1.0 - 4.0 * p * a);
        0.5 * p * one.ln() - 0.5 * many.ln() + p * p * one * w * w / (2.0 * many) - 0.5 * p * w * w
    });
    logs.sum::<f64>().exp()
}

/// `e^{−s/2} cosh t`, `t ~ N(0, s)`, `s = ‖w‖²`: the mean of the features of ω and −ω.
fn hyperbolic(w: &[f64]) -> Relative {
    let s = dot(w, w);
    Relative {
        second: 0.5 * (-s).exp() * (1.0 + (2.0 * s).exp()),
        fourth: (-2.0 * s).exp() * (0.375 + 0.5 * (2.0 * s).exp() + 0.125 * (8.0 * s).exp()),
    }
}

/// `E cos²` and `E cos⁴` of an angle `N(0, v)`, by the characteristic function `e^{−k²v/2}`.
fn cosine_moments(v: f64) -> (f64, f64) {
    let mean = |k: f64| (-0.5 * k * k * v).exp();
    (0.5 + 0.5 * mean(2.0), 0.375 + 0.5 * mean(2.0) + 0.125 * mean(4.0))
}

fn squared_distance(kernel: Kernel, x: &[f64], y: &[f64]) -> f64 {
    kernel.scale().powi(2) * x.iter().zip(y).map(|(a, b)| (a - b) * (a - b)).sum::<f64>()
}

/// `e^{v/2} (cos δ + cos ψ)` with `δ ~ N(0, v)` and, thanks to the random phase, ψ uniform and
/// independent of it: `E cos²ψ = 1/2`, `E cos⁴ψ = 3/8`.
fn trig(kernel: Kernel, x: &[f64], y: &[f64]) -> Relative {
    let v = squared_distance(kernel, x, y);
    let (two, four) = cosine_moments(v);
    Relative { second: v.exp() * (two + 0.5), fourth: (2.0 * v).exp() * (four + 3.0 * two + 0.375) }
}

/// `e^{v/2} cos δ`: sine and cosine of one draw together.
fn trig_pair(kernel: Kernel, x: &[f64], y: &[f64]) -> Relative {
    let v = squared_distance(kernel, x, y);
    let (two, four) = cosine_moments(v);
    Relative { second: v.exp() * two, fourth: (2.0 * v).exp() * four }
}

/// The relative variance of the mean of `features` independent features, of which an odd last one
/// of a family of pairs stands alone.
pub(crate) fn variance_of_mean(
    family: Family,
    parameters: Option<&Parameters>,
    kernel: Kernel,
    (x, y): (&[f64], &[f64]),
    features: usize,
) -> f64 {
    let own = relative_moments(family, parameters, kernel, x, y).variance();
    let m = features as f64;
    let alone = match family {
        Family::TrigPair => Family::Trig,
        Family::Hyperbolic => Family::Pos,
        _ => return own / m,
    };
    let single = relative_moments(alone, parameters, kernel, x, y).variance();
    let pairs = (features / 2) as f64;
    (4.0 * pairs * own + (features % 2) as f64 * single) / (m * m)
}

/// `K` of a pair, by the definition. For data of small norm.
pub(crate) fn exact(kernel: Kernel, x: &[f64], y: &[f64]) -> f64 {
    log_kernel(kernel, x, y).exp()
}
