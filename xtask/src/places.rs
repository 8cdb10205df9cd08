//! Where things are.

use std::path::{Path, PathBuf};

/// The top of the source tree: that of this call, since several trees may share a target directory.
pub(crate) fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let own = own.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    own.parent().expect("xtask lies one below the top").to_path_buf()
}

/// Cargo's target directory: this program runs from `<target>/release/xtask`.
pub(crate) fn target() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| format!("own path unknown: {e}"))?;
    let target = own.parent().and_then(Path::parent);
    target.map(Path::to_path_buf).ok_or_else(|| format!("{} is not in a target", own.display()))
}

/// An example of the library, as built by `cargo build --release --examples`.
pub(crate) fn example(name: &str) -> Result<PathBuf, String> {
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    Ok(target()?.join("release").join("examples").join(file))
}

/// The `favor` command, as built by `cargo build --release`.
pub(crate) fn favor() -> Result<PathBuf, String> {
    let file = format!("favor{}", std::env::consts::EXE_SUFFIX);
    Ok(target()?.join("release").join(file))
}
