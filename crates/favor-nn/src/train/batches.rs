//! The order of the examples: a function of seed and epoch alone.

use favor::draw::Stream;

/// The stream that shuffles.
const PURPOSE: u64 = 0x6f72_6465;

/// Batches whose examples are of like length come from windows of so many batches.
const WINDOW: usize = 32;

/// Examples in shuffled batches of like length.
///
/// ```
/// let batches = favor_nn::train::Batches::new(vec![5, 1, 4, 2], 2, 0);
/// assert_eq!(batches.per_epoch(), 2);
/// assert_eq!(batches.epoch(0).concat().len(), 4);
/// ```
#[derive(Debug, Clone)]
pub struct Batches {
    lengths: Vec<usize>,
    size: usize,
    seed: u64,
}

impl Batches {
    /// Examples of these lengths, so many at a time.
    pub fn new(lengths: Vec<usize>, size: usize, seed: u64) -> Self {
        Self { lengths, size: size.max(1), seed }
    }

    /// Batches of an epoch.
    pub fn per_epoch(&self) -> u64 {
        self.lengths.len().div_ceil(self.size) as u64
    }

    /// The batches of an epoch: every example once.
    pub fn epoch(&self, epoch: u64) -> Vec<Vec<usize>> {
        let mut stream = Stream::new(self.seed.wrapping_add(epoch << 32), PURPOSE);
        let mut order: Vec<usize> = (0..self.lengths.len()).collect();
        shuffle(&mut order, &mut stream);
        // Sorted within windows, so that batches need little padding and yet differ each epoch.
        for window in order.chunks_mut(WINDOW * self.size) {
            window.sort_by_key(|i| self.lengths[*i]);
        }
        let mut batches: Vec<Vec<usize>> = order.chunks(self.size).map(<[_]>::to_vec).collect();
        shuffle(&mut batches, &mut stream);
        batches
    }
}

/// Fisher and Yates.
fn shuffle<T>(items: &mut [T], stream: &mut Stream) {
    for i in (1..items.len()).rev() {
        items.swap(i, stream.index(i + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_once_and_each_epoch_anew() {
        let batches = Batches::new((0..1000).map(|i| i % 37).collect(), 16, 5);
        let (one, two) = (batches.epoch(0), batches.epoch(1));
        assert_eq!(one.len() as u64, batches.per_epoch());
        assert_eq!(one, batches.epoch(0));
        assert_ne!(one, two);
        for epoch in [one, two] {
            let mut all: Vec<usize> = epoch.concat();
            all.sort();
            assert_eq!(all, (0..1000).collect::<Vec<_>>());
        }
    }
}
