//! Streams of random numbers, fixed by a seed and by what they are for.
//!
//! A stream is the output of the ChaCha8 cipher (D. J. Bernstein, "ChaCha, a variant of Salsa20",
//! 2008). The seed, the purpose and the side (caller or library) are written side by side into its
//! 256-bit key and the number of the block into its stream id, so two different streams never
//! share a key and id: nothing is hashed, nothing can collide, and neighbouring seeds are as
//! unrelated as distant ones.

use super::normal::quantile;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// Marks the keys of this library; a new key scheme would get a new mark.
const MARK: [u8; 8] = *b"favor  1";

/// What the library itself draws. These numbers are part of every key: never renumber them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Iid = 0,
    Orthogonal = 1,
    Simplex = 2,
    Sobol = 3,
    Offsets = 4,
}

/// A reproducible stream of random numbers: the same on every machine for the same seed and
/// purpose, and unrelated to every other stream and to the rows of [`draw_omega`](super::draw_omega).
///
/// ```
/// use favor::draw::Stream;
///
/// let mut noise = Stream::new(7, 0);
/// let mut split = Stream::new(7, 1); // same seed, another purpose: an independent stream
/// let sample: Vec<f64> = (0..5).map(|_| noise.normal()).collect();
/// assert!(split.index(10) < 10);
///
/// let mut again = Stream::new(7, 0);
/// assert!(sample.iter().all(|&value| value == again.normal()));
/// ```
#[derive(Debug, Clone)]
pub struct Stream {
    generator: ChaCha8Rng,
}

impl Stream {
    /// Opens the stream of this seed and purpose. The purpose is any number the caller gives to
    /// one use of randomness, so that several uses can share a seed.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self::keyed(seed, purpose, 0)
    }

    /// The library's own stream for one block of rows.
    pub(super) fn block(seed: u64, purpose: Purpose, block: u64) -> Self {
        let mut stream = Self::keyed(seed, purpose as u64, 1);
        stream.generator.set_stream(block);
        stream
    }

    fn keyed(seed: u64, purpose: u64, side: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&purpose.to_le_bytes());
        key[16..24].copy_from_slice(&side.to_le_bytes());
        key[24..].copy_from_slice(&MARK);
        Self { generator: ChaCha8Rng::from_seed(key) }
    }

    /// The next number uniform in (0, 1), never 0 or 1.
    pub fn uniform(&mut self) -> f64 {
        cell_centre(self.bits(52))
    }

    /// The next standard-normal number.
    pub fn normal(&mut self) -> f64 {
        quantile(self.uniform())
    }

    /// The next index uniform in `0..n`, without the bias of a plain remainder. It is 0 if `n` is 0.
    pub fn index(&mut self, n: usize) -> usize {
        // Lemire, "Fast random integer generation in an interval", 2019: the high word of a product
        // is the index. Of the 2⁶⁴ words, the surplus 2⁶⁴ mod n are rejected.
        let n = n as u64;
        let surplus = n.wrapping_neg().checked_rem(n).unwrap_or(0);
        loop {
            let product = u128::from(self.bits(64)) * u128::from(n);
            if product as u64 >= surplus {
                return (product >> 64) as usize;
            }
        }
    }

    /// Brings items into a random order, each order equally likely (Fisher and Yates).
    ///
    /// ```
    /// let mut order = [0, 1, 2, 3, 4];
    /// favor::draw::Stream::new(7, 0).shuffle(&mut order);
    /// assert_ne!(order, [0, 1, 2, 3, 4]);
    /// order.sort();
    /// assert_eq!(order, [0, 1, 2, 3, 4]);
    /// ```
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }

    /// Keeps `count` items in random order; if there are no more, all of them. Each choice is equally likely.
    ///
    /// ```
    /// let mut few: Vec<usize> = (0..100).collect();
    /// favor::draw::Stream::new(7, 0).choose(&mut few, 3);
    /// assert_eq!(few.len(), 3);
    /// ```
    pub fn choose<T>(&mut self, items: &mut Vec<T>, count: usize) {
        for i in 0..items.len().min(count) {
            let j = i + self.index(items.len() - i);
            items.swap(i, j);
        }
        items.truncate(count);
    }

    /// Fills a slice with standard-normal numbers.
    pub(super) fn fill_normal(&mut self, values: &mut [f64]) {
        values.iter_mut().for_each(|value| *value = self.normal());
    }

    /// The next `count` random bits, from 1 to 64.
    pub(super) fn bits(&mut self, count: u32) -> u64 {
        self.generator.next_u64() >> (64 - count)
    }
}

