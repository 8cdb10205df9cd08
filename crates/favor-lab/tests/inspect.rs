//! `inspect` on small files: figures, orderings, samples and refusals.

use favor::{Family, Matrix, draw::Stream};
use favor_io::progress::silent;
use favor_lab::inspect::{InputScale, Inspection, Request, inspect};
use std::path::Path;

fn write(folder: &Path, name: &str, rows: usize, columns: usize, seed: u64) -> String {
    let mut stream = Stream::new(seed, 0);
    let m = Matrix::from_fn(rows, columns, |_, c| 0.2 * c as f64 + 0.5 * stream.normal());
    let lines = m.view().iter().map(|row| {
        let cells: Vec<String> = row.iter().map(f64::to_string).collect();
        cells.join(",")
    });
    let path = folder.join(name);
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    path.display().to_string()
}

fn small(folder: &Path) -> Request {
    let mut request =
        Request::new(write(folder, "q.csv", 40, 6, 1), write(folder, "k.csv", 30, 6, 2));
    request.values = Some(write(folder, "v.csv", 30, 4, 3));
    request.features = vec![16, 128];
    request
}

fn run(request: &Request) -> Inspection {
    inspect(request, &silent).unwrap()
}

#[test]
fn every_family_has_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let found = run(&small(folder.path()));
    assert_eq!(found.heads.len(), 1);
    let head = &found.heads[0];
    assert_eq!((head.queries, head.keys, head.dim, head.pairs.all), (40, 30, 6, true));
    let names: Vec<&str> = head.families.iter().map(|f| f.name.name()).collect();
    let wanted = [
        "trig",
        "pos",
        "hyperbolic",
        "ge",
        "sade",
        "ade",
        "sde",
        "sde_shifted",
        "ade_shifted",
        "balanced",
    ];
    assert_eq!(names, wanted);
    for family in &head.families {
        assert!(family.objective > head.floor, "{}", family.name);
        assert!(family.features_needed >= 1.0);
        let closed = !matches!(family.name, Family::Trig | Family::Hyperbolic);
        assert_eq!(family.features_needed_row_sum.is_some(), closed, "{}", family.name);
        assert_eq!(family.features_needed_output.is_some(), closed);
        for m in &family.measured {
            assert!(m.kernel_error.unwrap() > 0.0 && m.attention_error.unwrap() > 0.0);
            assert_eq!(m.effective_sample_size.is_some(), family.name != Family::Trig);
            if let Some(size) = m.effective_sample_size {
                assert!(size >= 1.0 && size <= m.features as f64);
            }
        }
    }
    let best = head.families.last().unwrap();
    assert!(
        head.families
            .iter()
            .filter(|f| f.name != Family::Trig && f.name != Family::Hyperbolic)
            .all(|f| best.objective <= f.objective + 1e-9)
    );
    // More features, smaller error, near what was predicted.
    let m = &best.measured;
    assert!(m[1].attention_error < m[0].attention_error);
    let ratio = m[1].attention_error.unwrap() / m[1].predicted_attention_error.unwrap();
    assert!((0.4..1.6).contains(&ratio), "{ratio}");
    assert!(head.uniform_error.unwrap() > 0.0);
    assert_eq!(head.recommendation.as_ref().unwrap().basis, "attention output");
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let folder = tempfile::tempdir().unwrap();
    let request = small(folder.path());
    let (first, second) = (run(&request), run(&request));
    assert_eq!(first.to_json(), second.to_json());
    let other = run(&Request { seed: 9, ..request });
    assert_ne!(first.to_json(), other.to_json());
}

#[test]
fn scaling_is_the_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = small(folder.path());
    assert!(run(&request).hint.unwrap().contains("--attention"));
    request.scale = InputScale::Attention;
    let attention = run(&request);
    assert!(attention.hint.is_none());
    assert!(attention.scaling.contains("0.6389"), "{}", attention.scaling);
    request.scale = InputScale::Factor(6_f64.powf(-0.25));
    let number = run(&request);
    assert!((number.heads[0].floor - attention.heads[0].floor).abs() < 1e-12);
    request.alpha = -0.5;
    let gaussian = run(&request);
    let head = &gaussian.heads[0];
    assert!(head.floor < 0.0);
    // α moves every objective with the floor and no relative variance.
    for (a, b) in head.families.iter().zip(&number.heads[0].families) {
        let excess = (a.objective - head.floor) - (b.objective - number.heads[0].floor);
        assert!(excess.abs() < 1e-9, "{}", a.name);
        let variances = a.mean_log_relative_variance - b.mean_log_relative_variance;
        assert!(variances.abs() < 1e-9);
    }
}

