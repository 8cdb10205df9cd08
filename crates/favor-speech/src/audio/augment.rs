//! Augmentation of utterances in training, so that a model does not memorise them.

use super::Features;
use favor::draw::Stream;
use favor_io::setters;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Random changes: another speed, noise, and masks over times and bands (D. Park et al., "SpecAugment",
/// 2019).
///
/// ```
/// use favor::draw::Stream;
/// use favor_speech::audio::{Augment, FrontEnd, Recording};
/// let (front, augment) = (FrontEnd::log_mel(8000, 40), Augment::default());
/// let recording = Recording::Sound((0..8000).map(|i| (i as f32).sin()).collect());
/// let mut stream = Stream::new(1, 0);
/// let changed = front.features(&recording, Some((&augment, &mut stream)));
/// assert!(changed.frames().abs_diff(98) <= 12);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Augment {
    /// The speed is drawn between one minus this and one plus this.
    pub speed: f64,
    /// The fraction of utterances that get noise, from 10 to 30 dB below the signal; sound only.
    pub noise: f64,
    /// Masks over times, each of up to a tenth of the utterance.
    pub time_masks: usize,
    /// Masks over bands, each of up to a quarter of them; sound only.
    pub band_masks: usize,
}

setters! { Augment {
    speed: f64,
    noise: f64,
    time_masks: usize,
    band_masks: usize,
} }

impl Default for Augment {
    fn default() -> Self {
        Self { speed: 0.1, noise: 0.3, time_masks: 1, band_masks: 1 }
    }
}

impl Augment {
    /// No change.
    pub const NONE: Self = Self { speed: 0.0, noise: 0.0, time_masks: 0, band_masks: 0 };

    pub(super) fn draw_speed(&self, stream: &mut Stream) -> f64 {
        1.0 + self.speed * (2.0 * stream.uniform() - 1.0)
    }

    pub(super) fn add_noise(&self, values: &mut [f32], stream: &mut Stream) {
        if self.noise == 0.0 || stream.uniform() >= self.noise {
            return;
        }
        let power = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        let loudness = (power / values.len().max(1) as f64).sqrt();
        let below = 10.0 + 20.0 * stream.uniform();
        let deviation = loudness * 10.0_f64.powf(-below / 20.0);
        // Uniform noise of the same power: as good as normal noise after a transform, and faster to
        // draw.
        let width = 12.0_f64.sqrt() * deviation;
        for value in values {
            *value += (width * (stream.uniform() - 0.5)) as f32;
        }
    }

    /// Zeros, which are the mean, over some times.
    pub(super) fn mask_times(&self, features: &mut Features, stream: &mut Stream) {
        let (dim, frames) = (features.dim(), features.frames());
        for _ in 0..self.time_masks {
            let times = span(frames, frames / 10, stream);
            features.values_mut()[times.start * dim..times.end * dim].fill(0.0);
        }
    }

    /// Zeros over some bands.
    pub(super) fn mask_bands(&self, features: &mut Features, stream: &mut Stream) {
        let bands = features.dim();
        for _ in 0..self.band_masks {
            let masked = span(bands, bands / 4, stream);
            for frame in features.values_mut().chunks_mut(bands) {
                frame[masked.clone()].fill(0.0);
            }
        }
    }
}

/// Up to `most` consecutive positions.
fn span(all: usize, most: usize, stream: &mut Stream) -> Range<usize> {
    let width = stream.index(most + 1);
    let start = stream.index(all - width + 1);
    start..start + width
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The power of 16 000 uniform numbers is known to within 0.7 %, a thirtieth of a decibel; the mean
    /// of 200 levels drawn from 20 decibels to within 0.4.
    #[test]
    fn noise_is_as_far_below_as_it_says() {
        let augment = Augment { noise: 1.0, ..Augment::NONE };
        let tone: Vec<f32> = (0..16_000).map(|i| (0.3 * i as f32).sin()).collect();
        let power = |x: &[f32]| x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        let mut stream = Stream::new(4, 4);
        let below: Vec<f64> = (0..200)
            .map(|_| {
                let mut loud = tone.clone();
                augment.add_noise(&mut loud, &mut stream);
                let noise: Vec<f32> = loud.iter().zip(&tone).map(|(a, b)| a - b).collect();
                10.0 * (power(&tone) / power(&noise)).log10()
            })
            .collect();
        assert!(below.iter().all(|b| (9.8..30.2).contains(b)), "{below:?}");
        let mean = below.iter().sum::<f64>() / 200.0;
        assert!((mean - 20.0).abs() < 5.0 * 0.41, "{mean}");
    }
}
