//! Quasi-Monte-Carlo rows: a scrambled Sobol sequence through the normal quantile.
//!
//! The first 2^k points of a Sobol sequence fill the unit cube evenly: each coordinate has exactly
//! one point in each interval of length 2^−k. Owen's scrambling keeps this and makes a point random
//! (A. B. Owen, "Randomly permuted (t,m,s)-nets and (t,s)-sequences", 1995). The sequence and the
//! scrambling, a hash that comes close to Owen's, are those of the crate `sobol_burley` (B. Burley,
//! "Practical Hash-based Owen Scrambling", 2020, with direction numbers of S. Joe and F. Y. Kuo).
//!
//! To make each row exactly N(0, I) rather than nearly so, every column is also shifted by random
//! bits (exclusive or, which keeps the evenness), and 20 random bits below the 32 of the sequence
//! remove the grid. Beyond the limits of the sequence, 256 columns and 2¹⁶ rows, further groups of
//! columns take the points in an independent order, and further rows start a new, independent
//! sequence.

use super::normal::quantile;
use super::stream::{Purpose, Stream, cell_centre};
use sobol_burley::{
    NUM_DIMENSIONS,
    parts::{owen_scramble_rev, sobol_rev},
};

/// The maximum number of rows of one sequence.
const LENGTH: usize = 1 << 16;

/// How one column is randomised.
struct Scramble {
    nested: u32,
    shift: u32,
}

pub(super) fn fill(seed: u64, omega: &mut [f64], dim: usize) {
    let group = NUM_DIMENSIONS as usize;
    for (sequence, rows) in omega.chunks_mut(dim.saturating_mul(LENGTH)).enumerate() {
        let mut stream = Stream::block(seed, Purpose::Sobol, sequence as u64);
        let orders: Vec<u32> = (0..dim.div_ceil(group)).map(|_| word(&mut stream)).collect();
        let scrambles: Vec<Scramble> = (0..dim)
            .map(|_| Scramble { nested: word(&mut stream), shift: word(&mut stream) })
            .collect();
        for (index, row) in (0u32..).zip(rows.chunks_exact_mut(dim)) {
            let columns = row.chunks_mut(group).zip(scrambles.chunks(group));
            for ((values, scrambles), &order) in columns.zip(&orders) {
                // A scrambled index permutes each run of 2^k points within a run of 2^k points,
                // so the first rows stay evenly spread.
                let place = owen_scramble_rev(index.reverse_bits(), order);
                for (column, (value, scramble)) in (0u32..).zip(values.iter_mut().zip(scrambles)) {
                    let point = owen_scramble_rev(sobol_rev(place, column), scramble.nested);
                    let high = u64::from(point.reverse_bits() ^ scramble.shift);
                    *value = quantile(cell_centre(high << 20 | stream.bits(20)));
                }
            }
        }
    }
}

fn word(stream: &mut Stream) -> u32 {
    stream.bits(32) as u32
}
