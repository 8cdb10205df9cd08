//! Data to measure on: queries, keys and values of heads that are not all alike.

use super::BenchOptions;
use crate::Result;
use favor::draw::Stream;
use favor::{FeatureMap, FeatureSpec, Kernel, Moments, Rows, Tensor};

pub(super) struct Inputs {
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
    pub(super) shape: [usize; 4],
}

impl Inputs {
    pub(super) fn new(options: &BenchOptions, length: usize) -> Result<Self> {
        let shape = [options.batch, options.heads, length, options.dim];
        let count = shape.iter().product();
        let mut stream = Stream::new(options.seed, 77);
        // A table of normals, walked through at odd steps: drawing every number would take longer
        // than the measurement.
        let table: Vec<f32> = (0..65_537).map(|_| stream.normal() as f32).collect();
        let fill = |step: usize, spread: f32| -> Vec<f32> {
            (0..count).map(|i| spread * table[(i * step) % table.len()]).collect()
        };
        Ok(Self { q: fill(7919, 0.35), k: fill(104_729, 0.35), v: fill(1_299_709, 1.0), shape })
    }

    pub(super) fn tensor<'a>(&self, data: &'a [f32]) -> Result<Tensor<'a, f32>> {
        Ok(Tensor::new(data, self.shape)?)
    }

    /// One map for all heads, fitted on the first.
    pub(super) fn map(&self, options: &BenchOptions, features: usize) -> Result<FeatureMap> {
        let [_, _, length, dim] = self.shape;
        let rows = length.min(4096);
        let moments = |x: &[f32]| Moments::of(Rows::new(&x[..rows * dim], rows, dim)?);
        let spec = FeatureSpec::new(options.family, features)
            .kernel(Kernel::attention(dim))
            .seed(options.seed);
        Ok(spec.fit(&moments(&self.q)?, &moments(&self.k)?)?)
    }
}
