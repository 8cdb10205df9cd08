//! The inspection as JSON, at full precision.

use crate::{HeadInspection, Inspection};
use serde::Serialize;

impl Inspection {
    /// One object for a single matrix, a list of objects for arrays of heads. Undefined values are
    /// `null`.
    pub fn to_json(&self) -> String {
        let heads: Vec<Object<'_>> = self
            .heads
            .iter()
            .map(|head| Object { scaling: &self.scaling, hint: self.hint.as_deref(), head })
            .collect();
        // JSON can represent everything in these structs; numbers that are not finite become null.
        let text = match (self.has_head_axis, heads.as_slice()) {
            (false, [only]) => serde_json::to_string_pretty(only),
            (_, all) => serde_json::to_string_pretty(all),
        };
        text.unwrap_or_else(|_| "null".to_owned()) + "\n"
    }
}

#[derive(Serialize)]
struct Object<'a> {
    #[serde(flatten)]
    head: &'a HeadInspection,
    scaling: &'a str,
    hint: Option<&'a str>,
}
