//! An object store for the tests: a server that speaks the protocol of S3 on this machine.

use crate::python::{self, Environment, Packages};
use std::path::PathBuf;

/// The server's environment, or `None` if there is no python3 that can make one.
pub(crate) fn environment() -> Result<Option<Environment>, String> {
    python::environment("store", &Packages::complete("xtask/python/store.txt")?)
}

/// The server's program.
pub(crate) fn server(environment: &Environment) -> PathBuf {
    environment.program("moto_server")
}
