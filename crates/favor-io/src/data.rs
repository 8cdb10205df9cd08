//! Where data are that the repository does not hold.

use crate::Error;
use std::path::PathBuf;

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

impl DataFolder {
    /// An error if there is no such folder; `wanted` says what should be in it.
    pub fn check(&self, wanted: &str) -> Result<(), Error> {
        if self.path.is_dir() {
            return Ok(());
        }
        Err(Error::NoFolder { path: self.path.clone(), wanted: wanted.to_owned() })
    }
}
