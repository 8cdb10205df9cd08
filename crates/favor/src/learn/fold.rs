//! The fold of a row: a function of its contents, so that neither order nor pieces nor workers show.

use crate::Float;

/// How many folds are kept unless the caller says otherwise.
pub const DEFAULT_FOLDS: usize = 4;

/// The fold of a row: a hash of its numbers. Equal rows share a fold, so that none is predicted by its own
/// copies.
///
/// ```
/// use favor::learn::fold_of;
/// assert_eq!(fold_of(&[0.5_f32, -0.0], 4), fold_of(&[0.5_f64, 0.0], 4));
/// ```
pub fn fold_of<T: Float>(row: &[T], folds: usize) -> u8 {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for value in row {
        // Both zeros are one value.
        let bits = (value.to_f64() + 0.0).to_bits();
        state = (state ^ bits).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        state ^= state >> 32;
    }
    state = (state ^ (state >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    // The high half of a product with the number of folds is uniform over them.
    ((u128::from(state ^ (state >> 33)) * folds.max(1) as u128) >> 64) as u8
}
