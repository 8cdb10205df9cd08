//! Files that appear whole or not at all: written beside their place, then moved to it.

use crate::{Error, Result};
use std::io::Write;
use std::path::Path;

/// Writes a file.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = temporary_beside(path)?;
    file.write_all(bytes).map_err(|e| Error::output(path, e))?;
    persist(file, path)
}

/// A file that becomes `path` when it is complete.
pub(crate) fn temporary_beside(path: &Path) -> Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() {
        return Err(Error::output(path, "it is a folder"));
    }
    let mut builder = tempfile::Builder::new();
    // As any file that a person makes: what the umask leaves.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder).map_err(|e| Error::output(path, e))
}

/// Moves it to its place.
pub(crate) fn persist(file: tempfile::NamedTempFile, path: &Path) -> Result<()> {
    file.persist(path).map(drop).map_err(|e| Error::output(path, e.error))
}
