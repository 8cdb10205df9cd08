//! Writing a file so that it exists whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be written: {reason}", path.display())]
pub struct OutputError {
    /// The requested file.
    pub path: PathBuf,
    /// What went wrong.
    #[source]
    pub reason: io::Error,
}

impl OutputError {
    fn new(path: &Path, reason: io::Error) -> Self {
        Self { path: path.to_path_buf(), reason }
    }
}

/// Writes `bytes` to `path` so that a reader sees the old file or the whole new one, never a part.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("figure.svg");
/// favor_io::write_atomically(&path, b"<svg/>")?;
/// assert_eq!(std::fs::read(&path)?, b"<svg/>");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_atomically(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), OutputError> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(|reason| OutputError::new(&file.path, reason))?;
    file.commit()
}

/// A file that is written piece by piece and gets its name only when it is complete.
///
/// The bytes go to a temporary file in the same folder, which takes the name at [`commit`]. If the
/// value is dropped earlier, the temporary file is removed and an old file of that name is left
/// unchanged. Writes are not buffered: put a [`BufWriter`](io::BufWriter) around many small ones.
///
/// ```
/// use std::io::Write;
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("rows.csv");
/// let mut file = favor_io::AtomicFile::create(&path)?;
/// file.write_all(b"1,2\n")?;
/// assert!(!path.exists());
/// file.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"1,2\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`commit`]: Self::commit
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl AtomicFile {
    /// Starts a file that will become `path`, whose folder must exist.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, OutputError> {
        let path = path.as_ref();
        let file = temporary_beside(path).map_err(|reason| OutputError::new(path, reason))?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Gives the file its name once all bytes have reached the disk.
    pub fn commit(self) -> Result<(), OutputError> {
        let Self { path, file } = self;
        let named = file.as_file().sync_all().and_then(|()| Ok(file.persist(&path)?));
        named.map(drop).map_err(|reason| OutputError::new(&path, reason))
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn temporary_beside(path: &Path) -> io::Result<NamedTempFile> {
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
    builder.tempfile_in(folder)
}

/// Creates a folder and its parents if they do not exist.
pub fn create_folder(path: &Path) -> Result<(), OutputError> {
    fs::create_dir_all(path).map_err(|reason| OutputError::new(path, reason))
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
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn pieces_show_only_when_they_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write_atomically(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"one ").unwrap();
        file.flush().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.write_all(b"two").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one two");
        assert_eq!(names(folder.path()), ["a.txt"]);
    }

    #[test]
    fn what_is_dropped_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write_atomically(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"half of the new").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["a.txt"]);
    }

    #[test]
    fn commits_that_fail_name_the_file_and_clean_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let file = AtomicFile::create(&path).unwrap();
        // A folder takes the name in the meantime.
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), b"x").unwrap();
        let message = file.commit().unwrap_err().to_string();
        assert!(message.contains("a.txt: cannot be written"), "{message}");
        assert_eq!(names(folder.path()), ["a.txt"]);
    }

    #[cfg(unix)]
    #[test]
    fn finished_files_are_as_readable_as_any() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ours, plain) = (folder.path().join("ours"), folder.path().join("plain"));
        write_atomically(&ours, b"x").unwrap();
        fs::write(&plain, b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }
}
