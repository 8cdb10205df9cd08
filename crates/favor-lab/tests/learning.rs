//! Learning on a small scale, and its page.

use favor::draw::Stream;
use favor::learned::LearnOptions;
use favor::{ExactKeys, Family, FeatureSpec};
use favor_io::progress::{Tick, silent};
use favor_io::{SequenceArrays, Sequences};
use favor_lab::learning::{Learning, learn};
use std::sync::atomic::{AtomicU64, Ordering};

fn arrays(sequences: usize, heads: usize, tokens: usize, with_values: bool) -> SequenceArrays {
    let mut noise = Stream::new(7, 0);
    let mut array = |scale: f64| {
        let count = sequences * heads * tokens * 4;
        let numbers = (0..count).map(|_| scale * noise.normal()).collect();
        Sequences::new(numbers, &[sequences, heads, tokens, 4]).unwrap().from_source("q<&>.npy")
    };
    let (q, k) = (array(1.5), array(1.5));
    SequenceArrays::new(q, k, with_values.then(|| array(1.0))).unwrap()
}

fn small(arrays: &SequenceArrays, causal: bool) -> Learning {
    let spec = FeatureSpec::new(Family::Balanced, 8);
    let exact = ExactKeys::NONE.near(2).global(2).routed(2, 2);
    let options = LearnOptions::new().exact(exact).steps(24);
    learn(arrays, spec, causal, &options, &silent).unwrap()
}

#[test]
fn the_page_is_whole_and_stands_alone() {
    for (heads, with_values, causal) in [(1, true, false), (2, false, true), (4, true, true)] {
        let arrays = arrays(3, heads, 20, with_values);
        let found = small(&arrays, causal);
        let steps = AtomicU64::new(0);
        let listener = |tick: Tick<'_>| {
            steps.fetch_max(tick.done, Ordering::Relaxed);
        };
        let html = found.to_html(&arrays, "measure <these maps>", &listener).unwrap();
        assert_eq!(steps.into_inner(), heads as u64);
        for part in
            ["<!doctype html>", "Head by head", "Where attention goes", "Error against cost"]
        {
            assert!(html.contains(part), "{part}");
        }
        assert!(html.contains("measure &lt;these maps&gt;") && html.contains("q&lt;&amp;&gt;.npy"));
        assert_eq!(html.matches("data:image/png;base64,").count(), 3 * heads.min(3));
        assert!(!html.contains("<script") && !html.contains("NaN") && !html.contains("inf "));
        // Nothing is loaded: the only addresses are the names of the SVG format.
        let rest = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains("http") && !rest.contains("url(") && !rest.contains("@import"));
        let body = &html[html.find("<main>").unwrap()..html.find("</body>").unwrap()];
        let body = body.replace("<br>", "<br/>");
        let page = roxmltree::Document::parse(&body).unwrap();
        let rows = page.descendants().filter(|n| n.has_tag_name("tr")).count();
        assert_eq!(rows, 2 + heads + 1);
    }
}

#[test]
fn text_and_json_say_the_same() {
    let arrays = arrays(4, 2, 20, true);
    let found = small(&arrays, false);
    let text = found.to_text();
    assert!(text.contains("learned from 3 sequences of 20 tokens, 1 held out"), "{text}");
    assert!(text.contains("window ±2, 2 global, 2 × 2 routed"), "{text}");
    // Eight features of dimension 4 cost more than 20 exact keys.
    let warning = found.warning().unwrap();
    assert!(warning.contains("exact attention costs no more"), "{warning}");
    let json: serde_json::Value = serde_json::from_str(&found.to_json()).unwrap();
    let heads = json["heads"].as_array().unwrap();
    assert_eq!(heads.len(), 2);
    for (head, learned) in heads.iter().zip(&found.heads) {
        assert_eq!(head["after"].as_f64(), Some(learned.report.after));
        assert!(head["after"].as_f64() <= head["before"].as_f64());
        assert!(head["after"].as_f64() <= head["exact_alone"].as_f64());
    }
}

#[test]
fn more_members_than_keys_are_refused() {
    let arrays = arrays(3, 1, 20, true);
    let options = LearnOptions::new().exact(ExactKeys::NONE.routed(2, 21));
    let spec = FeatureSpec::new(Family::Balanced, 8);
    let message = learn(&arrays, spec, false, &options, &silent).unwrap_err().to_string();
    assert_eq!(message, "exact keys: 21 members of a slot, of 20 keys");
}
