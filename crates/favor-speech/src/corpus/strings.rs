//! Single words joined into longer utterances.

use super::manifest::Utterance;
use crate::audio::{Sound, read_sound};
use crate::{Error, Result};
use favor::draw::Stream;
use favor_io::create_folder;
use std::path::{Path, PathBuf};

/// The stream that decides order, lengths and pauses.
const PURPOSE: u64 = 0x6a6f_696e;

/// Words of an utterance: at least so many, and below so many.
const WORDS: std::ops::Range<usize> = 8..17;

/// The longest pause between two words, in seconds.
const PAUSE: f64 = 0.15;

/// Words are made equally loud: the root of the mean of their squares.
const LOUDNESS: f64 = 0.05;

/// Every utterance once, in an order that the seed decides, joined into longer ones. They are written to the
/// folder `sounds` of `to`, under names that begin with `prefix`.
pub(super) fn joined(
    utterances: &[Utterance],
    to: &Path,
    prefix: &str,
    seed: u64,
) -> Result<Vec<Utterance>> {
    let mut stream = Stream::new(seed, PURPOSE);
    let mut order: Vec<&Utterance> = utterances.iter().collect();
    stream.shuffle(&mut order);
    let folder = to.join("sounds");
    create_folder(&folder)?;
    let mut out = Vec::new();
    let mut rest = &order[..];
    while rest.len() >= WORDS.start {
        let count = (WORDS.start + stream.index(WORDS.len())).min(rest.len());
        let (chosen, later) = rest.split_at(count);
        rest = later;
        let path = PathBuf::from("sounds").join(format!("{prefix}-{:04}.wav", out.len()));
        let sound = join(chosen, &mut stream)?;
        write(&to.join(&path), &sound)?;
        let words: Vec<&str> = chosen.iter().filter_map(|u| u.text.as_deref()).collect();
        out.push(Utterance { path, text: Some(words.join(" ")), duration: sound.duration() });
    }
    Ok(out)
}

fn join(utterances: &[&Utterance], stream: &mut Stream) -> Result<Sound> {
    let mut all = Sound { samples: Vec::new(), rate: 0 };
    for utterance in utterances {
        let Sound { samples, rate } = read_sound(&utterance.path)?;
        if all.rate != 0 && all.rate != rate {
            let reason = format!("{rate} samples a second where others have {}", all.rate);
            return Err(Error::file(&utterance.path, reason));
        }
        all.rate = rate;
        let square: f64 = samples.iter().map(|s| f64::from(*s).powi(2)).sum();
        let loudness = (square / samples.len() as f64).sqrt().max(f64::MIN_POSITIVE);
        let factor = (LOUDNESS / loudness).min(1e3) as f32;
        all.samples.extend(samples.iter().map(|s| (s * factor).clamp(-1.0, 1.0)));
        let pause = stream.index((PAUSE * f64::from(rate)) as usize + 1);
        all.samples.extend(std::iter::repeat_n(0.0, pause));
    }
    Ok(all)
}

/// A WAV file of one channel and 16 bits.
fn write(path: &Path, sound: &Sound) -> Result<()> {
    let refuse = |e: hound::Error| Error::file(path, e.to_string());
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: sound.rate,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut file = hound::WavWriter::create(path, spec).map_err(refuse)?;
    for sample in &sound.samples {
        file.write_sample((sample * f32::from(i16::MAX)).round() as i16).map_err(refuse)?;
    }
    file.finalize().map_err(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_joined_with_their_texts() {
        let folder = tempfile::tempdir().unwrap();
        let words: Vec<Utterance> = (0..40)
            .map(|i| {
                let path = folder.path().join(format!("{i}.wav"));
                let tone = |t: usize| 0.3 * (t as f32 * (0.1 + 0.01 * i as f32)).sin();
                let sound = Sound { samples: (0..400 + i).map(tone).collect(), rate: 8000 };
                write(&path, &sound).unwrap();
                Utterance { path, text: Some(format!("w{i}")), duration: sound.duration() }
            })
            .collect();
        let joined_by = |seed| joined(&words, folder.path(), "a", seed).unwrap();
        let found = joined_by(3);
        assert_eq!(found, joined_by(3));
        assert_ne!(found, joined_by(4));
        let found = joined_by(3);
        let mut seen = Vec::new();
        for utterance in &found {
            let text = utterance.text.as_deref().unwrap();
            let own: Vec<usize> = text.split(' ').map(|word| word[1..].parse().unwrap()).collect();
            assert!(WORDS.contains(&own.len()));
            let sound = read_sound(&folder.path().join(&utterance.path)).unwrap();
            assert_eq!(sound.duration(), utterance.duration);
            let spoken: f64 = own.iter().map(|i| words[*i].duration).sum();
            let pauses = utterance.duration - spoken;
            assert!(pauses >= -1e-9 && pauses <= PAUSE * own.len() as f64 + 1e-9, "{pauses}");
            seen.extend(own);
        }
        // No word twice; the last few may be too few for an utterance.
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() == count && count > 40 - WORDS.start, "{count}");
    }
}
