//! `favor learn` and `favor inspect --maps`: files, messages, exit codes.

use favor::draw::Stream;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_favor"));
    command.args(arguments);
    command
}

fn favor(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Asserts success, and gives what was printed.
fn printed(arguments: &[&str]) -> String {
    let output = favor(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts a refusal: exit code 2, nothing printed, one line with all parts.
fn refused(arguments: &[&str], parts: &[&str]) {
    let output = favor(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty());
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

/// A `.npy` file of these numbers.
fn npy(folder: &Path, name: &str, shape: &[usize], mut number: impl FnMut() -> f32) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    let shape_text = format!("({})", sizes.join(", "));
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape_text}, }}");
    header += &" ".repeat(63 - (10 + header.len()) % 64);
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    (0..shape.iter().product::<usize>()).for_each(|_| bytes.extend(number().to_le_bytes()));
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

/// An archive of `.npy` files, uncompressed as `numpy.savez` makes it.
fn npz(folder: &Path, name: &str, arrays: [(&str, &str); 3]) -> String {
    let path = folder.join(name);
    let mut archive = zip::ZipWriter::new(fs::File::create(&path).unwrap());
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, file) in arrays {
        archive.start_file(format!("{name}.npy"), options).unwrap();
        archive.write_all(&fs::read(file).unwrap()).unwrap();
    }
    archive.finish().unwrap();
    path.display().to_string()
}

/// Queries, keys and values whose coordinates differ much in size, so that there is something to learn.
fn qkv(folder: &Path, name: &str, shape: [usize; 4], seed: u64) -> [String; 3] {
    let mut noise = Stream::new(seed, 0);
    ["q", "k", "v"].map(|side| {
        let mut at = 0;
        npy(folder, &format!("{name}-{side}.npy"), &shape, || {
            at += 1;
            let size = if side == "v" { 1.0 } else { 3.0 / (1 + at % shape[3]) as f64 };
            (size * noise.normal()) as f32
        })
    })
}

#[test]
fn learned_maps_are_no_worse_than_the_closed_form() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [q, k, v] = qkv(folder.path(), "learn", [8, 2, 48, 8], 1);
    let [q2, k2, v2] = qkv(folder.path(), "other", [3, 2, 48, 8], 2);
    let learn = |steps: &str, out: &str, extra: &[&str]| {
        let base = ["learn", "--queries", &q, "--keys", &k, "--values", &v, "--features", "16"];
        let rest = ["--near", "0", "--steps", steps, "--out", out];
        printed(&[&base[..], &rest, extra].concat())
    };
    let (start, learned) = (path("start.safetensors"), path("learned.safetensors"));
    learn("0", &start, &[]);
    let text = learn("120", &learned, &[]);
    assert!(text.contains("16 features, exact keys: none; learned from 6 sequences"), "{text}");
    assert!(text.contains("recommended"), "{text}");
    assert!(text.contains(&format!("\nThe maps are in {learned}. ")), "{text}");
    let inspect = |maps: &str, extra: &[&str]| {
        let base = ["inspect", "--maps", maps, "--queries", &q2, "--keys", &k2, "--values", &v2];
        printed(&[&base[..], extra].concat())
    };
    let errors = |maps: &str| -> Vec<f64> {
        let json: Value = serde_json::from_str(&inspect(maps, &["--json"])).unwrap();
        let heads = json["heads"].as_array().unwrap().clone();
        heads.iter().map(|head| head["error"].as_f64().unwrap()).collect()
    };
    let (before, after) = (errors(&start), errors(&learned));
    assert_eq!(before.len(), 2);
    for (before, after) in before.iter().zip(&after) {
        assert!(after < before, "{after} is not less than {before}");
    }
    // They say what they were learned on: three quarters of eight sequences of 48 tokens.
    let text = inspect(&learned, &[]);
    let origin = "2 maps learned from 6 sequences of 288 tokens in all (learn-q.npy, learn-k.npy, learn-v.npy), 2 held out";
    assert!(text.contains(origin), "{text}");
    assert!(text.contains("held out, seed 0; median divergence there"), "{text}");
    // What the maps were learned with can be changed.
    let text = inspect(&learned, &["--near", "4", "--routed", "2x3", "--causal"]);
    assert!(text.contains("causal; 16 features, exact keys: window ±4, 2 × 3 routed"), "{text}");
    // Arrays of one file are the same arrays.
    let archive = npz(folder.path(), "qkv.npz", [("q", &q), ("k", &k), ("v", &v)]);
    let of = |name: &str| format!("{archive}:{name}");
    let (q, k, v, archived) = (of("q"), of("k"), of("v"), path("archived.safetensors"));
    let base = ["learn", "--queries", &q, "--keys", &k, "--values", &v, "--features", "16"];
    printed(&[&base[..], &["--near", "0", "--steps", "120", "--out", &archived]].concat());
    let maps = |path: &str| favor::maps_from_bytes(&fs::read(path).unwrap()).unwrap();
    for (from_archive, from_files) in maps(&archived).iter().zip(&maps(&learned)) {
        for side in [favor::Side::Query, favor::Side::Key] {
            assert_eq!(from_archive.side(side), from_files.side(side));
        }
        assert_eq!(from_archive.learned().unwrap().source, "qkv.npz:q, qkv.npz:k, qkv.npz:v");
    }
    refused(
        &["learn", "--queries", &of("x"), "--keys", &k, "--out", &archived],
        &["qkv.npz", "holds no array"],
    );
    // The seed decides everything, and the number of threads nothing.
    let again = path("again.safetensors");
    learn("120", &again, &["--threads", "1"]);
    assert_eq!(fs::read(&again).unwrap(), fs::read(&learned).unwrap());
    learn("120", &again, &["--seed", "1"]);
    assert_ne!(fs::read(&again).unwrap(), fs::read(&learned).unwrap());
}

