//! The subcommands on transformers: from files to files, and what a person reads.

#![cfg(feature = "nn")]

#[cfg(feature = "speech")]
mod speech;

use std::fs;
use std::path::Path;
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
    let own = std::env::current_dir().unwrap();
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
fn a_model_is_converted() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let line = "the cat sat on the mat . a dog ran fast , but not the cat !\n";
    fs::write(here.join("a.txt"), line.repeat(60)).unwrap();
    fs::write(here.join("texts.txt"), "the cat sat\na dog ran fast !\n").unwrap();
    let model = model();
    let convert = ["convert", "--model", &model, "--texts", "a.txt", "--length", "16"];
    let more =
        ["--features", "8", "--learn", "10", "--steps", "16", "--near", "1", "--routed", "2x2"];
    let said = printed(here, &[&convert[..], &more, &["--out", "linear"]].concat());
    for part in ["texts to learn from", "learn", "weights", "wrote linear"] {
        assert!(said.contains(part), "{said}");
    }
    // It has its own attention, unless another one is asked for.
    let embed = ["embed", "--model", "linear", "texts.txt"];
    let own = printed(here, &embed);
    assert_eq!(own, printed(here, &embed));
    assert_ne!(own, printed(here, &[&embed[..], &["--attention", "exact"]].concat()));
    let convert = |more: &[&'static str]| [&convert[..], more].concat();
    refused(here, &convert(&["--attention", "exact"]), &["nothing to convert to"]);
    refused(here, &convert(&["--skip", "sleep"]), &["sleep", "learn"]);
    refused(here, &convert(&["--budget", "15"]), &["15m"]);
    refused(here, &convert(&["--routed", "4"]), &["4x8"]);
    refused(here, &["convert", "--model", &model], &["--texts"]);
    let none = ["convert", "--model", &model, "--texts", "none.txt", "--length", "16"];
    refused(here, &none, &["none.txt"]);
    refused(here, &["convert", "--model", "linear", "--texts", "a.txt"], &["converted already"]);
    refused(
        here,
        &["embed", "--model", &model, "texts.txt", "--attention", "learned"],
        &["convert"],
    );
    assert!(!here.join("favor-converted").exists());
}

/// Cells in processes of their own give what cells in one process give.
#[test]
fn the_grid_runs_in_processes() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let rte = here.join("glue/RTE");
    fs::create_dir_all(&rte).unwrap();
    for (name, rows) in [("train", 24), ("dev", 8)] {
        let mut text = "index\tsentence1\tsentence2\tlabel\n".to_owned();
        for i in 0..rows {
            let label = ["entailment", "not_entailment"][i % 2];
            text += &format!("{i}\tthe cat sat .\tthe {} sat .\t{label}\n", ["cat", "dog"][i % 2]);
        }
        fs::write(rte.join(format!("{name}.tsv")), text).unwrap();
    }
    let model = model();
    let all = [
        "reproduce",
        "glue",
        "--model",
        &model,
        "--data",
        ".",
        "--tasks",
        "rte",
        "--attentions",
        "exact,relu,learned,keys+1",
        "--features",
        "4",
        "--seeds",
        "1",
        "--rates",
        "1e-3,2e-3",
        "--epochs",
        "1",
        "--batch",
        "8",
        "--length",
        "16",
        "--learn",
        "4",
        "--steps",
        "8",
        "--label-epochs",
        "1",
        "--no-drop-in",
    ];
    let one = printed(here, &[&all[..], &["--out", "one"]].concat());
    assert!(one.contains("RTE search") && one.contains("in all"), "{one}");
    let more = ["--out", "two", "--jobs", "2", "--no-estimate"];
    printed(here, &[&all[..], &more].concat());
    let scores = |out: &str| -> Vec<String> {
        let csv = fs::read_to_string(here.join(out).join("glue.csv")).unwrap();
        csv.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned()).collect()
    };
    assert_eq!(scores("one"), scores("two"));
    assert_eq!(scores("one").len(), 7);
    let table = fs::read_to_string(here.join("two/glue.md")).unwrap();
    assert!(table.contains("| window ±1 alone | 4 |") && !table.contains("search"), "{table}");
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
