//! Prefetching memory while something else is computed. These are only hints: nothing is read here,
//! so any address is allowed.

use super::lanes::Lanes;

/// Bytes fetched from memory together.
const LINE: usize = 64;

/// What will be used next.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prefetch {
    address: usize,
    bytes: usize,
}

impl Prefetch {
    pub(crate) fn of<T>(numbers: &[T]) -> Self {
        Self { address: numbers.as_ptr().addr(), bytes: size_of_val(numbers) }
    }

    /// In this many steps: requests made all at once would wait for one another.
    #[inline(always)]
    pub(super) fn spread(self, steps: usize) -> Fetching {
        let step = self.bytes.div_ceil(LINE).div_ceil(steps) * LINE;
        Fetching { next: self.address, end: self.address + self.bytes, step }
    }
}

/// Memory being fetched.
pub(super) struct Fetching {
    next: usize,
    end: usize,
    step: usize,
}

impl Fetching {
    #[inline(always)]
    pub(super) fn step<V: Lanes>(&mut self) {
        let stop = self.end.min(self.next + self.step);
        while self.next < stop {
            V::fetch(std::ptr::without_provenance(self.next));
            self.next += LINE;
        }
    }
}
