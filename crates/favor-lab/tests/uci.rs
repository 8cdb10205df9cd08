//! Kernel classification on a small scale.

use favor::Family;
use favor::draw::Stream;
use favor_io::data::{ChosenBy, DataFolder, data_folder};
use favor_io::progress::{Tick, silent};
use favor_lab::uci::{QueryMoments, Reproduction, Set, UciOptions, reproduce};
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

fn tiny() -> UciOptions {
    UciOptions::paper()
        .sets(vec![Set::Banknote, Set::Car])
        .features(vec![8, 32])
        .bandwidths(vec![3.0, 1.0, 0.5])
        .seeds(3)
}

/// Two sets in their formats: clusters that are far apart, and words of which one decides.
fn written(folder: &Path) -> DataFolder {
    let mut stream = Stream::new(1, 0);
    let mut banknote = String::new();
    for i in 0..160 {
        let class = i % 2;
        let point: [f64; 4] = std::array::from_fn(|_| 5.0 * f64::from(class) + stream.normal());
        let _ = writeln!(banknote, "{},{},{},{},{class}", point[0], point[1], point[2], point[3]);
    }
    let mut car = String::new();
    for _ in 0..200 {
        let mut word = |words: &[&str]| words[stream.index(words.len())].to_owned();
        let price = word(&["low", "med", "high"]);
        let rest: Vec<String> = (0..5).map(|_| word(&["x", "y"])).collect();
        let class = if price == "low" { "good" } else { "unacc" };
        let _ = writeln!(car, "{price},{},{class}", rest.join(","));
    }
    let inner = folder.join("uci8");
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::write(inner.join("banknote.txt"), banknote).unwrap();
    std::fs::write(inner.join("car.data"), car).unwrap();
    data_folder(Some(folder.to_path_buf()))
}

fn run(options: &UciOptions) -> Reproduction {
    let folder = tempfile::tempdir().unwrap();
    reproduce(options, &written(folder.path()), &folder.path().join("out"), &silent).unwrap()
}

#[test]
fn files_and_text_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/out");
    let found = reproduce(&tiny(), &written(folder.path()), &out, &silent).unwrap();
    let csv = std::fs::read_to_string(out.join("uci.csv")).unwrap();
    let header = csv.lines().next().unwrap();
    assert!(header.starts_with("set,family,features,bandwidth,test_accuracy,"));
    // Seven families at two numbers of features, and the exact kernel, on two sets.
    assert_eq!(csv.lines().count(), 1 + 2 * (7 * 2 + 1));
    assert!(csv.lines().all(|l| l.split(',').count() == header.split(',').count()));
    assert!(!csv.contains("NaN") && !csv.contains("inf"));
    let svg = std::fs::read_to_string(out.join("uci.svg")).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let panels = document.descendants().filter(|n| n.attribute("class") == Some("panel"));
    assert_eq!(panels.count(), 3, "two sets and the average");
    let text = found.to_text(&out);
    for part in ["ranking", "banknote", "paper: SDE", "ours: balanced", "uci.csv", "most frequent"]
    {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(found.ranking.len(), 7);
    assert!(found.ranking.windows(2).all(|pair| pair[0].overall >= pair[1].overall));
}

#[test]
fn easy_sets_are_classified() {
    let found = run(&tiny());
    for set in &found.sets {
        assert_eq!(set.exact.accuracy, 1.0, "{:?}", set.set);
        assert!(set.majority < 0.95);
        assert!(set.curves.iter().all(|c| c.points.iter().all(|p| p.bandwidth > 0.0)));
    }
    let banknote = &found.sets[0];
    assert_eq!((banknote.rows, banknote.dim, banknote.classes), ([144, 8, 8], 4, 2));
    // Three words in the first column and two in each of five others.
    assert_eq!((found.sets[1].dim, found.sets[1].classes), (13, 2));
    let balanced = banknote.curves.iter().find(|c| c.family == Family::Balanced).unwrap();
    assert!(balanced.points[1].accuracy > 0.9);
}

#[test]
fn the_seed_decides_and_threads_do_not_show() {
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let first = pool(1).install(|| run(&tiny()));
    assert_eq!(first, pool(3).install(|| run(&tiny())));
    assert_ne!(first.sets, run(&tiny().seed(1)).sets);
    // A set does not change with the company that it keeps.
    let alone = run(&tiny().sets(vec![Set::Car]));
    assert_eq!(alone.sets[0], first.sets[1]);
}

