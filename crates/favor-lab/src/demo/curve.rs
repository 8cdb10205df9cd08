//! A figure of merit against the number of features.

use super::DemoOptions;
use crate::Result;
use favor::{Family, FeatureMap, FeatureSpec, Kernel, Moments};
use favor_io::progress::Counter;
use rayon::prelude::*;
use serde::Serialize;

/// One family.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FamilyCurve {
    /// The family.
    pub family: Family,
    /// One point per number of features.
    pub points: Vec<CurvePoint>,
}

/// The mean over the draws.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// The number of features.
    pub features: usize,
    /// The figure of merit.
    pub value: f64,
}

impl FamilyCurve {
    /// The value at a number of features.
    pub fn at(&self, features: usize) -> Option<f64> {
        self.points.iter().find(|p| p.features == features).map(|p| p.value)
    }

    /// The least number of features whose value satisfies `enough`.
    pub fn first(&self, enough: impl Fn(f64) -> bool) -> Option<usize> {
        self.points.iter().find(|p| enough(p.value)).map(|p| p.features)
    }
}

/// Measures every family at every number of features with fresh draws.
pub(super) fn measure(
    options: &DemoOptions,
    kernel: Kernel,
    moments: (&Moments, &Moments),
    counter: &Counter<'_>,
    merit: impl Fn(&FeatureMap) -> favor::Result<f64> + Sync,
) -> Result<Vec<FamilyCurve>> {
    options
        .families
        .par_iter()
        .map(|&family| {
            let mut points = Vec::with_capacity(options.features.len());
            for &features in &options.features {
                let mut total = 0.0;
                for draw in 0..options.draws {
                    let spec = FeatureSpec::new(family, features).kernel(kernel);
                    let spec = spec.seed(options.seed.wrapping_mul(1000).wrapping_add(draw));
                    total += merit(&spec.fit(moments.0, moments.1)?)?;
                }
                points.push(CurvePoint { features, value: total / options.draws as f64 });
            }
            counter.step(family.name());
            Ok(FamilyCurve { family, points })
        })
        .collect()
}

/// The curve of a family, if it was measured.
pub(super) fn of(curves: &[FamilyCurve], family: Family) -> Option<&FamilyCurve> {
    curves.iter().find(|c| c.family == family)
}
