//! Learning on a small scale, and its page.

use favor::draw::Stream;
use favor::learned::{Budget, LearnOptions};
use favor::{ExactKeys, Family, FeatureSpec};
use favor_io::progress::{Tick, silent};
use favor_io::{SequenceArrays, Sequences};
use favor_lab::learning::{Learning, learn, plan};
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
    // At 20 tokens, exact attention costs less.
    let warning = found.warning().unwrap();
    assert!(warning.contains("exact attention takes no longer"), "{warning}");
    let json: serde_json::Value = serde_json::from_str(&found.to_json()).unwrap();
    let heads = json["heads"].as_array().unwrap();
    assert_eq!(heads.len(), 2);
    for (head, learned) in heads.iter().zip(&found.heads) {
        assert_eq!(head["after"].as_f64(), Some(learned.report.after));
        assert!(head["after"].as_f64() <= head["before"].as_f64());
        assert!(head["after"].as_f64() <= head["exact_alone"].as_f64());
        // With their exact keys, eight features cost more than 20 exact keys.
        assert_eq!(head["recommended"], "exact");
    }
}

/// Queries that are not the keys' own have no window: not in the table, in JSON or on the page.
#[test]
fn cross_attention_has_no_window() {
    let mut noise = Stream::new(8, 0);
    let mut array = |tokens: usize| {
        let numbers = (0..4 * 2 * tokens * 4).map(|_| 0.7 * noise.normal()).collect();
        Sequences::new(numbers, &[4, 2, tokens, 4]).unwrap()
    };
    let arrays = SequenceArrays::new(array(300), array(400), Some(array(400))).unwrap();
    let options = LearnOptions::new().exact(ExactKeys::NONE.routed(2, 3)).steps(24);
    let spec = FeatureSpec::new(Family::Balanced, 8);
    let found = learn(&arrays, spec, false, &options, &silent).unwrap();
    assert!(found.heads.iter().all(|head| head.report.window_alone.is_none()));
    assert!(found.to_text().contains('—') && found.warning().is_none(), "{}", found.to_text());
    let json: serde_json::Value = serde_json::from_str(&found.to_json()).unwrap();
    for head in json["heads"].as_array().unwrap() {
        assert!(head["window_alone"].is_null(), "{head}");
        assert_eq!(head["recommended"], "map");
    }
    let html = found.to_html(&arrays, "measure", &silent).unwrap();
    assert!(!html.contains("NaN") && !html.contains("with an exact window"));
    // Measured on the same sequences, there is none either.
    let maps = found.maps();
    let inspected =
        favor_inspect::inspect_maps(&arrays, &maps, &favor_inspect::MapOptions::new(), &silent);
    let inspected = inspected.unwrap();
    assert!(inspected.heads.iter().all(|head| head.window_alone.is_none()));
    assert!(!inspected.to_text().contains("The window alone takes"), "{}", inspected.to_text());
}

#[test]
fn slots_with_more_members_than_keys_have_all_keys() {
    let arrays = arrays(3, 1, 20, true);
    let options = LearnOptions::new().exact(ExactKeys::NONE.routed(2, 21)).steps(5);
    let spec = FeatureSpec::new(Family::Balanced, 8);
    let report = learn(&arrays, spec, false, &options, &silent).unwrap().heads[0].report;
    // Learning computes in 32 bits.
    assert!(report.after < 1e-6 && report.exact_keys == 20.0, "{report:?}");
    let budget = Budget::Error(0.01);
    let planned = plan(&arrays, spec, false, &options, budget, &silent).unwrap();
    assert!(planned.layer.heads[0].point.error <= 0.01);
    let html = planned.to_html("measure --me");
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    assert!(html.contains("errors of at most 1.0") && html.contains("<pre>measure --me</pre>"));
    assert_eq!(html.matches("<tr><td>").count(), planned.layer.heads.len());
    // The front and what was chosen from it.
    assert!(html.contains("what budgets can give") && html.contains("this budget"));
}
