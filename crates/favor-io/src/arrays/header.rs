//! The header of a NumPy array: a Python dictionary with three known keys.
//!
//! Only what NumPy writes is accepted: an unusual header is an error rather than a guess, and
//! nothing in it can nest.

use super::layout::Order;
use crate::Problem;

/// What the header says.
#[derive(Debug, PartialEq)]
pub(super) struct Header {
    /// The type string, such as `<f4`.
    pub(super) descr: String,
    pub(super) order: Order,
    pub(super) shape: Vec<u64>,
}

/// Reads text such as `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
pub(super) fn parse(text: &str) -> Result<Header, Problem> {
    let mut cursor = Cursor { rest: text };
    let (mut descr, mut order, mut shape) = (None, None, None);
    cursor.expect('{')?;
    while !cursor.take('}') {
        let key = cursor.string()?;
        cursor.expect(':')?;
        let again = match key {
            "descr" => descr.replace(cursor.descr()?).is_some(),
            "fortran_order" => order.replace(cursor.order()?).is_some(),
            "shape" => shape.replace(cursor.shape()?).is_some(),
            _ => return Err(bad("the header has a key that is not known")),
        };
        if again {
            return Err(bad(format!("the header gives '{key}' twice")));
        }
        if !cursor.take(',') {
            cursor.expect('}')?;
            break;
        }
    }
    if !cursor.rest.trim().is_empty() {
        return Err(bad("the header goes on after its dictionary"));
    }
    match (descr, order, shape) {
        (Some(descr), Some(order), Some(shape)) => Ok(Header { descr, order, shape }),
        _ => Err(bad("the header lacks one of 'descr', 'fortran_order' and 'shape'")),
    }
}

struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, wanted: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, wanted: char) -> Result<(), Problem> {
        if self.take(wanted) { Ok(()) } else { Err(bad(format!("the header lacks a '{wanted}'"))) }
    }

    fn string(&mut self) -> Result<&'a str, Problem> {
        self.rest = self.rest.trim_start();
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let quote = quote.ok_or_else(|| bad("the header lacks a quoted word"))?;
        let (word, rest) = self.rest[1..]
            .split_once(quote)
            .ok_or_else(|| bad("a quoted word in the header does not end"))?;
        self.rest = rest;
        Ok(word)
    }

    fn descr(&mut self) -> Result<String, Problem> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('[') {
            return Err(Problem::Dtype("record with fields".to_owned()));
        }
        self.string().map(str::to_owned)
    }

    fn order(&mut self) -> Result<Order, Problem> {
        self.rest = self.rest.trim_start();
        for (word, order) in [("False", Order::C), ("True", Order::Fortran)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(order);
            }
        }
        Err(bad("'fortran_order' is neither True nor False"))
    }

    fn shape(&mut self) -> Result<Vec<u64>, Problem> {
        let mut shape = Vec::new();
        self.expect('(')?;
        while !self.take(')') {
            self.rest = self.rest.trim_start();
            let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
            let (digits, rest) = self.rest.split_at(end);
            let size = digits.parse();
            shape.push(size.map_err(|_| bad("'shape' is not a list of whole numbers"))?);
            // Old Python marked long integers with an L.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }
}

fn bad(what: impl Into<String>) -> Problem {
    Problem::malformed("npy", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_numpy_writes() {
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n";
        let wanted = Header { descr: "<f4".into(), order: Order::C, shape: vec![2, 3] };
        assert_eq!(parse(text).unwrap(), wanted);
        let text = "{\"shape\": (5L,), \"fortran_order\":True,\"descr\":\"|u1\"}";
        let wanted = Header { descr: "|u1".into(), order: Order::Fortran, shape: vec![5] };
        assert_eq!(parse(text).unwrap(), wanted);
        let text = "{'descr': '<f8', 'fortran_order': False, 'shape': ()}";
        assert_eq!(parse(text).unwrap().shape, Vec::<u64>::new());
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            "{",
            "}",
            "{}",
            "{'descr': '<f4'}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 99999999999999999999)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}",
            "{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x",
            "{'descr': '<f4, 'fortran_order': False, 'shape': (2, 3)}",
            "{é",
            "{'é",
            "((((((((((((((((((((",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let record = "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}";
        assert!(matches!(parse(record), Err(Problem::Dtype(_))));
    }
}
