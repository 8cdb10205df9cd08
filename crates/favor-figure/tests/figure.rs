//! Pictures are well-formed, complete, and free of anything that a page could not hold twice.

use favor_figure::{Bars, Figure, Panel, Scale, Series};
use roxmltree::{Document, Node};

fn parsed(svg: &str) -> Document<'_> {
    let document = Document::parse(svg).expect("well-formed");
    for node in document.descendants() {
        assert_ne!(node.tag_name().name(), "script");
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            assert!(name != "id" && name != "href", "{name}");
            assert!(!value.contains("NaN") && !value.contains("inf"), "{name}={value}");
        }
    }
    document
}

fn of_class<'a>(document: &'a Document<'a>, class: &str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|n| n.attribute("class") == Some(class)).collect()
}

fn texts(document: &Document<'_>) -> Vec<String> {
    let all = document.descendants().filter(|n| n.tag_name().name() == "text");
    all.map(|n| n.descendants().filter_map(|d| d.text().filter(|_| d.is_text())).collect())
        .collect()
}

fn markers(node: &Node<'_, '_>) -> usize {
    node.children().filter(|n| n.children().any(|c| c.tag_name().name() == "title")).count()
}

fn curve(slope: f64) -> Vec<(f64, f64)> {
    (1..=10).map(|i| (0.1 * f64::from(i), (slope * f64::from(i)).exp())).collect()
}

#[test]
fn six_panels_of_ten_series() {
    let mut figure = Figure::new("Variance").caption("A caption.");
    for data in ["normal", "sphere", "heterogen", "mnist", "cifar10", "both"] {
        let mut panel = Panel::new(data, "σ", "variance")
            .x_scale(Scale::Log10)
            .y_scale(Scale::Log10)
            .reference("baseline", 1.0);
        for k in 0..10 {
            panel = panel.series(Series::new(format!("family {k}"), curve(f64::from(k) * 0.3)));
        }
        figure = figure.panel(panel);
    }
    let svg = figure.to_svg();
    let document = parsed(&svg);
    assert_eq!(of_class(&document, "panel").len(), 6);
    let series = of_class(&document, "series");
    assert_eq!(series.len(), 60);
    assert!(series.iter().all(|s| markers(s) == 10));
    // One entry per name, however many panels show it, and one for the line to compare with.
    assert_eq!(of_class(&document, "entry").len(), 11);
    let texts = texts(&document);
    for wanted in ["Variance", "A caption.", "mnist", "baseline", "family 9", "0.1"] {
        assert!(texts.iter().any(|t| t == wanted), "{wanted} is missing");
    }
    // Neighbours share the names of their axes: three below, one per row on the left.
    assert_eq!(texts.iter().filter(|t| *t == "σ").count(), 3);
    assert_eq!(texts.iter().filter(|t| *t == "variance").count(), 2);
    // The same family has the same look everywhere: line and legend agree on its colour.
    let colours: std::collections::BTreeSet<&str> = series
        .iter()
        .filter(|s| s.attribute("data-name") == Some("family 3"))
        .filter_map(|s| s.first_element_child()?.attribute("stroke"))
        .collect();
    assert_eq!(colours.len(), 1);
}

#[test]
fn marks_stand_where_they_are_asked_for() {
    let points = vec![(15.0, 1.0), (130.0, 2.0)];
    let panel = Panel::new("", "M", "y").x_scale(Scale::Log10).series(Series::new("a", points));
    let marked = panel.clone().x_marks(vec![-1.0, 2.0, 16.0, 32.0, 64.0, 128.0, 512.0]);
    let labels = |panel: Panel| texts(&parsed(&Figure::new("").panel(panel).to_svg()));
    let found = labels(marked);
    let has = |label: &str| found.iter().any(|t| t == label);
    assert!(["16", "32", "64", "128"].into_iter().all(has), "{found:?}");
    // No mark beyond the axis, and none of the round numbers.
    assert!(!["512", "−1", "20", "50", "100"].into_iter().any(has), "{found:?}");
    assert!(labels(panel).iter().any(|t| t == "50"));
}

