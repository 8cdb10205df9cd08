//! The styles of series: colours that colour-blind readers can distinguish, dashes and markers.

use super::svg::{Svg, number};

// The palette of Okabe and Ito without its yellow, which is too pale on white.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
// Empty for a solid line.
const DASHES: [&str; 4] = ["", "5 2.5", "1.5 2", "7 2 1.5 2"];
const REFERENCE_DASHES: [&str; 3] = ["6 3", "2 2.5", "8 3 2 3"];
// With eight markers and seven colours, a pair repeats only after 56 styles.
const MARKERS: [Marker; 8] = [
    Marker::Circle,
    Marker::Square,
    Marker::Triangle,
    Marker::Diamond,
    Marker::Cross,
    Marker::Inverted,
    Marker::Plus,
    Marker::Pentagon,
];

/// The colour of reference lines.
pub(super) const REFERENCE_COLOUR: &str = "#6b6b6b";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Marker {
    Circle,
    Square,
    Triangle,
    Inverted,
    Diamond,
    Cross,
    Plus,
    Pentagon,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Look {
    pub(super) colour: &'static str,
    pub(super) dashes: &'static str,
    /// Hollow markers and pale bars, for a colour that is used a second time.
    pub(super) hollow: bool,
    marker: Marker,
}

impl Look {
    pub(super) fn of(index: usize) -> Self {
        let round = index / COLOURS.len();
        Self {
            colour: COLOURS[index % COLOURS.len()],
            dashes: DASHES[round % DASHES.len()],
            hollow: round % 2 == 1,
            marker: MARKERS[index % MARKERS.len()],
        }
    }

    /// The fill colour of a bar.
    pub(super) fn filling(&self) -> String {
        if self.hollow { pale(self.colour) } else { self.colour.to_owned() }
    }

    /// Draws the marker; `note` is its tooltip.
    pub(super) fn draw_marker(&self, svg: &mut Svg, x: f64, y: f64, radius: f64, note: &str) {
        let open = matches!(self.marker, Marker::Cross | Marker::Plus);
        let fill = match (open, self.hollow) {
            (true, _) => "none",
            (false, true) => "#ffffff",
            (false, false) => self.colour,
        };
        // A thin white outline separates markers where lines run close together.
        let (stroke, width) = match (open, self.hollow) {
            (true, _) => (self.colour, radius * 0.5),
            (false, true) => (self.colour, radius * 0.38),
            (false, false) => ("#ffffff", radius * 0.12),
        };
        let path = self.marker.path(x, y, radius);
        let width = number(width);
        let attributes =
            [("d", path.as_str()), ("fill", fill), ("stroke", stroke), ("stroke-width", &width)];
        svg.noted("path", &attributes, note);
    }
}

/// A colour of six hexadecimal digits, mixed with white.
fn pale(colour: &str) -> String {
    let part = |at: usize| {
        let digits = colour.get(at..at + 2).unwrap_or("00");
        let value = f64::from(u8::from_str_radix(digits, 16).unwrap_or(0));
        (255.0 - 0.35 * (255.0 - value)).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", part(1), part(3), part(5))
}

/// Dashes of the reference line at this index among the names.
pub(super) fn reference_dashes(index: usize) -> &'static str {
    REFERENCE_DASHES[index % REFERENCE_DASHES.len()]
}

impl Marker {
    fn path(self, x: f64, y: f64, r: f64) -> String {
        let points: &[(f64, f64)] = match self {
            Self::Circle => {
                let (left, r) = (number(x - r), number(r));
                let (y, across) = (number(y), number(2.0 * r.parse::<f64>().unwrap_or(0.0)));
                return format!("M{left} {y}a{r} {r} 0 1 0 {across} 0a{r} {r} 0 1 0 -{across} 0z");
            }
            Self::Cross | Self::Plus => {
                let (a, b) = if self == Self::Plus { (1.1 * r, 0.0) } else { (0.8 * r, 0.8 * r) };
                return format!(
                    "M{} {}L{} {}M{} {}L{} {}",
                    number(x - a),
                    number(y - b),
                    number(x + a),
                    number(y + b),
                    number(x - b),
                    number(y + a),
                    number(x + b),
                    number(y - a)
                );
            }
            Self::Square => &[(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)],
            Self::Triangle => &[(0.0, -1.2), (1.08, 0.8), (-1.08, 0.8)],
            Self::Inverted => &[(0.0, 1.2), (1.08, -0.8), (-1.08, -0.8)],
            Self::Diamond => &[(0.0, -1.25), (1.05, 0.0), (0.0, 1.25), (-1.05, 0.0)],
            Self::Pentagon => {
                &[(0.0, -1.1), (1.05, -0.34), (0.65, 0.89), (-0.65, 0.89), (-1.05, -0.34)]
            }
        };
        let corners: Vec<String> = points
            .iter()
            .map(|(dx, dy)| format!("{} {}", number(x + dx * r), number(y + dy * r)))
            .collect();
        format!("M{}z", corners.join("L"))
    }
}

/// Assigns every name its style: the one it asks for, or else the first that nobody asked for.
#[derive(Debug, Default)]
pub(super) struct Looks {
    names: Vec<(String, usize)>,
}

impl Looks {
    /// Takes all names of a picture with the styles they ask for, in order of appearance.
    pub(super) fn new<'a>(asked: impl Iterator<Item = (&'a str, Option<usize>)>) -> Self {
        let mut wanted: Vec<(&str, Option<usize>)> = Vec::new();
        for (name, style) in asked {
            match wanted.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = known.or(style),
                None => wanted.push((name, style)),
            }
        }
        let mut taken: Vec<usize> = wanted.iter().filter_map(|(_, style)| *style).collect();
        let mut names = Vec::with_capacity(wanted.len());
        for (name, style) in wanted {
            let index = style.unwrap_or_else(|| {
                let free = (0..).find(|i| !taken.contains(i)).unwrap_or(0);
                taken.push(free);
                free
            });
            names.push((name.to_owned(), index));
        }
        Self { names }
    }

    pub(super) fn of(&self, name: &str) -> Look {
        let known = self.names.iter().find(|(known, _)| known == name);
        Look::of(known.map_or(0, |(_, index)| *index))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_differ_and_chosen_ones_hold() {
        let all: Vec<Look> = (0..28).map(Look::of).collect();
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b), "look {i} comes twice");
        }
        let looks = Looks::new([("a", None), ("b", Some(0)), ("c", None), ("a", None)].into_iter());
        assert_eq!(looks.of("b"), Look::of(0));
        assert_eq!(looks.of("a"), Look::of(1));
        assert_eq!(looks.of("c"), Look::of(2));
        assert_eq!(looks.names().count(), 3);
    }
}
