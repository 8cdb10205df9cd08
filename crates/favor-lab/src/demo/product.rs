//! Job 1: the Gaussian kernel of two sets of points times a matrix.

use super::curve::{self, FamilyCurve};
use super::{DemoOptions, data};
use crate::Result;
use favor::diagnose::relative_error;
use favor::{
    AttentionOptions, Family, FeatureSpec, Kernel, Matrix, Method, Moments, Qkv, Tensor, attention,
    kernel_product,
};
use favor_io::progress::Counter;
use serde::Serialize;
use std::time::Instant;

const DIM: usize = 8;
/// The bandwidth of the Gaussian is one over this.
const SCALE: f64 = 0.3;

/// What the kernel product gave.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProductResult {
    /// Points on either side.
    pub points: usize,
    /// Their dimension.
    pub dim: usize,
    /// The relative error of the product.
    pub errors: Vec<FamilyCurve>,
    /// Seconds of the exact product.
    pub exact: Vec<Timing>,
    /// Seconds with features, fitting and drawing included.
    pub features: Vec<Timing>,
    /// The family that was timed.
    pub timed: Family,
}

/// How long a product of so many points took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Timing {
    /// Points on either side.
    pub points: usize,
    /// Seconds.
    pub seconds: f64,
}

impl ProductResult {
    /// Exact time over approximate time at the most points that both were timed at.
    pub fn speedup(&self) -> Option<(usize, f64)> {
        let both = self.exact.iter().rev().find_map(|e| {
            let other = self.features.iter().find(|f| f.points == e.points)?;
            Some((e, other))
        });
        both.map(|(e, f)| (e.points, e.seconds / f.seconds))
    }
}

pub(super) fn run(options: &DemoOptions, counter: &Counter<'_>) -> Result<ProductResult> {
    let kernel = Kernel::gaussian().scaled(SCALE)?;
    let x = data::clusters(options.seed, 1, options.points, DIM);
    let y = data::clusters(options.seed, 2, options.points, DIM);
    let c = weights(&y);
    let moments = (Moments::of(x.view())?, Moments::of(y.view())?);
    let exact = kernel.product(x.view(), y.view(), c.view())?.to_matrix()?;
    let errors = curve::measure(options, kernel, (&moments.0, &moments.1), counter, |map| {
        let product = kernel_product(map, x.view(), y.view(), c.view())?.to_matrix()?;
        Ok(relative_error(&product, &exact))
    })?;
    let timed = Family::Balanced;
    let spec = FeatureSpec::new(timed, options.shown_features).kernel(kernel).seed(options.seed);
    let exact = time(options, &options.exact_lengths, counter, "exact", |x, y, c| {
        // The fastest exact way of the library: it also divides by the row sums, which costs
        // nothing next to the kernel itself.
        let tensor = |m: &Matrix<f32>| [1, 1, m.rows(), m.columns()];
        let x = Tensor::new(x.as_slice(), tensor(x))?;
        let c = Tensor::new(c.as_slice(), tensor(c))?;
        let y = Tensor::new(y.as_slice(), tensor(y))?;
        attention(Method::Exact(kernel), Qkv::new(x, y, c), &AttentionOptions::new()).map(|_| ())
    })?;
    let features = time(options, &options.feature_lengths, counter, "features", |x, y, c| {
        let map = spec.fit(&Moments::of(x.view())?, &Moments::of(y.view())?)?;
        kernel_product(&map, x.view(), y.view(), c.view()).map(|_| ())
    })?;
    Ok(ProductResult { points: options.points, dim: DIM, errors, exact, features, timed })
}

/// The density and a smooth function of the points, as a regression needs them.
fn weights(y: &Matrix<f64>) -> Matrix<f64> {
    Matrix::from_fn(y.rows(), 2, |i, c| if c == 0 { 1.0 } else { (y[(i, 0)] - y[(i, 1)]).sin() })
}

type Work<'a> = dyn Fn(&Matrix<f32>, &Matrix<f32>, &Matrix<f32>) -> favor::Result<()> + 'a;

fn time(
    options: &DemoOptions,
    lengths: &[usize],
    counter: &Counter<'_>,
    what: &str,
    work: impl Fn(&Matrix<f32>, &Matrix<f32>, &Matrix<f32>) -> favor::Result<()>,
) -> Result<Vec<Timing>> {
    let work: &Work<'_> = &work;
    let single = |m: &Matrix<f64>| Matrix::from_fn(m.rows(), m.columns(), |i, j| m[(i, j)] as f32);
    lengths
        .iter()
        .map(|&points| {
            let x = data::clusters(options.seed, 3, points, DIM);
            let y = data::clusters(options.seed, 4, points, DIM);
            let c = single(&weights(&y));
            let (x, y) = (single(&x), single(&y));
            // The better of two, so that a neighbour's work counts less.
            let mut seconds = f64::INFINITY;
            for _ in 0..2 {
                let start = Instant::now();
                work(&x, &y, &c)?;
                seconds = seconds.min(start.elapsed().as_secs_f64());
                if seconds > 0.3 {
                    break;
                }
            }
            counter.step(what);
            Ok(Timing { points, seconds })
        })
        .collect()
}
