//! From a flat list of numbers and a shape to one matrix a head.

use super::{Heads, Problem};
use favor::Matrix;

/// The order in which the numbers of an array lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The last index runs fastest.
    C,
    /// The first index runs fastest.
    Fortran,
}

/// Heads, rows and columns of an array of `shape`. Meant to run before any number is read.
pub(super) fn check(shape: &[u64]) -> Result<(), Problem> {
    let wanted = match shape {
        [_, _] | [_, _, _] => true,
        [batch, _, _, _] => *batch <= 1,
        _ => false,
    };
    if !wanted {
        return Err(Problem::Shape(shape.to_vec()));
    }
    if shape.contains(&0) {
        return Err(Problem::EmptyArray(shape.to_vec()));
    }
    Ok(())
}

/// Splits the numbers into heads, and refuses those that are not finite.
pub(super) fn heads(values: Vec<f64>, shape: &[u64], order: Order) -> Result<Heads, Problem> {
    check(shape)?;
    // A batch of one in front changes neither order.
    let (count, rows, columns) = match *shape {
        [rows, columns] => (1, rows, columns),
        [heads, rows, columns] | [_, heads, rows, columns] => (heads, rows, columns),
        _ => return Err(Problem::Shape(shape.to_vec())),
    };
    let too_large = |_| Problem::TooLarge(shape.to_vec());
    let count = usize::try_from(count).map_err(too_large)?;
    let rows = usize::try_from(rows).map_err(too_large)?;
    let columns = usize::try_from(columns).map_err(too_large)?;

    let three_dimensional = shape.len() > 2;
    let mut heads = Vec::with_capacity(count);
    match order {
        Order::C if count == 1 => heads.push(matrix(values, rows, columns, shape)?),
        Order::C => {
            for part in values.chunks_exact(rows * columns) {
                heads.push(matrix(part.to_vec(), rows, columns, shape)?);
            }
        }
        Order::Fortran => {
            for h in 0..count {
                let entry = |i: usize, j: usize| values[h + count * (i + rows * j)];
                heads.push(Matrix::from_fn(rows, columns, entry));
            }
        }
    }
    for (h, head) in heads.iter().enumerate() {
        if let Some(at) = head.as_slice().iter().position(|v| !v.is_finite()) {
            return Err(Problem::NonFinite {
                head: three_dimensional.then_some(h),
                row: at / columns,
                column: at % columns,
                value: head.as_slice()[at],
            });
        }
    }
    Ok(Heads { heads, three_dimensional })
}

fn matrix(
    data: Vec<f64>,
    rows: usize,
    columns: usize,
    shape: &[u64],
) -> Result<Matrix<f64>, Problem> {
    Matrix::new(data, rows, columns).map_err(|_| Problem::Shape(shape.to_vec()))
}
