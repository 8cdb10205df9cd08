//! An object store for the tests: a server that speaks the protocol of S3 on this machine.

use crate::{places, python};
use std::path::PathBuf;

/// The server's program, or `None` if there is no python3 that can make an environment for it.
pub(crate) fn server() -> Result<Option<PathBuf>, String> {
    let requirements = places::root().join("xtask/store-requirements.txt");
    let environment = python::environment("store", &requirements)?;
    Ok(environment.map(|e| python::program(&e, "moto_server")))
}
