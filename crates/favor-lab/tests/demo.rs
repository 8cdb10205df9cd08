//! The demonstration on a small scale.

use favor::Family;
use favor_io::progress::{Tick, silent};
use favor_lab::demo::{Setup, run};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn the_page_is_whole_and_stands_alone() {
    let found = run(&Setup::small(3), &silent).unwrap();
    let html = found.to_html();
    for part in
        ["<!doctype html>", "A kernel product", "A kernel classifier", "Attention", "</html>"]
    {
        assert!(html.contains(part), "{part}");
    }
    for family in Setup::small(3).families {
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
    let (first, second) =
        (run(&Setup::small(1), &silent).unwrap(), run(&Setup::small(1), &silent).unwrap());
    assert_eq!(first.product.errors, second.product.errors);
    assert_eq!(first.classify, second.classify);
    assert_eq!(first.attention, second.attention);
    assert_ne!(first.product.errors, run(&Setup::small(2), &silent).unwrap().product.errors);
}

#[test]
fn figures_make_sense() {
    let found = run(&Setup::small(1), &silent).unwrap();
    assert!(found.classify.exact > 0.8);
    assert!(found.classify.regions[0].family.is_none());
    assert_eq!(found.classify.regions[0].agreement, 1.0);
    assert!(found.attention.uniform > 0.2);
    let error = |family| {
        found.attention.errors.iter().find(|c| c.family == family).unwrap().at(64).unwrap()
    };
    assert!(error(Family::Balanced) < found.attention.uniform);
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
    run(&Setup::small(1), &listener).unwrap();
    assert_eq!(last.into_inner(), total.into_inner());
}

#[test]
fn empty_setups_are_refused() {
    for setup in [
        Setup { tokens: 0, ..Setup::small(1) },
        Setup { families: vec![], ..Setup::small(1) },
        Setup { shown_features: 17, ..Setup::small(1) },
    ] {
        assert!(run(&setup, &silent).is_err());
    }
}
