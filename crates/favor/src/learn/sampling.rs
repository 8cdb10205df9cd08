//! A sample of rows that depends on their contents alone.

use crate::{Float, Rows};

/// The rows of positive weight whose contents have the lowest hashes, in the order of the hashes: at most
/// `most` different ones, each with all its copies. So neither the order of the rows shows, nor whether one
/// is repeated or weighted.
pub(super) fn sample<T: Float>(
    rows: Rows<'_, T>,
    weights: Option<&[f64]>,
    most: usize,
    seed: u64,
) -> Vec<usize> {
    let used = (0..rows.rows()).filter(|&i| weights.is_none_or(|w| w[i] > 0.0));
    let mut placed: Vec<(u64, usize)> = used.map(|i| (place(seed, rows.row(i)), i)).collect();
    placed.sort_unstable();
    let (mut different, mut last) = (0, None);
    let kept = placed.iter().take_while(|(place, _)| {
        if last != Some(*place) {
            (different, last) = (different + 1, Some(*place));
        }
        different <= most
    });
    // Copies without end would make a sample of all rows.
    kept.take(4 * most.max(1)).map(|(_, i)| *i).collect()
}

/// Where a row stands among all possible rows: its numbers, mixed until nothing is left of them.
fn place<T: Float>(seed: u64, row: &[T]) -> u64 {
    let mut state = seed ^ 0xD6E8_FEB8_6659_FD93;
    for value in row {
        // Both zeros are one value.
        let bits = (value.to_f64() + 0.0).to_bits();
        state = (state ^ bits).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        state ^= state >> 32;
    }
    state = (state ^ (state >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    state ^ (state >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;

    #[test]
    fn order_copies_and_weights_do_not_show() {
        let rows = Matrix::from_fn(500, 2, |i, l| ((i * 7 + l) as f64).sin());
        let contents = |rows: &Matrix<f64>, chosen: &[usize]| {
            let mut rows: Vec<Vec<u64>> =
                chosen.iter().map(|&i| rows.row(i).iter().map(|v| v.to_bits()).collect()).collect();
            rows.dedup();
            rows
        };
        let plain = sample(rows.view(), None, 100, 3);
        assert_eq!(plain.len(), 100);
        let reversed = Matrix::from_fn(500, 2, |i, l| rows[(499 - i, l)]);
        let found = sample(reversed.view(), None, 100, 3);
        assert_eq!(contents(&reversed, &found), contents(&rows, &plain));
        let twice = Matrix::from_fn(1000, 2, |i, l| rows[(i / 2, l)]);
        let found = sample(twice.view(), None, 100, 3);
        assert_eq!(found.len(), 200);
        assert_eq!(contents(&twice, &found), contents(&rows, &plain));
        let weights: Vec<f64> = (0..1000).map(|i| f64::from(i % 2)).collect();
        let found = sample(twice.view(), Some(&weights), 100, 3);
        assert_eq!((found.len(), contents(&twice, &found)), (100, contents(&rows, &plain)));
        assert_ne!(sample(rows.view(), None, 100, 4), plain);
        assert_eq!(sample(Matrix::zeros(1000, 1).view() as Rows<'_, f64>, None, 10, 0).len(), 40);
    }
}
