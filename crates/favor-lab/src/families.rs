//! The families that an experiment compares, and how they look in its figures.

use favor::Family;
use favor_figure::Series;

pub use favor_inspect::compared;

/// The families that the paper compares, in the order of every table.
pub fn paper() -> Vec<Family> {
    Family::ALL.into_iter().filter(|f| in_paper(*f)).collect()
}

fn in_paper(family: Family) -> bool {
    use Family::{Ade, Ge, Pos, Sade, Sde, Trig};
    matches!(family, Trig | Pos | Ge | Sade | Ade | Sde)
}

/// The number of a family's look, the same in every figure. The last family of all has the first
/// look: the strongest have full lines and the oldest dashes.
pub fn style(family: Family) -> usize {
    Family::ALL.iter().rev().position(|f| *f == family).unwrap_or(0)
}

/// A family's curve in the family's look. That of the library's default stands out.
pub fn series(family: Family, points: Vec<(f64, f64)>) -> Series {
    let series = Series::new(family.title(), points).style(style(family));
    if family == Family::default() { series.emphasised() } else { series }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_families_are_compared_and_no_two_look_alike() {
        assert_eq!(paper().len(), 6);
        assert!(paper().iter().all(|f| compared().contains(f)));
        let mut styles = Family::ALL.map(style);
        styles.sort_unstable();
        assert!(styles.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
