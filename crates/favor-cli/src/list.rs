//! Lists as arguments.

use std::fmt::{self, Display};
use std::str::FromStr;

/// Names or numbers with commas between them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T: Display> Display for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items: Vec<String> = self.0.iter().map(T::to_string).collect();
        f.write_str(&items.join(","))
    }
}

impl<T: FromStr<Err: Display>> FromStr for List<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let item = |name: &str| name.trim().parse().map_err(|e: T::Err| e.to_string());
        text.split(',').map(item).collect::<Result<_, _>>().map(Self)
    }
}

impl<T: FromStr<Err: Display> + Clone + PartialEq> List<T> {
    /// Reads a list, each name once; `all` stands for a list of its own.
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
    fn lists_are_read_as_they_are_printed() {
        let list: List<f64> = "0.5, 2,0.5".parse().unwrap();
        assert_eq!(list, List(vec![0.5, 2.0, 0.5]));
        assert_eq!(list.to_string(), "0.5,2,0.5");
        assert!("1,x".parse::<List<u8>>().unwrap_err().contains("invalid digit"));
        assert!("".parse::<List<u8>>().is_err());
    }

    #[test]
    fn names_come_once_and_in_order() {
        let parse = |text: &str| List::<u8>::parse(text, &[1, 2]).map(|list| list.0);
        assert_eq!(parse("3, 1,3"), Ok(vec![3, 1]));
        assert_eq!(parse("2,all"), Ok(vec![2, 1]));
        assert!(parse(" ,").unwrap_err().contains("at least one"));
        assert!(parse("x").unwrap_err().contains("invalid digit"));
    }
}
