//! The memory order of an array in a file.

use crate::Problem;

/// An array as it was read, the last index running fastest.
pub(super) struct Array {
    pub(super) values: Vec<f64>,
    pub(super) shape: Vec<u64>,
}

/// Rejects unwanted shapes. It is called before any number is read.
pub(super) type Check = fn(&[u64]) -> Result<(), Problem>;

/// An order of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The last index runs fastest.
    C,
    /// The first index runs fastest.
    Fortran,
}

impl Array {
    /// An array whose numbers are in this order; there are as many as the shape needs.
    pub(super) fn new(values: Vec<f64>, shape: Vec<u64>, order: Order) -> Self {
        let values = match order {
            Order::C => values,
            Order::Fortran => transposed(&values, &shape),
        };
        Self { values, shape }
    }
}

/// The transpose: the last index runs fastest instead of the first.
fn transposed(values: &[f64], shape: &[u64]) -> Vec<f64> {
    let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
    let mut place = vec![0; shape.len()];
    let mut out = Vec::with_capacity(values.len());
    for _ in values {
        let from = place.iter().zip(&shape).rev().fold(0, |from, (p, size)| from * size + p);
        out.push(values[from]);
        for (p, &size) in place.iter_mut().zip(&shape).rev() {
            *p += 1;
            if *p < size {
                break;
            }
            *p = 0;
        }
    }
    out
}
