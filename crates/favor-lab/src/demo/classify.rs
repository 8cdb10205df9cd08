//! Job 2: kernel classification. The class of a point is the one with the most kernel mass around
//! it (Nadaraya and Watson).

use super::curve::{self, FamilyCurve};
use super::{DemoOptions, data};
use crate::Result;
use favor::learn::argmax;
use favor::{Family, FeatureSpec, Kernel, Matrix, Moments, kernel_product};
use favor_io::progress::Counter;
use serde::Serialize;

/// Arms of the spiral.
pub(super) const CLASSES: usize = 3;
/// The bandwidth of the Gaussian is one over this.
const SCALE: f64 = 4.0;
/// The pictures: exact (no family) and two families.
pub(super) const PICTURES: [Option<Family>; 3] = [None, Some(Family::Balanced), Some(Family::Pos)];
/// Half the width and height of the pictures.
const EXTENT: f64 = 2.9;
/// Points drawn into the pictures.
const DOTS: usize = 240;

/// What the classification gave.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassifyResult {
    /// Training points.
    pub training: usize,
    /// Tested points.
    pub tested: usize,
    /// The accuracy with the exact kernel.
    pub exact: f64,
    /// The accuracy of every family.
    pub accuracy: Vec<FamilyCurve>,
    /// The pictures.
    pub regions: Vec<Regions>,
    /// Some training points with their classes, to draw.
    pub dots: Vec<(f64, f64, usize)>,
}

/// Which class wins where: a picture of `size` × `size` cells, from the top left.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Regions {
    /// The family, or none for the exact kernel.
    pub family: Option<Family>,
    /// Cells per side.
    pub size: usize,
    /// Half the width and height of the picture.
    pub extent: f64,
    /// The classes, row after row.
    pub classes: Vec<usize>,
    /// The share of the cells that have the class of the exact kernel.
    pub agreement: f64,
}

pub(super) fn run(options: &DemoOptions, counter: &Counter<'_>) -> Result<ClassifyResult> {
    let kernel = Kernel::gaussian().scaled(SCALE)?;
    let (train, labels) = data::spiral(options.seed, 1, options.training);
    let (test, wanted) = data::spiral(options.seed, 2, options.training.div_ceil(3));
    let one_hot =
        Matrix::from_fn(train.rows(), CLASSES, |i, c| f64::from(u8::from(labels[i] == c)));
    let moments = (Moments::of(test.view())?, Moments::of(train.view())?);
    let right = |found: &[usize]| share(found, &wanted);
    let exact = kernel.product(test.view(), train.view(), one_hot.view())?;
    let exact = right(&winners(&exact.values));
    let accuracy = curve::measure(options, kernel, (&moments.0, &moments.1), counter, |map| {
        let product = kernel_product(map, test.view(), train.view(), one_hot.view())?;
        Ok(right(&winners(&product.values)))
    })?;
    let size = options.picture;
    let step = 2.0 * EXTENT / size as f64;
    let grid = Matrix::from_fn(size * size, 2, |i, c| match c {
        0 => -EXTENT + step * ((i % size) as f64 + 0.5),
        _ => EXTENT - step * ((i / size) as f64 + 0.5),
    });
    let mut regions: Vec<Regions> = Vec::new();
    for family in PICTURES {
        let product = match family {
            None => kernel.product(grid.view(), train.view(), one_hot.view())?,
            Some(family) => {
                let spec = FeatureSpec::new(family, options.shown_features).kernel(kernel);
                let map = spec.seed(options.seed).fit(&moments.0, &moments.1)?;
                kernel_product(&map, grid.view(), train.view(), one_hot.view())?
            }
        };
        let classes = winners(&product.values);
        let agreement = regions.first().map_or(1.0, |first| share(&classes, &first.classes));
        regions.push(Regions { family, size, extent: EXTENT, classes, agreement });
        counter.step("picture");
    }
    let dots =
        (0..train.rows().min(DOTS)).map(|i| (train[(i, 0)], train[(i, 1)], labels[i])).collect();
    let (training, tested) = (train.rows(), test.rows());
    Ok(ClassifyResult { training, tested, exact, accuracy, regions, dots })
}

/// The class of the largest sum of each row.
fn winners(sums: &Matrix<f64>) -> Vec<usize> {
    sums.view().iter().map(argmax).collect()
}

/// The share of places at which two lists agree.
fn share(a: &[usize], b: &[usize]) -> f64 {
    a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / a.len().max(1) as f64
}
