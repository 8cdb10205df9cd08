//! A claim next to what an experiment found.

use std::fmt;

/// One claim and what we found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What is claimed, and by whom.
    pub claim: String,
    /// What we found.
    pub found: String,
    /// Whether it holds here.
    pub holds: bool,
    /// Where it does not, one line each.
    pub exceptions: Vec<String>,
}

/// Claim, verdict and exceptions, one line each.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds { "holds" } else { "does not hold" };
        writeln!(f, "{}\n  {verdict}: {}", self.claim, self.found)?;
        self.exceptions.iter().try_for_each(|exception| writeln!(f, "    {exception}"))
    }
}
