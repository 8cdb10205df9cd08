//! Examples of like length together: in training in an order that seed and epoch decide, else in that of
//! their lengths.

use favor::draw::Stream;

/// The stream that shuffles.
const PURPOSE: u64 = 0x6f72_6465;

/// Batches whose examples are of like length come from windows of so many batches.
const WINDOW: usize = 32;

/// Examples in shuffled batches of like length.
///
/// ```
/// let batches = favor_nn::batches::Batches::new(vec![5, 1, 4, 2], 2, 0);
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
        stream.shuffle(&mut order);
        // Sorted within windows, so that batches need little padding and yet differ each epoch.
        for window in order.chunks_mut(WINDOW * self.size) {
            window.sort_by_key(|i| self.lengths[*i]);
        }
        let mut batches: Vec<Vec<usize>> = order.chunks(self.size).map(<[_]>::to_vec).collect();
        stream.shuffle(&mut batches);
        batches
    }
}

/// The places of examples of these lengths, from the shortest to the longest, in groups of at most `size`
/// whose lengths, padded to the longest, sum up to at most `budget`. A longer example is a group of its own.
///
/// ```
/// use favor_nn::batches::like_length;
/// assert_eq!(like_length(&[5, 1, 9, 2], 3, 10), [vec![1, 3], vec![0], vec![2]]);
/// ```
pub fn like_length(lengths: &[usize], size: usize, budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|i| lengths[*i]);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for i in order {
        match groups.last_mut() {
            Some(group) if group.len() < size && (group.len() + 1) * lengths[i] <= budget => {
                group.push(i);
            }
            _ => groups.push(vec![i]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_keep_within_size_and_budget() {
        let lengths: Vec<usize> = (0..200).map(|i| 1 + i * 37 % 101).collect();
        let groups = like_length(&lengths, 7, 150);
        let order = groups.concat();
        assert!(order.is_sorted_by_key(|i| lengths[*i]));
        let mut all = order.clone();
        all.sort();
        assert_eq!(all, (0..200).collect::<Vec<_>>());
        for group in &groups {
            let longest = lengths[*group.last().unwrap()];
            assert!(group.len() <= 7 && (group.len() == 1 || group.len() * longest <= 150));
        }
        // No group could have taken in the first of the next.
        for pair in groups.windows(2) {
            let more = pair[0].len() + 1;
            assert!(more > 7 || more * lengths[pair[1][0]] > 150);
        }
        assert!(like_length(&[], 7, 150).is_empty());
    }

    #[test]
    fn every_example_once_and_other_batches_each_epoch() {
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
