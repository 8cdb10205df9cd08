//! Columns of texts: one number per category, or the means of the target where there are many.

use super::row_hash::FOLDS;
use super::slot::{Absent, Slot};
use crate::Result;
use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast_with_options;
use datafusion::arrow::datatypes::DataType;
use favor::Float;
use std::collections::HashMap;

impl<T: Float> Slot<'_, T> {
    pub(super) fn texts(
        &mut self,
        array: &ArrayRef,
        categories: &[String],
        absent: &mut Absent,
    ) -> Result<()> {
        let codes = codes(categories);
        each_text(array, |i, text| match text.map(|t| (t, codes.get(t))) {
            Some((_, Some(&code))) => {
                self.put(i, code, 1.0);
                Ok(())
            }
            Some((text, None)) => self.unknown(i, text, absent),
            None => self.miss(i, "null", absent),
        })
    }

    /// The means of the target over the rows of the same value: over the other folds for rows that a
    /// model is fitted to.
    pub(super) fn target_means(
        &mut self,
        array: &ArrayRef,
        values: &[String],
        means: &[f64],
        folds: Option<&[u8]>,
        absent: &mut Absent,
    ) -> Result<()> {
        let codes = codes(values);
        let targets = self.column.values();
        each_text(array, |i, text| match text.map(|t| (t, codes.get(t))) {
            Some((_, Some(&code))) => {
                let fold = folds.map_or(FOLDS, |folds| usize::from(folds[i]));
                let start = (code * (FOLDS + 1) + fold) * targets;
                for (n, mean) in means[start..start + targets].iter().enumerate() {
                    self.put(i, n, *mean);
                }
                Ok(())
            }
            Some((text, None)) => self.unknown(i, text, absent),
            None => self.miss(i, "null", absent),
        })
    }
}

fn codes(values: &[String]) -> HashMap<&str, usize> {
    values.iter().enumerate().map(|(k, v)| (v.as_str(), k)).collect()
}

/// Calls for each text of a column, in any of Arrow's layouts, without a copy of those that are
/// texts already.
pub(crate) fn each_text(
    array: &ArrayRef,
    mut take: impl FnMut(usize, Option<&str>) -> Result<()>,
) -> Result<()> {
    match array.data_type() {
        DataType::Utf8 => {
            array.as_string::<i32>().iter().enumerate().try_for_each(|(i, t)| take(i, t))
        }
        DataType::LargeUtf8 => {
            array.as_string::<i64>().iter().enumerate().try_for_each(|(i, t)| take(i, t))
        }
        DataType::Utf8View => {
            array.as_string_view().iter().enumerate().try_for_each(|(i, t)| take(i, t))
        }
        _ => to_texts(array)?.iter().enumerate().try_for_each(|(i, t)| take(i, t)),
    }
}

/// Any column as texts.
pub(crate) fn to_texts(array: &ArrayRef) -> Result<StringArray> {
    let texts = cast_with_options(array, &DataType::Utf8, &Default::default())?;
    Ok(texts.as_string::<i32>().clone())
}
