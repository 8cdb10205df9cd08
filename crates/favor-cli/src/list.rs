//! Lists of names as arguments.

use std::fmt::Display;
use std::str::FromStr;

/// Names with commas between them; `all` stands for a list of its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T: FromStr<Err: Display> + Clone + PartialEq> List<T> {
    /// Reads a list, each name once.
    pub(crate) fn parse(text: &str, all: &[T]) -> Result<Self, String> {
        let mut out: Vec<T> = Vec::new();
        for name in text.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            let named = match name {
                "all" => all.to_vec(),
                _ => vec![name.parse().map_err(|e: T::Err| e.to_string())?],
            };
            for one in named {
                if !out.contains(&one) {
                    out.push(one);
                }
            }
        }
        if out.is_empty() {
            Err("give at least one name, or all".to_owned())
        } else {
            Ok(Self(out))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_once_and_in_order() {
        let parse = |text: &str| List::<u8>::parse(text, &[1, 2]).map(|list| list.0);
        assert_eq!(parse("3, 1,3"), Ok(vec![3, 1]));
        assert_eq!(parse("2,all"), Ok(vec![2, 1]));
        assert!(parse(" ,").unwrap_err().contains("at least one"));
        assert!(parse("x").unwrap_err().contains("invalid digit"));
    }
}
