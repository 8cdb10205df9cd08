//! Pages that stand alone: no scripts, nothing loaded from elsewhere.

pub(crate) use favor_figure::escape;

use std::fmt::Write;

const CSS: &str = include_str!("page.css");

/// A page with this title and body.
pub(crate) fn page(title: &str, body: &str) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n");
    out.push_str("<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    let _ = writeln!(out, "<title>{title}</title>\n<style>\n{CSS}</style>\n</head>");
    let _ = write!(out, "<body>\n<main>\n{body}</main>\n</body>\n</html>\n");
    // Numbers stay on one line with their signs.
    out.replace(" %", "\u{a0}%").replace("M = ", "M\u{a0}=\u{a0}")
}

/// The beginning of a section: a line above its title, and what it says.
pub(crate) fn section(out: &mut String, kicker: &str, title: &str, sentence: &str) {
    let _ = writeln!(out, "<h2><span class=\"kicker\">{kicker}</span><br>{title}</h2>");
    let _ = writeln!(out, "<p>{sentence}</p>");
}

/// A figure with its caption.
pub(crate) fn figure(out: &mut String, svg: &str, caption: &str) {
    let _ = writeln!(
        out,
        "<figure><div class=\"card\">{svg}</div><figcaption>{caption}</figcaption></figure>"
    );
}
