//! From a file to normalised frames, the same in training and in use.

use super::{Augment, Features, LogMel, read_sound, resample};
use crate::{Error, Result};
use favor::draw::Stream;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Where frames come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Source {
    /// Log-mel filterbanks of sound.
    LogMel { rate: u32, bands: usize },
    /// Files of ready-made features with this many entries, such as cepstra.
    Ready { numbers: usize },
}

/// One utterance, as read from a file.
#[derive(Debug, Clone, PartialEq)]
pub enum Recording {
    /// Samples at the front end's rate.
    Sound(Vec<f32>),
    /// Ready-made features.
    Ready(Features),
}

/// Turns recordings into frames. The mean of each utterance is subtracted, which removes the channel and
/// the loudness; then each entry is scaled by its standard deviation in the training data.
///
/// ```
/// use favor_speech::audio::{FrontEnd, Recording};
/// let front = FrontEnd::log_mel(8000, 40);
/// let recording = Recording::Sound(vec![0.1; 8000]);
/// assert_eq!(front.features(&recording, None).frames(), 98);
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct FrontEnd {
    stored: Stored,
    mel: Option<LogMel>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Stored {
    source: Source,
    /// Whether first and second differences are added.
    deltas: bool,
    /// The factor of each entry.
    scale: Vec<f32>,
}

impl From<FrontEnd> for Stored {
    fn from(front: FrontEnd) -> Self {
        front.stored
    }
}

impl TryFrom<Stored> for FrontEnd {
    type Error = Error;

    fn try_from(stored: Stored) -> Result<Self> {
        let numbers = match stored.source {
            Source::LogMel { rate, bands } => {
                if !(2000..=384_000).contains(&rate) || !(1..=512).contains(&bands) {
                    let reason = format!("{bands} bands of {rate} samples per second");
                    return Err(Error::invalid("front end", reason));
                }
                bands
            }
            Source::Ready { numbers } => numbers,
        };
        let dim = if stored.deltas { 3 * numbers } else { numbers };
        if dim == 0 || stored.scale.len() != dim || stored.scale.iter().any(|s| !s.is_finite()) {
            return Err(Error::invalid("front end", format!("no {dim} sensible scales")));
        }
        let mel = match stored.source {
            Source::LogMel { rate, bands } => Some(LogMel::new(rate, bands)),
            Source::Ready { .. } => None,
        };
        Ok(Self { stored, mel })
    }
}

impl FrontEnd {
    /// Log-mel filterbanks of sound, which is resampled to this rate.
    pub fn log_mel(rate: u32, bands: usize) -> Self {
        let stored = Stored {
            source: Source::LogMel { rate, bands },
            deltas: false,
            scale: vec![1.0; bands],
        };
        Self { mel: Some(LogMel::new(rate, bands)), stored }
    }

    /// Ready-made features with this many entries, to which first and second differences are added.
    pub fn ready(numbers: usize) -> Self {
        let source = Source::Ready { numbers };
        Self { stored: Stored { source, deltas: true, scale: vec![1.0; 3 * numbers] }, mel: None }
    }

    /// The front end for files like this one: its rate, or its number of entries.
    pub fn for_file(path: &Path) -> Result<Self> {
        if is_ready(path) {
            Ok(Self::ready(Features::read(path)?.dim()))
        } else {
            let rate = read_sound(path)?.rate;
            Ok(Self::log_mel(rate, if rate < 16_000 { 40 } else { 80 }))
        }
    }

    /// The number of entries per frame.
    pub fn dim(&self) -> usize {
        self.stored.scale.len()
    }

    /// Reads a file: `.wav`, `.flac`, or `.npy` for ready-made features.
    pub fn read(&self, path: &Path) -> Result<Recording> {
        match self.stored.source {
            Source::LogMel { rate, .. } => {
                if is_ready(path) {
                    return Err(Error::file(path, "features where the model takes sound"));
                }
                let sound = read_sound(path)?;
                let samples = resample(&sound.samples, f64::from(sound.rate), f64::from(rate));
                Ok(Recording::Sound(samples))
            }
            Source::Ready { numbers } => {
                if !is_ready(path) {
                    let reason = "the model takes ready features (.npy), not sound";
                    return Err(Error::file(path, reason));
                }
                let features = Features::read(path)?;
                if features.dim() == numbers {
                    Ok(Recording::Ready(features))
                } else {
                    let reason = format!("{} numbers per frame, not {numbers}", features.dim());
                    Err(Error::file(path, reason))
                }
            }
        }
    }

    /// The frames of a recording, optionally augmented.
    pub fn features(
        &self,
        recording: &Recording,
        mut augment: Option<(&Augment, &mut Stream)>,
    ) -> Features {
        let speed = augment.as_mut().map_or(1.0, |(augment, stream)| augment.draw_speed(stream));
        let plain = match (recording, &self.mel) {
            (Recording::Sound(samples), Some(mel)) => {
                let mut samples = resample(samples, speed, 1.0);
                if let Some((augment, stream)) = &mut augment {
                    augment.add_noise(&mut samples, stream);
                }
                mel.features(&samples)
            }
            (Recording::Sound(_), None) => unreachable!("read by another front end"),
            (Recording::Ready(features), _) if speed == 1.0 => features.clone(),
            (Recording::Ready(features), _) => features.faster(speed),
        };
        let plain = without_mean(plain);
        let mut out = if self.stored.deltas { plain.with_deltas() } else { plain };
        for frame in out.values_mut().chunks_mut(self.stored.scale.len()) {
            frame.iter_mut().zip(&self.stored.scale).for_each(|(value, scale)| *value *= scale);
        }
        if let Some((augment, stream)) = augment {
            augment.mask_times(&mut out, stream);
            // Ready-made features need not be bands: each cepstral coefficient depends on all of them.
            if matches!(recording, Recording::Sound(_)) {
                augment.mask_bands(&mut out, stream);
            }
        }
        out
    }

    /// The loudness of each frame, on an arbitrary scale: the mean of the bands, or the first entry of
    /// ready-made features, as in cepstra.
    pub fn loudness(&self, features: &Features) -> Vec<f32> {
        let loudness = |frame: &[f32]| match self.stored.source {
            Source::LogMel { .. } => frame.iter().sum::<f32>() / frame.len() as f32,
            Source::Ready { .. } => frame[0],
        };
        features.values().chunks(features.dim()).map(loudness).collect()
    }

    /// With scales that give each entry of these recordings a standard deviation of one.
    #[must_use]
    pub fn fitted<'a>(mut self, recordings: impl Iterator<Item = &'a Recording>) -> Self {
        let dim = self.dim();
        self.stored.scale.fill(1.0);
        let (mut squares, mut count) = (vec![0.0; dim], 0.0_f64);
        for recording in recordings {
            let features = self.features(recording, None);
            count += features.frames() as f64;
            for frame in features.values().chunks(dim) {
                let values = squares.iter_mut().zip(frame);
                values.for_each(|(sum, value)| *sum += f64::from(*value).powi(2));
            }
        }
        let scale = |sum: &f64| (count.max(1.0) / sum.max(1e-12)).sqrt().min(1e6) as f32;
        self.stored.scale = squares.iter().map(scale).collect();
        self
    }
}

fn is_ready(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "npy")
}

fn without_mean(mut features: Features) -> Features {
    let (dim, frames) = (features.dim(), features.frames());
    let mut mean = vec![0.0_f64; dim];
    for frame in features.values().chunks(dim) {
        mean.iter_mut().zip(frame).for_each(|(sum, value)| *sum += f64::from(*value));
    }
    for frame in features.values_mut().chunks_mut(dim) {
        for (value, sum) in frame.iter_mut().zip(&mean) {
            *value -= (sum / frames.max(1) as f64) as f32;
        }
    }
    features
}
