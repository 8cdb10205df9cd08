//! The subcommands on transformers: from files to files, and what a person reads.

#![cfg(feature = "nn")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn favor(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_favor"));
    command.args(arguments).current_dir(folder).env_remove("FAVOR_DATA").output().unwrap()
}

/// What a command that succeeds prints.
fn printed(folder: &Path, arguments: &[&str]) -> String {
    let output = favor(folder, arguments);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts a refusal: exit code 2, nothing printed, one line with all parts.
fn refused(folder: &Path, arguments: &[&str], parts: &[&str]) {
    let output = favor(folder, arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty());
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "{arguments:?}: {message:?} lacks {part:?}");
    }
}

fn model() -> String {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.join("../favor-nn/tests/fixtures/tiny-bert").to_str().unwrap().to_owned()
}

#[test]
fn texts_become_vectors() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("texts.txt"), "The cat sat.\nA dog ran fast!\n").unwrap();
    let model = model();
    let embed = ["embed", "--model", &model, "texts.txt"];
    let exact = printed(folder.path(), &embed);
    assert_eq!(exact.lines().count(), 2);
    assert_eq!(exact.lines().next().unwrap().split('\t').count(), 16);
    for kind in ["auto", "balanced", "sade", "elu"] {
        let more = ["--attention", kind, "--features", "32"];
        let other = printed(folder.path(), &[&embed[..], &more].concat());
        // Seven tokens are fewer than features: auto stays exact.
        assert_eq!(kind == "auto", other == exact, "{kind}");
    }
    let said = printed(folder.path(), &[&embed[..], &["--out", "v.npy"]].concat());
    assert_eq!(said, "wrote 2 vectors of 16 numbers to v.npy\n");
    let bytes = fs::read(folder.path().join("v.npy")).unwrap();
    assert_eq!((&bytes[..6], bytes.len() % 64), (&b"\x93NUMPY"[..], 2 * 16 * 4 % 64));
}

#[test]
fn a_small_task_is_learned() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "sentence\tlabel\n".to_owned();
    for i in 0..60 {
        text += &format!("the {} sat on the mat .\t{}\n", ["cat", "dog"][i % 2], i % 2);
    }
    fs::write(folder.path().join("animals.tsv"), text).unwrap();
    let model = model();
    let arguments = [
        "finetune",
        "--model",
        &model,
        "--task",
        "animals.tsv",
        "--attention",
        "exact",
        "--epochs",
        "20",
        "--batch",
        "8",
        "--rate",
        "3e-3",
        "--length",
        "16",
        // With other seeds this tiny model of random weights may need more epochs, whatever the attention.
        "--seed",
        "1",
        "--out",
        "tuned",
    ];
    let said = printed(folder.path(), &arguments);
    assert!(said.contains("epoch 20: accuracy 100.0") && said.ends_with("wrote tuned\n"), "{said}");
    let mut names: Vec<String> = fs::read_dir(folder.path().join("tuned"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["config.json", "model.safetensors", "vocab.txt"]);
    // What was tuned is a model like any other.
    fs::write(folder.path().join("texts.txt"), "the cat\n").unwrap();
    printed(folder.path(), &["embed", "--model", "tuned", "texts.txt"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (here, model) = (folder.path(), model());
    fs::write(here.join("texts.txt"), "the cat\n").unwrap();
    fs::write(here.join("empty.txt"), "").unwrap();
    let embed = ["embed", "--model", &model];
    refused(here, &["embed", "--model", "none", "texts.txt"], &["none", "no such folder"]);
    refused(here, &[&embed[..], &["none.txt"]].concat(), &["none.txt"]);
    refused(here, &[&embed[..], &["empty.txt"]].concat(), &["texts", "there are none"]);
    let words = ["texts.txt", "--attention", "soft"];
    refused(here, &[&embed[..], &words].concat(), &["soft", "balanced"]);
    let finetune = ["finetune", "--model", &model, "--task"];
    refused(here, &[&finetune[..], &["qqp"]].concat(), &["qqp", "cola"]);
    let words = ["rte", "--data", "nowhere"];
    refused(here, &[&finetune[..], &words].concat(), &["nowhere", "RTE", "--data"]);
    refused(here, &["pretrain", "--model", &model, "--corpus", "."], &["too short"]);
    let words = ["pretrain", "--model", &model, "--corpus", ".", "--new", "3"];
    refused(here, &words, &["256,4,8"]);
    refused(here, &["reproduce", "glue", "--model", &model, "--seeds", "0"], &["seeds"]);
    let left: Vec<_> = fs::read_dir(here).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// Features of one number a frame, as NumPy writes them.
fn write_features(path: &Path, frames: &[f32]) {
    let mut header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, 1), }}", frames.len());
    header += &" ".repeat(63 - (10 + header.len()) % 64);
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(frames.iter().flat_map(|v| v.to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_few_utterances_are_learned() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut manifest = String::new();
    for (i, word) in ["yes", "no", "yes", "no"].iter().enumerate() {
        let sign = if *word == "yes" { 1.0 } else { -1.0 };
        let frames: Vec<f32> =
            (0..40 + i).map(|t| if (10..25).contains(&t) { sign } else { 0.0 }).collect();
        write_features(&here.join(format!("{i}.npy")), &frames);
        manifest +=
            &format!("{{\"path\": \"{i}.npy\", \"text\": \"{word}\", \"duration\": 0.4}}\n");
    }
    fs::write(here.join("list.jsonl"), manifest).unwrap();
    let train = ["asr", "train", "--data", "list.jsonl", "--test", "list.jsonl", "--out", "model"];
    let more = ["--shape", "16,1,2", "--epochs", "60", "--batch", "4", "--rate", "1e-2"];
    let said = printed(here, &[&train[..], &more, &["--no-augment", "--judge", "60"]].concat());
    assert!(said.contains("epoch 60:") && said.contains("word error rate        0.0 %"), "{said}");
    let said = printed(here, &["asr", "evaluate", "model", "--data", "list.jsonl", "--list"]);
    assert!(said.contains("4 utterances, 4 words: 0 replaced, 0 missing, 0 added"), "{said}");
    let said = printed(here, &["asr", "transcribe", "model", "1.npy", "2.npy"]);
    assert_eq!(said, "1.npy\tno\n2.npy\tyes\n");
}

#[test]
fn speech_that_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("list.jsonl"), "{\"path\": \"none.wav\", \"text\": \"yes\"}\n").unwrap();
    let train = ["asr", "train", "--data", "list.jsonl"];
    refused(here, &train, &["list.jsonl", "line 1", "none.wav is missing"]);
    refused(here, &["asr", "train", "--data", "nowhere.jsonl"], &["nowhere.jsonl"]);
    refused(here, &[&train[..], &["--units", "letters"]].concat(), &["letters", "characters"]);
    refused(here, &["asr", "transcribe", "nowhere", "a.wav"], &["nowhere"]);
    refused(here, &["asr", "import", "timit"], &["timit", "an4"]);
    refused(here, &["asr", "import", "an4", "--data", "nowhere"], &["nowhere", "an4", "--data"]);
    refused(here, &["reproduce", "speech", "--seeds", "0"], &["seeds"]);
    let left: Vec<_> = fs::read_dir(here).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
