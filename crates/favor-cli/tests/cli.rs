//! The command itself: exit codes, messages, JSON, files.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn favor(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_favor"));
    command.args(arguments).env_remove("FAVOR_DATA");
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Asserts a refusal: exit code 2, nothing printed, one line with all parts.
fn refused(output: &Output, parts: &[&str]) {
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty());
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

fn matrix(folder: &Path, name: &str, rows: &[Vec<f64>]) -> String {
    let line = |row: &Vec<f64>| row.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
    let path = folder.join(name);
    fs::write(&path, rows.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap();
    path.display().to_string()
}

fn wave(rows: usize, columns: usize, phase: f64) -> Vec<Vec<f64>> {
    let entry = |i: usize, c: usize| (phase + 1.7 * i as f64 + 0.9 * c as f64).sin();
    (0..rows).map(|i| (0..columns).map(|c| entry(i, c)).collect()).collect()
}

/// A `.npy` file of three dimensions.
fn heads(folder: &Path, name: &str, shape: [usize; 3]) -> String {
    let shape_text = format!("({}, {}, {})", shape[0], shape[1], shape[2]);
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape_text}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    for i in 0..shape.iter().product::<usize>() {
        bytes.extend(((0.37 * i as f32).sin()).to_le_bytes());
    }
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

#[test]
fn help_and_version() {
    let version = favor(&["--version"]);
    assert!(version.status.success());
    assert_eq!(stdout(&version).trim(), concat!("favor ", env!("CARGO_PKG_VERSION")));
    for arguments in [
        &["help"][..],
        &["--help"],
        &["inspect", "--help"],
        &["reproduce", "--help"],
        &["reproduce", "variance", "--help"],
        &["reproduce", "uci", "--help"],
        &["demo", "--help"],
        &["learn", "--help"],
    ] {
        let help = favor(arguments);
        assert!(help.status.success());
        assert!(stdout(&help).contains("Usage:"), "{arguments:?}");
    }
    for command in ["inspect", "learn", "demo", "reproduce"] {
        let help = favor(&[command, "--help"]);
        assert!(stdout(&help).contains("Examples:\n  favor"), "{command}");
    }
    assert_eq!(favor(&[]).status.code(), Some(2));
}

#[test]
fn help_is_grouped_by_job() {
    let help = stdout(&favor(&["--help"]));
    for part in [
        "\nFeatures and attention:\n  demo",
        "\nExperiments:\n  reproduce",
        "\nHelp and shell:\n  help",
        "\nOptions:\n  -q, --quiet",
        "\nExit codes:\n  0 ",
        "\n  130  stopped by Ctrl-C",
    ] {
        assert!(help.contains(part), "{help} lacks {part:?}");
    }
    assert_eq!(help.contains("\nTables:\n  fit"), cfg!(feature = "tables"), "{help}");
    assert_eq!(help, stdout(&favor(&["help"])));
}

#[test]
fn help_is_for_commands_and_topics() {
    for path in [&["inspect"][..], &["reproduce", "uci"], &["help"]] {
        let asked = stdout(&favor(&[&["help"], path].concat()));
        assert_eq!(asked, stdout(&favor(&[path, &["--help"]].concat())), "{path:?}");
    }
    let help = stdout(&favor(&["--help"]));
    let (_, topics) = help.split_once("\nTopics:\n").unwrap();
    let names: Vec<&str> = topics
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert!(names.contains(&"families") && names.contains(&"exact-keys"), "{names:?}");
    for name in names {
        let topic = favor(&["help", name]);
        assert!(topic.status.success() && stdout(&topic).lines().count() > 3, "{name}");
        // Readable in a terminal of the width that help has.
        assert!(stdout(&topic).lines().all(|line| line.chars().count() <= 100), "{name}");
    }
    for family in favor::Family::ALL {
        assert!(stdout(&favor(&["help", "families"])).contains(family.name()), "{family}");
    }
    refused(&favor(&["help", "familes"]), &["familes", "families"]);
    refused(&favor(&["help", "reproduce", "ucy"]), &["ucy", "uci"]);
}

#[test]
fn no_color_wins() {
    let help = |no_color: Option<&str>| {
        let mut command = command(&["--help"]);
        command.env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR");
        if let Some(value) = no_color {
            command.env("NO_COLOR", value);
        }
        stdout(&command.output().unwrap())
    };
    assert!(help(None).contains("\u{1b}[") && !help(Some("1")).contains('\u{1b}'));
    // A pipe is no terminal.
    let mut piped = command(&["--help"]);
    piped.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    assert_eq!(stdout(&piped.output().unwrap()), help(Some("1")));
}

#[test]
fn shells_complete() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = favor(&["completions", shell]);
        assert!(script.status.success(), "{shell}");
        for word in ["inspect", "queries", "reproduce"] {
            assert!(stdout(&script).contains(word), "{shell} lacks {word}");
        }
    }
    refused(&favor(&["completions", "tcsh"]), &["tcsh", "bash", "zsh"]);
}

