//! The subcommands on tables: from files to files, and what a person reads.

#![cfg(feature = "tables")]

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn favor(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_favor")).args(arguments).current_dir(folder).output().unwrap()
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

/// Two rings, their labels `inner` and `outer`, and a number.
fn rings(path: &Path, start: usize, count: usize) {
    let mut text = "x,y,ring,radius\n".to_string();
    for i in start..start + count {
        let angle = 0.7 * i as f64;
        let radius = 1.0 + (i % 2) as f64 + 0.2 * (1.3 * i as f64).sin();
        let (x, y) = (radius * angle.cos(), radius * angle.sin());
        text.push_str(&format!("{x},{y},{},{radius}\n", ["inner", "outer"][i % 2]));
    }
    fs::write(path, text).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn from_a_csv_to_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    rings(&folder.join("train.csv"), 0, 600);
    rings(&folder.join("test.csv"), 600, 200);
    let fit = ["fit", "train.csv", "--target", "ring", "--ignore", "radius"];
    let text = printed(folder, &[&fit[..], &["--out", "rings.favor"]].concat());
    for part in [
        "classification of 'ring'",
        "ridge head",
        "←",
        "inner: 300 rows",
        "by 4-fold cross-validation",
        "rings.favor",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let info = printed(folder, &["info", "rings.favor"]);
    assert!(text.starts_with(&info), "{info}");
    let info: Value =
        serde_json::from_str(&printed(folder, &["info", "rings.favor", "--json"])).unwrap();
    assert_eq!(info["rows"], 600);
    assert!(info["choice"]["candidates"].as_array().unwrap().len() >= 10);
    assert!(info["report"]["score"].as_f64().unwrap() > 0.8);

    let csv = printed(folder, &["predict", "rings.favor", "test.csv", "--proba", "--keep", "ring"]);
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("ring,prediction,p_inner,p_outer"));
    let (mut right, mut count) = (0, 0);
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let p: Vec<f64> = fields[2..].iter().map(|f| f.parse().unwrap()).collect();
        assert!((p[0] + p[1] - 1.0).abs() < 1e-9, "{line}");
        right += usize::from(fields[0] == fields[1]);
        count += 1;
    }
    assert_eq!(count, 200);
    assert!(right >= 190, "{right}");

    let out = printed(folder, &["predict", "rings.favor", "test.csv", "--out", "p.parquet"]);
    assert_eq!(out, "wrote 200 predictions to p.parquet\n");
    let query = "select prediction, count(*) n from 'p.parquet' group by prediction";
    refused(
        folder,
        &["predict", "rings.favor", "--sql", query],
        &["column 'x' is not in the table"],
    );

    let json = printed(folder, &["evaluate", "rings.favor", "test.csv", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["rows"], 200);
    assert!((json["score"].as_f64().unwrap() - right as f64 / 200.0).abs() < 1e-12);
    let text = printed(folder, &["evaluate", "rings.favor", "test.csv"]);
    assert!(text.contains("accuracy") && text.contains("the exact kernel over 600 rows"), "{text}");
}

#[test]
fn halves_merge_and_rows_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    rings(&folder.join("a.csv"), 0, 400);
    rings(&folder.join("b.csv"), 400, 300);
    let fit = ["fit", "a.csv", "--target", "radius", "--ignore", "ring", "--features", "64"];
    printed(folder, &[&fit[..], &["--out", "a.favor"]].concat());
    printed(folder, &["fit", "b.csv", "--map-of", "a.favor", "--out", "b.favor"]);
    printed(folder, &["fit", "a.csv", "b.csv", "--map-of", "a.favor", "--out", "ab.favor"]);
    let text = printed(folder, &["merge", "a.favor", "b.favor", "--out", "m.favor"]);
    assert_eq!(text, "wrote m.favor, a model of 700 rows\n");
    let text = printed(folder, &["update", "a.favor", "b.csv", "--out", "u.favor"]);
    assert_eq!(text, "added 300 rows; u.favor has 700\n");
    let numbers = |model: &str| -> Vec<f64> {
        let csv = printed(folder, &["predict", model, "b.csv"]);
        csv.lines().skip(1).map(|l| l.split(',').next().unwrap().parse().unwrap()).collect()
    };
    let wanted = numbers("ab.favor");
    for model in ["m.favor", "u.favor"] {
        for (f, w) in numbers(model).iter().zip(&wanted) {
            assert!((f - w).abs() < 1e-3, "{model}: {f} against {w}");
        }
    }
    assert_ne!(numbers("a.favor"), wanted);
    // Both halves are of the same rings.
    let text = printed(folder, &["compare", "a.favor", "b.csv"]);
    let p: f64 = text.split(", p ").nth(1).unwrap().trim().parse().unwrap();
    assert!(text.starts_with("distance 0.") && p > 0.001, "{text}");
    // The model of the second half says the same of it as its table.
    let fit = ["fit", "b.csv", "--map-of", "a.favor", "--out", "half.favor"];
    printed(folder, &fit);
    assert_eq!(printed(folder, &["compare", "a.favor", "half.favor"]), text);
    let project = ["project", "a.favor", "b.csv", "--components", "3", "--keep", "ring"];
    let csv = printed(folder, &project);
    assert!(csv.starts_with("ring,component_1,component_2,component_3\n"), "{csv}");
    assert_eq!(csv.lines().count(), 301);
    refused(
        folder,
        &["project", "a.favor", "b.csv", "--components", "0"],
        &["--components", "1 to"],
    );
    let text = printed(folder, &["subtract", "m.favor", "b.csv", "--out", "s.favor"]);
    assert_eq!(text, "subtracted 300 rows; s.favor has 400\n");
    for (f, w) in numbers("s.favor").iter().zip(&numbers("a.favor")) {
        assert!((f - w).abs() < 1e-3, "{f} against {w}");
    }
    refused(
        folder,
        &["subtract", "s.favor", "a.csv"],
        &["more rows to subtract than the model has"],
    );
    printed(folder, &["update", "a.favor", "b.csv"]);
    assert!(printed(folder, &["info", "a.favor"]).contains("700 rows"));
    // Fitted alone, the second half has another map.
    let fit = ["fit", "b.csv", "--target", "radius", "--ignore", "ring", "--out", "c.favor"];
    printed(folder, &fit);
    refused(folder, &["merge", "m.favor", "c.favor", "--out", "x.favor"], &["--map-of"]);
    assert!(!folder.join("x.favor").exists());
}

