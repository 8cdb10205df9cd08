//! What the experiment found, and its table as CSV.

use super::{Finding, Regime, VarianceOptions};
use favor::Family;
use std::fmt::Write;

/// The whole experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduction {
    /// What was run.
    pub options: VarianceOptions,
    /// One curve per regime and family, regime by regime.
    pub curves: Vec<Curve>,
    /// The paper's findings next to ours.
    pub findings: Vec<Finding>,
    /// What could not be run.
    pub missing: Option<Missing>,
}

/// Files that are not there and the regimes that need them.
#[derive(Debug, Clone, PartialEq)]
pub struct Missing {
    /// The files.
    pub files: Vec<String>,
    /// The regimes that were left out.
    pub regimes: Vec<Regime>,
}

/// One family on one kind of data.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The kind of data.
    pub regime: Regime,
    /// The family.
    pub family: Family,
    /// One point per scale.
    pub points: Vec<Point>,
}

/// Means over all pairs of vectors and all sets, natural logarithms, one feature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The factor of the vectors.
    pub scale: f64,
    /// Mean of `log(Var/K²)`.
    pub log_relative_variance: f64,
    /// Its standard deviation over the sets.
    pub relative_deviation: f64,
    /// Mean of `log(Var/K)`, the paper's measure.
    pub log_variance_over_kernel: f64,
    /// Its standard deviation over the sets.
    pub over_kernel_deviation: f64,
}

impl Reproduction {
    /// One line per regime, scale and family.
    pub fn to_csv(&self) -> String {
        let mut out = String::from(
            "regime,scale,family,log_relative_variance,log_relative_variance_sd,\
             log_variance_over_kernel,log_variance_over_kernel_sd,sets,rows\n",
        );
        for curve in &self.curves {
            for p in &curve.points {
                let _ = writeln!(
                    out,
                    "{},{},{},{},{},{},{},{},{}",
                    curve.regime.name(),
                    p.scale,
                    curve.family,
                    p.log_relative_variance,
                    p.relative_deviation,
                    p.log_variance_over_kernel,
                    p.over_kernel_deviation,
                    self.options.sets,
                    self.options.rows
                );
            }
        }
        out
    }
}

/// The curve of a family, if it was computed.
pub(super) fn curve(curves: &[Curve], regime: Regime, family: Family) -> Option<&Curve> {
    curves.iter().find(|c| c.regime == regime && c.family == family)
}

/// How much lower `better` lies than `worse`, at each scale.
pub(super) fn gaps(
    curves: &[Curve],
    regime: Regime,
    better: Family,
    worse: Family,
) -> Option<Vec<(f64, f64)>> {
    let (better, worse) = (curve(curves, regime, better)?, curve(curves, regime, worse)?);
    let pairs = better.points.iter().zip(&worse.points);
    Some(pairs.map(|(b, w)| (b.scale, w.log_relative_variance - b.log_relative_variance)).collect())
}
