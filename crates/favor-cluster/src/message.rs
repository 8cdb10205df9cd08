//! Errors that pass through other libraries' error types as text. Each process on the way wraps what
//! it gets, some of them twice; the marks let the client find the error again.

use crate::Error;
use favor_tables::Remedy;
use serde::{Deserialize, Serialize};

const OPEN: char = '⟦';
const CLOSE: char = '⟧';

/// The part of an error that is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// A column that cannot be used, and what would help.
    Column { column: String, reason: String, remedy: Option<Remedy> },
    /// Anything else, as one readable line.
    Line(String),
}

impl From<&favor_tables::Error> for Message {
    fn from(error: &favor_tables::Error) -> Self {
        match error.clone() {
            favor_tables::Error::Column { column, reason, remedy } => {
                Self::Column { column, reason, remedy }
            }
            other => Self::Line(other.to_string()),
        }
    }
}

impl From<Message> for Error {
    fn from(message: Message) -> Self {
        match message {
            Message::Column { column, reason, remedy } => {
                favor_tables::Error::Column { column, reason, remedy }.into()
            }
            Message::Line(reason) => Self::Refused { reason },
        }
    }
}

/// A message between marks, without characters that a wrapper would escape.
pub(crate) fn mark(message: &Message) -> String {
    let text = serde_json::to_string(message).unwrap_or_default();
    let plain: String = text
        .chars()
        .flat_map(|c| match c {
            '"' | '\\' | '%' | OPEN | CLOSE => format!("%{:04x}", c as u32).chars().collect(),
            c if c.is_control() => vec![' '],
            c => vec![c],
        })
        .collect();
    format!("{OPEN}{plain}{CLOSE}")
}

/// The first marked message in a text.
pub(crate) fn marked(text: &str) -> Option<Message> {
    let (_, rest) = text.split_once(OPEN)?;
    let (message, _) = rest.split_once(CLOSE)?;
    let mut pieces = message.split('%');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece.get(..4).and_then(|code| u32::from_str_radix(code, 16).ok());
        out.push(code.and_then(char::from_u32)?);
        out.push_str(&piece[4..]);
    }
    serde_json::from_str(&out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_being_wrapped() {
        let text = "column 'a \"b\" \\ σ' holds\n100 % ⟦of⟧ them".to_string();
        let column = favor_tables::Error::Column {
            column: text.clone(),
            reason: "is odd".into(),
            remedy: Some(Remedy::Ignore),
        };
        for message in [Message::from(&column), Message::Line(text)] {
            let wrapped = format!("Failed({:?})", format!("Task({:?})", mark(&message)));
            assert_eq!(marked(&wrapped), Some(message));
        }
        assert_eq!(Error::from(Message::from(&column)), column.into());
        assert_eq!(marked("nothing here"), None);
        assert_eq!(marked("⟦cut"), None);
        assert_eq!(marked("⟦bad %zz⟧"), None);
        assert_eq!(marked("⟦no message⟧"), None);
    }
}
