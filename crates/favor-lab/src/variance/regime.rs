//! The kinds of data of the experiment.

use super::data::Sources;
use favor::Matrix;
use favor::diagnose::sample_rows;
use favor::draw::Stream;

/// The dimension of the vectors: images have 8 × 8 pixels.
pub(super) const DIM: usize = 64;

/// A kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Regime {
    /// Both sides `N(0, s²I)`, with the scale s.
    Normal,
    /// Both sides uniform on the sphere of radius s.
    Sphere,
    /// `N(0, s²I)` against `N(s1, s²I)`.
    Heterogen,
    /// Digits on both sides.
    Mnist,
    /// Grey photographs on both sides.
    Cifar10,
    /// Digits against photographs.
    MnistCifar10,
}

impl Regime {
    /// All, in the order of the paper.
    pub const ALL: [Self; 6] = [
        Self::Normal,
        Self::Sphere,
        Self::Heterogen,
        Self::Mnist,
        Self::Cifar10,
        Self::MnistCifar10,
    ];

    /// The name in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Sphere => "sphere",
            Self::Heterogen => "heterogen",
            Self::Mnist => "mnist",
            Self::Cifar10 => "cifar10",
            Self::MnistCifar10 => "mnist/cifar10",
        }
    }

    pub(super) fn needs(self) -> (bool, bool) {
        let mnist = matches!(self, Self::Mnist | Self::MnistCifar10);
        (mnist, matches!(self, Self::Cifar10 | Self::MnistCifar10))
    }

    /// One pair of sets at scale 1, or `None` if its images are not there. Another scale multiplies both
    /// sets in every regime.
    pub(super) fn sets(
        self,
        sources: &Sources,
        rows: usize,
        seed: u64,
        set: usize,
    ) -> Option<(Matrix<f64>, Matrix<f64>)> {
        // Two streams per set: one for each side.
        let purpose = |side: u64| 2 * set as u64 + side;
        let normal = |side: u64, mean: f64| {
            let mut stream = Stream::new(seed, purpose(side));
            Matrix::from_fn(rows, DIM, |_, _| mean + stream.normal())
        };
        let images = |all: &Matrix<f64>, side: u64| {
            sample_rows(all.view(), rows, seed.wrapping_mul(1 << 20).wrapping_add(purpose(side)))
        };
        Some(match self {
            Self::Normal => (normal(0, 0.0), normal(1, 0.0)),
            Self::Sphere => (unit(normal(0, 0.0)), unit(normal(1, 0.0))),
            Self::Heterogen => (normal(0, 0.0), normal(1, 1.0)),
            Self::Mnist => {
                let all = sources.mnist.as_ref()?;
                (images(all, 0), images(all, 1))
            }
            Self::Cifar10 => {
                let all = sources.cifar10.as_ref()?;
                (images(all, 0), images(all, 1))
            }
            Self::MnistCifar10 => {
                (images(sources.mnist.as_ref()?, 0), images(sources.cifar10.as_ref()?, 1))
            }
        })
    }
}

/// Every row divided by its length.
fn unit(mut rows: Matrix<f64>) -> Matrix<f64> {
    for i in 0..rows.rows() {
        let row = rows.row_mut(i);
        let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
        row.iter_mut().for_each(|v| *v /= length);
    }
    rows
}
