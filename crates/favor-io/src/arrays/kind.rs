//! The format of a file: the extension names it and the first bytes must agree.

use crate::Problem;
use std::path::Path;

/// The supported formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Npy,
    Npz,
    Safetensors,
    Csv,
}

const NPY_MAGIC: &[u8] = b"\x93NUMPY";
// The first is an archive with entries, the second one without any.
const ZIP_MAGIC: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

impl Kind {
    /// The format that the extension names, in upper or lower case.
    pub(super) fn of_path(path: &Path) -> Result<Self, Problem> {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        match extension.to_ascii_lowercase().as_str() {
            "npy" => Ok(Self::Npy),
            "npz" => Ok(Self::Npz),
            "safetensors" => Ok(Self::Safetensors),
            "csv" => Ok(Self::Csv),
            _ => Err(Problem::UnknownExtension(extension.into_owned())),
        }
    }

    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Safetensors => "safetensors",
            Self::Csv => "csv",
        }
    }

    /// Whether arrays in the file have names.
    pub(super) fn has_names(self) -> bool {
        matches!(self, Self::Npz | Self::Safetensors)
    }

    /// Compares the first bytes of a file with what its extension promises.
    pub(super) fn check(self, start: &[u8]) -> Result<(), Problem> {
        let found = match (self, Self::seen(start)) {
            (_, Some(seen)) if seen == self => return Ok(()),
            // Text has no magic bytes; its cells are checked one by one.
            (Self::Csv, None) => return Ok(()),
            (_, Some(Self::Npy)) => "begins like a NumPy array (.npy)",
            (_, Some(Self::Npz)) => "begins like a zip archive (.npz)",
            (_, Some(Self::Safetensors)) => "begins like a .safetensors file",
            (Self::Npy, _) => "does not begin with the mark of a NumPy array",
            (Self::Npz, _) => "does not begin with the mark of a zip archive",
            _ => "does not begin with the length of a header",
        };
        Err(Problem::WrongContent { extension: self.extension(), found })
    }

    fn seen(start: &[u8]) -> Option<Self> {
        if start.starts_with(NPY_MAGIC) {
            Some(Self::Npy)
        } else if ZIP_MAGIC.iter().any(|magic| start.starts_with(magic)) {
            Some(Self::Npz)
        } else if start.get(8) == Some(&b'{') && start[4..8] == [0; 4] {
            // Eight bytes of length, far below 4 GB, and then a JSON object.
            Some(Self::Safetensors)
        } else {
            None
        }
    }
}