#[test]
fn points_without_a_place_leave_gaps() {
    let points = vec![
        (1.0, 1.0),
        (2.0, 2.0),
        (3.0, f64::NAN),
        (4.0, f64::INFINITY),
        (5.0, 2.0),
        (6.0, 3.0),
        (7.0, 0.0),
        (8.0, 1.0),
    ];
    for (scale, drawn, runs) in [(Scale::Linear, 6, 2), (Scale::Log10, 5, 2)] {
        let panel = Panel::new("", "", "").y_scale(scale).series(Series::new("a", points.clone()));
        let svg = Figure::new("").panel(panel).to_svg();
        let document = parsed(&svg);
        let series = of_class(&document, "series")[0];
        assert_eq!(markers(&series), drawn);
        let line = series.first_element_child().unwrap().attribute("d").unwrap();
        assert_eq!(line.matches('M').count(), runs, "{line}");
    }
}

#[test]
fn awkward_data_are_drawn() {
    let one = |points: Vec<(f64, f64)>| Series::new("a", points);
    let cases = [
        vec![],
        vec![(1.0, 2.0)],
        vec![(0.0, 0.0)],
        vec![(1.0, 5.0), (2.0, 5.0), (3.0, 5.0)],
        vec![(f64::NAN, 1.0), (1.0, f64::INFINITY)],
        vec![(-1.0, -1.0), (0.0, 0.0)],
        vec![(1e-320, 1e-320), (2e-320, 2e-320)],
        vec![(1e-300, 1e-300), (1e300, 1e300)],
        vec![(f64::MIN, f64::MIN), (f64::MAX, f64::MAX)],
        vec![(1e17, 1e17), (1e17 + 32.0, 1e17 + 32.0)],
        (0..5000).map(|i| (f64::from(i), f64::from(i).sin())).collect(),
    ];
    for points in cases {
        for (x, y) in [(Scale::Linear, Scale::Linear), (Scale::Log10, Scale::Log10)] {
            let errors = points.iter().enumerate().map(|(i, p)| p.1 * i as f64).collect();
            let series = one(points.clone()).error(errors);
            let panel = Panel::new("p", "x", "y").x_scale(x).y_scale(y).series(series);
            let limited = panel.clone().y_limits(1.0, 2.0).reference("r", f64::NAN);
            let svg = Figure::new("t").panel(panel).panel(limited).columns(0).to_svg();
            assert_eq!(of_class(&parsed(&svg), "panel").len(), 2);
        }
    }
    parsed(&Figure::new("").to_svg());
    parsed(&Figure::new("").plot_size(f64::NAN, -1.0).panel(Panel::default()).to_svg());
}

#[test]
fn text_is_escaped_and_long_text_is_held() {
    let nasty = "a<b> & \"c\" ]]> \u{0} \u{7} 'd'";
    let series = Series::new(nasty, vec![(1.0, 1.0)]).emphasised().style(usize::MAX);
    let panel = Panel::new(nasty, nasty, nasty).series(series).reference(nasty, 1.0);
    let figure = Figure::new(nasty).caption("word ".repeat(200)).panel(panel);
    let svg = figure.to_svg();
    let document = parsed(&svg);
    assert!(texts(&document).iter().any(|t| t.starts_with("a<b> & \"c\"")));
    let bars = Bars::new(nasty, vec![nasty.into()]).labels(nasty, nasty);
    parsed(&bars.group(nasty, None, vec![1.0]).caption(nasty).to_svg());
}

/// The labels of a row or column, as (place, text).
fn labels_at(document: &Document<'_>, anchor: &str, size: &str) -> Vec<(f64, f64, String)> {
    let number = |n: &Node<'_, '_>, name| n.attribute(name).unwrap().parse::<f64>().unwrap();
    let all = document.descendants().filter(|n| {
        n.attribute("text-anchor") == Some(anchor) && n.attribute("font-size") == Some(size)
    });
    all.map(|n| {
        let text = n.descendants().filter(|d| d.is_text()).filter_map(|d| d.text()).collect();
        (number(&n, "x"), number(&n, "y"), text)
    })
    .collect()
}

