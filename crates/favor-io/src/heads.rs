//! Queries, keys and values that belong together.

use crate::side::fit;
use crate::{Error, Stack};
use favor::Matrix;

/// The vectors of one head.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// One row per query.
    pub queries: Matrix<f64>,
    /// One row per key, with as many columns as the queries.
    pub keys: Matrix<f64>,
    /// One row per key.
    pub values: Option<Matrix<f64>>,
}

/// Queries, keys and optional values of the same heads, with matching shapes.
///
/// ```
/// use favor_io::{HeadArrays, Stack};
/// let rows = || Stack::new(vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6], &[3, 2]);
/// let arrays = HeadArrays::new(rows()?, rows()?, None)?;
/// assert_eq!((arrays.heads().len(), arrays.dim()), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HeadArrays {
    heads: Vec<Head>,
    has_head_axis: bool,
    sources: Option<String>,
}

impl HeadArrays {
    /// Combines three arrays if their shapes match.
    pub fn new(queries: Stack, keys: Stack, values: Option<Stack>) -> Result<Self, Error> {
        let query_side = ("queries", &queries);
        let key_side = ("keys", &keys);
        fit(query_side, key_side, 0, "both need the same number of heads")?;
        fit(query_side, key_side, 2, "both need the same number of columns")?;
        if let Some(values) = &values {
            let value_side = ("values", values);
            fit(key_side, value_side, 0, "both need the same number of heads")?;
            fit(key_side, value_side, 1, "every key needs one value")?;
        }
        let sides = [Some(query_side), Some(key_side), values.as_ref().map(|v| ("values", v))];
        let named = sides.into_iter().flatten();
        let named: Option<Vec<String>> =
            named.map(|(what, stack)| Some(format!("{what} {}", stack.source()?))).collect();
        let has_head_axis = queries.has_head_axis() || keys.has_head_axis();
        let mut values = values.map(|v| v.into_heads().into_iter());
        let heads = queries.into_heads().into_iter().zip(keys.into_heads());
        let heads = heads
            .map(|(queries, keys)| {
                let values = values.as_mut().and_then(Iterator::next);
                Head { queries, keys, values }
            })
            .collect();
        Ok(Self { heads, has_head_axis, sources: named.map(|n| n.join(", ")) })
    }

    /// Reads three files. Each file name may be followed by a colon and the name of an array.
    #[cfg(feature = "arrays")]
    pub fn read(queries: &str, keys: &str, values: Option<&str>) -> Result<Self, Error> {
        let read = crate::arrays::read_spec;
        Self::new(read(queries)?, read(keys)?, values.map(read).transpose()?)
    }

    /// The heads; there is at least one.
    pub fn heads(&self) -> &[Head] {
        &self.heads
    }

    /// The dimension of queries and keys.
    pub fn dim(&self) -> usize {
        self.heads.first().map_or(0, |h| h.queries.columns())
    }

    /// Whether there are values.
    pub fn has_values(&self) -> bool {
        self.heads.iter().all(|h| h.values.is_some())
    }

    /// Whether queries or keys had an axis for the heads.
    pub fn has_head_axis(&self) -> bool {
        self.has_head_axis
    }

    /// Where the arrays came from, if known, as in `queries q.npy, keys k.npy`.
    pub fn sources(&self) -> Option<&str> {
        self.sources.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(shape: &[usize]) -> Stack {
        Stack::new(vec![0.5; shape.iter().product()], shape).unwrap()
    }

    #[test]
    fn heads_come_in_order() {
        let numbers = |from: usize, count| (from..from + count).map(|v| v as f64).collect();
        let queries = Stack::new(numbers(0, 12), &[2, 3, 2]).unwrap();
        let keys = Stack::new(numbers(100, 8), &[2, 2, 2]).unwrap();
        let values = Stack::new(numbers(200, 4), &[2, 2, 1]).unwrap();
        let arrays = HeadArrays::new(queries, keys, Some(values)).unwrap();
        assert_eq!((arrays.dim(), arrays.has_values(), arrays.has_head_axis()), (2, true, true));
        let last = &arrays.heads()[1];
        assert_eq!(last.queries.row(0), [6.0, 7.0]);
        assert_eq!(last.keys.row(1), [106.0, 107.0]);
        assert_eq!(last.values.as_ref().unwrap().row(0), [202.0]);
        assert_eq!(arrays.sources(), None);
    }

    #[test]
    fn misfits_name_both_sides() {
        let message = |queries: Stack, keys: Stack, values: Option<Stack>| {
            HeadArrays::new(queries, keys, values).unwrap_err().to_string()
        };
        let named = stack(&[3, 2]).from_source("q.npy");
        assert_eq!(
            message(named, stack(&[4, 5]), None),
            "queries q.npy (3 × 2) and keys (4 × 5) do not fit: both need the same number of columns"
        );
        let found = message(stack(&[3, 4, 2]), stack(&[2, 4, 2]), None);
        assert!(found.contains("3 heads of 4 × 2") && found.contains("of heads"), "{found}");
        let found = message(stack(&[3, 2]), stack(&[4, 2]), Some(stack(&[3, 2])));
        assert!(found.contains("values (3 × 2)") && found.contains("one value"), "{found}");
        let found = message(stack(&[3, 2]), stack(&[4, 2]), Some(stack(&[2, 4, 2])));
        assert!(found.contains("same number of heads"), "{found}");
    }

    #[test]
    fn sources_are_told_when_all_are_known() {
        let side = |name: &str| stack(&[3, 2]).from_source(name);
        let arrays = HeadArrays::new(side("q.npy"), side("k.npy"), Some(side("v.npy"))).unwrap();
        assert_eq!(arrays.sources(), Some("queries q.npy, keys k.npy, values v.npy"));
        let arrays = HeadArrays::new(side("q.npy"), stack(&[3, 2]), None).unwrap();
        assert_eq!(arrays.sources(), None);
    }
}
