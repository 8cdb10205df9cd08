//! Which keys of a head are attended exactly; features carry the rest.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The keys that a query attends exactly. Features carry all others, in one normalisation:
///
/// ```text
/// out_i = ( Σ_{j∈E_i} k_ij v_j + Σ_{j∉E_i} k̂_ij v_j ) / ( the same with v = 1 )
/// ```
///
/// `E_i` is the union of a window around the query, a few keys that are exact for every query, and the
/// members of the *slots* that the query prefers. A slot is a feature: its members are the keys for which
/// it is largest, and a query prefers the slots that contribute most to its own normaliser. Finding them
/// takes only the sums over the keys, so attention stays linear in the length.
///
/// ```
/// use favor::ExactKeys;
/// let exact = ExactKeys::NONE.near(16).global(8).routed(4, 8);
/// assert_eq!(exact.most(), 2 * 16 + 1 + 8 + 4 * 8); // keys per query, at most
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExactKeys {
    /// The window: keys at most this far from the query, and only earlier ones if causal.
    pub near: usize,
    /// Keys that are exact for every query: a quarter of them, rounded up, are the first tokens, and the
    /// others those that a learned map estimates worst. With any other map, all are first tokens.
    pub global: usize,
    /// The number of slots that a query prefers.
    pub slots: usize,
    /// The number of members per slot. If there are fewer keys, all are members.
    pub members: usize,
}

impl ExactKeys {
    /// Features alone.
    pub const NONE: Self = Self { near: 0, global: 0, slots: 0, members: 0 };

    /// Exact attention.
    pub const ALL: Self = Self { near: usize::MAX, ..Self::NONE };

    /// The block size for routing causal attention: a query with `n` keys before it is routed by the first
    /// `n − n mod BLOCK`, however the sequence is split into calls. Masked keys do not count.
    pub const BLOCK: usize = 48;

    /// A window: keys at most this far away.
    #[must_use]
    pub const fn near(self, near: usize) -> Self {
        Self { near, ..self }
    }

    /// Keys that are exact for every query.
    #[must_use]
    pub const fn global(self, global: usize) -> Self {
        Self { global, ..self }
    }

    /// The members of the slots that a query prefers: how many slots, and how many members of each.
    #[must_use]
    pub const fn routed(self, slots: usize, members: usize) -> Self {
        Self { slots, members, ..self }
    }

    /// Whether there are no exact keys: features alone.
    pub fn is_none(&self) -> bool {
        self.near == 0 && self.global == 0 && !self.is_routed()
    }

    /// Whether every key is exact whatever the length, as in [`ExactKeys::ALL`].
    pub fn is_all(&self) -> bool {
        self.near == usize::MAX
    }

    /// Whether queries are routed to members of slots.
    pub fn is_routed(&self) -> bool {
        self.slots > 0 && self.members > 0
    }

    /// Whether there is a window, which needs as many queries as keys.
    pub(crate) fn has_window(&self) -> bool {
        self.near > 0 && !self.is_all()
    }

    /// Refuses more preferred slots than a map has features.
    pub(crate) fn check(&self, features: usize) -> Result<()> {
        if self.slots <= features {
            return Ok(());
        }
        let reason = format!("{} preferred slots of {features} features", self.slots);
        Err(Error::invalid("exact keys", reason))
    }

    /// Whether the map decides which keys they are: its slots do, and its errors at each key.
    pub(crate) fn depend_on_map(&self) -> bool {
        self.global > 0 || self.is_routed()
    }

    /// The maximum number of exact keys per query, with duplicates counted twice.
    pub fn most(&self) -> usize {
        self.of_sides(2)
    }

    /// The same if there are this many keys, and only earlier ones in the window if causal.
    ///
    /// ```
    /// use favor::ExactKeys;
    /// assert_eq!(ExactKeys::NONE.near(16).per_query(1000, true), 17);
    /// assert_eq!(ExactKeys::ALL.per_query(1000, true), 1000);
    /// ```
    pub fn per_query(&self, keys: usize, causal: bool) -> usize {
        self.of_sides(if causal { 1 } else { 2 }).min(keys)
    }

    fn of_sides(&self, sides: usize) -> usize {
        let window =
            if self.near == 0 { 0 } else { self.near.saturating_mul(sides).saturating_add(1) };
        window.saturating_add(self.global).saturating_add(self.slots.saturating_mul(self.members))
    }

    /// How many of the global keys are first tokens, and how many are those estimated worst.
    pub(crate) fn split_global(&self, has_probes: bool) -> (usize, usize) {
        let first = if has_probes { self.global.div_ceil(4) } else { self.global };
        (first, self.global - first)
    }
}

impl std::fmt::Display for ExactKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_all() {
            return f.write_str("exact");
        }
        let mut parts = vec![];
        if self.near > 0 {
            parts.push(format!("window ±{}", self.near));
        }
        if self.global > 0 {
            parts.push(format!("{} global", self.global));
        }
        if self.is_routed() {
            parts.push(format!("{} × {} routed", self.slots, self.members));
        }
        f.write_str(&if parts.is_empty() { "none".into() } else { parts.join(", ") })
    }
}
