//! Dropout whose masks cost little on the CPU.

use super::is_flex;
use burn::nn::Dropout;
use burn::tensor::{Device, Distribution, Tensor, TensorData};
use rayon::prelude::*;

/// Numbers of a mask that a thread makes at a time.
const PIECE: usize = 1 << 14;

/// What the module does. burn draws one number after the other from one generator; on the CPU the
/// generator is asked for a seed alone, and the mask is a hash of the places, made on all threads.
pub fn drop_some<const D: usize>(module: &Dropout, x: Tensor<D>) -> Tensor<D> {
    let device = x.device();
    let active = module.training.is_enabled() && device.is_autodiff() && module.prob > 0.0;
    if !active || !is_flex(&device) {
        return module.forward(x);
    }
    let Some(seed) = seed(&device) else { return module.forward(x) };
    let shape = x.shape();
    let mask = mask(seed, shape.num_elements(), 1.0 - module.prob);
    let mask = Tensor::<D>::from_data(TensorData::new(mask, shape), &device);
    let mask = mask.cast(x.dtype());
    x * mask
}

/// From the device's generator, so that its seed decides the masks.
fn seed(device: &Device) -> Option<u64> {
    let drawn = Tensor::<1>::random([3], Distribution::Default, device).without_autodiff();
    let drawn = drawn.try_into_vec_as::<f32>().ok()?;
    Some(drawn.iter().fold(0, |seed, x| (seed << 24) ^ (x * 16_777_216.0) as u64))
}

/// `1/keep` in the place of kept numbers and 0 in that of others.
fn mask(seed: u64, len: usize, keep: f64) -> Vec<f32> {
    // Sixteen bits decide, so `keep` is rounded to as many.
    let below = (65536.0 * keep).round().max(1.0);
    let (below, kept) = (below as u64, (65536.0 / below) as f32);
    let mut out = vec![0.0; len];
    out.par_chunks_mut(PIECE).enumerate().for_each(|(piece, numbers)| {
        for (i, four) in numbers.chunks_mut(4).enumerate() {
            let mut bits = hash(seed, (piece * PIECE / 4 + i) as u64);
            for number in four {
                if bits & 0xffff < below {
                    *number = kept;
                }
                bits >>= 16;
            }
        }
    });
    out
}

/// The generator splitmix64 (Steele, Lea and Flood, 2014) at a place of its sequence.
fn hash(seed: u64, place: u64) -> u64 {
    let z = seed.wrapping_add((place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::generator;

    /// Counts of independent draws are within five standard deviations of what is expected.
    #[test]
    fn masks_keep_their_share_independently() {
        let (len, keep) = (100_003, 0.9);
        let masks: Vec<Vec<f32>> = (0..3).map(|seed| mask(seed, len, keep)).collect();
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
            for step in [1, 2, 3, 4, PIECE] {
                let both = |i: &usize| mask[*i] == 0.0 && mask[i + step] == 0.0;
                close((0..len - step).filter(both).count(), len - step, 0.01);
            }
        }
        let both = |i: &usize| masks[0][*i] == 0.0 && masks[1][*i] == 0.0;
        close((0..len).filter(both).count(), len, 0.01);
        assert_eq!(mask(1, len, keep), masks[1]);
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
        let plain = Tensor::<2>::ones([64, 64], &Device::flex());
        assert_eq!(drop_some(&module, plain.clone()).into_data(), plain.into_data());
    }
}
