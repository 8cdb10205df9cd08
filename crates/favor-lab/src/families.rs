//! Which families an experiment compares, and how they look in its figures.

use crate::{Error, Result};
use favor::Family;

/// The families that `all` stands for, in the order of every table.
pub const SHOWN: [Family; 10] = [
    Family::Trig,
    Family::Pos,
    Family::Hyperbolic,
    Family::Ge,
    Family::Sade,
    Family::Ade,
    Family::Sde,
    Family::SdeShifted,
    Family::AdeShifted,
    Family::Balanced,
];

/// The families that the paper compares.
pub const PAPER: [Family; 6] =
    [Family::Trig, Family::Pos, Family::Ge, Family::Sade, Family::Ade, Family::Sde];

/// Reads a list of names with commas between them; `all` stands for [`SHOWN`].
///
/// ```
/// use favor_lab::families::parse;
/// assert_eq!(parse("all")?.len(), 10);
/// assert_eq!(parse("sde, balanced")?.len(), 2);
/// assert!(parse("sdf").unwrap_err().to_string().contains("sde_shifted"));
/// # Ok::<(), favor_lab::Error>(())
/// ```
pub fn parse(list: &str) -> Result<Vec<Family>> {
    let mut out: Vec<Family> = Vec::new();
    for name in list.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        let found = match name {
            "all" => SHOWN.to_vec(),
            _ => vec![name.parse().map_err(|_| unknown(name))?],
        };
        for family in found {
            if !out.contains(&family) {
                out.push(family);
            }
        }
    }
    match out.is_empty() {
        true => Err(unknown(list)),
        false => Ok(out),
    }
}

fn unknown(name: &str) -> Error {
    let names = Family::ALL.map(Family::name).join(", ");
    let shown: String = name.chars().take(40).flat_map(char::escape_debug).collect();
    Error::Invalid(format!("--families: \"{shown}\" is no family; choose from all, {names}"))
}

/// The number of a family's look, the same in every figure.
pub fn style(family: Family) -> usize {
    match family {
        Family::Sde => 0,
        Family::Balanced => 1,
        Family::Ge => 2,
        Family::Hyperbolic => 3,
        Family::Pos => 4,
        Family::Ade => 5,
        Family::Trig => 6,
        Family::SdeShifted => 7,
        Family::AdeShifted => 12,
        Family::Sade => 9,
        Family::TrigPair => 13,
    }
}
