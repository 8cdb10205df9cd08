//! Files of text as pieces of one length.

use super::{Encoded, Special, TextTokenizer, read};
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// Characters that are split into tokens at a time.
const PARAGRAPH: usize = 4000;

/// The texts of a corpus as pieces of as many tokens as the tokenizer cuts texts to.
pub(crate) fn pieces(corpus: &Path, tokenizer: &TextTokenizer) -> Result<Vec<Encoded>> {
    let Special { begin, end, .. } = tokenizer.special();
    let room = tokenizer.limit() - 2;
    let mut out = Vec::new();
    for path in files(corpus)? {
        let text = read(&path)?;
        let mut tokens: Vec<u32> = Vec::new();
        for encoded in tokenizer.encode_long(paragraphs(&text))? {
            tokens.extend(encoded);
        }
        for piece in tokens.chunks(room) {
            // A last piece of a few tokens teaches nothing.
            if piece.len() >= room.min(8) {
                let ids = [begin].into_iter().chain(piece.iter().copied()).chain([end]).collect();
                out.push(Encoded::new(ids));
            }
        }
    }
    Ok(out)
}

/// Pieces of text of some length, cut at the ends of lines.
fn paragraphs(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut start = 0;
    for (i, _) in text.match_indices('\n') {
        if i - start >= PARAGRAPH {
            out.push(&text[start..i]);
            start = i;
        }
    }
    out.push(&text[start..]);
    out
}

/// The text files of a folder, in the order of their names.
fn files(corpus: &Path) -> Result<Vec<PathBuf>> {
    if corpus.is_file() {
        return Ok(vec![corpus.to_path_buf()]);
    }
    let entries = std::fs::read_dir(corpus).map_err(|e| Error::file(corpus, e))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|p| {
        let name = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        name.ends_with(".txt") || name.ends_with(".txt.gz")
    });
    paths.sort();
    if paths.is_empty() {
        Err(Error::file(corpus, "holds no .txt or .txt.gz file"))
    } else {
        Ok(paths)
    }
}