#[test]
fn a_budget_is_spent_over_the_heads() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [q, k, v] = qkv(folder.path(), "budget", [8, 2, 64, 8], 4);
    let maps = path("maps.safetensors");
    let learn = |extra: &[&str]| {
        let base = ["learn", "--queries", &q, "--keys", &k, "--values", &v, "--features", "8"];
        let rest = ["--near", "3", "--routed", "2x2", "--steps", "40", "--out", &maps];
        printed(&[&base[..], &rest, extra].concat())
    };
    let heads = |extra: &[&str]| -> Vec<(f64, f64)> {
        let json: Value = serde_json::from_str(&learn(&[extra, &["--json"]].concat())).unwrap();
        assert!(json["front"].as_array().unwrap().len() > 1);
        let heads = json["heads"].as_array().unwrap();
        let of = |head: &Value, name: &str| head[name].as_f64().unwrap();
        for head in heads {
            // Keys are counted; exact attention sees all 64.
            let (keys, count) = (head["keys"].as_str().unwrap(), of(head, "exact_keys"));
            assert!((0.0..=64.0).contains(&count), "{head}");
            assert_eq!((keys == "all", keys == "none"), (count == 64.0, count == 0.0), "{head}");
        }
        heads.iter().map(|head| (of(head, "error"), of(head, "operations"))).collect()
    };
    let loose = heads(&["--tolerance", "0.6"]);
    let tight = heads(&["--tolerance", "0.05"]);
    assert_eq!((loose.len(), tight.len()), (2, 2));
    for (loose, tight) in loose.iter().zip(&tight) {
        assert!(loose.0 <= 0.6 && tight.0 <= 0.05 && loose.1 < tight.1, "{loose:?} {tight:?}");
    }
    let operations = 1.2 * loose.iter().map(|head| head.1).sum::<f64>() / 2.0;
    let spent = heads(&["--operations", &operations.to_string()]);
    assert!(spent.iter().map(|head| head.1).sum::<f64>() / 2.0 <= operations, "{spent:?}");
    // What does not suffice is refused, and the old maps stay: two features take 2·2·(8 + 8) operations.
    let old = fs::read(&maps).unwrap();
    let base = ["learn", "--queries", &q, "--keys", &k, "--values", &v, "--features", "8"];
    let too_few = ["--near", "3", "--steps", "40", "--operations", "1", "--out", &maps];
    refused(&[&base[..], &too_few].concat(), &["budget: 1 is", "the cheapest plan takes 64"]);
    assert_eq!(fs::read(&maps).unwrap(), old);
    // Each map knows its exact keys.
    let base = ["inspect", "--maps", &maps, "--queries", &q, "--keys", &k, "--values", &v];
    assert!(printed(&base).contains("mean"));
    let page = path("budget.html");
    let text = learn(&["--tolerance", "0.3", "--html", &page]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("this budget") && html.contains("favor inspect --maps"));
    assert!(text.contains("at most 30") && text.contains("other budgets"), "{text}");
}