#[test]
fn processes_have_intervals_and_models_have_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    rings(&folder.join("a.csv"), 0, 600);
    rings(&folder.join("b.csv"), 600, 100);
    let fit = ["fit", "a.csv", "--target", "radius", "--ignore", "ring", "--head", "gp"];
    let text = printed(folder, &[&fit[..], &["--features", "64", "--plot", "curve.svg"]].concat());
    assert!(text.contains("intervals cover 50 %: "), "{text}");
    assert!(fs::read_to_string(folder.join("curve.svg")).unwrap().starts_with("<svg"));
    let csv = printed(folder, &["predict", "model.favor", "b.csv", "--interval", "95"]);
    assert!(csv.starts_with("prediction,deviation,lower,upper\n"), "{csv}");
    let text = printed(folder, &["evaluate", "model.favor", "b.csv"]);
    assert!(text.contains("R²") && text.contains("95 %: "), "{text}");
    let fit = ["fit", "a.csv", "--target", "ring", "--ignore", "radius", "--head", "logistic"];
    printed(folder, &fit);
    let text = printed(folder, &["evaluate", "model.favor", "b.csv", "--plot", "r.svg"]);
    for part in ["log-loss", "Brier score", "AUC", "calibration error"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(fs::read_to_string(folder.join("r.svg")).unwrap().contains("Reliability"));
    refused(folder, &["update", "model.favor", "b.csv"], &["logistic", "--head ridge"]);
}

#[test]
fn queries_are_sources_and_densities_need_no_target() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    rings(&folder.join("r.csv"), 0, 500);
    let query = "select x, y from 'r.csv' where ring = 'outer'";
    let text = printed(folder, &["fit", "--sql", query, "--density", "--out", "d.favor"]);
    assert!(text.contains("density from 2 columns, 250 rows"), "{text}");
    let csv = printed(folder, &["predict", "d.favor", "--sql", "select 0.0 as x, 2.0 as y"]);
    assert!(csv.starts_with("log_density,relative_error\n"), "{csv}");
    let text = printed(folder, &["evaluate", "d.favor", "r.csv"]);
    assert!(text.contains("mean log density"), "{text}");
}

