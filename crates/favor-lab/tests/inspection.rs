//! Inspections as figures.

use favor::{Family, Kernel};
use favor_inspect::{InspectOptions, compared, inspect};
use favor_io::progress::silent;
use favor_io::{HeadArrays, Stack};
use favor_lab::inspection::to_svg;

fn drawn(shape: &[usize]) -> String {
    let values = (0..shape.iter().product()).map(|i| (0.37 * i as f64).sin()).collect();
    let stack = Stack::new(values, shape).unwrap();
    let arrays = HeadArrays::new(stack.clone(), stack, None).unwrap();
    let options = InspectOptions::new(Kernel::softmax()).features(vec![4]);
    to_svg(&inspect(&arrays, &options, &silent).unwrap())
}

#[test]
fn one_head_has_a_bar_per_family() {
    let svg = drawn(&[20, 3]);
    let document = roxmltree::Document::parse(&svg).unwrap();
    let bars = document.descendants().filter(|n| n.attribute("class") == Some("series"));
    let bars: usize = bars.map(|n| n.children().filter(|c| c.is_element()).count()).sum();
    assert_eq!(bars, compared().len());
    assert!(document.descendants().any(|n| n.text() == Some(Family::Balanced.title())));
}

#[test]
fn several_heads_have_a_line_per_family() {
    let svg = drawn(&[3, 20, 3]);
    let document = roxmltree::Document::parse(&svg).unwrap();
    let lines = document.descendants().filter(|n| n.attribute("class") == Some("series"));
    assert_eq!(lines.count(), compared().len());
}