#[test]
fn json_has_all_figures_and_the_page_stands_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (maps, page) = (path("maps.safetensors"), path("report.html"));
    // One sequence: heads × tokens × columns.
    let mut noise = Stream::new(3, 0);
    let x = npy(folder.path(), "x.npy", &[3, 64, 4], || noise.normal() as f32);
    let base = ["learn", "--queries", &x, "--keys", &x, "--values", &x, "--features", "8"];
    let exact = ["--near", "3", "--routed", "2x4", "--global", "2", "--causal", "--steps", "12"];
    let files = ["--out", &maps, "--html", &page, "--json"];
    let json: Value =
        serde_json::from_str(&printed(&[&base[..], &exact, &files].concat())).unwrap();
    let heads = json["heads"].as_array().unwrap();
    assert_eq!(heads.len(), 3);
    for head in heads {
        let figures = ["before", "after", "exact_alone", "window_alone", "uniform", "kl_before"];
        for figure in figures.into_iter().chain(["kl_after", "exact_keys"]) {
            assert!(head[figure].as_f64().is_some_and(f64::is_finite), "{figure}: {head}");
        }
        assert!(["learned", "start", "exact_alone"].contains(&head["kept"].as_str().unwrap()));
        assert!(["map", "window", "exact"].contains(&head["recommended"].as_str().unwrap()));
    }
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains(&format!("favor inspect --maps {maps} --queries")));
    let rest = html.replace("http://www.w3.org/2000/svg", "");
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    assert!(!rest.contains("http") && !rest.contains("url(") && !rest.contains("<script"));
    // The maps say how they were learned.
    let text = printed(&["inspect", "--maps", &maps, "--queries", &x, "--keys", &x]);
    assert!(text.contains("causal; 8 features, exact keys: window ±3, 2 global, 2 × 4"), "{text}");
    assert!(text.contains("Error of the weights"), "{text}");
}

#[test]
fn bad_input_is_refused_in_one_line_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let array = |name: &str, shape: &[usize], value: f32| npy(folder.path(), name, shape, || value);
    let x = array("x.npy", &[4, 2, 24, 3], 0.5);
    let cases: Vec<(String, String, &[&str], Vec<&str>)> = vec![
        (x.clone(), array("h.npy", &[4, 3, 24, 3], 0.5), &[], vec!["h.npy", "number of heads"]),
        (x.clone(), array("s.npy", &[5, 2, 24, 3], 0.5), &[], vec!["s.npy", "of sequences"]),
        (x.clone(), array("c.npy", &[4, 2, 24, 4], 0.5), &[], vec!["c.npy", "of columns"]),
        (x.clone(), array("t.npy", &[4, 2, 23, 3], 0.5), &[], vec!["24 queries and 23 keys"]),
        (array("nan.npy", &[4, 2, 24, 3], f32::NAN), x.clone(), &[], vec!["nan.npy: holds NaN at"]),
        (array("flat.npy", &[24, 3], 0.5), x.clone(), &[], vec!["flat.npy", "shape [24, 3]"]),
        (array("none.npy", &[4, 2, 0, 3], 0.5), x.clone(), &[], vec!["none.npy", "is empty"]),
        (array("odd.txt", &[4, 2, 24, 3], 0.5), x.clone(), &[], vec!["odd.txt", "extension"]),
        ("absent.npy".into(), x.clone(), &[], vec!["absent.npy: there is no such file"]),
        (x.clone(), x.clone(), &["--values", "absent.npy"], vec!["absent.npy"]),
        (x.clone(), x.clone(), &["--routed", "4"], vec!["--routed", "as in 4x8"]),
        (x.clone(), x.clone(), &["--routed", "99x8"], vec!["99 preferred slots of 64 features"]),
        (x.clone(), x.clone(), &["--features", "0"], vec!["--features", "1..=65536"]),
        (x.clone(), x.clone(), &["--family", "trig"], vec!["family", "positive"]),
        (x.clone(), x.clone(), &["--holdout", "1"], vec!["holdout"]),
        (x.clone(), x.clone(), &["--batch", "0"], vec!["batch"]),
        (x.clone(), x.clone(), &["--rate", "0"], vec!["rate"]),
        (x.clone(), x.clone(), &["--html", "no/such/report.html"], vec!["no/such/report.html"]),
    ];
    let files = || fs::read_dir(folder.path()).unwrap().count();
    let before = files();
    let out = folder.path().join("maps.safetensors");
    let name = out.display().to_string();
    for (q, k, extra, parts) in &cases {
        let base = ["learn", "--queries", q, "--keys", k, "--steps", "3", "--out", &name];
        refused(&[&base[..], extra].concat(), parts);
        assert_eq!(files(), before, "{parts:?}");
    }
    // An old file stays as it is.
    fs::write(&out, "old").unwrap();
    for (q, k, extra, parts) in &cases {
        let base = ["learn", "--queries", q, "--keys", k, "--steps", "3", "--out", &name];
        refused(&[&base[..], extra].concat(), parts);
        assert_eq!(fs::read(&out).unwrap(), b"old", "{parts:?}");
    }
    refused(
        &["learn", "--queries", &x, "--keys", &x, "--out", "m.npz"],
        &["--out", ".safetensors"],
    );
    refused(
        &["learn", "--queries", &x, "--keys", &x, "--out", "no/such/m.safetensors"],
        &["no/such"],
    );
    refused(&["learn", "--queries", &x, "--keys", &x], &["--out"]);
}

