//! Wrong files get one clear line.

use crate::common::fixture;
use burn::tensor::Device;
use favor_nn::bert::Bert;
use favor_nn::task::TextTask;
use favor_nn::text::TextTokenizer;
use favor_nn::{Attention, LayerOptions};
use std::fs;
use std::path::Path;

/// A copy of the tiny model, to be spoiled.
fn copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "vocab.txt"] {
        fs::copy(fixture("tiny-bert").join(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn refused(folder: &Path, parts: &[&str]) {
    let options = LayerOptions::new(Attention::Exact, 1);
    let message = Bert::load(folder, options, &Device::flex()).map(|_| ()).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

fn change_config(folder: &Path, from: &str, to: &str) {
    let path = folder.join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn folders_that_are_no_models() {
    refused(Path::new("nowhere"), &["nowhere", "no such folder"]);
    let empty = tempfile::tempdir().unwrap();
    refused(empty.path(), &["config.json"]);
    let folder = copy();
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    refused(folder.path(), &["model.safetensors", "missing"]);
    fs::write(folder.path().join("pytorch_model.bin"), b"x").unwrap();
    refused(folder.path(), &["pytorch_model.bin", "not weights of PyTorch"]);
}

/// The file was written by `torch.save`; see make.py.
#[test]
fn weights_of_pytorch_are_those_of_safetensors() {
    let folder = copy();
    let load = || {
        let options = LayerOptions::new(Attention::Exact, 1);
        Bert::load(folder.path(), options, &Device::flex()).unwrap().0.to_bytes().unwrap()
    };
    let right = load();
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let old = folder.path().join("pytorch_model.bin");
    let whole = fs::read(fixture("tiny.bin")).unwrap();
    fs::write(&old, &whole).unwrap();
    assert_eq!(load(), right);
    fs::write(&old, &whole[..whole.len() / 2]).unwrap();
    refused(folder.path(), &["pytorch_model.bin", "not weights of PyTorch"]);
}

#[test]
fn configurations_of_something_else() {
    for (from, to, parts) in [
        ("\"bert\"", "\"gpt2\"", &["config.json", "gpt2"][..]),
        ("\"gelu\"", "\"swish\"", &["hidden_act", "swish"]),
        ("\"hidden_size\": 16", "\"hidden_size\": 17", &["not a multiple"]),
        ("\"hidden_size\": 16", "\"hidden_size\": 18", &["model.safetensors", "shape", "18"]),
        ("\"vocab_size\": 28", "\"vocab_size\": 29", &["word_embeddings", "29"]),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", &["encoder.layer.2", "missing"]),
        ("\"hidden_size\"", "\"hidden\"", &["config.json", "hidden_size"]),
        ("{", "", &["config.json"]),
    ] {
        let folder = copy();
        change_config(folder.path(), from, to);
        refused(folder.path(), parts);
    }
}

#[test]
fn weights_that_are_damaged() {
    let folder = copy();
    let path = folder.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    for length in [0, 7, 100, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        refused(folder.path(), &["model.safetensors", "safetensors file"]);
    }
    let mut spoiled = whole.clone();
    let end = spoiled.len();
    spoiled[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&path, &spoiled).unwrap();
    refused(folder.path(), &["NaN"]);
}

#[test]
fn tokenizers_that_are_none() {
    let folder = copy();
    let refuse = |part: &str| {
        let message = TextTokenizer::load(folder.path(), 16).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    fs::write(folder.path().join("vocab.txt"), "[PAD]\nthe\n").unwrap();
    refuse("[SEP]");
    fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    refuse("not a tokenizer");
    fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    fs::remove_file(folder.path().join("vocab.txt")).unwrap();
    refuse("neither");
    let message = TextTokenizer::load(&fixture("tiny-bert"), 2).unwrap_err().to_string();
    assert!(message.contains("at least 4"), "{message}");
}

#[test]
fn tasks_that_make_no_sense() {
    let folder = tempfile::tempdir().unwrap();
    let refuse = |name: &str, text: Option<&str>, part: &str| {
        let path = folder.path().join(name);
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        let message =
            TextTask::read(path.to_str().unwrap(), folder.path()).unwrap_err().to_string();
        assert!(message.contains(part) && !message.contains('\n'), "{message} lacks {part}");
    };
    refuse("none.tsv", None, "none.tsv");
    refuse("a.tsv", Some(""), "empty");
    refuse("b.tsv", Some("words\tclass\nx\ty\n"), "must name the columns");
    refuse("c.tsv", Some("sentence\tlabel\nx\n"), "line 2 has 1 columns of 2");
    refuse("d.tsv", Some("sentence\tlabel\nx\ty\nz\ty\n"), "single class");
    refuse("e.tsv", Some("sentence\tscore\nx\thigh\n"), "line 2: 'high' is not a number");
    let message = TextTask::read("qqp", folder.path()).unwrap_err().to_string();
    assert!(message.contains("cola, mrpc"), "{message}");
    let message = TextTask::read("rte", folder.path()).unwrap_err().to_string();
    assert!(message.contains("RTE") && message.contains("no such folder"), "{message}");
}
