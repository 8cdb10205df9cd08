//! Messages for a person that pass through other people's error types as text. Each process on the
//! way wraps what it gets, some of them twice; the marks let the client find the sentence again.

const OPEN: char = '⟦';
const CLOSE: char = '⟧';

/// Puts marks around a message, and takes out of it what a wrapper would escape.
pub(crate) fn mark(message: &str) -> String {
    let plain: String = message
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
pub(crate) fn marked(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(OPEN)?;
    let (message, _) = rest.split_once(CLOSE)?;
    let mut pieces = message.split('%');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece.get(..4).and_then(|code| u32::from_str_radix(code, 16).ok());
        out.push(code.and_then(char::from_u32)?);
        out.push_str(&piece[4..]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_being_wrapped() {
        let message = r#"column 'a "b" \ σ' holds 100 % ⟦of⟧ them"#;
        let wrapped = format!("Failed({:?})", format!("Task({:?})", mark(message)));
        assert_eq!(marked(&wrapped).as_deref(), Some(message));
        assert_eq!(marked("nothing here"), None);
        assert_eq!(marked("⟦cut"), None);
        assert_eq!(marked("⟦bad %zz⟧"), None);
    }
}
