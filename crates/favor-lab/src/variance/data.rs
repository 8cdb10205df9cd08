//! Where the images are, and reading them.

use super::regime::{DIM, Regime};
use super::report::Missing;
use crate::input::{self, InputError, Problem};
use crate::{Error, Result};
use favor::Matrix;
use std::path::{Path, PathBuf};

const MNIST: &str = "mnist/mnist_t10k_8x8_area_u8.npy";
const CIFAR10: &str = "cifar10/cifar10_test_8x8_gray_area_u8.npy";

/// A folder of data and how it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFolder {
    /// The folder.
    pub path: PathBuf,
    /// Who chose it, for messages.
    pub chosen_by: &'static str,
    /// Whether a person asked for it, so that its absence is an error.
    pub asked_for: bool,
}

/// The folder given, else that of the environment variable `FAVOR_DATA`, else `../shared/data`.
pub fn data_folder(given: Option<PathBuf>) -> DataFolder {
    if let Some(path) = given {
        return DataFolder { path, chosen_by: "--data", asked_for: true };
    }
    match std::env::var_os("FAVOR_DATA").filter(|v| !v.is_empty()) {
        Some(path) => DataFolder { path: path.into(), chosen_by: "FAVOR_DATA", asked_for: true },
        None => DataFolder {
            path: PathBuf::from("../shared/data"),
            chosen_by: "the default",
            asked_for: false,
        },
    }
}

/// The images, as numbers from 0 to 1.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) mnist: Option<Matrix<f64>>,
    pub(super) cifar10: Option<Matrix<f64>>,
}

impl DataFolder {
    /// Reads what the regimes need; what is not there is named instead.
    pub(super) fn load(&self, regimes: &[Regime]) -> Result<(Sources, Option<Missing>)> {
        if self.asked_for && !self.path.is_dir() {
            return Err(Error::Invalid(format!(
                "{}: the folder {} does not exist; give a folder with {MNIST} and {CIFAR10}",
                self.chosen_by,
                self.path.display()
            )));
        }
        let mut files = Vec::new();
        let mut find = |name: &str, needed: bool| {
            if !needed {
                return Ok(None);
            }
            let found = images(&self.path.join(name))?;
            if found.is_none() {
                files.push(self.path.join(name).display().to_string());
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
}

/// The images of a file, or `None` if there is no such file.
fn images(path: &Path) -> Result<Option<Matrix<f64>>> {
    let read = match input::read(path, None) {
        Ok(read) => read,
        Err(InputError { problem: Problem::Missing, .. }) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let refuse = |what: String| {
        let wanted = format!("wanted are images of {DIM} bytes, one a row");
        Err(Error::Invalid(format!("{}: {what}; {wanted}", path.display())))
    };
    let mut heads = read.heads;
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
