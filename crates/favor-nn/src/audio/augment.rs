//! What training does to utterances, so that a model does not learn them by heart.

use super::Features;
use favor::draw::Stream;
use serde::{Deserialize, Serialize};

/// Changes at random: another speed, noise, and masks over times and bands (D. Park et al.,
/// "SpecAugment", 2019).
///
/// ```
/// use favor::draw::Stream;
/// use favor_nn::audio::{Augment, FrontEnd, Recording};
/// let (front, augment) = (FrontEnd::log_mel(8000, 40), Augment::default());
/// let recording = Recording::Sound((0..8000).map(|i| (i as f32).sin()).collect());
/// let mut stream = Stream::new(1, 0);
/// let changed = front.features(&recording, Some((&augment, &mut stream)));
/// assert!(changed.frames().abs_diff(98) <= 12);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Augment {
    /// The speed is drawn from one minus this to one plus this.
    pub speed: f64,
    /// The fraction of utterances that get noise, from 10 to 30 dB below the signal.
    pub noise: f64,
    /// Masks over times, each of up to a tenth of the utterance.
    pub time_masks: usize,
    /// Masks over bands, each of up to a quarter of them.
    pub band_masks: usize,
}

impl Default for Augment {
    fn default() -> Self {
        Self { speed: 0.1, noise: 0.3, time_masks: 2, band_masks: 1 }
    }
}

impl Augment {
    /// No change.
    pub const NONE: Self = Self { speed: 0.0, noise: 0.0, time_masks: 0, band_masks: 0 };

    pub(super) fn speed(&self, stream: &mut Stream) -> f64 {
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
        // Uniform noise of the same power: as good as normal after a transform, and sooner drawn.
        let width = 12.0_f64.sqrt() * deviation;
        for value in values {
            *value += (width * (stream.uniform() - 0.5)) as f32;
        }
    }

    /// Zeros, which are the mean, over some times and bands. With slopes a frame has three parts, in
    /// which the same bands are masked.
    pub(super) fn mask(&self, features: &mut Features, parts: usize, stream: &mut Stream) {
        let (dim, frames) = (features.dim(), features.frames());
        let bands = dim / parts;
        let mut span = |all: usize, most: usize| {
            let width = stream.index(most + 1);
            let start = stream.index(all - width + 1);
            start..start + width
        };
        for _ in 0..self.time_masks {
            let times = span(frames, frames / 10);
            features.values_mut()[times.start * dim..times.end * dim].fill(0.0);
        }
        for _ in 0..self.band_masks {
            let masked = span(bands, bands / 4);
            for part in features.values_mut().chunks_mut(bands) {
                part[masked.clone()].fill(0.0);
            }
        }
    }
}
