//! Where to find data that is not in the repository.

use crate::Error;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// A folder of data and how it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFolder {
    /// The folder.
    pub path: PathBuf,
    /// How it was chosen. Only the default may be absent without being an error.
    pub chosen_by: ChosenBy,
}

/// How a folder of data was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenBy {
    /// Named by the caller.
    Caller,
    /// Named by the environment variable `FAVOR_DATA`.
    Environment,
    /// The default: nobody named one.
    Default,
}

/// The given folder, else that of the environment variable `FAVOR_DATA`, else `data` in the current
/// folder.
pub fn data_folder(given: Option<PathBuf>) -> DataFolder {
    choose(given, std::env::var_os("FAVOR_DATA"))
}

fn choose(given: Option<PathBuf>, environment: Option<OsString>) -> DataFolder {
    let environment = environment.filter(|path| !path.is_empty());
    match (given, environment) {
        (Some(path), _) => DataFolder { path, chosen_by: ChosenBy::Caller },
        (_, Some(path)) => DataFolder { path: path.into(), chosen_by: ChosenBy::Environment },
        _ => DataFolder { path: "data".into(), chosen_by: ChosenBy::Default },
    }
}

impl DataFolder {
    /// An error if there is no such folder; `wanted` says what should be in it.
    pub fn check(&self, wanted: &str) -> Result<(), Error> {
        if self.path.is_dir() {
            return Ok(());
        }
        Err(Error::NoFolder { folder: self.clone(), wanted: wanted.to_owned() })
    }

    /// Whether somebody asked for this folder, so that its absence is an error.
    pub fn is_asked_for(&self) -> bool {
        self.chosen_by != ChosenBy::Default
    }
}

/// The folder, and who chose it if that was not the caller.
impl fmt::Display for DataFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen_by = match self.chosen_by {
            ChosenBy::Caller => "",
            ChosenBy::Environment => " (from FAVOR_DATA)",
            ChosenBy::Default => " (the default; FAVOR_DATA is not set)",
        };
        write!(f, "{}{chosen_by}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_comes_first_and_empty_variables_do_not_count() {
        let chosen = |given: Option<&str>, environment: Option<&str>| {
            choose(given.map(Into::into), environment.map(Into::into)).to_string()
        };
        assert_eq!(chosen(Some("a"), Some("b")), "a");
        assert_eq!(chosen(None, Some("b")), "b (from FAVOR_DATA)");
        assert_eq!(chosen(None, Some("")), "data (the default; FAVOR_DATA is not set)");
        assert_eq!(chosen(None, None), "data (the default; FAVOR_DATA is not set)");
    }

    #[test]
    fn absent_folders_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent");
        let message = data_folder(Some(path)).check("images").unwrap_err().to_string();
        assert!(message.contains("absent does not exist"), "{message}");
        assert!(message.contains("images"), "{message}");
        assert!(data_folder(Some(folder.path().to_path_buf())).check("images").is_ok());
    }
}