#[test]
fn bad_input_is_refused_in_one_line_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    rings(&folder.join("t.csv"), 0, 100);
    fs::write(folder.join("empty.csv"), "").unwrap();
    fs::write(folder.join("ragged.csv"), "x,ring\n1,a\n2,b\n3\n").unwrap();
    fs::write(folder.join("one.csv"), "x,ring\n1,a\n2,a\n3,a\n").unwrap();
    fs::write(folder.join("flat.csv"), "x,z,ring\n1,5,a\n2,5,b\n3,5,a\n").unwrap();
    fs::write(folder.join("gaps.csv"), "x,z,ring\n1,5,a\n,6,b\n3,7,a\n").unwrap();
    let ids: String = (0..1500).map(|i| format!("{i},{}\n", i % 7)).collect();
    fs::write(folder.join("ids.csv"), format!("id,x\n{ids}")).unwrap();
    fs::write(folder.join("bad.favor"), "no model").unwrap();
    let before = names(folder);
    let fit = |file: &'static str| vec!["fit", file, "--target", "ring", "--bandwidth", "1"];
    refused(folder, &fit("none.csv"), &["none.csv", "there is no such file"]);
    refused(folder, &fit("empty.csv"), &["the file is empty"]);
    refused(folder, &fit("ragged.csv"), &["ragged.csv", "line 4 has 1 fields"]);
    refused(folder, &fit("one.csv"), &["'ring'", "one label"]);
    refused(folder, &fit("flat.csv"), &["'z' is constant (5.00); leave it out with --ignore"]);
    refused(
        folder,
        &[&fit("gaps.csv")[..], &["--missing", "error"]].concat(),
        &["'x' has missing values (null); give --missing drop, mean or mark"],
    );
    refused(folder, &["fit", "t.csv", "--target", "rang"], &["'rang' is not in the table"]);
    refused(folder, &["fit", "t.csv"], &["--target"]);
    let with = |more: &[&'static str]| [&["fit", "t.csv", "--target", "ring"], more].concat();
    refused(folder, &with(&["--features", "0"]), &["--features: 0 features; give 1 to"]);
    let folds = ["--head", "nw", "--ignore", "radius", "--folds", "1"];
    refused(folder, &with(&folds), &["--folds: 1 parts; give 2 or more"]);
    refused(folder, &with(&["--folds", "3"]), &["--folds: ", "nw"]);
    refused(folder, &with(&["--head", "gp"]), &["--head: gp does no classification; give ridge"]);
    refused(folder, &with(&["--head", "svm"]), &["ridge, gp, logistic, nw"]);
    refused(folder, &with(&["--family", "nystrom", "--head", "nw"]), &["--family: nystrom"]);
    refused(folder, &with(&["--numbers", "log"]), &["auto, standard, rank or raw"]);
    refused(folder, &with(&["--prior", "inner=1"]), &["--prior: no number is given", "'outer'"]);
    refused(folder, &["fit", "--sql", "selekt 1", "--density"], &["--sql: "]);
    refused(folder, &["fit", "ids.csv", "--target", "id"], &["give --classify or --regress"]);
    let ids = ["fit", "ids.csv", "--target", "id", "--classify"];
    refused(folder, &ids, &["more than 1000 different labels; did you mean --regress?"]);
    refused(folder, &["fit", "--target", "ring"], &["DATA"]);
    refused(folder, &["fit", "t.csv", "--target", "ring", "--bandwidth", "-2"], &["--bandwidth"]);
    refused(folder, &["fit", "t.csv", "--target", "ring", "--family", "best"], &["best"]);
    refused(
        folder,
        &["fit", "t.csv", "--target", "ring", "--missing", "no"],
        &["error, drop, mean or mark"],
    );
    refused(folder, &["fit", "t.csv", "--target", "ring", "--out", "no/m.favor"], &["no/m.favor"]);
    refused(folder, &["predict", "bad.favor", "t.csv"], &["bad.favor", "not a readable model"]);
    refused(folder, &["info", "none.favor"], &["there is no such file"]);
    assert_eq!(names(folder), before);

    printed(folder, &[&fit("t.csv")[..], &["--ignore", "radius"]].concat());
    let before = names(folder);
    fs::write(folder.join("late.csv"), "x,y,ring\n1,2,a\n2,3,b\n3,,a\n").unwrap();
    refused(
        folder,
        &["predict", "model.favor", "late.csv", "--missing", "error", "--out", "p.csv"],
        &["'y' has missing values"],
    );
    refused(folder, &["predict", "model.favor", "t.csv", "--out", "p.txt"], &[".parquet, .csv or"]);
    refused(folder, &["predict", "model.favor", "one.csv"], &["'y' is not in the table"]);
    refused(
        folder,
        &["predict", "model.favor", "t.csv", "--interval", "95"],
        &["--interval: a ridge model has no intervals"],
    );
    printed(folder, &["fit", "ids.csv", "--density", "--bandwidth", "1", "--out", "d.favor"]);
    refused(folder, &["predict", "d.favor", "ids.csv", "--proba"], &["--proba: a density has no"]);
    fs::remove_file(folder.join("d.favor")).unwrap();
    fs::remove_file(folder.join("late.csv")).unwrap();
    assert_eq!(names(folder), before);
    // A newer version.
    let mut bytes = fs::read(folder.join("model.favor")).unwrap();
    let old = b"\\\"version\\\":4";
    let place = bytes.windows(old.len()).position(|w| w == old).unwrap();
    bytes[place + old.len() - 1] = b'7';
    fs::write(folder.join("newer.favor"), bytes).unwrap();
    refused(folder, &["info", "newer.favor"], &["version 7", "reads version 4"]);
}

#[test]
fn help_has_examples() {
    let folder = tempfile::tempdir().unwrap();
    let commands =
        ["compare", "fit", "predict", "project", "evaluate", "info", "merge", "subtract", "update"];
    for command in commands {
        let help = printed(folder.path(), &[command, "--help"]);
        assert!(help.contains("Examples:\n  favor "), "{command}");
    }
}
