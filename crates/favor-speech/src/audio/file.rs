//! WAV and FLAC files as samples.

use crate::{Error, Result};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Samples of one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Sound {
    /// Between −1 and 1.
    pub samples: Vec<f32>,
    /// Samples per second.
    pub rate: u32,
}

impl Sound {
    /// Seconds.
    pub fn duration(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate)
    }
}

/// Reads a `.wav` or `.flac` file. Channels are averaged.
pub fn read_sound(path: &Path) -> Result<Sound> {
    let extension = path.extension().and_then(|e| e.to_str()).map(str::to_lowercase);
    let read = match extension.as_deref() {
        Some("wav") => wav,
        Some("flac") => flac,
        _ => return Err(Error::file(path, "neither .wav nor .flac")),
    };
    let file = File::open(path).map_err(|e| Error::file(path, e))?;
    let (samples, channels, rate) =
        read(BufReader::new(file)).map_err(|e| Error::file(path, format!("damaged: {e}")))?;
    if channels == 0 || rate == 0 || samples.len() < channels {
        return Err(Error::file(path, "holds no sample"));
    }
    if let Some(bad) = samples.iter().find(|s| !s.is_finite()) {
        return Err(Error::file(path, format!("a sample is {bad}")));
    }
    let mean = |frame: &[f32]| frame.iter().sum::<f32>() / channels as f32;
    Ok(Sound { samples: samples.chunks_exact(channels).map(mean).collect(), rate })
}

type Read = std::result::Result<(Vec<f32>, usize, u32), String>;

fn wav(file: BufReader<File>) -> Read {
    let text = |e: hound::Error| e.to_string();
    let mut reader = hound::WavReader::new(file).map_err(text)?;
    let spec = reader.spec();
    let samples = match spec.sample_format {
        hound::SampleFormat::Float => {
            reader.samples::<f32>().collect::<std::result::Result<_, _>>()
        }
        hound::SampleFormat::Int => {
            let scale = scale(u32::from(spec.bits_per_sample));
            reader.samples::<i32>().map(|s| s.map(|s| s as f32 * scale)).collect()
        }
    };
    Ok((samples.map_err(text)?, usize::from(spec.channels), spec.sample_rate))
}

fn flac(file: BufReader<File>) -> Read {
    let text = |e: claxon::Error| e.to_string();
    let mut reader = claxon::FlacReader::new(file).map_err(text)?;
    let info = reader.streaminfo();
    let scale = scale(info.bits_per_sample);
    let samples: std::result::Result<Vec<f32>, claxon::Error> =
        reader.samples().map(|s| s.map(|s| s as f32 * scale)).collect();
    let samples = samples.map_err(text)?;
    let expected = info.samples.map(|n| n * u64::from(info.channels));
    if expected.is_some_and(|n| n != samples.len() as u64) {
        Err(format!("{} samples instead of {}", samples.len(), expected.unwrap_or(0)))
    } else {
        Ok((samples, info.channels as usize, info.sample_rate))
    }
}

/// Integers of the given width, scaled to between −1 and 1.
fn scale(bits: u32) -> f32 {
    0.5_f32.powi(bits as i32 - 1)
}