/// Data that say little are learned from: all figures are there and finite, and so is what maps then give.
#[test]
fn odd_data_give_finite_figures() {
    let folder = tempfile::tempdir().unwrap();
    let mut noise = Stream::new(5, 0);
    let mut array = |name: &str, tokens: usize, spread: f64| {
        let number = || (0.5 + spread * noise.normal()) as f32;
        npy(folder.path(), name, &[4, 2, tokens, 3], number)
    };
    let (x, short) = (array("x.npy", 24, 1.0), array("short.npy", 6, 1.0));
    let (constant, one) = (array("constant.npy", 24, 0.0), array("one.npy", 1, 1.0));
    let most = usize::MAX.to_string();
    let all = format!("2x{most}");
    let cases: [(&str, &str, &[&str]); 10] = [
        (&constant, &x, &[]),
        (&x, &constant, &[]),
        (&constant, &constant, &[]),
        (&x, &x, &["--near", "100"]),
        (&x, &x, &["--near", &most]),
        (&x, &x, &["--near", &most, "--causal"]),
        (&x, &x, &["--near", "0", "--routed", "2x25"]),
        (&x, &x, &["--near", "0", "--routed", &all, "--global", &most, "--causal"]),
        (&short, &short, &["--near", "2", "--routed", "4x8"]),
        (&one, &one, &["--near", "2"]),
    ];
    let maps = folder.path().join("maps.safetensors").display().to_string();
    for (q, k, extra) in cases {
        for budget in [&[][..], &["--tolerance", "0.1"]] {
            let data = ["--queries", q, "--keys", k, "--values", k];
            let how = ["--features", "8", "--steps", "4", "--json", "--out", &maps];
            let text = printed(&[&["learn"], &data[..], &how, extra, budget].concat());
            let json: Value = serde_json::from_str(&text).unwrap();
            let figures: &[&str] = if budget.is_empty() {
                &[
                    "before",
                    "after",
                    "window_alone",
                    "uniform",
                    "kl_before",
                    "kl_after",
                    "exact_keys",
                ]
            } else {
                &["error", "operations", "exact_keys"]
            };
            for head in json["heads"].as_array().unwrap() {
                // What is not finite is null.
                let missing = figures.iter().find(|figure| !head[**figure].is_number());
                assert_eq!(missing, None, "{extra:?} {budget:?}: {head}");
            }
            let text = printed(&[&["inspect", "--maps", &maps, "--json"], &data[..]].concat());
            let json: Value = serde_json::from_str(&text).unwrap();
            for head in json["heads"].as_array().unwrap() {
                assert!(head["error"].is_number(), "{extra:?} {budget:?}: {head}");
            }
        }
    }
}

