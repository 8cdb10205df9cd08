//! Memory that starts on a cache line.

use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, and of the longest vector.
const LINE: usize = 64;

/// Numbers that start on a cache line. Allocators only guarantee 16 bytes, and then every full-line
/// vector straddles two lines.
#[derive(Debug)]
pub(crate) struct Aligned<R> {
    /// A few more than requested.
    numbers: Vec<R>,
    start: usize,
    len: usize,
}

/// Where a line starts in memory with `spare` more numbers than needed.
fn line_start<R>(numbers: &[R], spare: usize) -> usize {
    let start = numbers.as_ptr().align_offset(LINE);
    // An unknown address is fine as it is: alignment only affects speed.
    if start <= spare { start } else { 0 }
}

impl<R: Copy + Default> Aligned<R> {
    pub(crate) fn zeros(len: usize) -> Self {
        let spare = LINE / size_of::<R>();
        let numbers = vec![R::default(); len + spare];
        Self { start: line_start(&numbers, spare), numbers, len }
    }

    pub(crate) fn copied(numbers: &[R]) -> Self {
        let mut aligned = Self::zeros(numbers.len());
        aligned.copy_from_slice(numbers);
        aligned
    }
}

impl<R> Deref for Aligned<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        &self.numbers[self.start..self.start + self.len]
    }
}

impl<R> DerefMut for Aligned<R> {
    fn deref_mut(&mut self) -> &mut [R] {
        &mut self.numbers[self.start..self.start + self.len]
    }
}

impl<R: Clone> Clone for Aligned<R> {
    /// The copy is elsewhere in memory, so its numbers are moved to where a line starts there.
    fn clone(&self) -> Self {
        let mut numbers = self.numbers.clone();
        let start = line_start(&numbers, numbers.len() - self.len);
        match start.checked_sub(self.start) {
            Some(right) => numbers.rotate_right(right),
            None => numbers.rotate_left(self.start - start),
        }
        Self { numbers, start, len: self.len }
    }
}

impl<R> Default for Aligned<R> {
    fn default() -> Self {
        Self { numbers: vec![], start: 0, len: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_on_a_line_and_survive_a_clone() {
        for len in [0, 1, 5, 64, 1000] {
            let given: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let aligned = Aligned::copied(&given);
            // Copies held at the same time have different addresses.
            let copies: Vec<Aligned<f32>> = (0..20).map(|_| aligned.clone()).collect();
            for l in copies.iter().chain([&aligned]) {
                assert_eq!(**l, *given);
                assert_eq!(l.as_ptr().addr() % LINE, 0);
            }
            assert!(Aligned::<f64>::zeros(len).iter().all(|x| *x == 0.0));
        }
        assert!(Aligned::<f32>::default().clone().is_empty());
    }
}
