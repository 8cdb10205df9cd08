//! An array as a stack of matrices.

use crate::Problem;
use crate::problem::check_finite;
use crate::side::Side;
use favor::Matrix;

/// An array of two, three or four dimensions as a stack of matrices, one per head.
///
/// There is at least one head, each has at least one row and one column, and every entry is finite.
///
/// ```
/// let stack = favor_io::Stack::new(vec![1.0, 2.0, 3.0, 4.0], &[2, 1, 2])?;
/// assert_eq!(stack.shape(), [2, 1, 2]);
/// assert_eq!(stack.heads()[1].row(0), [3.0, 4.0]);
/// # Ok::<(), favor_io::Problem>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    heads: Vec<Matrix<f64>>,
    has_head_axis: bool,
    source: Option<String>,
}

impl Stack {
    /// The numbers of an array, the last index running fastest: rows × columns, heads × rows ×
    /// columns, or a batch of one such stack.
    pub fn new(values: Vec<f64>, shape: &[usize]) -> Result<Self, Problem> {
        let shape: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        Self::of_shape(values, &shape)
    }

    pub(crate) fn of_shape(values: Vec<f64>, shape: &[u64]) -> Result<Self, Problem> {
        let [count, rows, columns] = dimensions(shape)?;
        let wanted = count.checked_mul(rows).and_then(|n| n.checked_mul(columns));
        if wanted != Some(values.len()) {
            return Err(Problem::Count { shape: shape.to_vec(), found: values.len() });
        }
        let has_head_axis = shape.len() > 2;
        check_finite(&values, [count, rows, columns], [false, has_head_axis])?;
        let matrix = |data: Vec<f64>| {
            Matrix::new(data, rows, columns).map_err(|_| Problem::Shape(shape.to_vec()))
        };
        let heads = match count {
            1 => vec![matrix(values)?],
            _ => values
                .chunks_exact(rows * columns)
                .map(|part| matrix(part.to_vec()))
                .collect::<Result<_, _>>()?,
        };
        Ok(Self { heads, has_head_axis, source: None })
    }

    /// Records where the array came from, for reports and messages.
    #[must_use]
    pub fn from_source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// One matrix per head, all of the same shape.
    pub fn heads(&self) -> &[Matrix<f64>] {
        &self.heads
    }

    /// The same, owned.
    pub fn into_heads(self) -> Vec<Matrix<f64>> {
        self.heads
    }

    /// Heads, rows and columns.
    pub fn shape(&self) -> [usize; 3] {
        let (rows, columns) = self.heads.first().map_or((0, 0), Matrix::shape);
        [self.heads.len(), rows, columns]
    }

    /// Whether the array had an axis for the heads.
    pub fn has_head_axis(&self) -> bool {
        self.has_head_axis
    }

    /// Where the array came from.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }
}

impl Side for Stack {
    fn size(&self, axis: usize) -> usize {
        self.shape()[axis]
    }

    fn source(&self) -> Option<&str> {
        self.source()
    }

    fn sizes_in_words(&self) -> String {
        let [heads, rows, columns] = self.shape();
        let heads = if self.has_head_axis { format!("{heads} heads of ") } else { String::new() };
        format!("{heads}{rows} × {columns}")
    }
}

/// Heads, rows and columns of an array of `shape`. Called before any number is read from a file.
pub(crate) fn dimensions(shape: &[u64]) -> Result<[usize; 3], Problem> {
    // A leading batch axis of one changes nothing.
    let dimensions = match *shape {
        [rows, columns] => [1, rows, columns],
        [heads, rows, columns] => [heads, rows, columns],
        [0 | 1, heads, rows, columns] => [heads, rows, columns],
        _ => return Err(Problem::Shape(shape.to_vec())),
    };
    if shape.contains(&0) {
        return Err(Problem::EmptyArray(shape.to_vec()));
    }
    let mut sizes = [0; 3];
    for (size, dimension) in sizes.iter_mut().zip(dimensions) {
        *size = usize::try_from(dimension).map_err(|_| Problem::TooLarge(shape.to_vec()))?;
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_entries_are_checked() {
        let message = |values: Vec<f64>, shape: &[usize]| {
            Stack::new(values, shape).map(|s| s.shape()).map_err(|p| p.to_string())
        };
        assert_eq!(message(vec![0.0; 6], &[2, 3]), Ok([1, 2, 3]));
        assert_eq!(message(vec![0.0; 6], &[1, 3, 1, 2]), Ok([3, 1, 2]));
        for (count, shape, words) in [
            (6, &[6][..], "has shape [6]"),
            (6, &[2, 3, 1, 1], "has shape [2, 3, 1, 1]"),
            (0, &[0, 3], "is empty: its shape is [0, 3]"),
            (5, &[2, 3], "has 5 numbers, which does not match its shape [2, 3]"),
            (7, &[3, 1, 2], "has 7 numbers"),
            (7, &[usize::MAX, 2, 2], "has 7 numbers"),
        ] {
            let message = message(vec![0.0; count], shape).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
        let mut values = vec![0.0; 24];
        values[12 + 2 * 4 + 3] = f64::NAN;
        let message = message(values, &[2, 3, 4]).unwrap_err();
        assert!(message.contains("NaN at head 1, row 2, column 3"), "{message}");
    }
}
