//! What a cluster gives is what one machine gives.

use crate::data::{points, write};
use crate::harness::{Cluster, favor, names};
use favor_tables::Model;
use std::path::Path;

/// What 32-bit features may be off, relative to sums of positive terms.
const ROUNDING: f64 = 2e-5;

/// The rows of a CSV file after its header, by their first column, which is their number.
fn rows(path: &Path) -> (String, Vec<Vec<String>>) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let header = lines.next().unwrap().to_owned();
    let mut rows: Vec<Vec<String>> =
        lines.map(|l| l.split(',').map(str::to_owned).collect()).collect();
    rows.sort_by_key(|r| r[0].parse::<usize>().unwrap());
    (header, rows)
}

/// That two files of predictions say the same: texts equal, numbers to rounding.
fn assert_same(a: &Path, b: &Path, count: usize) {
    let ((header, a), (other, b)) = (rows(a), rows(b));
    assert_eq!(header, other);
    assert_eq!((a.len(), b.len()), (count, count));
    for (a, b) in a.iter().zip(&b) {
        for (x, y) in a.iter().zip(b) {
            match (x.parse::<f64>(), y.parse::<f64>()) {
                (Ok(x), Ok(y)) => {
                    assert!((x - y).abs() <= ROUNDING * x.abs().max(1.0), "{a:?} {b:?}");
                }
                _ => assert_eq!(x, y, "{a:?} {b:?}"),
            }
        }
    }
}

fn assert_same_model(folder: &Path, one: &str, other: &str) {
    let (a, b) =
        (Model::load(&folder.join(one)).unwrap(), Model::load(&folder.join(other)).unwrap());
    let (x, y) = (a.info(), b.info());
    assert_eq!((x.rows, &x.classes, &x.target), (y.rows, &y.classes, &y.target));
    assert_eq!(x.bandwidth, y.bandwidth);
    assert_eq!(a.sample_size(), b.sample_size());
    let near = |p: f64, q: f64| (p - q).abs() <= 1e-12 * p.abs().max(1.0);
    assert!(a.moments().mean().iter().zip(b.moments().mean()).all(|(p, q)| near(*p, *q)));
    let (p, q) = (a.moments().covariance(), b.moments().covariance());
    assert!(p.as_slice().iter().zip(q.as_slice()).all(|(p, q)| near(*p, *q)));
    // Features are the same bits, rows of a batch are summed alike, and sums of batches in 64 bits.
    assert_eq!(a.design(), b.design());
    let (p, q) = (products(&a), products(&b));
    assert_eq!(p.len(), q.len());
    let scale = x.total_weight;
    let apart = p.iter().zip(&q).map(|(p, q)| (p - q).abs() / scale).fold(0.0, f64::max);
    assert!(apart <= 1e-10, "{one}: products are {apart} apart");
}

/// All products that a model has summed.
fn products(model: &Model) -> Vec<f64> {
    let Some(gram) = model.gram() else { return vec![] };
    let gram = serde_json::to_value(gram).unwrap();
    let folds = gram["folds"].as_array().unwrap().iter();
    folds.flat_map(|f| f["products"].as_array().unwrap()).map(|v| v.as_f64().unwrap()).collect()
}

