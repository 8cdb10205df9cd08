//! Files of texts.

use crate::{Error, Result};
use std::io::Read;
use std::path::Path;

/// The contents of a file, decompressed if its name ends in `.gz`.
pub fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|e| Error::file(path, e))?;
    let mut text = String::new();
    let read = if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text)
    } else {
        (&bytes[..]).read_to_string(&mut text)
    };
    read.map_err(|e| Error::file(path, format!("not a text: {e}")))?;
    Ok(text)
}