#[test]
fn maps_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let maps = folder.path().join("maps.safetensors").display().to_string();
    let mut noise = Stream::new(3, 0);
    let mut array =
        |name: &str, shape: &[usize]| npy(folder.path(), name, shape, || noise.normal() as f32);
    let x = array("x.npy", &[4, 2, 24, 3]);
    let (more, wide) = (array("more.npy", &[3, 24, 3]), array("wide.npy", &[2, 24, 4]));
    let base = ["learn", "--queries", &x, "--keys", &x, "--features", "4"];
    printed(&[&base[..], &["--near", "2", "--steps", "3", "--out", &maps]].concat());
    let inspect = |maps: &str, x: &str, extra: &[&str], parts: &[&str]| {
        let base = ["inspect", "--maps", maps, "--queries", x, "--keys", x];
        refused(&[&base[..], extra].concat(), parts);
    };
    inspect(&maps, &more, &[], &["maps: 2 for 3 heads"]);
    inspect(&maps, &wide, &[], &["maps", "dimension 3", "dimension 4"]);
    inspect(&maps, &x, &["--routed", "9x2"], &["9 preferred slots of 4 features"]);
    inspect(&maps, &x, &["--families", "sde"], &["--maps", "--families"]);
    inspect(&x, &x, &[], &["x.npy", "not a readable"]);
    inspect("absent.safetensors", &x, &[], &["absent.safetensors: there is no such file"]);
    refused(&["inspect", "--queries", &x, "--keys", &x, "--near", "3"], &["--maps"]);
}

/// Whether the signal comes before or after the command listens to it, nothing may be written.
#[test]
#[cfg(unix)]
fn an_interrupted_run_leaves_the_old_file() {
    for budget in [&[][..], &["--tolerance", "0.1"]] {
        interrupted(budget);
    }
}

#[cfg(unix)]
fn interrupted(budget: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let [q, k, _] = qkv(folder.path(), "x", [4, 2, 64, 8], 1);
    let out = folder.path().join("maps.safetensors");
    fs::write(&out, "old").unwrap();
    let name = out.display().to_string();
    let base = ["learn", "--queries", &q, "--keys", &k, "--steps", "1000000000", "--out", &name];
    let arguments = [&base[..], budget].concat();
    let mut child = command(&arguments).stderr(std::process::Stdio::null()).spawn().unwrap();
    let id = child.id().to_string();
    // What a shell starts in the background ignores the signal until the command listens: it is repeated.
    let mut ended = None;
    for _ in 0..600 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        ended = child.try_wait().unwrap();
        if ended.is_some() {
            break;
        }
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }
    child.kill().unwrap();
    assert!(!ended.expect("the command does not hear Ctrl-C").success());
    assert_eq!(fs::read(&out).unwrap(), b"old");
}

/// The commands of the README run as they stand, one after the other, on files as its Python lines make them.
#[cfg(feature = "tables")]
#[test]
fn the_readme_runs() {
    let folder = tempfile::tempdir().unwrap();
    let [q, k, v] = qkv(folder.path(), "readme", [8, 4, 256, 16], 3);
    npz(folder.path(), "qkv.npz", [("q", &q), ("k", &k), ("v", &v)]);
    let mut noise = Stream::new(4, 0);
    let mut table = "size,shape,target\n".to_owned();
    for _ in 0..500 {
        let (size, shape) = (noise.normal(), noise.normal());
        table += &format!("{size},{shape},{}\n", i32::from(size + shape > 0.3 * noise.normal()));
    }
    fs::write(folder.path().join("cancer.csv"), table).unwrap();
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let lines: Vec<&str> = readme.lines().filter(|line| line.starts_with("favor ")).collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    for line in lines {
        let mut arguments: Vec<&str> = line.split_whitespace().skip(1).collect();
        if arguments[0] == "learn" {
            arguments.extend(["--steps", "5"]);
        }
        let output = command(&arguments).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for file in ["maps.safetensors", "report.html", "model.favor", "predictions.parquet"] {
        assert!(fs::metadata(folder.path().join(file)).unwrap().len() > 0, "{file}");
    }
}
