//! Tables for the tests.

use favor_tables::datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use favor_tables::datafusion::arrow::datatypes::Schema;
use std::path::Path;
use std::sync::Arc;

/// A number between 0 and 1 for each index.
pub(crate) fn noise(i: usize) -> f64 {
    let mut z = (i as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

pub(crate) fn write(path: &Path, batch: RecordBatch) {
    let schema: Arc<Schema> = batch.schema();
    let batches = futures::stream::iter([Ok::<_, favor_tables::Error>(batch)]);
    let written = favor_tables::write_table(path, &schema, Box::pin(batches));
    favor_tables::runtime(Some(1)).unwrap().block_on(written).unwrap();
}

/// Rows with an id, two numbers, a flag, a colour, a label and a number to predict.
pub(crate) fn points(start: usize, count: usize) -> RecordBatch {
    let index = || start..start + count;
    let class = |i: usize| (3.0 * noise(7 * i)) as usize;
    let a = |i: usize| noise(i) + noise(i + 100_000) + class(i) as f64;
    let b = |i: usize| 0.01 * noise(i + 500_000) - 0.005 * class(i) as f64;
    let array: [(&str, ArrayRef); 7] = [
        ("id", Arc::new(Int64Array::from_iter_values(index().map(|i| i as i64)))),
        ("a", Arc::new(Float64Array::from_iter_values(index().map(a)))),
        ("b", Arc::new(Float64Array::from_iter_values(index().map(b)))),
        ("flag", Arc::new(BooleanArray::from_iter(index().map(|i| Some(noise(i + 9) < 0.4))))),
        (
            "colour",
            Arc::new(StringArray::from_iter_values(
                index().map(|i| ["blue", "green", "red"][(3.0 * noise(i + 77)) as usize]),
            )),
        ),
        (
            "label",
            Arc::new(StringArray::from_iter_values(
                index().map(|i| ["low", "middle", "high"][class(i)]),
            )),
        ),
        ("y", Arc::new(Float64Array::from_iter_values(index().map(|i| a(i).sin() + 50.0 * b(i))))),
    ];
    RecordBatch::try_from_iter(array).unwrap()
}

/// Many rows in a small file, so that one task reads it: two numbers of few values and a label.
pub(crate) fn coarse(count: usize) -> RecordBatch {
    let value = |i: usize, k: usize| (16.0 * noise(3 * i + k)).floor();
    let number = |k: usize| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values((0..count).map(|i| value(i, k))))
    };
    let label = |i: usize| i64::from(value(i, 0) + value(i, 1) > 15.0);
    let labels: ArrayRef = Arc::new(Int64Array::from_iter_values((0..count).map(label)));
    RecordBatch::try_from_iter([("x", number(0)), ("y", number(1)), ("label", labels)]).unwrap()
}