#[test]
fn a_cluster_fits_and_predicts_as_one_machine_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("train")).unwrap();
    for part in 0..4 {
        write(&folder.join(format!("train/{part}.parquet")), points(900 * part, 900));
    }
    write(&folder.join("test.csv"), points(10_000, 700));
    let cluster = Cluster::start(folder);
    let url = cluster.url();

    let tasks: [(&str, &[&str]); 3] = [
        ("classes", &["--target", "label", "--ignore", "id,y"]),
        ("numbers", &["--target", "y", "--ignore", "id,label", "--bandwidth", "1"]),
        ("density", &["--density", "--columns", "a,b", "--bandwidth", "1"]),
    ];
    for (name, arguments) in tasks {
        let (one, many) = (format!("{name}-1.favor"), format!("{name}-n.favor"));
        let fit = [&["fit", "train", "--features", "128"], arguments].concat();
        let text = favor(folder, &[&fit[..], &["--out", &one]].concat());
        let cluster = ["--cluster", &url, "--partitions", "4", "--out", &many];
        let other = favor(folder, &[&fit[..], &cluster].concat());
        assert_eq!(text[..text.len() - 1], other[..other.len() - 1]);
        assert_same_model(folder, &one, &many);

        // The same model on one machine and on many; the other model beside it.
        let predict = |model: &str, out: &str, rest: &[&str]| {
            let arguments = ["predict", model, "test.csv", "--keep", "id,colour", "--out", out];
            let printed = favor(folder, &[&arguments, rest].concat());
            assert_eq!(printed, [format!("wrote 700 predictions to {out}")]);
        };
        let probabilities: &[&str] = if name == "classes" { &["--proba"] } else { &[] };
        predict(&one, "one.csv", probabilities);
        predict(&one, "many.csv", &[probabilities, &["--cluster", &url]].concat());
        predict(&many, "other.csv", probabilities);
        assert_same(&folder.join("one.csv"), &folder.join("many.csv"), 700);
        assert_same(&folder.join("one.csv"), &folder.join("other.csv"), 700);
    }
    // And the scores of a model: the labels are those that were predicted.
    let evaluate = ["evaluate", "classes-1.favor", "test.csv"];
    let here = favor(folder, &evaluate);
    let there = favor(folder, &[&evaluate[..], &["--cluster", &url]].concat());
    assert_eq!(here, there);

    // Both executors had a part in it.
    assert!(cluster.tasks().iter().all(|tasks| !tasks.is_empty()));

    // Every row once, also from several files.
    let keep = ["predict", "numbers-1.favor", "train", "--keep", "id", "--out", "order.csv"];
    favor(folder, &[&keep[..], &["--cluster", &url, "--partitions", "4"]].concat());
    let (_, found) = rows(&folder.join("order.csv"));
    let ids: Vec<usize> = found.iter().map(|r| r[0].parse().unwrap()).collect();
    assert_eq!(ids, (0..3600).collect::<Vec<_>>());

    // In the order of the rows where it is asked for, with nothing to tell them apart.
    let ordered = ["predict", "numbers-1.favor", "train", "--out"];
    favor(folder, &[&ordered[..], &["here.csv"]].concat());
    let there = ["there.csv", "--ordered", "--cluster", &url, "--partitions", "4"];
    favor(folder, &[&ordered[..], &there].concat());
    let [here, there] =
        ["here.csv", "there.csv"].map(|f| std::fs::read_to_string(folder.join(f)).unwrap());
    assert_eq!(here.lines().count(), 3601);
    for (h, t) in here.lines().zip(there.lines()).skip(1) {
        let [h, t] = [h, t].map(|v| v.parse::<f64>().unwrap());
        assert!((h - t).abs() <= ROUNDING * h.abs().max(1.0), "{h} against {t}");
    }
    let project = ["project", "numbers-1.favor", "train", "--keep", "id", "--out"];
    favor(folder, &[&project[..], &["p1.csv"]].concat());
    favor(folder, &[&project[..], &["pn.csv", "--cluster", &url]].concat());
    assert_same(&folder.join("p1.csv"), &folder.join("pn.csv"), 3600);

    // Rows can be added, and queries be tables.
    let update = ["update", "classes-1.favor", "test.csv", "--out", "updated.favor"];
    let added = favor(folder, &[&update[..], &["--cluster", &url]].concat());
    assert_eq!(added, ["added 700 rows; updated.favor has 4300"]);
    let query = "select a, b, y from 'train/1.parquet' where a > 1";
    let fit = ["fit", "--sql", query, "--target", "y", "--bandwidth", "1", "--out"];
    favor(folder, &[&fit[..], &["query-1.favor"]].concat());
    favor(folder, &[&fit[..], &["query-n.favor", "--cluster", &url]].concat());
    assert_same_model(folder, "query-1.favor", "query-n.favor");
    assert!(!names(folder).iter().any(|n| n.starts_with('.')), "{:?}", names(folder));
}
