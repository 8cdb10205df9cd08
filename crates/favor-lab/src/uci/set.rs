//! The eight sets and the formats of their files.

use crate::{Error, Result};
use std::str::FromStr;

/// A set of the UCI repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// Age of shellfish in rings, from measurements.
    Abalone,
    /// Forged or real, from moments of images.
    Banknote,
    /// Whether to buy a car, from its grades.
    Car,
    /// The place of a protein in the cell.
    Yeast,
    /// The choice of a contraceptive method.
    Cmc,
    /// Grades of applications to nursery schools.
    Nursery,
    /// The room, from the strengths of wireless signals.
    Wifi,
    /// Moves to mate with king and rook against king.
    Chess,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// A name that says nothing about the class.
    Ignored,
    Number,
    /// One of a few words, each of which becomes a column of zeros and ones.
    Word,
}

/// What stands between two cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Separator {
    Comma,
    Tab,
    Blanks,
}

impl Separator {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Comma => "commas",
            Self::Tab => "tabs",
            Self::Blanks => "blanks",
        }
    }

    pub(super) fn cells(self, line: &str) -> Vec<&str> {
        match self {
            Self::Comma => line.split(',').map(str::trim).collect(),
            Self::Tab => line.split('\t').map(str::trim).collect(),
            Self::Blanks => line.split_whitespace().collect(),
        }
    }
}

/// The format of a file. The class stands in one more column, the last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    pub(super) file: &'static str,
    pub(super) separator: Separator,
    /// Columns of a kind, as runs.
    pub(super) columns: &'static [(usize, Column)],
}

impl Format {
    /// The kind of every column but the last.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Column> {
        self.columns.iter().flat_map(|&(count, kind)| std::iter::repeat_n(kind, count))
    }
}

impl Set {
    /// All, in the order of every table.
    pub const ALL: [Self; 8] = [
        Self::Abalone,
        Self::Banknote,
        Self::Car,
        Self::Yeast,
        Self::Cmc,
        Self::Nursery,
        Self::Wifi,
        Self::Chess,
    ];

    /// The name in commands, tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Abalone => "abalone",
            Self::Banknote => "banknote",
            Self::Car => "car",
            Self::Yeast => "yeast",
            Self::Cmc => "cmc",
            Self::Nursery => "nursery",
            Self::Wifi => "wifi",
            Self::Chess => "chess",
        }
    }

    pub(super) fn format(self) -> Format {
        use Column::{Ignored, Number, Word};
        let format = |file, separator, columns| Format { file, separator, columns };
        match self {
            Self::Abalone => format("abalone.data", Separator::Comma, &[(1, Word), (7, Number)]),
            Self::Banknote => format("banknote.txt", Separator::Comma, &[(4, Number)]),
            Self::Car => format("car.data", Separator::Comma, &[(6, Word)]),
            Self::Yeast => format("yeast.data", Separator::Blanks, &[(1, Ignored), (8, Number)]),
            Self::Cmc => format("cmc.data", Separator::Comma, &[(9, Number)]),
            Self::Nursery => format("nursery.data", Separator::Comma, &[(8, Word)]),
            Self::Wifi => format("wifi.txt", Separator::Tab, &[(7, Number)]),
            Self::Chess => format("chess.data", Separator::Comma, &[(6, Word)]),
        }
    }
}

impl FromStr for Set {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name).ok_or_else(|| {
            Error::invalid("set", favor::unknown_name(name, &Self::ALL.map(Self::name)))
        })
    }
}
