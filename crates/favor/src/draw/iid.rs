//! Independent rows: every entry an independent standard-normal number.
//!
//! The law the other couplings improve on. One stream serves all rows, read row after row, which
//! already gives the prefix property.

use super::stream::{Purpose, Stream};

pub(super) fn fill(seed: u64, omega: &mut [f64]) {
    Stream::block(seed, Purpose::Iid, 0).fill_normal(omega);
}
