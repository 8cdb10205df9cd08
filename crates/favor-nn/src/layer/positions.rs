//! What queries and keys know about where they are.

use crate::attention::{Attention, KeyMask, exact_with_bias};
use crate::{Error, Result};
use burn::module::{Module, Param};
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

/// The slowest angle turns once in some 60 000 places.
const BASE: f64 = 10_000.0;

/// How attention knows how far a key is from a query.
///
/// Turning (rotary positions: J. Su et al., "RoFormer", 2021) multiplies each pair of coordinates of
/// queries and keys by a rotation whose angle grows with the place, so that products depend on the
/// difference of places. Attention then is a kernel of turned vectors, which is what features estimate:
/// it suits every kind of attention, and costs a few operations for each number. A term for each pair of
/// places (Z. Dai et al., "Transformer-XL", 2019) is no kernel of two vectors alone and needs the whole
/// matrix of weights: it suits exact attention only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Positions {
    /// Nothing: the input says it.
    #[default]
    None,
    /// Queries and keys are turned by their places.
    Rotary,
    /// A learned term of the distance, made of sinusoids in so many dimensions.
    Relative(usize),
}

impl Positions {
    pub(super) fn check(self, kind: Attention) -> Result<()> {
        match self {
            Self::Relative(0) => Err(Error::invalid("positions", "0 dimensions of distances")),
            Self::Relative(_) if kind != Attention::Exact => {
                let reason = format!(
                    "a term for each pair of places needs exact attention, not {kind}; use rotary"
                );
                Err(Error::invalid("positions", reason))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn init(
        self,
        kind: Attention,
        embed_dim: usize,
        heads: usize,
        initializer: &Initializer,
        device: &Device,
    ) -> Result<Option<Relative>> {
        self.check(kind)?;
        let dim = embed_dim / heads;
        if self == Self::Rotary && !dim.is_multiple_of(2) {
            let reason = format!("heads of {dim} dimensions cannot be turned in pairs");
            return Err(Error::invalid("positions", reason));
        }
        let Self::Relative(width) = self else { return Ok(None) };
        let distance = LinearConfig::new(width, embed_dim).with_bias(false);
        let zeros = || Initializer::Zeros.init([1, heads, 1, dim], device);
        Ok(Some(Relative {
            distance: distance.with_initializer(initializer.clone()).init(device),
            content: zeros(),
            place: zeros(),
        }))
    }

    /// Queries or keys `[batch, heads, length, dim]` that know their places.
    pub(super) fn rotate(self, x: Tensor<4>) -> Tensor<4> {
        if self != Self::Rotary {
            return x;
        }
        let [_, _, length, dim] = x.dims();
        let (half, device, dtype) = (dim / 2, x.device(), x.dtype());
        let table = |function: fn(f64) -> f64| {
            let angles =
                (0..length).flat_map(|t| (0..half).map(move |i| t as f64 * frequency(i, half)));
            let values: Vec<f32> = angles.map(|a| function(a) as f32).collect();
            Tensor::<4>::from_data(TensorData::new(values, [1, 1, length, half]), &device)
                .cast(dtype)
        };
        let (cos, sin) = (table(f64::cos), table(f64::sin));
        let (a, b) = (x.clone().narrow(3, 0, half), x.narrow(3, half, half));
        let first = a.clone() * cos.clone() - b.clone() * sin.clone();
        Tensor::cat(vec![first, a * sin + b * cos], 3)
    }
}

/// The angle by which one place turns pair `i`.
fn frequency(i: usize, pairs: usize) -> f64 {
    BASE.powf(-(i as f64) / pairs as f64)
}

/// The weights of a term for each pair of places.
#[derive(Module, Debug)]
pub(super) struct Relative {
    distance: Linear,
    /// Added to queries where they meet keys.
    content: Param<Tensor<4>>,
    /// Added to queries where they meet distances.
    place: Param<Tensor<4>>,
}

impl Relative {
    pub(super) fn attend(
        &self,
        q: Tensor<4>,
        k: Tensor<4>,
        v: Tensor<4>,
        mask: Option<&KeyMask>,
        causal: bool,
    ) -> Result<Tensor<4>> {
        let [batch, heads, length, dim] = q.dims();
        if k.dims()[2] != length {
            let reason = "distances make sense within one sequence, not between two";
            return Err(Error::invalid("positions", reason));
        }
        let distances = self.distance.forward(self.sinusoids(length)); // [1, 2L − 1, width]
        let distances = distances.reshape([1, 2 * length - 1, heads, dim]).swap_dims(1, 2);
        let terms = (q.clone() + self.place.val()).matmul(distances.swap_dims(2, 3));
        // Row i holds distances from L − 1 down; its entry for key j is at place L − 1 − i + j. With a
        // column before, that is a plain shift of the numbers.
        let column = Tensor::<4>::zeros([batch, heads, length, 1], &q.device()).cast(q.dtype());
        let shifted = Tensor::cat(vec![column, terms], 3)
            .reshape([batch, heads, 2 * length, length])
            .narrow(2, 1, 2 * length - 1)
            .reshape([batch, heads, length, 2 * length - 1])
            .narrow(3, 0, length);
        exact_with_bias(q + self.content.val(), k, v, shifted, mask, causal)
    }

    /// Sines and cosines of all distances, from the greatest to the least.
    fn sinusoids(&self, length: usize) -> Tensor<3> {
        let weight = self.distance.weight.val();
        let width = weight.dims()[0];
        let half = width.div_ceil(2);
        let value = |distance: f64, i: usize| {
            if i < half {
                (distance * frequency(i, half)).sin()
            } else {
                (distance * frequency(i - half, half)).cos()
            }
        };
        let values: Vec<f32> = (0..2 * length - 1)
            .flat_map(|p| (0..width).map(move |i| value((length - 1) as f64 - p as f64, i) as f32))
            .collect();
        let data = TensorData::new(values, [1, 2 * length - 1, width]);
        Tensor::<3>::from_data(data, &weight.device()).cast(weight.dtype())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::normal;

    fn values(tensor: Tensor<4>) -> Vec<f32> {
        tensor.into_data().iter::<f32>().collect()
    }

    /// The product of turned vectors depends on how far apart they are, not on where.
    #[test]
    fn turned_products_know_the_distance() {
        let device = Device::flex();
        let row = |seed: f32| (0..6).map(move |i| (seed + i as f32).sin());
        let same = |seed: f32| {
            let rows: Vec<f32> = (0..9).flat_map(|_| row(seed)).collect();
            Tensor::<4>::from_data(TensorData::new(rows, [1, 1, 9, 6]), &device)
        };
        let q = Positions::Rotary.rotate(same(0.3));
        let k = Positions::Rotary.rotate(same(1.1));
        let products = values(q.matmul(k.swap_dims(2, 3)));
        let at = |i: usize, j: usize| products[9 * i + j];
        for i in 1..9 {
            for j in 1..9 {
                assert!((at(i, j) - at(i - 1, j - 1)).abs() < 1e-5);
            }
        }
        assert!((at(0, 3) - at(3, 0)).abs() > 1e-2);
        let plain: f32 = row(0.3).zip(row(1.1)).map(|(a, b)| a * b).sum();
        assert!((at(4, 4) - plain).abs() < 1e-5);
    }

    /// Keys of zeros leave the terms of distances alone, which the definition gives one by one.
    #[test]
    fn terms_of_distances_are_where_they_belong() {
        let (device, length, dim) = (Device::flex(), 4, 2);
        let zeros = Initializer::Zeros;
        let relative = Positions::Relative(6).init(Attention::Exact, 2, 1, &zeros, &device);
        let mut relative = relative.unwrap().unwrap();
        let weight = Tensor::<2>::from_data(normal([6, 2], 0.0, 1.0, 1), &device);
        relative.distance.weight = Param::from_tensor(weight);
        let shape = [1, 1, length, dim];
        let rows: Vec<f32> = (0..8).map(|i| (0.4 + 1.3 * i as f32).sin()).collect();
        let q = Tensor::<4>::from_data(TensorData::new(rows.clone(), shape), &device);
        let eye: Vec<f32> = (0..16).map(|i| f32::from(u8::from(i / 4 == i % 4))).collect();
        let eye = Tensor::<4>::from_data(TensorData::new(eye, [1, 1, 4, 4]), &device);
        let zeros = Tensor::zeros(shape, &device);
        let found = values(relative.attend(q, zeros, eye, None, false).unwrap());
        let table = relative.distance.forward(relative.sinusoids(length));
        let table: Vec<f32> = table.into_data().iter::<f32>().collect();
        for i in 0..length {
            let logit = |j: usize| {
                let place = 2 * (length - 1 + j - i);
                let product = rows[2 * i] * table[place] + rows[2 * i + 1] * table[place + 1];
                (product / (dim as f32).sqrt()).exp()
            };
            let sum: f32 = (0..length).map(logit).sum();
            for j in 0..length {
                let weight = logit(j) / sum;
                assert!((found[4 * i + j] - weight).abs() < 1e-5, "{i} {j}");
            }
        }
    }
}
