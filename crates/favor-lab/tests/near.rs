//! `near` on small arrays: what windows must do whatever the data, and refusals.

use favor::draw::Stream;
use favor_io::progress::silent;
use favor_io::{HeadArrays, Stack};
use favor_lab::near::{NearOptions, measure};

fn rows(count: usize, seed: u64) -> Stack {
    let mut stream = Stream::new(seed, 0);
    Stack::new((0..4 * count).map(|_| 2.0 * stream.normal()).collect(), &[count, 4]).unwrap()
}

fn options() -> NearOptions {
    NearOptions::default().widths(vec![0, 64, 200]).features(32)
}

#[test]
fn windows_lower_the_error_down_to_nothing() {
    let arrays = HeadArrays::new(rows(200, 1), rows(200, 2), Some(rows(200, 3))).unwrap();
    for causal in [false, true] {
        let found = measure(&arrays, &options().causal(causal), &silent).unwrap();
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
fn what_makes_no_sense_is_refused() {
    let refused = |queries: Stack, values: Option<Stack>, options: &NearOptions, words: &str| {
        let arrays = HeadArrays::new(queries, rows(200, 2), values).unwrap();
        let message = measure(&arrays, options, &silent).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    let values = || Some(rows(200, 3));
    refused(rows(150, 4), values(), &options(), "keys: 200 for 150 queries; a window needs");
    refused(rows(200, 1), None, &options(), "values: there are none");
    refused(rows(200, 1), values(), &options().widths(vec![]), "widths: give at least one");
    refused(rows(200, 1), values(), &options().features(0), "features: 0 is too few");
}
