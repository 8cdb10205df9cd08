//! Times the encoder of a recogniser on long speech: `long_audio SECONDS ATTENTION FEATURES`. Prints the
//! seconds of the call and the peak memory of the process in MB.

use burn::tensor::Device;
use favor_nn::{Attention, LayerOptions};
use favor_speech::audio::Features;
use favor_speech::{Frames, Recogniser, SpeechConfig};
use std::time::Instant;

/// The command's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Frames per second.
const RATE: usize = 100;

/// Entries per frame.
const NUMBERS: usize = 80;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, attention, features] = &arguments[..] else {
        return Err("give SECONDS ATTENTION FEATURES".into());
    };
    let frames = seconds.parse::<usize>()? * RATE;
    let options = LayerOptions::new(attention.parse::<Attention>()?, features.parse()?);
    let device = Device::flex();
    device.seed(0);
    let model = Recogniser::new(&SpeechConfig::small(NUMBERS, 100), options, &device)?;
    let value = |i: usize| (i as f32 * 0.7).sin() + (i as f32 * 0.013).cos();
    let speech = Features::new((0..frames * NUMBERS).map(value).collect(), NUMBERS)?;
    let frames = Frames::new([&speech])?;
    let start = Instant::now();
    let (states, _) = model.encode(&frames)?;
    let time = start.elapsed().as_secs_f64();
    assert!(states.sum().into_scalar::<f32>().is_finite());
    // Linux reports the peak memory of a process.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    let peak: f64 = peak.trim().trim_end_matches(" kB").parse()?;
    println!("{time:.3}\t{:.0}", peak / 1024.0);
    Ok(())
}