#[test]
fn labels_at_the_marks_do_not_overlap() {
    for (low, high) in [(0.0, 1.0), (1e6, 1.1e6), (-0.001, 0.001), (1e-9, 2e-9), (3.0, 1e8)] {
        for scale in [Scale::Linear, Scale::Log10] {
            let series = Series::new("a", vec![(low, low), (high, high)]);
            let panel = Panel::new("", "", "").x_scale(scale).y_scale(scale).series(series);
            let svg = Figure::new("").panel(panel).to_svg();
            let document = parsed(&svg);
            let below = labels_at(&document, "middle", "10");
            for pair in below.windows(2).filter(|_| !svg.contains("no data")) {
                let wide =
                    0.5 * 5.0 * (pair[0].2.chars().count() + pair[1].2.chars().count()) as f64;
                assert!(pair[1].0 - pair[0].0 > 0.9 * wide, "{scale:?} {pair:?}");
            }
            for pair in labels_at(&document, "end", "10").windows(2) {
                assert!(pair[0].1 - pair[1].1 >= 12.0, "{scale:?} {pair:?}");
            }
        }
    }
}

#[test]
fn long_legends_take_several_rows() {
    let mut panel = Panel::new("", "", "");
    for k in 0..20 {
        let name = format!("a family with a rather long name {k}");
        panel = panel.series(Series::new(name, vec![(0.0, f64::from(k)), (1.0, 1.0)]));
    }
    let svg = Figure::new("").panel(panel).to_svg();
    let document = parsed(&svg);
    let entries = of_class(&document, "entry");
    assert_eq!(entries.len(), 20);
    let width: f64 = document.root_element().attribute("width").unwrap().parse().unwrap();
    let height: f64 = document.root_element().attribute("height").unwrap().parse().unwrap();
    for text in entries.iter().filter_map(|e| e.last_element_child()) {
        let at = |name| text.attribute(name).unwrap().parse::<f64>().unwrap();
        assert!(at("x") > 0.0 && at("x") + 100.0 < width && at("y") < height);
    }
}

#[test]
fn bars_stand_on_their_base() {
    let categories: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
    let chart = |scale| {
        Bars::new("chart", categories.clone())
            .labels("x", "y")
            .scale(scale)
            .group("first", Some(2), vec![1.0, 10.0, f64::NAN])
            .group("second", None, vec![-2.0, 5.0, 100.0, 7.0])
            .reference("line", 3.0)
            .to_svg()
    };
    for (scale, drawn) in [(Scale::Linear, [2, 3]), (Scale::Log10, [2, 2])] {
        let svg = chart(scale);
        let document = parsed(&svg);
        let series = of_class(&document, "series");
        let counts: Vec<usize> =
            series.iter().map(|s| s.children().filter(Node::is_element).count()).collect();
        assert_eq!(counts, drawn);
        assert_eq!(of_class(&document, "entry").len(), 3);
        let at = |n: Node<'_, '_>, name: &str| n.attribute(name).unwrap().parse::<f64>().unwrap();
        let bars: Vec<Node<'_, '_>> = series[0].children().filter(Node::is_element).collect();
        let bottoms: Vec<f64> = bars.iter().map(|b| at(*b, "y") + at(*b, "height")).collect();
        assert!((bottoms[0] - bottoms[1]).abs() < 0.05);
        if scale == Scale::Linear {
            let ratio = at(bars[1], "height") / at(bars[0], "height");
            assert!((ratio - 10.0).abs() < 0.1, "{ratio}");
        }
    }
    parsed(&Bars::default().to_svg());
    parsed(&Bars::new("", categories.clone()).to_svg());
    let many: Vec<String> = (0..40).map(|i| format!("category number {i}")).collect();
    let zeros = Bars::new("", many).group("zero", None, vec![0.0; 40]);
    parsed(&zeros.to_svg());
}
