//! The variance experiment on a small scale.

use favor::Family;
use favor_io::data::{ChosenBy, DataFolder, data_folder};
use favor_io::progress::silent;
use favor_lab::families::compared;
use favor_lab::variance::{Regime, VarianceOptions, reproduce};
use std::path::Path;

fn tiny() -> VarianceOptions {
    VarianceOptions::paper().scales(vec![0.1, 0.5]).rows(60).sets(2)
}

fn nowhere(folder: &Path) -> DataFolder {
    DataFolder { path: folder.join("nothing"), chosen_by: ChosenBy::Default }
}

#[test]
fn without_files_the_synthetic_regimes_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/out");
    let found = reproduce(&tiny(), &nowhere(folder.path()), &out, &silent).unwrap();
    let missing = found.missing.as_ref().unwrap();
    assert_eq!(missing.regimes, [Regime::Mnist, Regime::Cifar10, Regime::MnistCifar10]);
    assert_eq!(missing.files.len(), 2);
    let text = found.to_text(&out);
    assert!(text.contains("left out: mnist, cifar10, mnist/cifar10"), "{text}");
    assert!(text.contains("mnist_t10k_8x8_area_u8.npy"));
    let csv = std::fs::read_to_string(out.join("variance.csv")).unwrap();
    let header = csv.lines().next().unwrap();
    assert!(header.starts_with("regime,scale,family,log_relative_variance,"));
    assert_eq!(csv.lines().count(), 1 + 3 * 2 * compared().len());
    assert!(csv.lines().all(|l| l.split(',').count() == header.split(',').count()));
    let svg = std::fs::read_to_string(out.join("variance.svg")).unwrap();
    roxmltree::Document::parse(&svg).unwrap();
}

#[test]
fn curves_have_the_known_order_and_measure() {
    let folder = tempfile::tempdir().unwrap();
    let found = reproduce(&tiny(), &nowhere(folder.path()), folder.path(), &silent).unwrap();
    let value = |regime, family: Family, i: usize| {
        let curve = found.curves.iter().find(|c| c.regime == regime && c.family == family).unwrap();
        curve.points[i]
    };
    for i in 0..2 {
        let at = |family| value(Regime::Heterogen, family, i).log_relative_variance;
        assert!(at(Family::Ge) <= at(Family::Pos) + 1e-9);
        assert!(at(Family::Balanced) < at(Family::Ge));
    }
    // Symmetric regimes have log K near 0 on average; heterogen too, since one mean is zero.
    let point = value(Regime::Normal, Family::Sde, 1);
    assert!((point.log_relative_variance - point.log_variance_over_kernel).abs() < 1.0);
    assert!(point.relative_deviation > 0.0);
    assert!(found.findings.iter().any(|f| f.claim.contains("heterogen")));
    assert!(!found.findings.iter().any(|f| f.claim.contains("cifar10")));
}

#[test]
fn images_are_used_when_they_are_there() {
    let Some(mnist) = favor_testing::data("mnist") else { return };
    let Some(_) = favor_testing::data("cifar10") else { return };
    let folder = data_folder(mnist.parent().map(Path::to_path_buf));
    let out = tempfile::tempdir().unwrap();
    let options = tiny().rows(300).scales(vec![0.5]);
    let found = reproduce(&options, &folder, out.path(), &silent).unwrap();
    assert!(found.missing.is_none());
    let gap = |regime, better, worse| {
        let value = |family| {
            let curve = found.curves.iter().find(|c| c.regime == regime && c.family == family);
            curve.unwrap().points[0].log_relative_variance
        };
        value(worse) - value(better)
    };
    // The paper's gaps, at the middle of its range of scales.
    assert!((gap(Regime::Cifar10, Family::Sde, Family::Ge) - 9.6).abs() < 1.0);
    assert!((gap(Regime::MnistCifar10, Family::Sde, Family::Ge) - 4.5).abs() < 1.0);
    assert!((gap(Regime::MnistCifar10, Family::Ade, Family::Ge) - 2.3).abs() < 1.0);
    assert!(gap(Regime::Cifar10, Family::Balanced, Family::Sde) > 1.0);
}

#[test]
fn refusals_name_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let asked = data_folder(Some(folder.path().join("absent")));
    let out = folder.path().join("out");
    let message = reproduce(&tiny(), &asked, &out, &silent).unwrap_err().to_string();
    assert!(message.contains("absent does not exist") && message.contains("mnist"), "{message}");
    assert!(!out.exists());
    // Where a file stands, no folder can be made.
    let blocked = folder.path().join("file");
    std::fs::write(&blocked, "x").unwrap();
    let message = reproduce(&tiny(), &nowhere(folder.path()), &blocked, &silent).unwrap_err();
    assert!(message.to_string().contains("file"), "{message}");
    // A file of images that is none.
    let mnist = folder.path().join("mnist");
    std::fs::create_dir(&mnist).unwrap();
    std::fs::write(mnist.join("mnist_t10k_8x8_area_u8.npy"), "1,2").unwrap();
    let given = data_folder(Some(folder.path().to_path_buf()));
    let message = reproduce(&tiny(), &given, &out, &silent).unwrap_err().to_string();
    assert!(message.contains("mnist_t10k"), "{message}");
    assert!(!out.exists());
}