#[test]
fn equal_moments_make_families_equal() {
    let points = |found: &Reproduction, family| {
        let curves = &found.sets[0].curves;
        curves.iter().find(|c| c.family == family).unwrap().points.clone()
    };
    let few = tiny().sets(vec![Set::Banknote]).features(vec![2, 4]).seeds(8);
    let found = run(&few);
    assert_eq!(points(&found, Family::Ge), points(&found, Family::Sade));
    assert!(found.to_text(Path::new("out")).contains("SADE equals GE"));
    let found = run(&few.moments(QueryMoments::Queries));
    assert_ne!(points(&found, Family::Ge), points(&found, Family::Sade));
    assert!(!found.to_text(Path::new("out")).contains("SADE equals GE"));
}

#[test]
fn progress_reaches_the_end() {
    let (last, total) = (AtomicU64::new(0), AtomicU64::new(0));
    let listener = |tick: Tick<'_>| {
        last.fetch_max(tick.done, Ordering::Relaxed);
        total.store(tick.total, Ordering::Relaxed);
    };
    let folder = tempfile::tempdir().unwrap();
    reproduce(&tiny(), &written(folder.path()), folder.path(), &listener).unwrap();
    assert_eq!(last.into_inner(), total.into_inner());
}

#[test]
fn refusals_say_what_is_wrong_and_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let good = written(folder.path());
    let refused = |options: &UciOptions, data: &DataFolder, parts: &[&str]| {
        let message = reproduce(options, data, &out, &silent).unwrap_err().to_string();
        assert!(parts.iter().all(|p| message.contains(p)), "{message:?} lacks {parts:?}");
        assert!(!out.exists());
    };
    let absent = data_folder(Some(folder.path().join("absent")));
    refused(&tiny(), &absent, &["absent", "does not exist", "banknote.txt"]);
    let default = DataFolder { chosen_by: ChosenBy::Default, ..absent };
    refused(&tiny(), &default, &["absent", "FAVOR_DATA", "car.data"]);
    refused(&UciOptions::paper(), &good, &["abalone.data", "no such file"]);
    refused(&tiny().seeds(1), &good, &["seeds: 1", "between 2 and"]);
    refused(&tiny().features(vec![0]), &good, &["features:", "above zero"]);
    refused(&tiny().bandwidths(vec![f64::NAN]), &good, &["bandwidths:", "above zero"]);
    refused(&tiny().sets(vec![]), &good, &["sets: give at least one"]);
    let path = folder.path().join("uci8/banknote.txt");
    let text = std::fs::read_to_string(&path).unwrap() + "1,2,3\n";
    std::fs::write(&path, text).unwrap();
    refused(&tiny(), &good, &["banknote.txt", "line 161 has 3 columns, expected 5"]);
}

#[test]
fn the_real_sets_have_the_known_shapes_and_accuracies() {
    let Some(sets) = favor_testing::data("uci8") else { return };
    let folder = data_folder(sets.parent().map(Path::to_path_buf));
    // The part of the grid that the exact kernel chooses from.
    let bandwidths = UciOptions::paper().bandwidths[4..7].to_vec();
    let options = UciOptions::paper().families(vec![Family::Pos]).features(vec![4]);
    let options = options.bandwidths(bandwidths).seeds(2);
    let out = tempfile::tempdir().unwrap();
    let found = reproduce(&options, &folder, out.path(), &silent).unwrap();
    // Rows, columns, classes, and the accuracy of the exact kernel on some other division.
    let known = [
        (4177, 10, 28, 0.268),
        (1372, 4, 2, 1.0),
        (1728, 21, 4, 0.862),
        (1484, 8, 10, 0.627),
        (1473, 9, 3, 0.541),
        (12960, 27, 5, 0.949),
        (2000, 7, 4, 1.0),
        (28056, 40, 18, 0.680),
    ];
    for (set, (rows, dim, classes, accuracy)) in found.sets.iter().zip(known) {
        let name = set.set.name();
        assert_eq!((set.rows.iter().sum::<usize>(), set.dim, set.classes), (rows, dim, classes));
        // Two test parts of n rows: the difference has variance 2p(1−p)/n; four deviations.
        let p = f64::min(accuracy, 0.98);
        let allowed = 4.0 * (2.0 * p * (1.0 - p) / set.rows[2] as f64).sqrt();
        let found = set.exact.accuracy;
        assert!((found - accuracy).abs() < allowed, "{name}: {found} but {accuracy}");
    }
}