#[test]
fn manual_pages() {
    for (path, title, part) in [
        (&[][..], ".TH favor 1", "Exit codes"),
        (&["inspect"][..], ".TH favor-inspect 1", "queries"),
        (&["reproduce", "uci"][..], ".TH favor-reproduce-uci 1", "sets"),
    ] {
        let output = favor(&[&["man"][..], path].concat());
        assert!(output.status.success(), "{path:?}");
        let page = stdout(&output);
        assert!(page.contains(title) && page.contains(part), "{path:?}: {page}");
    }
    refused(&favor(&["man", "inspekt"]), &["'inspekt'", "inspect", "learn"]);
    refused(&favor(&["man", "demo", "more"]), &["'demo' has no further commands"]);
}

#[test]
#[cfg(not(feature = "tables"))]
fn subcommands_of_other_builds_name_their_feature() {
    let help = stdout(&favor(&["--help"]));
    for name in ["fit", "predict", "evaluate", "info", "merge", "update"] {
        let command = format!("cargo run --release --features tables -- {name} …");
        refused(&favor(&[name, "data.csv", "--target", "y"]), &["built without", &command]);
        assert!(help.contains(name), "{help}");
    }
    assert!(help.contains("--features tables"), "{help}");
    refused(&favor(&["fitt"]), &["unrecognized subcommand 'fitt'"]);
}

#[test]
fn inspect_prints_a_table_or_json() {
    let folder = tempfile::tempdir().unwrap();
    let q = matrix(folder.path(), "q.csv", &wave(20, 3, 0.0));
    let k = matrix(folder.path(), "k.csv", &wave(25, 3, 1.0));
    let v = matrix(folder.path(), "v.csv", &wave(25, 2, 2.0));
    let base = ["inspect", "--queries", &q, "--keys", &k, "--features", "8,16"];
    let table = favor(&base);
    assert!(table.status.success());
    let text = stdout(&table);
    assert!(text.contains("as given (scale 1)") && text.contains("measured, M = 16"), "{text}");
    let json = favor(&[&base[..], &["--values", &v, "--json"]].concat());
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    for key in ["floor", "families", "uniform_error", "recommendation", "warnings", "scaling"] {
        assert!(!json[key].is_null(), "{key}");
    }
    let families = json["families"].as_array().unwrap();
    let names: Vec<&str> = families.iter().map(|f| f["name"].as_str().unwrap()).collect();
    let compared: Vec<&str> = favor_inspect::compared().into_iter().map(|f| f.name()).collect();
    assert_eq!(names, compared);
    for family in families {
        for key in ["objective", "mean_log_relative_variance", "features_needed"] {
            assert!(family[key].as_f64().unwrap().is_finite(), "{key}");
        }
        assert_eq!(family["measured"].as_array().unwrap().len(), 2);
        assert!(family["measured"][0]["attention_error"].is_f64());
    }
    assert!(stdout(&favor(&[&base[..], &["--values", &v]].concat())).contains("--attention"));
}

