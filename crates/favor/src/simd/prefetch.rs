//! Memory that is brought near while something else is computed. Hints alone: nothing is read here,
//! so an address may be any.

use super::lanes::Lanes;

/// Bytes that come from memory together.
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

    /// In so many steps: all at once would have to wait for one another.
    #[inline(always)]
    pub(super) fn spread(self, steps: usize) -> Fetching {
        let step = self.bytes.div_ceil(LINE).div_ceil(steps) * LINE;
        Fetching { next: self.address, end: self.address + self.bytes, step }
    }
}

/// Memory that is being fetched.
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
