//! Resampling by a windowed sinc.

use std::f64::consts::PI;

/// Zero crossings of the sinc on either side.
const CROSSINGS: f64 = 16.0;

/// The transition band of the window, as a fraction of the lower of the two band limits.
const CUTOFF: f64 = 0.94;

/// The samples at `to` samples per second instead of `from`. Frequencies that the lower of the two rates
/// cannot represent are filtered out first.
///
/// ```
/// let tone = |rate: u32| (0..rate).map(move |i| (i as f32 * 440.0 * 6.2831855 / rate as f32).sin());
/// let found = favor_speech::audio::resample(&tone(16000).collect::<Vec<f32>>(), 16000.0, 8000.0);
/// let worst = found.iter().zip(tone(8000)).skip(100).take(7800).map(|(a, b)| (a - b).abs());
/// assert!(found.len() == 8000 && worst.fold(0.0, f32::max) < 2e-3);
/// ```
pub fn resample(samples: &[f32], from: f64, to: f64) -> Vec<f32> {
    if from == to || samples.is_empty() {
        return samples.to_vec();
    }
    let step = from / to;
    // In units of the input rate.
    let cutoff = CUTOFF * (to / from).min(1.0);
    let reach = CROSSINGS / cutoff;
    let count = (samples.len() as f64 / step).round().max(1.0) as usize;
    let at = |i: usize| {
        let centre = i as f64 * step;
        let first = (centre - reach).ceil().max(0.0) as usize;
        let last = ((centre + reach).floor() as usize).min(samples.len() - 1);
        let part = samples.get(first..=last).unwrap_or_default();
        let sum = part.iter().enumerate().map(|(k, sample)| {
            let distance = (first + k) as f64 - centre;
            let window = 0.5 + 0.5 * (PI * distance / reach).cos();
            f64::from(*sample) * cutoff * sinc(cutoff * distance) * window
        });
        sum.sum::<f64>() as f32
    };
    (0..count).map(at).collect()
}

fn sinc(x: f64) -> f64 {
    if x.abs() < 1e-12 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(hertz: f64, rate: f64) -> Vec<f32> {
        (0..rate as usize).map(|i| (2.0 * PI * hertz * i as f64 / rate).sin() as f32).collect()
    }

    fn power(samples: &[f32]) -> f64 {
        let middle = &samples[samples.len() / 4..3 * samples.len() / 4];
        middle.iter().map(|s| f64::from(*s).powi(2)).sum::<f64>() / middle.len() as f64
    }

    #[test]
    fn tones_stay_and_those_beyond_the_band_go() {
        let up = resample(&tone(1000.0, 8000.0), 8000.0, 11025.0);
        let ideal = tone(1000.0, 11025.0);
        assert_eq!(up.len(), 11025);
        let error: Vec<f32> = up.iter().zip(&ideal).map(|(a, b)| a - b).collect();
        assert!(power(&error) < 1e-6 * power(&ideal), "{}", power(&error));
        // 8000 samples per second cannot represent 6 kHz; aliased, it would become 2 kHz.
        let down = resample(&tone(6000.0, 16000.0), 16000.0, 8000.0);
        assert!(power(&down) < 1e-5, "{}", power(&down));
    }
}
