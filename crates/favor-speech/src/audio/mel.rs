//! Log-mel filterbanks.

use super::Features;
use realfft::{RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::sync::Arc;

/// Seconds from one frame to the next.
pub(super) const HOP: f64 = 0.01;

/// Length of a frame in seconds.
const WINDOW: f64 = 0.025;

/// The logarithm of an energy that counts as silence.
const FLOOR: f32 = 1e-10;

/// Turns samples of a given rate into log-energies in bands, at a hundred frames per second.
///
/// Bands are triangles, evenly spaced on the mel scale `1127 ln(1 + f/700)` from 20 Hz to half the rate;
/// frames are 25 ms with a Hann window.
#[derive(Clone)]
pub struct LogMel {
    window: Vec<f32>,
    hop: usize,
    size: usize,
    fft: Arc<dyn RealToComplex<f32>>,
    /// For each band, its first spectral line and its weights.
    bands: Vec<(usize, Vec<f32>)>,
}

impl std::fmt::Debug for LogMel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogMel")
            .field("size", &self.size)
            .field("bands", &self.bands.len())
            .finish()
    }
}

impl LogMel {
    /// For samples at this rate, with this many bands.
    pub fn new(rate: u32, bands: usize) -> Self {
        let rate = f64::from(rate);
        let length = (WINDOW * rate).round() as usize;
        let size = length.next_power_of_two();
        let window = (0..length)
            .map(|i| (0.5 - 0.5 * (2.0 * PI * (i as f64 + 0.5) / length as f64).cos()) as f32);
        let mel = |hertz: f64| 1127.0 * (1.0 + hertz / 700.0).ln();
        let (low, high) = (mel(20.0), mel(rate / 2.0));
        let edge = |i: usize| low + (high - low) * i as f64 / (bands + 1) as f64;
        let band = |b: usize| {
            let weight = |line: usize| {
                let at = mel(line as f64 * rate / size as f64);
                let (rise, fall) = (at - edge(b), edge(b + 2) - at);
                (rise.min(fall) / (edge(b + 1) - edge(b))).max(0.0) as f32
            };
            let weights: Vec<f32> = (0..=size / 2).map(weight).collect();
            let first = weights.iter().position(|w| *w > 0.0);
            // A band narrower than a spectral line takes the line nearest to its centre.
            let Some(first) = first else {
                let middle = 700.0 * ((edge(b + 1) / 1127.0).exp() - 1.0);
                return ((middle * size as f64 / rate).round() as usize, vec![1.0]);
            };
            let last = weights.iter().rposition(|w| *w > 0.0).unwrap_or(first);
            (first, weights[first..=last].to_vec())
        };
        Self {
            window: window.collect(),
            hop: (HOP * rate).round() as usize,
            size,
            fft: RealFftPlanner::new().plan_fft_forward(size),
            bands: (0..bands).map(band).collect(),
        }
    }

    /// The frames of these samples; a sound shorter than a frame gives one frame, padded with silence.
    pub fn features(&self, samples: &[f32]) -> Features {
        let beyond = samples.len().saturating_sub(self.window.len());
        let frames = 1 + beyond / self.hop;
        let mut input = self.fft.make_input_vec();
        let mut output = self.fft.make_output_vec();
        let mut scratch = self.fft.make_scratch_vec();
        let mut values = Vec::with_capacity(frames * self.bands.len());
        for t in 0..frames {
            input.fill(0.0);
            let part = &samples[(t * self.hop).min(samples.len())..];
            for ((to, sample), weight) in input.iter_mut().zip(part).zip(&self.window) {
                *to = sample * weight;
            }
            // The sizes are the plan's own, so it cannot fail.
            let done = self.fft.process_with_scratch(&mut input, &mut output, &mut scratch);
            debug_assert!(done.is_ok());
            for (first, weights) in &self.bands {
                let lines = output[*first..].iter().zip(weights);
                let energy: f32 = lines.map(|(line, weight)| line.norm_sqr() * weight).sum();
                values.push((energy + FLOOR).ln());
            }
        }
        debug_assert_eq!(values.len(), frames * self.bands.len());
        Features::new(values, self.bands.len()).unwrap_or_else(|_| unreachable!())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_is_loudest_in_its_band() {
        let mel = LogMel::new(16000, 40);
        let rate = 16000.0_f64;
        for hertz in [300.0, 1000.0, 3500.0] {
            let tone: Vec<f32> =
                (0..8000).map(|i| (2.0 * PI * hertz * f64::from(i) / rate).sin() as f32).collect();
            let features = mel.features(&tone);
            assert_eq!((features.frames(), features.dim()), (1 + (8000 - 400) / 160, 40));
            let frame = features.frame(20);
            let top = (0..40).max_by(|a, b| frame[*a].total_cmp(&frame[*b])).unwrap();
            let mel = |f: f64| 1127.0 * (1.0 + f / 700.0).ln();
            let place = (mel(hertz) - mel(20.0)) / (mel(8000.0) - mel(20.0)) * 41.0 - 1.0;
            assert!((top as f64 - place).abs() < 1.0, "{hertz}: {top} {place}");
        }
        assert_eq!(mel.features(&[0.1; 10]).frames(), 1);
    }

    #[test]
    fn louder_by_a_factor_is_more_by_its_logarithm() {
        let noise: Vec<f32> = (0..1600).map(|i| ((i * i) as f32 * 0.37).sin()).collect();
        let twice: Vec<f32> = noise.iter().map(|s| 2.0 * s).collect();
        let mel = LogMel::new(8000, 20);
        let (a, b) = (mel.features(&noise), mel.features(&twice));
        for (a, b) in a.values().iter().zip(b.values()) {
            assert!((b - a - 4.0_f32.ln()).abs() < 1e-3);
        }
    }
}