#[test]
fn many_pairs_are_sampled_and_it_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = Request::new(
        write(folder.path(), "q.csv", 2100, 2, 1),
        write(folder.path(), "k.csv", 2100, 2, 2),
    );
    request.features = vec![8];
    request.families = vec![Family::Trig, Family::Balanced];
    let found = run(&request);
    let pairs = found.heads[0].pairs;
    assert_eq!((pairs.queries, pairs.keys, pairs.all), (2048, 2048, false));
    assert!(found.to_text().contains("sample of 2048 queries and 2048 keys"));
}

#[test]
fn text_json_and_figure_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let found = run(&small(folder.path()));
    let text = found.to_text();
    assert!(text.contains("balanced") && text.contains("recommendation: for 10 % error"));
    let json: serde_json::Value = serde_json::from_str(&found.to_json()).unwrap();
    assert_eq!(json["floor"].as_f64(), Some(found.heads[0].floor));
    assert_eq!(json["families"][9]["name"], "balanced");
    assert_eq!(
        json["families"][9]["objective"].as_f64(),
        Some(found.heads[0].families[9].objective)
    );
    assert!(json["families"][0]["features_needed_output"].is_null());
    let svg = found.to_svg();
    let parsed = roxmltree::Document::parse(&svg).unwrap();
    assert!(parsed.descendants().any(|n| n.text() == Some("Balanced (ours)")));
}

#[test]
fn constant_values_are_pointed_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = small(folder.path());
    let path = folder.path().join("ones.csv");
    std::fs::write(&path, "1,1\n".repeat(30)).unwrap();
    request.values = Some(path.display().to_string());
    let found = run(&request);
    assert!(found.heads[0].warnings[0].contains("plain mean of the values is already exact"));
}

#[test]
fn degenerate_data_give_finite_figures() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("one", "0.5,1\n"), ("same", "1,2\n1,2\n1,2\n"), ("zero", "0,0\n0,0\n")] {
        let path = folder.path().join(format!("{name}.csv"));
        std::fs::write(&path, text).unwrap();
        let file = path.display().to_string();
        let request =
            Request { features: vec![4], values: Some(file.clone()), ..Request::new(&file, &file) };
        let found = run(&request);
        for family in &found.heads[0].families {
            assert!(family.objective.is_finite(), "{name} {}", family.name);
            assert!(family.mean_log_relative_variance.is_finite());
            assert!(family.features_needed.is_finite());
        }
    }
}

#[test]
fn refusals_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let good = small(folder.path());
    let other = |name: &str, rows, columns| write(folder.path(), name, rows, columns, 5);
    let nan = folder.path().join("nan.csv");
    std::fs::write(&nan, "1,2,3,4,5,6\n1,nan,3,4,5,6\n").unwrap();
    let cases: [(Request, &[&str]); 7] = [
        (
            Request { keys: other("k5.csv", 30, 5), ..good.clone() },
            &["40 × 6", "30 × 5", "columns"],
        ),
        (
            Request { values: Some(other("v9.csv", 29, 4)), ..good.clone() },
            &["29 × 4", "one value"],
        ),
        (Request { queries: nan.display().to_string(), ..good.clone() }, &["nan.csv", "nan"]),
        (Request { features: vec![64, 0], ..good.clone() }, &["--features", "0 is out of range"]),
        (Request { features: vec![], ..good.clone() }, &["--features"]),
        (Request { scale: InputScale::Factor(-1.0), ..good.clone() }, &["scale", "positive"]),
        (Request { alpha: f64::NAN, ..good }, &["alpha"]),
    ];
    for (request, parts) in cases {
        let message = inspect(&request, &silent).unwrap_err().to_string();
        for part in parts {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
        assert!(!message.contains('\n'));
    }
}
