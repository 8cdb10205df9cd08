//! Queries, keys and values of several sequences, as attention takes them.

use crate::problem::check_finite;
use crate::side::{Side, fit};
use crate::{Error, Problem};
use favor::{Matrix, Tensor};

/// An array `[sequences, heads, tokens, columns]` in single precision, the last index running
/// fastest. No axis is empty and every entry is finite.
///
/// ```
/// let array = favor_io::Sequences::new(vec![1.0, 2.0, 3.0, 4.0], &[2, 1, 2])?;
/// assert_eq!(array.shape(), [1, 2, 1, 2]); // one sequence of two heads
/// assert_eq!(array.head(0, 1).row(0), [3.0, 4.0]);
/// # Ok::<(), favor_io::Problem>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Sequences {
    values: Vec<f32>,
    shape: [usize; 4],
    source: Option<String>,
}

impl Sequences {
    /// The numbers of an array: heads × tokens × columns, or sequences × heads × tokens × columns.
    pub fn new(values: Vec<f64>, shape: &[usize]) -> Result<Self, Problem> {
        let shape: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        Self::of_shape(values, &shape)
    }

    pub(crate) fn of_shape(values: Vec<f64>, shape: &[u64]) -> Result<Self, Problem> {
        let sizes @ [_, heads, tokens, columns] = dimensions(shape)?;
        let wanted = sizes.iter().try_fold(1_usize, |n, &size| n.checked_mul(size));
        if wanted != Some(values.len()) {
            return Err(Problem::Count { shape: shape.to_vec(), found: values.len() });
        }
        // Finite in `f64` may be too large for `f32`.
        let values: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
        check_finite(&values, [heads, tokens, columns], [shape.len() > 3, true])?;
        Ok(Self { values, shape: sizes, source: None })
    }

    /// Records where the array came from, for reports and messages.
    #[must_use]
    pub fn from_source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sequences, heads, tokens and columns.
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// Where the array came from.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// The array as the engine takes it.
    pub fn tensor(&self) -> favor::Result<Tensor<'_, f32>> {
        Tensor::new(&self.values, self.shape)
    }

    /// One head of one sequence. Both are counted from 0 and must exist.
    pub fn head(&self, sequence: usize, head: usize) -> Matrix<f64> {
        let [_, heads, tokens, columns] = self.shape;
        let start = (sequence * heads + head) * tokens * columns;
        Matrix::from_fn(tokens, columns, |i, l| f64::from(self.values[start + i * columns + l]))
    }
}

impl Side for Sequences {
    fn size(&self, axis: usize) -> usize {
        self.shape[axis]
    }

    fn source(&self) -> Option<&str> {
        self.source()
    }

    fn sizes_in_words(&self) -> String {
        let [sequences, heads, tokens, columns] = self.shape;
        format!("{sequences} sequences of {heads} heads, {tokens} × {columns}")
    }
}

/// Sequences, heads, tokens and columns of an array of `shape`. Called before any number is read from
/// a file.
pub(crate) fn dimensions(shape: &[u64]) -> Result<[usize; 4], Problem> {
    let dimensions = match *shape {
        [heads, tokens, columns] => [1, heads, tokens, columns],
        [sequences, heads, tokens, columns] => [sequences, heads, tokens, columns],
        _ => return Err(Problem::SequenceShape(shape.to_vec())),
    };
    if shape.contains(&0) {
        return Err(Problem::EmptyArray(shape.to_vec()));
    }
    let mut sizes = [0; 4];
    for (size, dimension) in sizes.iter_mut().zip(dimensions) {
        *size = usize::try_from(dimension).map_err(|_| Problem::TooLarge(shape.to_vec()))?;
    }
    Ok(sizes)
}

/// Queries, keys and optional values of the same sequences, with matching shapes.
///
/// ```
/// use favor_io::{SequenceArrays, Sequences};
/// let array = || Sequences::new(vec![0.5; 3 * 2 * 8 * 4], &[3, 2, 8, 4]);
/// let arrays = SequenceArrays::new(array()?, array()?, None)?;
/// assert_eq!((arrays.sequences(), arrays.heads(), arrays.dim()), (3, 2, 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceArrays {
    queries: Sequences,
    keys: Sequences,
    values: Option<Sequences>,
}

impl SequenceArrays {
    /// Combines three arrays if their shapes match.
    pub fn new(
        queries: Sequences,
        keys: Sequences,
        values: Option<Sequences>,
    ) -> Result<Self, Error> {
        let (query_side, key_side) = (("queries", &queries), ("keys", &keys));
        fit(query_side, key_side, 0, "both need the same number of sequences")?;
        fit(query_side, key_side, 1, "both need the same number of heads")?;
        fit(query_side, key_side, 3, "both need the same number of columns")?;
        if let Some(values) = &values {
            let value_side = ("values", values);
            fit(key_side, value_side, 0, "both need the same number of sequences")?;
            fit(key_side, value_side, 1, "both need the same number of heads")?;
            fit(key_side, value_side, 2, "every key needs one value")?;
        }
        Ok(Self { queries, keys, values })
    }

