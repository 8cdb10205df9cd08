//! Prefetching memory while something else is computed. These are only hints: nothing is read here,
//! so any address is allowed.

use super::lanes::Lanes;

// What asking for a line takes, every processor of an architecture has.
#[cfg(target_arch = "aarch64")]
use super::neon::NeonF32 as Any;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Any = super::portable::Portable<f32>;
#[cfg(target_arch = "x86_64")]
use super::x86::Avx2F32 as Any;

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

    /// Asks for all of it.
    pub(crate) fn now(self) {
        self.spread(1).step::<Any>();
    }

    /// In so many steps: all at once would have to wait for one another.
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
