//! `near` on small files: what windows must do whatever the data, and refusals.

use favor::{Family, Matrix, draw::Stream};
use favor_io::progress::silent;
use favor_lab::near::{Request, measure};
use std::path::Path;

fn write(folder: &Path, name: &str, rows: usize, seed: u64) -> String {
    let mut stream = Stream::new(seed, 0);
    let m = Matrix::from_fn(rows, 4, |_, _| 2.0 * stream.normal());
    let line = |row: &[f64]| row.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
    let path = folder.join(name);
    std::fs::write(&path, m.view().iter().map(line).collect::<Vec<_>>().join("\n")).unwrap();
    path.display().to_string()
}

fn request(folder: &Path, causal: bool) -> Request {
    let file = |name: &str, seed| write(folder, name, 200, seed);
    Request {
        files: [file("q.csv", 1), file("k.csv", 2), file("v.csv", 3)],
        widths: vec![0, 64, 200],
        features: 32,
        family: Family::Balanced,
        causal,
        seed: 0,
    }
}

#[test]
fn windows_lower_the_error_down_to_nothing() {
    for causal in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let found = measure(&request(folder.path(), causal), &silent).unwrap();
        let errors: Vec<f64> = found.widths.iter().map(|w| w.with_features[0]).collect();
        assert!(errors[0] > errors[1], "{errors:?}");
        // A window over the whole sequence is exact attention, with features or alone.
        assert!(errors[2] < 1e-12, "{errors:?}");
        let alone = |w: usize| found.widths[w].window_alone.as_ref().map(|a| a[0]);
        assert_eq!(alone(0), None);
        assert!(alone(1).unwrap() > 1e-3 && alone(2).unwrap() < 1e-12);
        assert!(found.mean_of_values[0] > 0.1);
        assert!(found.to_text().contains("window") && found.to_svg().starts_with("<svg"));
        assert!(found.to_json().contains("\"with_features\""));
    }
}

#[test]
fn sequences_of_two_lengths_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = request(folder.path(), false);
    request.files[0] = write(folder.path(), "short.csv", 150, 4);
    let message = measure(&request, &silent).unwrap_err().to_string();
    assert!(message.contains("as many keys as queries"), "{message}");
    request.widths.clear();
    let message = measure(&request, &silent).unwrap_err().to_string();
    assert!(message.contains("at least one width"), "{message}");
}