    /// Reads three files. Each file name may be followed by a colon and the name of an array.
    #[cfg(feature = "arrays")]
    pub fn read(queries: &str, keys: &str, values: Option<&str>) -> Result<Self, Error> {
        let read = crate::arrays::read_sequences;
        Self::new(read(queries)?, read(keys)?, values.map(read).transpose()?)
    }

    /// The queries.
    pub fn queries(&self) -> &Sequences {
        &self.queries
    }

    /// The keys.
    pub fn keys(&self) -> &Sequences {
        &self.keys
    }

    /// The values.
    pub fn values(&self) -> Option<&Sequences> {
        self.values.as_ref()
    }

    /// The number of sequences, at least one.
    pub fn sequences(&self) -> usize {
        self.queries.shape[0]
    }

    /// The number of heads, at least one.
    pub fn heads(&self) -> usize {
        self.queries.shape[1]
    }

    /// The dimension of queries and keys.
    pub fn dim(&self) -> usize {
        self.queries.shape[3]
    }

    /// Where the arrays came from, if known, as in `queries q.npy, keys k.npy`.
    pub fn sources(&self) -> Option<String> {
        let sides = [("queries", Some(&self.queries)), ("keys", Some(&self.keys))];
        let sides = sides.into_iter().chain([("values", self.values.as_ref())]);
        let named = sides.filter_map(|(what, side)| Some((what, side?)));
        let named = named.map(|(what, side)| Some(format!("{what} {}", side.source()?)));
        named.collect::<Option<Vec<String>>>().map(|named| named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(shape: &[usize]) -> Sequences {
        Sequences::new(vec![0.5; shape.iter().product()], shape).unwrap()
    }

    #[test]
    fn numbers_stay_in_their_places() {
        let numbers = (0..48).map(f64::from).collect();
        let array = Sequences::new(numbers, &[2, 3, 4, 2]).unwrap();
        assert_eq!(array.shape(), [2, 3, 4, 2]);
        assert_eq!(array.head(1, 2).row(3), [46.0, 47.0]);
        assert_eq!(array.head(0, 1).row(0), [8.0, 9.0]);
        assert_eq!(array.tensor().unwrap().shape(), [2, 3, 4, 2]);
    }

    #[test]
    fn shapes_and_entries_are_checked() {
        let message = |values: Vec<f64>, shape: &[usize]| {
            Sequences::new(values, shape).unwrap_err().to_string()
        };
        for (count, shape, words) in [
            (6, &[2, 3][..], "has shape [2, 3]; expected [heads, tokens, columns] or"),
            (0, &[2, 0, 3], "is empty: its shape is [2, 0, 3]"),
            (5, &[1, 2, 3], "has 5 numbers, which does not match its shape [1, 2, 3]"),
            (7, &[usize::MAX, 2, 2, 2], "has 7 numbers"),
        ] {
            let message = message(vec![0.0; count], shape);
            assert!(message.contains(words), "{message}");
        }
        let mut values = vec![0.0; 48];
        values[24 + 8 + 5] = f64::NAN;
        let found = message(values, &[2, 3, 4, 2]);
        assert!(found.contains("NaN at sequence 1, head 1, row 2, column 1"), "{found}");
        let found = message(vec![0.0, 1e300], &[1, 1, 2]);
        assert!(found.contains("inf at head 0, row 0, column 1"), "{found}");
    }

    #[test]
    fn misfits_name_both_sides() {
        let message = |queries: &[usize], keys: &[usize], values: Option<&[usize]>| {
            let queries = array(queries).from_source("q.npy");
            let found = SequenceArrays::new(queries, array(keys), values.map(array));
            found.unwrap_err().to_string()
        };
        let found = message(&[2, 3, 4, 2], &[3, 3, 4, 2], None);
        assert!(found.contains("queries q.npy (2 sequences of 3 heads, 4 × 2)"), "{found}");
        assert!(found.contains("same number of sequences"), "{found}");
        assert!(message(&[3, 4, 2], &[2, 4, 2], None).contains("of heads"));
        assert!(message(&[3, 4, 2], &[3, 4, 3], None).contains("of columns"));
        let found = message(&[3, 4, 2], &[3, 4, 2], Some(&[3, 5, 2]));
        assert!(found.contains("every key needs one value"), "{found}");
        let arrays = SequenceArrays::new(array(&[3, 4, 2]), array(&[3, 4, 2]), None).unwrap();
        assert_eq!(arrays.sources(), None);
    }
}
