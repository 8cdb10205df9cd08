//! The order in which the numbers of an array lie in a file.

use crate::Problem;
use crate::stack::{Stack, dimensions};

/// An order of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The last index runs fastest.
    C,
    /// The first index runs fastest.
    Fortran,
}

/// An error for a shape that is no stack of matrices. Meant to run before any number is read.
pub(super) fn check(shape: &[u64]) -> Result<(), Problem> {
    dimensions(shape).map(|_| ())
}

/// The stack of an array whose numbers lie in this order.
pub(super) fn stack(values: Vec<f64>, shape: &[u64], order: Order) -> Result<Stack, Problem> {
    let [count, rows, columns] = dimensions(shape)?;
    if order == Order::C || values.len() != count * rows * columns {
        return Stack::of_shape(values, shape);
    }
    let mut out = Vec::with_capacity(values.len());
    for h in 0..count {
        for i in 0..rows {
            out.extend((0..columns).map(|j| values[h + count * (i + rows * j)]));
        }
    }
    Stack::of_shape(out, shape)
}
