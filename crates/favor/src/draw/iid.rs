//! Independent rows: every entry an independent standard-normal number.
//!
//! The baseline that the other couplings improve on. All rows are read from one stream, one after
//! the other, which already gives the prefix property.

use super::stream::{Purpose, Stream};

pub(super) fn fill(seed: u64, omega: &mut [f64]) {
    Stream::block(seed, Purpose::Iid, 0).fill_normal(omega);
}
