//! The closed forms, over all pairs of all sets.

use super::VarianceOptions;
use super::data::Sources;
use super::regime::Regime;
use super::report::{Curve, Point};
use crate::Result;
use favor::diagnose::Estimator;
use favor::{Family, Kernel, Matrix, Moments};
use favor_io::progress::{Counter, Listener};
use favor_io::stats::mean_and_deviation;
use rayon::prelude::*;

/// One pair of sets at scale 1. Others enter through the kernel's input scale.
struct Pair {
    regime: usize,
    x: Matrix<f64>,
    y: Matrix<f64>,
    moments: (Moments, Moments),
}

/// What one pair of sets gives at one scale for one family.
#[derive(Clone, Copy)]
struct Cell {
    /// Mean of `log(Var/K²)`.
    relative: f64,
    /// Mean of `log(Var/K)`.
    over_kernel: f64,
}

/// The curves of every regime whose data are there.
pub(super) fn curves(
    options: &VarianceOptions,
    sources: &Sources,
    listener: &Listener<'_>,
) -> Result<Vec<Curve>> {
    let mut present: Vec<Regime> = Vec::new();
    let mut pairs = Vec::new();
    for &regime in &options.regimes {
        for set in 0..options.sets {
            if let Some((x, y)) = regime.sets(sources, options.rows, options.seed, set) {
                if present.last() != Some(&regime) {
                    present.push(regime);
                }
                let moments = (Moments::of(x.view())?, Moments::of(y.view())?);
                pairs.push(Pair { regime: present.len() - 1, x, y, moments });
            }
        }
    }
    let tasks: Vec<(usize, usize)> =
        (0..pairs.len()).flat_map(|p| (0..options.scales.len()).map(move |s| (p, s))).collect();
    let counter = Counter::new(listener, tasks.len());
    let cells: Result<Vec<Vec<Cell>>> = tasks
        .par_iter()
        .map(|&(p, s)| {
            let kernel = Kernel::softmax().scaled(options.scales[s])?;
            let cells: favor::Result<Vec<Cell>> =
                options.families.iter().map(|&family| cell(&pairs[p], family, kernel)).collect();
            counter.step(present[pairs[p].regime].name());
            Ok(cells?)
        })
        .collect();
    let cells = cells?;
    let mut out = Vec::new();
    for (r, &regime) in present.iter().enumerate() {
        for (f, &family) in options.families.iter().enumerate() {
            let points = options.scales.iter().enumerate().map(|(s, &scale)| {
                let own = tasks.iter().zip(&cells);
                let own = own.filter(|((p, at), _)| *at == s && pairs[*p].regime == r);
                point(scale, own.map(|(_, cells)| cells[f]).collect())
            });
            out.push(Curve { regime, family, points: points.collect() });
        }
    }
    Ok(out)
}

fn cell(pair: &Pair, family: Family, kernel: Kernel) -> favor::Result<Cell> {
    let (mx, my) = &pair.moments;
    let estimator = Estimator::fit(family, kernel, mx, my)?;
    let means = estimator.pair_means(pair.x.view(), pair.y.view())?;
    let relative = means.log_relative_variance;
    // The floor is twice the mean of log K, and log(Var/K) = log(Var/K²) + log K.
    Ok(Cell { relative, over_kernel: relative + 0.5 * estimator.objective_floor(mx, my) })
}

/// Mean and standard deviation over the sets.
fn point(scale: f64, cells: Vec<Cell>) -> Point {
    let over = |value: fn(&Cell) -> f64| {
        mean_and_deviation(&cells.iter().map(value).collect::<Vec<f64>>())
    };
    let (log_relative_variance, relative_deviation) = over(|c| c.relative);
    let (log_variance_over_kernel, over_kernel_deviation) = over(|c| c.over_kernel);
    Point {
        scale,
        log_relative_variance,
        relative_deviation,
        log_variance_over_kernel,
        over_kernel_deviation,
    }
}
