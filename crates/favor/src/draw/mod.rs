//! Drawing ω: seed in, rows out.

use serde::{Deserialize, Serialize};

/// How the rows of ω depend on one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Coupling {
    /// Independent Gaussian rows.
    #[default]
    Iid,
}
