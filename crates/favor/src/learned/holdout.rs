//! What is held out: some of the sequences, or pieces of the only one.

use super::options::LearnOptions;
use crate::draw::Stream;
use std::ops::Range;

/// The number of pieces that a single sequence is split into, so that one can be held out.
const PIECES: usize = 4;

/// Tokens that are not learned from.
///
/// [`held_out`] lists them; its page has an example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldOut {
    /// The number of the sequence, from 0.
    pub sequence: usize,
    /// All its tokens, or a piece if there is only one sequence. Pieces are measured like whole sequences.
    pub tokens: Range<usize>,
}

/// What learning with these options holds out of so many sequences of `length` tokens without padding. A
/// single one is cut into pieces, if it has as many queries as keys.
///
/// ```
/// use favor::learned::{LearnOptions, held_out};
/// let held = held_out(8, 64, &LearnOptions::new());
/// assert_eq!((held.len(), held[0].tokens.clone()), (2, 0..64));
/// let held = held_out(1, 64, &LearnOptions::new());
/// assert_eq!((held.len(), held[0].sequence, held[0].tokens.len()), (1, 0, 16));
/// ```
pub fn held_out(sequences: usize, length: usize, options: &LearnOptions<'_>) -> Vec<HeldOut> {
    let pieces = pieces(sequences, length);
    let all = (0..sequences).flat_map(|sequence| {
        (0..pieces).map(move |p| HeldOut { sequence, tokens: piece(p, pieces, length) })
    });
    let held = all.zip(is_held_out(sequences * pieces, options));
    held.filter(|(_, is_held)| *is_held).map(|(tokens, _)| tokens).collect()
}

/// How many pieces each of so many sequences is cut into.
pub(super) fn pieces(sequences: usize, length: usize) -> usize {
    if sequences == 1 { PIECES.min(length) } else { 1 }
}

/// One of the pieces of a sequence.
pub(super) fn piece(number: usize, pieces: usize, length: usize) -> Range<usize> {
    number * length / pieces..(number + 1) * length / pieces
}

/// Which of so many sequences or pieces are held out: at least one, and never all.
pub(super) fn is_held_out(count: usize, options: &LearnOptions<'_>) -> Vec<bool> {
    let mut is_held = vec![false; count];
    if count < 2 {
        return is_held;
    }
    let held = ((options.holdout * count as f64).round() as usize).clamp(1, count - 1);
    let mut order: Vec<usize> = (0..count).collect();
    Stream::new(options.seed, 1 << 32).shuffle(&mut order);
    order[..held].iter().for_each(|&i| is_held[i] = true);
    is_held
}
