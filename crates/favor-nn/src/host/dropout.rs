//! Dropout whose masks cost little on the CPU.

use super::is_flex;
use super::operation::{HostOperation, Input, Output, apply};
use burn::nn::Dropout;
use burn::tensor::{DType, Device, Distribution, Tensor};
use pulp::Arch;
use rayon::prelude::*;

/// Numbers that a thread works on at a time.
const PIECE: usize = 1 << 14;

/// What the module does. burn draws one number after the other from one generator; on the CPU the
/// generator is asked for a seed alone, and the mask is a hash of the places, which is never stored.
pub fn drop_some<const D: usize>(module: &Dropout, x: Tensor<D>) -> Tensor<D> {
    if x.dtype() == DType::F32
        && let Some(mask) = Mask::of(module, &x.device())
        && let Ok(input) = Input::new(x.clone())
    {
        return apply(Drop { mask, shape: x.dims() }, [input]);
    }
    module.forward(x)
}

/// Which numbers are kept, and what they are multiplied by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mask {
    seed: u64,
    below: u64,
    kept: f32,
}

impl Mask {
    /// The numbers that a mask is made of at a time: a piece of it begins at a multiple of this.
    pub(super) const STEP: usize = 4 * HASHES;

    /// A new mask of a module on the CPU, if it is training.
    pub(super) fn of(module: &Dropout, device: &Device) -> Option<Self> {
        let active = module.training.is_enabled() && device.is_autodiff() && module.prob > 0.0;
        if active && is_flex(device) {
            Some(Self::new(seed(device)?, 1.0 - module.prob))
        } else {
            None
        }
    }

    fn new(seed: u64, keep: f64) -> Self {
        // Sixteen bits decide, so `keep` is rounded to as many.
        let below = (65536.0 * keep).round().max(1.0);
        Self { seed, below: below as u64, kept: (65536.0 / below) as f32 }
    }

    /// The factors of the numbers from place `first` on: `1/keep`, or 0 for what is dropped.
    #[inline(always)]
    pub(super) fn fill(&self, first: usize, factors: &mut [f32]) {
        for (n, factors) in factors.chunks_mut(Self::STEP).enumerate() {
            let start = (first / Self::STEP + n) * HASHES;
            let hashes: [u64; HASHES] =
                std::array::from_fn(|i| hash(self.seed, (start + i) as u64));
            for (part, factors) in factors.chunks_mut(HASHES).enumerate() {
                for (factor, bits) in factors.iter_mut().zip(hashes) {
                    let dropped = (bits >> (16 * part)) & 0xffff >= self.below;
                    *factor = if dropped { 0.0 } else { self.kept };
                }
            }
        }
    }
}

/// Hashes that are made together; each decides on four numbers.
const HASHES: usize = 16;

/// From the device's generator, so that its seed decides the masks.
fn seed(device: &Device) -> Option<u64> {
    let drawn = Tensor::<1>::random([3], Distribution::Default, device).without_autodiff();
    let drawn = drawn.try_into_vec_as::<f32>().ok()?;
    Some(drawn.iter().fold(0, |seed, x| (seed << 24) ^ (x * 16_777_216.0) as u64))
}

/// The generator splitmix64 (Steele, Lea and Flood, 2014) at a place of its sequence.
#[inline(always)]
fn hash(seed: u64, place: u64) -> u64 {
    let z = seed.wrapping_add((place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Every number times its factor.
#[derive(Debug)]
struct Drop<const D: usize> {
    mask: Mask,
    shape: [usize; D],
}

impl<const D: usize> Drop<D> {
    fn times(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        let pieces = out.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE)).enumerate();
        pieces.for_each(|(piece, (out, x))| {
            Arch::new().dispatch(
                #[inline(always)]
                || {
                    self.mask.fill(piece * PIECE, out);
                    out.iter_mut().zip(x).for_each(|(out, x)| *out *= x);
                },
            );
        });
        out
    }
}

impl<const D: usize> HostOperation<1, D> for Drop<D> {
    const INPUTS: bool = false;

    fn forward(&self, [x]: [&[f32]; 1], _: bool) -> Output<D> {
        Output { values: self.times(x), shape: self.shape, kept: vec![] }
    }

    fn backward(&self, _: [&[f32]; 1], _: Vec<f32>, gradient: &[f32]) -> [Vec<f32>; 1] {
        [self.times(gradient)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::generator;

    /// Counts of independent draws are within five standard deviations of what is expected.
    #[test]
    fn masks_keep_their_share_independently() {
        let (len, keep) = (100_003, 0.9);
        let mask = |seed: u64| {
            let mut factors = vec![9.0; len];
            Mask::new(seed, keep).fill(0, &mut factors);
            factors
        };
        let masks: Vec<Vec<f32>> = (0..3).map(mask).collect();
        let close = |count: usize, of: usize, p: f64| {
            let deviation = (of as f64 * p * (1.0 - p)).sqrt();
            assert!(
                (count as f64 - of as f64 * p).abs() < 5.0 * deviation + 1.0,
                "{count} of {of}"
            );
        };
        for mask in &masks {
            assert!(mask.iter().all(|v| *v == 0.0 || (*v - 1.0 / 0.9).abs() < 1e-4));
            let dropped = |i: &usize| mask[*i] == 0.0;
            close((0..len).filter(dropped).count(), len, 0.1);
            for step in [1, 2, 3, 4, HASHES, Mask::STEP, PIECE] {
                let both = |i: &usize| mask[*i] == 0.0 && mask[i + step] == 0.0;
                close((0..len - step).filter(both).count(), len - step, 0.01);
            }
        }
        let both = |i: &usize| masks[0][*i] == 0.0 && masks[1][*i] == 0.0;
        close((0..len).filter(both).count(), len, 0.01);
        // A piece is what the whole has there.
        let mut piece = vec![9.0; 1000];
        Mask::new(1, keep).fill(PIECE, &mut piece);
        assert_eq!(piece, masks[1][PIECE..PIECE + 1000]);
    }

    #[test]
    fn the_device_decides_and_evaluation_keeps_all() {
        let _held = generator();
        let device = Device::flex().autodiff();
        let module = burn::nn::DropoutConfig::new(0.5).init();
        let ones = || Tensor::<2>::ones([64, 64], &device);
        let draw = |seed| {
            device.seed(seed);
            drop_some(&module, ones()).into_data()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        // The gradient is the mask.
        device.seed(1);
        let x = ones().require_grad();
        let out = drop_some(&module, x.clone());
        let found = out.clone().sum().backward();
        assert_eq!(x.grad(&found).unwrap().into_data(), out.into_data());
        let plain = Tensor::<2>::ones([64, 64], &Device::flex());
        assert_eq!(drop_some(&module, plain.clone()).into_data(), plain.into_data());
    }
}
