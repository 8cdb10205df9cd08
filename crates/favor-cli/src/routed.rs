//! Slots and members as one argument.

use std::str::FromStr;

/// How many slots a query prefers and how many members each has, as in `4x8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Routed {
    pub(crate) slots: usize,
    pub(crate) members: usize,
}

impl FromStr for Routed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || "give slots and members with an x between them, as in 4x8".to_owned();
        let (slots, members) = text.split_once(['x', '×']).ok_or_else(wanted)?;
        let number = |part: &str| part.trim().parse::<usize>().map_err(|_| wanted());
        let (slots, members) = (number(slots)?, number(members)?);
        // One of them alone would be a wish that nothing comes of.
        if (slots == 0) != (members == 0) {
            return Err(wanted());
        }
        Ok(Self { slots, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers_and_an_x() {
        assert_eq!("4x8".parse(), Ok(Routed { slots: 4, members: 8 }));
        assert_eq!("0x0".parse(), Ok(Routed { slots: 0, members: 0 }));
        for text in ["4", "x", "4x", "ax8", "4x-1", "4x8x2", "4x0", "0x8"] {
            assert!(text.parse::<Routed>().unwrap_err().contains("as in 4x8"), "{text}");
        }
    }
}
