//! Writing SVG: elements, escaped text and short numbers.

use super::text::{Label, SUPERSCRIPT};
use std::fmt::Write;

const FONTS: &str = "Helvetica, Arial, sans-serif";

/// The anchor of a text relative to its point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The formatting of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Type {
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) colour: &'static str,
    /// Degrees, clockwise.
    pub(super) turn: f64,
}

impl Type {
    pub(super) fn new(size: f64) -> Self {
        Self { size, bold: false, colour: "#262626", turn: 0.0 }
    }

    pub(super) fn bold(mut self) -> Self {
        self.bold = true;
        self
    }

    pub(super) fn turned(mut self, degrees: f64) -> Self {
        self.turn = degrees;
        self
    }

    pub(super) fn colour(mut self, colour: &'static str) -> Self {
        self.colour = colour;
        self
    }
}

/// An SVG document under construction.
#[derive(Debug)]
pub(super) struct Svg {
    out: String,
}

impl Svg {
    /// Starts a picture of the given size on white, with a title for screen readers.
    pub(super) fn new(width: f64, height: f64, title: &str, description: &str) -> Self {
        let (w, h) = (number(width), number(height));
        let mut svg = Self { out: String::new() };
        let view = format!("0 0 {w} {h}");
        svg.open(
            "svg",
            &[
                ("xmlns", "http://www.w3.org/2000/svg"),
                ("width", &w),
                ("height", &h),
                ("viewBox", &view),
                ("role", "img"),
                ("aria-label", title),
                ("font-family", FONTS),
                ("style", "max-width:100%;height:auto"),
            ],
        );
        for (name, text) in [("title", title), ("desc", description)] {
            if !text.is_empty() {
                let _ = writeln!(svg.out, "<{name}>{}</{name}>", escape(text));
            }
        }
        svg.element("rect", &[("width", &w), ("height", &h), ("fill", "#ffffff")]);
        svg
    }

    pub(super) fn finish(mut self) -> String {
        self.close("svg");
        self.out
    }

    pub(super) fn open(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.start(name, attributes);
        self.out.push_str(">\n");
    }

    pub(super) fn close(&mut self, name: &str) {
        let _ = writeln!(self.out, "</{name}>");
    }

    pub(super) fn element(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.start(name, attributes);
        self.out.push_str("/>\n");
    }

    /// An element with a tooltip; none if the note is empty.
    pub(super) fn noted(&mut self, name: &str, attributes: &[(&str, &str)], note: &str) {
        if note.is_empty() {
            return self.element(name, attributes);
        }
        self.start(name, attributes);
        let _ = writeln!(self.out, "><title>{}</title></{name}>", escape(note));
    }

    /// A straight line. `dashes` may be empty.
    pub(super) fn line(
        &mut self,
        from: (f64, f64),
        to: (f64, f64),
        colour: &str,
        width: f64,
        dashes: &str,
    ) {
        let d = format!("M{} {}L{} {}", number(from.0), number(from.1), number(to.0), number(to.1));
        self.stroke(&d, colour, width, dashes);
    }

    /// An unfilled path. `dashes` may be empty.
    pub(super) fn stroke(&mut self, d: &str, colour: &str, width: f64, dashes: &str) {
        let width = number(width);
        let mut attributes =
            vec![("d", d), ("fill", "none"), ("stroke", colour), ("stroke-width", width.as_str())];
        if !dashes.is_empty() {
            attributes.push(("stroke-dasharray", dashes));
        }
        self.element("path", &attributes);
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, kind: Type, text: &str) {
        self.label(x, y, anchor, kind, &Label::plain(text));
    }

    /// A text that may end in a superscript exponent.
    pub(super) fn label(&mut self, x: f64, y: f64, anchor: Anchor, kind: Type, label: &Label) {
        let (x, y, size) = (number(x), number(y), number(kind.size));
        let turn = format!("rotate({} {x} {y})", number(kind.turn));
        let mut attributes =
            vec![("x", x.as_str()), ("y", &y), ("font-size", &size), ("fill", kind.colour)];
        match anchor {
            Anchor::Start => {}
            Anchor::Middle => attributes.push(("text-anchor", "middle")),
            Anchor::End => attributes.push(("text-anchor", "end")),
        }
        if kind.bold {
            attributes.push(("font-weight", "bold"));
        }
        if kind.turn != 0.0 {
            attributes.push(("transform", &turn));
        }
        self.start("text", &attributes);
        let _ = write!(self.out, ">{}", escape(&label.base));
        if let Some(exponent) = &label.exponent {
            // Raised by hand: the superscript digits of most fonts are incomplete.
            let _ = write!(
                self.out,
                "<tspan dy=\"{}\" font-size=\"{}\">{}</tspan>",
                number(-0.38 * kind.size),
                number(SUPERSCRIPT * kind.size),
                escape(exponent)
            );
        }
        self.out.push_str("</text>\n");
    }

    fn start(&mut self, name: &str, attributes: &[(&str, &str)]) {
        let _ = write!(self.out, "<{name}");
        for (key, value) in attributes {
            let _ = write!(self.out, " {key}=\"{}\"", escape(value));
        }
    }
}

/// A coordinate with at most two decimals.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Text that can stand between the tags of a picture or a page, or in an attribute.
///
/// ```
/// assert_eq!(favor_figure::escape("a < b"), "a &lt; b");
/// ```
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\r' | '\t' => out.push(' '),
            // XML cannot represent these.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(1.0), "1");
        assert_eq!(number(-0.001), "0");
        assert_eq!(number(100.0), "100");
        assert_eq!(number(0.125), "0.12");
        assert_eq!(number(f64::NAN), "0");
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b> & \"c\"\0\n"), "a&lt;b&gt; &amp; &quot;c&quot;\u{fffd} ");
    }
}