#[test]
fn every_kind_of_work_is_measured() {
    let small = ["bench", "--length", "64", "--features", "16", "--heads", "2", "--dim", "16"];
    let run = |more: &[&str]| -> Vec<Value> {
        let output = favor(&[&small[..], &["--runs", "1", "--json"], more].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let all = run(&["--batch", "2", "--masked"]);
    let names: Vec<&str> = all.iter().map(|m| m["work"].as_str().unwrap()).collect();
    let ours: Vec<&str> = favor_lab::bench::Work::OURS.iter().map(|w| w.name()).collect();
    assert_eq!(names, ours);
    for m in &all {
        let name = m["work"].as_str().unwrap();
        let seconds = m["seconds"].as_f64().unwrap();
        assert!(seconds.is_finite() && (seconds > 0.0 || name == "pack"), "{m}");
        assert!(m["gflops"].is_f64() && m["batch"] == 2, "{m}");
        let attention = !["prompt", "prompt_pieces", "decode", "pack", "product"].contains(&name);
        assert_eq!(m["masked"], attention, "{m}");
    }
    let packed = run(&["--work", "causal,prompt", "--near", "4", "--packed"]);
    let exact: Vec<&Value> = packed.iter().map(|m| &m["exact"]["near"]).collect();
    assert_eq!(exact, [4, 4]);
    assert_eq!([&packed[0]["packed"], &packed[1]["packed"]], [true, false]);
    refused(&favor(&["bench", "--packed", "--batch", "2"]), &["packed sequences", "batch of one"]);
}

#[test]
fn heads_become_a_list_and_a_figure() {
    let folder = tempfile::tempdir().unwrap();
    let q = heads(folder.path(), "q.npy", [3, 10, 4]);
    let plot = folder.path().join("p.svg").display().to_string();
    let output = favor(&[
        "inspect",
        "--queries",
        &q,
        "--keys",
        &q,
        "--attention",
        "--families",
        "sde,trig_pair",
        "--features",
        "4",
        "--json",
        "--plot",
        &plot,
    ]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = json.as_array().unwrap();
    assert_eq!(list.len(), 3);
    assert_eq!(list[2]["head"], 2);
    assert_eq!(list[0]["families"][1]["name"], "trig_pair");
    assert!(list[0]["uniform_error"].is_null());
    assert!(fs::read_to_string(plot).unwrap().starts_with("<svg"));
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let q = matrix(folder.path(), "q.csv", &wave(20, 3, 0.0));
    let wide = matrix(folder.path(), "wide.csv", &wave(20, 4, 0.0));
    let short = matrix(folder.path(), "short.csv", &wave(19, 3, 0.0));
    let (three, four) = (
        heads(folder.path(), "three.npy", [3, 20, 3]),
        heads(folder.path(), "four.npy", [4, 20, 3]),
    );
    let nan = folder.path().join("nan.csv");
    fs::write(&nan, "1,2,3\n4,inf,6\n").unwrap();
    let nan = nan.display().to_string();
    let empty = folder.path().join("empty.csv");
    fs::write(&empty, "").unwrap();
    let empty = empty.display().to_string();
    let absent = folder.path().join("absent.npy").display().to_string();
    let pair = |a: &str, b: &str| {
        vec!["inspect".to_owned(), "--queries".into(), a.into(), "--keys".into(), b.into()]
    };
    let with = |extra: &[&str]| {
        let mut arguments = pair(&q, &q);
        arguments.extend(extra.iter().map(|s| (*s).to_owned()));
        arguments
    };
    let cases: Vec<(Vec<String>, Vec<&str>)> = vec![
        (pair(&q, &wide), vec!["20 × 3", "20 × 4", "same number of columns"]),
        (pair(&three, &four), vec!["3 heads", "4 heads", "same number of heads"]),
        (pair(&q, &three), vec!["same number of heads"]),
        (with(&["--values", &short]), vec!["19 × 3", "every key needs one value"]),
        (pair(&nan, &q), vec!["nan.csv", "inf"]),
        (pair(&q, &empty), vec!["empty.csv", "empty"]),
        (pair(&absent, &q), vec!["absent.npy", "no such file"]),
        (with(&["--families", "sdf"]), vec!["--families", "sdf", "trig_pair", "balanced"]),
        (with(&["--features", "0"]), vec!["--features", "1..=65536"]),
        (with(&["--features", "many"]), vec!["many"]),
        (with(&["--scale", "-2"]), vec!["scale"]),
        (with(&["--scale", "big"]), vec!["attention"]),
        (with(&["--scale", "2", "--attention"]), vec!["cannot be used with"]),
        (with(&["--alpha", "inf"]), vec!["alpha"]),
        (with(&["--plot", "no/such/folder/p.svg", "--features", "4"]), vec!["no/such/folder"]),
        (vec!["inspect".into(), "--queries".into(), q.clone()], vec!["--keys"]),
        (vec!["inspekt".into()], vec!["inspekt", "inspect"]),
        (
            vec![
                "demo".into(),
                "--out".into(),
                "no/such/page.html".into(),
                "--seed".into(),
                "x".into(),
            ],
            vec!["seed"],
        ),
    ];
    for (arguments, parts) in cases {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        refused(&favor(&arguments), &parts);
    }
}

#[test]
fn a_failed_run_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let q = matrix(folder.path(), "q.csv", &wave(20, 3, 0.0));
    let wide = matrix(folder.path(), "wide.csv", &wave(20, 4, 0.0));
    let plot = folder.path().join("p.svg");
    let name = plot.display().to_string();
    refused(&favor(&["inspect", "--queries", &q, "--keys", &wide, "--plot", &name]), &["columns"]);
    assert!(!plot.exists());
    let out = folder.path().join("out").display().to_string();
    let absent = folder.path().join("absent").display().to_string();
    let output = favor(&["reproduce", "variance", "--data", &absent, "--out", &out]);
    refused(&output, &["absent", "does not exist", "--data", "FAVOR_DATA"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn kernel_classification_on_a_tiny_set() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(data.join("uci8")).unwrap();
    let file = data.join("uci8/banknote.txt");
    let line = |i: usize| {
        let row = &wave(60, 4, 0.0)[i];
        let cells: Vec<String> = row.iter().map(f64::to_string).collect();
        format!("{},{}\r\n", cells.join(","), u8::from(row[0] > 0.0))
    };
    let text: String = (0..60).map(line).collect();
    fs::write(&file, &text).unwrap();
    let (data, out) = (data.display().to_string(), folder.path().join("out"));
    let out_name = out.display().to_string();
    let base = ["reproduce", "uci", "--data", &data, "--out", &out_name, "--sets", "banknote"];
    let run = |extra: &[&str]| favor(&[&base[..], extra].concat());
    refused(&run(&["--seeds", "1"]), &["seeds: 1", "between 2 and"]);
    refused(&run(&["--moments", "test"]), &["training", "queries"]);
    refused(&run(&["--seeds", "two"]), &["two"]);
    refused(
        &favor(&["reproduce", "uci", "--data", &data, "--sets", "iris"]),
        &["--sets", "iris", "yeast"],
    );
    let wifi = ["reproduce", "uci", "--data", &data, "--out", &out_name, "--sets", "wifi"];
    refused(&favor(&wifi), &["wifi.txt", "no such file"]);
    fs::write(&file, format!("{text}1,2,3\n")).unwrap();
    refused(&run(&["--seeds", "2"]), &["banknote.txt", "line 61 has 3 columns, expected 5"]);
    assert!(!out.exists());
    fs::write(&file, &text).unwrap();
    let output = run(&["--seeds", "2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout(&output).contains("ranking by the average"));
    assert!(fs::read_to_string(out.join("uci.svg")).unwrap().starts_with("<svg"));
    // The same words again, but for the folder.
    let again = run(&["--seeds", "2"]);
    assert_eq!(stdout(&again), stdout(&output));
    assert_ne!(stdout(&run(&["--seeds", "2", "--seed", "5"])), stdout(&output));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let q = heads(folder.path(), "q.npy", [3, 10, 4]);
    let mut child =
        command(&["inspect", "--queries", &q, "--keys", &q, "--features", "4", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
}

/// The reference values of every family.
#[test]
fn inspect_agrees_with_the_fixtures() {
    let text = include_str!("../../favor/tests/favor/fixtures/families.json");
    let fixtures: Value = serde_json::from_str(text).unwrap();
    let cases = fixtures["cases"].as_object().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let rows = |v: &Value| -> Vec<Vec<f64>> { serde_json::from_value(v.clone()).unwrap() };
    for (name, case) in cases {
        let x = matrix(folder.path(), "x.csv", &rows(&case["x"]));
        let y = matrix(folder.path(), "y.csv", &rows(&case["y"]));
        let output =
            favor(&["inspect", "--queries", &x, "--keys", &y, "--features", "2", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let close = |a: &Value, b: &Value, what: &str| {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= 1e-8 * (1.0 + b.abs()), "{name} {what}: {a} but {b}");
        };
        close(&found["floor"], &case["floor"], "floor");
        let families = found["families"].as_array().unwrap();
        for (family, wanted) in case["families"].as_object().unwrap() {
            let found = families.iter().find(|f| f["name"] == family.as_str());
            let found = found.unwrap_or_else(|| panic!("inspect leaves {family} out"));
            close(&found["objective"], &wanted["objective"], family);
        }
    }
}
