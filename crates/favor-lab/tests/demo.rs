//! The demonstration on a small scale.

use favor::Family;
use favor_io::progress::{Tick, silent};
use favor_lab::demo::{DemoOptions, FamilyCurve, run};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn the_page_is_whole_and_stands_alone() {
    let found = run(&DemoOptions::small(3), &silent).unwrap();
    let html = found.to_html("inspect <queries>");
    assert!(html.contains("<pre>inspect &lt;queries&gt;</pre>"));
    for part in
        ["<!doctype html>", "A kernel product", "A kernel classifier", "Attention", "</html>"]
    {
        assert!(html.contains(part), "{part}");
    }
    for family in DemoOptions::small(3).families {
        assert!(html.contains(family.title()));
    }
    assert!(!html.contains("<script") && !html.contains("NaN") && !html.contains("inf "));
    // Nothing is loaded: the only addresses are the names of the SVG format.
    let rest = html.replace("http://www.w3.org/2000/svg", "");
    assert!(!rest.contains("http") && !rest.contains("url("));
    // Tags are balanced well enough to be read as XML from the body on.
    let body = &html[html.find("<main>").unwrap()..html.find("</body>").unwrap()];
    let body = body.replace("<br>", "<br/>");
    roxmltree::Document::parse(&body).unwrap();
}

#[test]
fn errors_depend_on_the_seed_alone() {
    let (first, second) = (
        run(&DemoOptions::small(1), &silent).unwrap(),
        run(&DemoOptions::small(1), &silent).unwrap(),
    );
    assert_eq!(first.product.errors, second.product.errors);
    assert_eq!(first.classify, second.classify);
    assert_eq!(first.attention, second.attention);
    assert_ne!(first.product.errors, run(&DemoOptions::small(2), &silent).unwrap().product.errors);
}

#[test]
fn figures_make_sense() {
    const DRAWS: u64 = 64;
    let found = run(&DemoOptions::small(1).draws(DRAWS), &silent).unwrap();
    // Better than a guess among three classes, by four standard deviations.
    let guess = 1.0 / 3.0 + 4.0 * (2.0 / 9.0 / found.classify.tested as f64).sqrt();
    assert!(found.classify.exact > guess, "{}", found.classify.exact);
    assert!(found.classify.regions[0].family.is_none());
    assert_eq!(found.classify.regions[0].agreement, 1.0);
    let curve = |curves: &[FamilyCurve], family| -> FamilyCurve {
        curves.iter().find(|c| c.family == family).unwrap().clone()
    };
    // The prediction is the root mean square of the error over draws, which bounds the mean and the
    // standard deviation of a draw. A mean of draws lies within four standard deviations.
    let slack = 1.0 + 4.0 / (DRAWS as f64).sqrt();
    let mut compared = 0;
    for predicted in &found.attention.predicted {
        let measured = curve(&found.attention.errors, predicted.family);
        for point in &predicted.points {
            let value = measured.at(point.features).unwrap();
            assert!(value < slack * point.value, "{} {point:?}: {value}", predicted.family);
            compared += 1;
        }
    }
    assert!(compared >= 2 * 8, "{compared} predictions");
    // Four times the features halve the error. A draw deviates by no more than its mean, so that a ratio of two
    // means is within four deviations.
    let product = curve(&found.product.errors, Family::Balanced);
    let ratio = product.at(64).unwrap() / product.at(16).unwrap();
    assert!((ratio - 0.5).abs() < 4.0 * 0.5 * (2.0 / DRAWS as f64).sqrt(), "{ratio}");
    // The plain mean of the values knows nothing of the queries.
    let attention = curve(&found.attention.errors, Family::Balanced);
    assert!(attention.at(64).unwrap() < found.attention.uniform);
    let text = found.to_text(Path::new("page.html"));
    assert!(text.contains("page.html") && text.contains("balanced"));
}

#[test]
fn progress_reaches_the_end() {
    let (last, total) = (AtomicU64::new(0), AtomicU64::new(0));
    let listener = |tick: Tick<'_>| {
        last.fetch_max(tick.done, Ordering::Relaxed);
        total.store(tick.total, Ordering::Relaxed);
    };
    run(&DemoOptions::small(1), &listener).unwrap();
    assert_eq!(last.into_inner(), total.into_inner());
}

#[test]
fn empty_setups_are_refused() {
    for (options, reason) in [
        (DemoOptions::small(1).tokens(0), "tokens: 0 is too few"),
        (DemoOptions::small(1).families(vec![]), "families: give at least one"),
        (DemoOptions::small(1).shown_features(17), "shown_features: 17 is not among the features"),
    ] {
        let message = run(&options, &silent).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
}
