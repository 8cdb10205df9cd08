//! Dividing a set into training, validation and test, and scaling it.

use super::read::Examples;
use favor::draw::Stream;
use favor::{Matrix, Moments};

/// Some rows of a set with their classes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) vectors: Matrix<f64>,
    pub(super) labels: Vec<usize>,
    pub(super) moments: Moments,
}

/// A set, divided. Columns are scaled to mean 0 and variance 1 over the training part; a column
/// that is constant there is only shifted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Split {
    pub(super) training: Part,
    pub(super) validation: Part,
    pub(super) test: Part,
    /// The classes of the training part as rows of zeros with a single one.
    pub(super) one_hot: Matrix<f64>,
}

impl Split {
    /// Shuffles by the stream and divides.
    pub(super) fn new(examples: &Examples, stream: &mut Stream) -> favor::Result<Self> {
        let mut order: Vec<usize> = (0..examples.labels.len()).collect();
        stream.shuffle(&mut order);
        let (training, validation, test) = parts(&order);
        let (mean, deviation) = scales(&examples.vectors, training);
        let part = |rows: &[usize]| {
            let vectors = Matrix::from_fn(rows.len(), mean.len(), |i, c| {
                (examples.vectors[(rows[i], c)] - mean[c]) / deviation[c]
            });
            let moments = Moments::of(vectors.view())?;
            let labels = rows.iter().map(|&i| examples.labels[i]).collect();
            favor::Result::Ok(Part { vectors, labels, moments })
        };
        let training = part(training)?;
        let one_hot = Matrix::from_fn(training.labels.len(), examples.classes.len(), |i, c| {
            f64::from(u8::from(training.labels[i] == c))
        });
        Ok(Self { training, validation: part(validation)?, test: part(test)?, one_hot })
    }

    /// The share of the test rows that have the most frequent class of the training part.
    pub(super) fn majority(&self) -> f64 {
        let count = |c: usize| self.training.labels.iter().filter(|l| **l == c).count();
        let classes = 0..self.one_hot.columns();
        let most = classes.max_by_key(|&c| (count(c), std::cmp::Reverse(c))).unwrap_or(0);
        let right = self.test.labels.iter().filter(|l| **l == most).count();
        right as f64 / self.test.labels.len() as f64
    }
}

/// Nine tenths, a twentieth, and the rest, which is a twentieth up to rounding.
fn parts(order: &[usize]) -> (&[usize], &[usize], &[usize]) {
    let (training, rest) = order.split_at(order.len() * 9 / 10);
    let (validation, test) = rest.split_at(order.len() / 20);
    (training, validation, test)
}

/// Mean and standard deviation of each column over the given rows; 1 for a constant column.
fn scales(vectors: &Matrix<f64>, rows: &[usize]) -> (Vec<f64>, Vec<f64>) {
    let count = rows.len() as f64;
    (0..vectors.columns())
        .map(|c| {
            let column = || rows.iter().map(|&i| vectors[(i, c)]);
            let mean = column().sum::<f64>() / count;
            let variance = column().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
            // What rounding leaves of a constant column is no variance.
            let constant = variance.sqrt() <= 1e-12 * mean.abs();
            (mean, if constant { 1.0 } else { variance.sqrt() })
        })
        .unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples(rows: usize) -> Examples {
        Examples {
            vectors: Matrix::from_fn(rows, 3, |i, c| [i as f64, 0.1, -(i as f64).sqrt()][c]),
            labels: (0..rows).map(|i| i % 2).collect(),
            classes: vec!["a".into(), "b".into()],
        }
    }

    #[test]
    fn parts_are_disjoint_and_whole() {
        for rows in [20, 39, 1372, 1484, 1728] {
            let order: Vec<usize> = (0..rows).collect();
            let (a, b, c) = parts(&order);
            assert_eq!((a.len(), b.len()), (rows * 9 / 10, rows / 20));
            assert!(c.len() >= b.len() && c.len() <= b.len() + 2);
            let mut all = [a, b, c].concat();
            all.sort_unstable();
            assert_eq!(all, (0..rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn scales_come_from_the_training_part() {
        let split = Split::new(&examples(200), &mut Stream::new(1, 0)).unwrap();
        let training = &split.training.moments;
        let covariance = training.covariance();
        for c in [0, 2] {
            assert!(training.mean()[c].abs() < 1e-12);
            assert!((covariance[(c, c)] - 1.0).abs() < 1e-12);
        }
        // A constant column becomes zero.
        assert!(split.test.vectors.view().iter().all(|row| row[1].abs() < 1e-12));
        // The other parts keep means of their own.
        assert!(split.test.moments.mean()[0].abs() > 1e-6);
        assert_eq!(split.one_hot.shape(), (180, 2));
        assert!(split.one_hot.view().iter().all(|row| row.iter().sum::<f64>() == 1.0));
    }
}
