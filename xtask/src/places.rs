//! Where things are.

use std::path::{Path, PathBuf};

/// How a program was compiled: tests use what compiles fastest, comparisons of speed what runs fastest.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    Dev,
    Release,
}

impl Profile {
    /// Cargo's folder for what it has built.
    fn folder(self) -> Result<PathBuf, String> {
        let name = match self {
            Self::Dev => "debug",
            Self::Release => "release",
        };
        Ok(target()?.join(name))
    }

    /// The `favor` command.
    pub(crate) fn favor(self) -> Result<PathBuf, String> {
        Ok(self.folder()?.join(program("favor")))
    }

    /// An example of one of the libraries.
    pub(crate) fn example(self, name: &str) -> Result<PathBuf, String> {
        Ok(self.folder()?.join("examples").join(program(name)))
    }
}

/// The file of a program.
pub(crate) fn program(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

/// The top of the source tree: that of this call, since several trees may share a target directory.
pub(crate) fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let own = own.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    own.parent().expect("xtask lies one below the top").to_path_buf()
}

/// Cargo's target directory: this program runs from `<target>/<profile>/xtask`.
pub(crate) fn target() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| format!("own path unknown: {e}"))?;
    // Tests of this program are one folder further down.
    let mut folders = own.ancestors().skip(1).skip_while(|folder| folder.ends_with("deps"));
    let target = folders.nth(1);
    target.map(Path::to_path_buf).ok_or_else(|| format!("{} is not in a target", own.display()))
}

/// A new empty folder in the target directory, for this run alone; removed when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let folder = target()?.join("xtask").join(format!("{name}-{}", std::process::id()));
        // An earlier process of the same number may have been killed.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
