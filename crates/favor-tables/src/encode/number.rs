//! Columns of numbers, as they are or by their rank.

use super::Column;
use super::slot::{Absent, BLOCK, Slot};
use crate::normal::normal_quantile;
use crate::{Error, Result};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float32Array, Float64Array, PrimitiveArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use favor::Float;

/// The most knots of a column that is ranked.
const KNOTS: usize = 256;

/// A column of numbers, as it came or as 64-bit numbers.
pub(super) enum Numbers {
    Single(Float32Array),
    Double(Float64Array),
}

impl Numbers {
    pub(super) fn of(column: &Column, array: &ArrayRef) -> Result<Self> {
        if *array.data_type() == DataType::Float32 {
            return Ok(Self::Single(array.as_primitive().clone()));
        }
        Ok(Self::Double(to_numbers(&column.name, array)?.as_primitive().clone()))
    }
}

impl<T: Float> Slot<'_, T> {
    /// The block of rows that begins at `start`; by their rank among knots, where there are some.
    pub(super) fn numbers<A: ArrowPrimitiveType<Native: Into<f64>>>(
        &mut self,
        values: &PrimitiveArray<A>,
        knots: Option<&[(f64, f64)]>,
        start: usize,
        absent: &mut Absent,
    ) -> Result<()> {
        let block = start..(start + BLOCK).min(values.len());
        let (centre, inverse) = (self.scalings[0].centre, 1.0 / self.scalings[0].scale);
        let mut encoded = [T::default(); BLOCK];
        let mut finite = true;
        for (e, v) in encoded.iter_mut().zip(&values.values()[block.clone()]) {
            let value: f64 = (*v).into();
            let value = knots.map_or(value, |knots| rank(knots, value));
            *e = T::from_f64((value - centre) * inverse);
            finite &= e.is_finite();
        }
        let places = self.data[start * self.width + self.offset..].iter_mut().step_by(self.width);
        places.zip(&encoded[..block.len()]).for_each(|(place, e)| *place = *e);
        if finite && values.null_count() == 0 {
            return Ok(());
        }
        for i in block.filter(|&i| values.is_null(i) || !encoded[i - start].is_finite()) {
            let (null, value): (bool, f64) = (values.is_null(i), values.value(i).into());
            if !(null || value.is_nan()) {
                let reason = if value.is_finite() {
                    format!("holds {value}, too far from the rest for 32-bit numbers")
                } else {
                    format!("holds {value}; every value must be finite")
                };
                return Err(Error::column(&self.column.name, reason));
            }
            self.data[i * self.width + self.offset] = T::default();
            self.miss(i, if null { "null" } else { "NaN" }, absent)?;
        }
        Ok(())
    }
}

/// The normal number of a value: linear between knots, that of the last one beyond them. What is not
/// finite stays so.
fn rank(knots: &[(f64, f64)], value: f64) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let above = knots.partition_point(|k| k.0 <= value);
    match (above.checked_sub(1).map(|k| knots[k]), knots.get(above)) {
        (Some((x, y)), Some((next, z))) => y + (z - y) * ((value - x) / (next - x)),
        (Some((_, y)), None) => y,
        (None, Some((_, z))) => *z,
        (None, None) => 0.0,
    }
}

/// The knots for a sample of values with weights: each is a value with the normal quantile of the
/// middle of its ranks, so that equal values have one.
pub(crate) fn rank_knots(mut sample: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    sample.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = sample.iter().map(|s| s.1).sum();
    let (mut below, mut knots) = (0.0, vec![]);
    for equal in sample.chunk_by(|a, b| a.0 == b.0) {
        let weight: f64 = equal.iter().map(|s| s.1).sum();
        knots.push((equal[0].0, (below + 0.5 * weight) / total));
        below += weight;
    }
    // Of many values those at even ranks: the first, the last, and steps of equal weight.
    let step = 1.0 / (KNOTS - 1) as f64;
    let last = knots.len().saturating_sub(1);
    let mut chosen: Vec<(f64, f64)> = vec![];
    for (k, &(value, p)) in knots.iter().enumerate() {
        let far = chosen.last().is_none_or(|c| p - c.1 >= step);
        if knots.len() <= KNOTS || far || k == last {
            chosen.push((value, p));
        }
    }
    chosen.iter().map(|&(value, p)| (value, normal_quantile(p))).collect()
}

/// Any numeric or boolean column as 64-bit floats.
pub(crate) fn to_numbers(name: &str, array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Float64 => Ok(array.clone()),
        t if t.is_numeric() || *t == DataType::Boolean || *t == DataType::Null => {
            Ok(cast(array, &DataType::Float64)?)
        }
        other => Err(Error::column(name, format!("is of type {other} where numbers are needed"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knots of normal numbers leave them as they are but for the error of the sample.
    #[test]
    fn ranks_of_normal_numbers_are_the_numbers() {
        let count = 4096;
        let value = |i: usize| normal_quantile((i as f64 + 0.5) / count as f64);
        let knots = rank_knots((0..count).map(|i| (value(i).exp(), 1.0)).collect());
        assert!(knots.len() <= KNOTS + 1, "{}", knots.len());
        for i in (0..count).step_by(17) {
            let off = (rank(&knots, value(i).exp()) - value(i)).abs();
            // Between knots the line is off by the curvature of the logarithm; ends are few.
            let tolerance = if value(i).abs() < 2.0 { 0.01 } else { 0.35 };
            assert!(off < tolerance, "{i}: {off}");
        }
        assert_eq!(rank(&knots, -5.0), value(0));
        assert_eq!(rank(&knots, 1e9), value(count - 1));
        assert!(rank(&knots, f64::NAN).is_nan());
    }

    #[test]
    fn equal_values_share_the_middle_of_their_ranks() {
        let mut sample = vec![(0.0, 1.0); 90];
        sample.extend((1..=10).map(|i| (f64::from(i), 1.0)));
        let knots = rank_knots(sample);
        assert_eq!(knots.len(), 11);
        assert!((knots[0].1 - normal_quantile(0.45)).abs() < 1e-12);
        assert!((knots[10].1 - normal_quantile(0.995)).abs() < 1e-12);
        assert!(rank_knots(vec![]).is_empty());
        assert_eq!(rank(&[], 3.0), 0.0);
    }
}
