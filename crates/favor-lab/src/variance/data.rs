//! Reading the images.

use super::regime::{DIM, Regime};
use super::report::Missing;
use crate::{Error, Result};
use favor::Matrix;
use favor_io::data::DataFolder;
use favor_io::{InputError, Problem, arrays};
use std::path::Path;

const MNIST: &str = "mnist/mnist_t10k_8x8_area_u8.npy";
const CIFAR10: &str = "cifar10/cifar10_test_8x8_gray_area_u8.npy";

/// The images, as numbers from 0 to 1.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) mnist: Option<Matrix<f64>>,
    pub(super) cifar10: Option<Matrix<f64>>,
}

/// Reads what the regimes need; what is not there is named instead.
pub(super) fn load(folder: &DataFolder, regimes: &[Regime]) -> Result<(Sources, Option<Missing>)> {
    if folder.is_asked_for() {
        folder.check(&format!("{MNIST} and {CIFAR10}"))?;
    }
    let mut files = Vec::new();
    let mut find = |name: &str, needed: bool| {
        if !needed {
            return Ok(None);
        }
        let found = images(&folder.path.join(name))?;
        if found.is_none() {
            files.push(folder.path.join(name).display().to_string());
        }
        Ok::<_, Error>(found)
    };
    let sources = Sources {
        mnist: find(MNIST, regimes.iter().any(|r| r.needs().0))?,
        cifar10: find(CIFAR10, regimes.iter().any(|r| r.needs().1))?,
    };
    if files.is_empty() {
        return Ok((sources, None));
    }
    let absent = |r: &&Regime| {
        let (mnist, cifar10) = r.needs();
        (mnist && sources.mnist.is_none()) || (cifar10 && sources.cifar10.is_none())
    };
    let regimes = regimes.iter().filter(absent).copied().collect();
    Ok((sources, Some(Missing { files, regimes })))
}

/// The images of a file, or `None` if there is no such file.
fn images(path: &Path) -> Result<Option<Matrix<f64>>> {
    let read = match arrays::read(path, None) {
        Ok(read) => read,
        Err(InputError { problem: Problem::Missing, .. }) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let refuse = |what: String| {
        let wanted = format!("wanted are images of {DIM} bytes, one per row");
        Err(Error::invalid(path.display().to_string(), format!("{what}; {wanted}")))
    };
    let mut heads = read.into_heads();
    let (Some(mut pixels), true) = (heads.pop(), heads.is_empty()) else {
        return refuse("holds several matrices".to_owned());
    };
    if pixels.columns() != DIM {
        return refuse(format!("has {} columns", pixels.columns()));
    }
    if let Some(value) = pixels.as_slice().iter().find(|v| !(0.0..=255.0).contains(*v)) {
        return refuse(format!("holds {value}"));
    }
    pixels.as_mut_slice().iter_mut().for_each(|v| *v /= 255.0);
    Ok(Some(pixels))
}
