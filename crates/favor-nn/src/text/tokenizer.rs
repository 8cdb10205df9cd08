//! The tokenizer of a model's folder: `tokenizer.json`, or `vocab.txt` of a BERT.

use super::Encoded;
use crate::{Error, Result};
use std::path::Path;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::{EncodeInput, Tokenizer, TruncationParams};

/// The files of a tokenizer, which a saved model takes along.
pub(crate) const TOKENIZER_FILES: [&str; 4] =
    ["tokenizer.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json"];

/// Tokens with a meaning of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Special {
    /// Begins every text.
    pub begin: u32,
    /// Ends every text.
    pub end: u32,
    /// Stands for a token that is to be guessed.
    pub mask: u32,
}

/// Texts in, tokens out.
#[derive(Debug, Clone)]
pub struct TextTokenizer {
    inner: Tokenizer,
    special: Special,
    limit: usize,
}

impl TextTokenizer {
    /// The tokenizer of a model's folder. Texts are cut to `limit` tokens.
    pub fn load(folder: &Path, limit: usize) -> Result<Self> {
        let (json, words) = (folder.join("tokenizer.json"), folder.join("vocab.txt"));
        let inner = match (json.exists(), words.exists()) {
            (true, _) => Tokenizer::from_file(&json)
                .map_err(|e| Error::file(&json, format!("not a tokenizer: {e}")))?,
            (false, true) => from_vocabulary(folder, &words)?,
            (false, false) => {
                return Err(Error::file(folder, "neither tokenizer.json nor vocab.txt is there"));
            }
        };
        Self::new(inner, limit).map_err(|e| Error::file(folder, e))
    }

    /// A tokenizer that has the tokens `[CLS]`, `[SEP]` and `[MASK]`.
    pub fn new(mut inner: Tokenizer, limit: usize) -> Result<Self> {
        if limit < 4 {
            return Err(Error::invalid("length", format!("{limit} tokens; at least 4 are needed")));
        }
        let id = |name: &str| {
            let missing = || Error::invalid("tokenizer", format!("it has no token {name}"));
            inner.token_to_id(name).ok_or_else(missing)
        };
        let special = Special { begin: id("[CLS]")?, end: id("[SEP]")?, mask: id("[MASK]")? };
        let truncation = TruncationParams { max_length: limit, ..TruncationParams::default() };
        inner.with_padding(None);
        inner
            .with_truncation(Some(truncation))
            .map_err(|e| Error::invalid("tokenizer", e.to_string()))?;
        Ok(Self { inner, special, limit })
    }

    /// The tokens with a meaning of their own.
    pub fn special(&self) -> Special {
        self.special
    }

    /// The longest text, in tokens.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The number of tokens it knows.
    pub fn vocabulary(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The tokens of texts, or of pairs of them, in their order.
    pub fn encode<'s>(
        &self,
        texts: impl IntoIterator<Item = (&'s str, Option<&'s str>)>,
    ) -> Result<Vec<Encoded>> {
        let inputs: Vec<EncodeInput<'_>> = texts
            .into_iter()
            .map(|(first, second)| match second {
                Some(second) => (first, second).into(),
                None => first.into(),
            })
            .collect();
        let found = self
            .inner
            .encode_batch(inputs, true)
            .map_err(|e| Error::invalid("tokenizer", e.to_string()))?;
        let one = |e: &tokenizers::Encoding| Encoded {
            ids: e.get_ids().to_vec(),
            types: e.get_type_ids().to_vec(),
            cut: !e.get_overflowing().is_empty(),
        };
        Ok(found.iter().map(one).collect())
    }
}

impl TextTokenizer {
    /// The tokens of texts, however long, without those that begin and end them.
    pub(crate) fn encode_long(&self, texts: Vec<&str>) -> Result<Vec<Vec<u32>>> {
        let refuse = |e: tokenizers::Error| Error::invalid("tokenizer", e.to_string());
        let mut whole = self.inner.clone();
        whole.with_truncation(None).map_err(refuse)?;
        let found = whole.encode_batch(texts, false).map_err(refuse)?;
        Ok(found.iter().map(|e| e.get_ids().to_vec()).collect())
    }
}

/// The tokenizer that BERT's `vocab.txt` stands for.
fn from_vocabulary(folder: &Path, path: &Path) -> Result<Tokenizer> {
    let refuse = |e: &dyn std::fmt::Display| Error::file(path, format!("not a vocabulary: {e}"));
    let name = path.to_str().ok_or_else(|| refuse(&"its path is not UTF-8"))?;
    let model = WordPiece::from_file(name)
        .unk_token("[UNK]".into())
        .max_input_chars_per_word(100)
        .build()
        .map_err(|e| refuse(&e))?;
    let mut tokenizer = Tokenizer::new(model);
    let lower = lowercase(folder)?;
    let normalizer = BertNormalizer::new(true, true, None, lower);
    tokenizer.with_normalizer(Some(normalizer)).map_err(|e| refuse(&e))?;
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    let token = |name: &str| {
        let missing = || refuse(&format!("it has no token {name}"));
        tokenizer.token_to_id(name).map(|id| (name.to_owned(), id)).ok_or_else(missing)
    };
    let processing = BertProcessing::new(token("[SEP]")?, token("[CLS]")?);
    tokenizer.with_post_processor(Some(processing));
    Ok(tokenizer)
}

/// Whether texts become lower case, as `tokenizer_config.json` may deny.
fn lowercase(folder: &Path) -> Result<bool> {
    let path = folder.join("tokenizer_config.json");
    let Ok(bytes) = std::fs::read(&path) else { return Ok(true) };
    let config: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|e| Error::file(&path, e))?;
    Ok(config.get("do_lower_case").and_then(serde_json::Value::as_bool).unwrap_or(true))
}
