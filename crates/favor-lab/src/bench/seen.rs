//! Which keys are seen: padding, and sequences that are packed.

use super::BenchOptions;
use favor::AttentionOptions;

/// The options of attention that say so.
pub(super) struct Seen {
    mask: Option<Vec<bool>>,
    offsets: Option<Vec<usize>>,
    /// Keys that are not padding, and pairs of a query and such a key, of a head of all sequences.
    pub(super) keys: usize,
    pub(super) pairs: usize,
}

impl Seen {
    pub(super) fn new(options: &BenchOptions, length: usize) -> Self {
        let is_seen = |j: usize| !options.masked || 5 * j < 4 * length;
        let one: Vec<bool> = (0..length).map(is_seen).collect();
        let offsets = if options.packed { unequal(length) } else { vec![0, length] };
        let keys = |from: usize, to: usize| one[from..to].iter().filter(|seen| **seen).count();
        let pairs = offsets.windows(2).map(|o| (o[1] - o[0]) * keys(o[0], o[1])).sum::<usize>();
        Self {
            keys: options.batch * keys(0, length),
            pairs: options.batch * pairs,
            mask: options.masked.then(|| one.repeat(options.batch)),
            offsets: options.packed.then_some(offsets),
        }
    }

    pub(super) fn options(&self) -> AttentionOptions<'_> {
        AttentionOptions::new().key_mask(self.mask.as_deref()).offsets(self.offsets.as_deref())
    }
}

/// Where sequences begin and end that fill a length, each half as long as the one before.
fn unequal(length: usize) -> Vec<usize> {
    const SHORTEST: usize = 32;
    let mut offsets = vec![0];
    let mut rest = length;
    while rest >= 2 * SHORTEST {
        rest /= 2;
        offsets.push(length - rest);
    }
    offsets.push(length);
    offsets
}
