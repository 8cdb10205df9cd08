//! What attention costs, in multiplications and additions per token and head.

/// The sizes of a head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) dim: usize,
    pub(super) values: usize,
}

impl Cost {
    /// An exact key of a query.
    fn key(&self) -> f64 {
        (self.dim + self.values) as f64
    }

    /// Features, which project a query and a key, add the key to the sums and apply them to the query;
    /// and exact keys, whose estimates are taken back.
    pub(super) fn of(&self, features: usize, exact_keys: f64) -> f64 {
        2.0 * features as f64 * self.key() + exact_keys * (self.key() + features as f64)
    }

    /// Exact keys without features.
    pub(super) fn exact(&self, keys: f64) -> f64 {
        keys * self.key()
    }

    /// The window alone that costs as much.
    pub(super) fn window(&self, operations: f64, causal: bool) -> usize {
        let others = (operations / self.key() - 1.0).max(0.0);
        (if causal { others } else { others / 2.0 }).round() as usize
    }
}
