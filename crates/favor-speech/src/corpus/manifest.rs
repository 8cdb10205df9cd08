//! Lists of utterances: JSON lines with a path, a text and a duration.

use crate::{Error, Result};
use favor_io::write_atomically;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A file and what is said in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Utterance {
    /// A `.wav`, `.flac` or `.npy` file, relative to the folder of the manifest.
    pub path: PathBuf,
    /// What is said. An empty text is silence; no text at all is an utterance without a label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Seconds.
    #[serde(default)]
    pub duration: f64,
}

/// A list of utterances whose files exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Where it was read from.
    pub path: PathBuf,
    /// The utterances, with paths that can be opened.
    pub utterances: Vec<Utterance>,
}

impl Manifest {
    /// Reads a file of JSON lines.
    pub fn read(path: &Path) -> Result<Self> {
        let text = favor_nn::text::read(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut utterances = Vec::new();
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let refuse = |reason: String| Error::file(path, format!("line {}: {reason}", i + 1));
            let mut utterance: Utterance =
                serde_json::from_str(line).map_err(|e| refuse(format!("no utterance: {e}")))?;
            utterance.path = folder.join(&utterance.path);
            if !utterance.path.is_file() {
                return Err(refuse(format!("{} is missing", utterance.path.display())));
            }
            utterances.push(utterance);
        }
        if utterances.is_empty() {
            Err(Error::file(path, "holds no utterance"))
        } else {
            Ok(Self { path: path.to_path_buf(), utterances })
        }
    }

    /// The texts, none of which may be missing.
    pub fn texts(&self) -> Result<Vec<&str>> {
        let text = |utterance: &'_ Utterance| match &utterance.text {
            Some(_) => Ok(()),
            None => {
                let reason = format!("{} has no text", utterance.path.display());
                Err(Error::file(&self.path, reason))
            }
        };
        self.utterances.iter().try_for_each(text)?;
        Ok(self.utterances.iter().filter_map(|u| u.text.as_deref()).collect())
    }

    /// Writes a file of JSON lines.
    pub fn write(path: &Path, utterances: &[Utterance]) -> Result<()> {
        let mut text = String::new();
        for utterance in utterances {
            let line = serde_json::to_string(utterance);
            text += &line.map_err(|e| Error::invalid("manifest", e.to_string()))?;
            text.push('\n');
        }
        Ok(write_atomically(path, text.as_bytes())?)
    }
}
