//! The subcommands on speech: from files to files, and what a person reads.

use crate::{printed, refused};
use std::fs;
use std::path::Path;

/// Features of one number per frame, as NumPy writes them.
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
