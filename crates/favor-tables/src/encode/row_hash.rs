//! A hash of the contents of rows, as the table has them: the same on every machine, in any order,
//! batch or file format. It decides the fold of a row.

use super::time::to_days;
use super::{Column, ColumnKind, each_text, to_numbers};
use crate::Result;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::Float64Type;
use favor::learn::DEFAULT_FOLDS;

/// In how many folds rows are.
pub(crate) const FOLDS: usize = DEFAULT_FOLDS;

/// What stands for a missing value.
const NOTHING: u64 = 0x7FF8_DEAD_BEEF_0001;

/// A hash for each row of a batch, of the values of the columns.
pub(crate) fn row_hashes(columns: &[Column], arrays: &[ArrayRef]) -> Result<Vec<u64>> {
    let rows = arrays.first().map_or(0, |a| a.len());
    // Another beginning than that of the places of the sample: its rows are to be of all folds.
    let mut hashes = vec![0x2545_F491_4F6C_DD1D; rows];
    for (column, array) in columns.iter().zip(arrays) {
        match &column.kind {
            ColumnKind::Number | ColumnKind::Rank { .. } | ColumnKind::Boolean => {
                let numbers = to_numbers(&column.name, array)?;
                let numbers = numbers.as_primitive::<Float64Type>();
                if numbers.null_count() == 0 {
                    let values = hashes.iter_mut().zip(numbers.values());
                    values.for_each(|(hash, value)| mix(hash, bits(Some(*value))));
                } else {
                    let values = hashes.iter_mut().zip(numbers.iter());
                    values.for_each(|(hash, value)| mix(hash, bits(value)));
                }
            }
            ColumnKind::Text { .. } | ColumnKind::TargetMeans { .. } => {
                each_text(array, |i, text| {
                    match text {
                        None => mix(&mut hashes[i], NOTHING),
                        Some(text) => {
                            for piece in text.as_bytes().chunks(8) {
                                let mut word = [0; 8];
                                word[..piece.len()].copy_from_slice(piece);
                                mix(&mut hashes[i], u64::from_le_bytes(word));
                            }
                            mix(&mut hashes[i], text.len() as u64);
                        }
                    }
                    Ok(())
                })?;
            }
            ColumnKind::Time { .. } => {
                let days = hashes.iter_mut().zip(to_days(array)?);
                days.for_each(|(hash, value)| mix(hash, bits(value)));
            }
        }
    }
    hashes.iter_mut().for_each(finish);
    Ok(hashes)
}

/// The fold of each row.
pub(crate) fn folds(hashes: &[u64]) -> Vec<u8> {
    // The highest bits are the best mixed.
    hashes.iter().map(|hash| (((hash >> 32) as usize * FOLDS) >> 32) as u8).collect()
}

/// Both zeros are one value, and so are all that is missing.
fn bits(value: Option<f64>) -> u64 {
    match value {
        Some(value) if !value.is_nan() => (value + 0.0).to_bits(),
        _ => NOTHING,
    }
}

fn mix(hash: &mut u64, word: u64) {
    *hash = (*hash ^ word).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    *hash ^= *hash >> 32;
}

fn finish(hash: &mut u64) {
    *hash = (*hash ^ (*hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    *hash ^= *hash >> 33;
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Float32Array, Int64Array, LargeStringArray, StringArray};
    use std::sync::Arc;

    fn column(kind: ColumnKind) -> Column {
        Column { name: "c".into(), kind, marked: false }
    }

    #[test]
    fn formats_make_no_difference() {
        let columns = [column(ColumnKind::Number), column(ColumnKind::Text { categories: vec![] })];
        let whole: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let single: ArrayRef =
            Arc::new(Float32Array::from_iter_values((0..1000).map(|i| i as f32)));
        let words = || (0..1000).map(|i| format!("a longer word {}", i % 7));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(words()));
        let large: ArrayRef = Arc::new(LargeStringArray::from_iter_values(words()));
        let a = row_hashes(&columns, &[whole, texts.clone()]).unwrap();
        let b = row_hashes(&columns, &[single, large]).unwrap();
        assert_eq!(a, b);
        let mut counts = [0_i32; FOLDS];
        folds(&a).into_iter().for_each(|fold| counts[usize::from(fold)] += 1);
        // Within four deviations of a fair draw.
        let deviation = (1000.0 * 0.25 * 0.75_f64).sqrt();
        assert!(counts.iter().all(|c| f64::from((c - 250).abs()) < 4.0 * deviation), "{counts:?}");
    }

    #[test]
    fn where_a_text_ends_matters() {
        let columns: Vec<Column> =
            (0..2).map(|_| column(ColumnKind::Text { categories: vec![] })).collect();
        let text = |t: &str| -> ArrayRef { Arc::new(StringArray::from(vec![t])) };
        let hash = |a, b| row_hashes(&columns, &[text(a), text(b)]).unwrap()[0];
        assert_ne!(hash("ab", "c"), hash("a", "bc"));
        assert_ne!(hash("", "a"), hash("a", ""));
    }
}
