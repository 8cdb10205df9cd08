//! Writing a file in one step.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be written: {reason}", path.display())]
pub struct OutputError {
    /// The file that was asked for.
    pub path: PathBuf,
    /// What went wrong.
    #[source]
    pub reason: io::Error,
}

/// Writes `bytes` to `path` so that a reader sees the old file or the whole new one, never a part.
///
/// The bytes go to a temporary file in the same folder, which then takes the name. If anything
/// fails, the temporary file is removed and an old file of that name stays as it was.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("figure.svg");
/// favor_io::write_atomically(&path, b"<svg/>")?;
/// assert_eq!(std::fs::read(&path)?, b"<svg/>");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_atomically(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), OutputError> {
    let path = path.as_ref();
    write(path, bytes).map_err(|reason| OutputError { path: path.to_path_buf(), reason })
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    if path.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not name a file"));
    }
    // The folder of a bare file name is the empty path, which stands for the current folder.
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        let reason = format!("the folder {} does not exist", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, reason));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".writing-");
    // Temporary files are private by default; the finished file should be as readable as any other.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Makes a folder, and those above it, if it is not there.
pub fn create_folder(path: &Path) -> Result<(), OutputError> {
    fs::create_dir_all(path).map_err(|reason| OutputError { path: path.to_path_buf(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write_atomically(&path, b"old and longer").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn refusals_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("none/a.txt");
        let message = write_atomically(&missing, b"x").unwrap_err().to_string();
        assert!(message.contains("none/a.txt") && message.contains("does not exist"), "{message}");
        let message = write_atomically(folder.path(), b"x").unwrap_err().to_string();
        assert!(message.contains("folder"), "{message}");
        assert!(write_atomically("", b"x").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