/// The centre of cell `cell` of the 2⁵² equal cells of (0, 1).
///
/// Centres are odd multiples of 2⁻⁵³, so they and their distances to 1 are exact: the grid is
/// symmetric about ½ and stays clear of 0 and 1, where the normal quantile is infinite.
pub(super) fn cell_centre(cell: u64) -> f64 {
    (cell as f64 + 0.5) / (1u64 << 52) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stay_inside_and_are_symmetric() {
        let last = (1 << 52) - 1;
        assert_eq!(cell_centre(0), f64::EPSILON / 2.0);
        assert_eq!(cell_centre(last), 1.0 - f64::EPSILON / 2.0);
        assert_eq!(1.0 - cell_centre(last - 12345), cell_centre(12345));
    }

    #[test]
    fn values_are_fixed() {
        let mut stream = Stream::new(1, 2);
        assert_eq!(stream.uniform(), 0.32576259611497693);
        assert_eq!(stream.normal(), -0.48801367997560346);
        assert_eq!(stream.index(1000), 167);
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let streams = [
            Stream::new(0, 0),
            Stream::new(1, 0),
            Stream::new(1 << 40, 0),
            Stream::new(0, 1),
            Stream::new(0, 1 << 40),
            Stream::block(0, Purpose::Iid, 0),
            Stream::block(1, Purpose::Iid, 0),
            Stream::block(0, Purpose::Iid, 1),
            Stream::block(0, Purpose::Orthogonal, 0),
            Stream::block(0, Purpose::Simplex, 0),
            Stream::block(0, Purpose::Sobol, 0),
            Stream::block(0, Purpose::Offsets, 0),
        ];
        let mut words = streams.map(|mut stream| stream.bits(64));
        words.sort_unstable();
        assert!(words.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn indices_are_uniform_and_in_range() {
        let mut stream = Stream::new(3, 0);
        assert_eq!((stream.index(0), stream.index(1)), (0, 0));
        assert!(stream.index(usize::MAX) < usize::MAX);
        let mut counts = [0.0; 7];
        (0..70_000).for_each(|_| counts[stream.index(7)] += 1.0);
        // χ² with 6 degrees of freedom exceeds 27.9 with probability 1e-4.
        let chi2: f64 = counts.iter().map(|c: &f64| (c - 1e4) * (c - 1e4) / 1e4).sum();
        assert!(chi2 < 27.9, "{chi2}");
    }

    /// All 24 orders of four items, and all 12 ordered pairs of them, equally often.
    #[test]
    fn orders_and_choices_are_uniform() {
        let mut stream = Stream::new(5, 0);
        let mut chi2 = |size: usize, kinds: usize| {
            let mut counts = std::collections::BTreeMap::new();
            for _ in 0..24_000 {
                let mut items = vec![0, 1, 2, 3];
                if size == 4 {
                    stream.shuffle(&mut items);
                } else {
                    stream.choose(&mut items, size);
                }
                assert_eq!(items.len(), size);
                *counts.entry(items).or_insert(0.0) += 1.0;
            }
            assert_eq!(counts.len(), kinds);
            let mean = 24_000.0 / kinds as f64;
            counts.values().map(|c: &f64| (c - mean).powi(2) / mean).sum::<f64>()
        };
        // χ² with 23 and 11 degrees of freedom exceeds 57.1 and 37.4 with probability 1e-4.
        let (orders, pairs) = (chi2(4, 24), chi2(2, 12));
        assert!(orders < 57.1 && pairs < 37.4, "{orders} {pairs}");
        let mut all = vec![1, 2, 3];
        stream.choose(&mut all, 7);
        all.sort();
        assert_eq!(all, [1, 2, 3]);
        stream.shuffle::<u8>(&mut []);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn surplus_words_are_refused() {
        // For n = 3·2⁶² a plain product would give every third index twice the probability.
        let mut stream = Stream::new(4, 0);
        let n = 3 << 62;
        let hits = (0..30_000).filter(|_| stream.index(n).is_multiple_of(3)).count() as f64;
        // Binomial(30000, 1/3) has standard deviation 81.6.
        assert!((hits - 1e4).abs() < 4.5 * 81.6, "{hits}");
    }
}
