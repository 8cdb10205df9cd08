//! Public corpora as manifests.

use super::manifest::{Manifest, Utterance};
use super::strings;
use crate::audio::read_sound;
use crate::{Error, Result};
use favor_io::arrays::npy_bytes;
use favor_io::create_folder;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Frames per second of ready-made features.
const FRAME_RATE: f64 = 100.0;

const DIGITS: [&str; 10] =
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

/// A corpus that can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corpus {
    /// CMU's census database: spelled words, numbers and commands, as cepstra.
    An4,
    /// The Free Spoken Digit Dataset.
    Fsdd,
    /// AudioMNIST: digits of sixty speakers.
    AudioMnist,
    /// Sentences of LJ Speech.
    LjSpeech,
    /// Digits of both digit corpora one after another, in strings of 8 to 16 with a new speaker each; those to
    /// be judged by are of speakers who are not learned from.
    Digits,
}

impl Corpus {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::An4, Self::Fsdd, Self::AudioMnist, Self::LjSpeech, Self::Digits];

    /// The name, which is also that of its folder; `digits` is made of two folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::An4 => "an4",
            Self::Fsdd => "fsdd",
            Self::AudioMnist => "audiomnist",
            Self::LjSpeech => "ljspeech",
            Self::Digits => "digits",
        }
    }
}

impl std::fmt::Display for Corpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Corpus {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name).ok_or_else(|| {
            Error::invalid("corpus", favor::unknown_name(name, &Self::ALL.map(Self::name)))
        })
    }
}

/// Reads a corpus from the folder of its name in `data`, and writes its files and manifests to the
/// folder of its name in `out`. Manifests are written last, and returned with their sizes.
pub fn import(corpus: Corpus, data: &Path, out: &Path) -> Result<Vec<(PathBuf, usize)>> {
    let (from, to) = (data.join(corpus.name()), out.join(corpus.name()));
    let needed = match corpus {
        Corpus::Digits => [Corpus::Fsdd, Corpus::AudioMnist].map(|c| data.join(c.name())).to_vec(),
        _ => vec![from.clone()],
    };
    if let Some(path) = needed.into_iter().find(|folder| !folder.is_dir()) {
        return Err(Error::NoData { path, wanted: "the files of the corpus" });
    }
    create_folder(&to)?;
    let manifests = match corpus {
        Corpus::An4 => an4(&from, &to)?,
        Corpus::Fsdd => fsdd(&from, &to)?,
        Corpus::AudioMnist => audiomnist(&from, &to)?,
        Corpus::LjSpeech => ljspeech(&from, &to)?,
        Corpus::Digits => digits(data, &to)?,
    };
    let mut written = Vec::new();
    for (name, utterances) in manifests {
        let path = to.join(format!("{name}.jsonl"));
        Manifest::write(&path, &utterances)?;
        written.push((path, utterances.len()));
    }
    Ok(written)
}

type Manifests = Vec<(&'static str, Vec<Utterance>)>;

/// An index of utterances, and all their frames of 13 numbers in half precision.
fn an4(from: &Path, to: &Path) -> Result<Manifests> {
    const NUMBERS: usize = 13;
    let index = from.join("an4_index.tsv.gz");
    let frames = from.join("an4_mfcc13_f16le.bin.xz");
    let text = favor_nn::text::read(&index)?;
    let mut bytes = Vec::new();
    open(&frames)?.read_to_end(&mut bytes).map_err(|e| Error::file(&frames, e))?;
    let values: Vec<f32> =
        bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect();
    let folder = to.join("features");
    create_folder(&folder)?;
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for (i, line) in text.lines().enumerate().skip(1) {
        let refuse = || Error::file(&index, format!("line {}: no utterance of AN4", i + 1));
        let fields: Vec<&str> = line.split('\t').collect();
        let [split, name, _, start, count, words] = fields[..] else { return Err(refuse()) };
        let number = |text: &str| text.parse::<usize>().map_err(|_| refuse());
        let (start, count) = (number(start)?, number(count)?);
        let part = values
            .get(start * NUMBERS..(start + count) * NUMBERS)
            .filter(|part| !part.is_empty())
            .ok_or_else(refuse)?;
        let path = PathBuf::from("features").join(file_name(name)?).with_extension("npy");
        save(&to.join(&path), &npy_bytes(count, NUMBERS, part.iter()))?;
        let duration = count as f64 / FRAME_RATE;
        let utterance = Utterance { path, text: Some(words.to_owned()), duration };
        if split == "train" { train.push(utterance) } else { test.push(utterance) }
    }
    Ok(vec![("train", train), ("test", test)])
}

/// The first five recordings of each digit and speaker are for testing.
fn fsdd(from: &Path, to: &Path) -> Result<Manifests> {
    let archive = from.join("fsdd_recordings_wav8k.tar.xz");
    let files = unpack(&archive, to, "wav")?;
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for path in files {
        let parts = digit(&archive, to, &path)?;
        let early = parts.1.parse::<usize>().is_ok_and(|index| index < 5);
        if early { test.push(parts.0) } else { train.push(parts.0) }
    }
    Ok(vec![("train", train), ("test", test)])
}

/// With and without transcripts, so that it can be used as unlabelled speech.
fn audiomnist(from: &Path, to: &Path) -> Result<Manifests> {
    let archive = from.join("audiomnist_8k_60spk_x10x4.tar.xz");
    let files = unpack(&archive, to, "wav")?;
    let all = files.iter().map(|path| Ok(digit(&archive, to, path)?.0));
    let all = all.collect::<Result<Vec<Utterance>>>()?;
    let bare = all.iter().map(|u| Utterance { text: None, ..u.clone() }).collect();
    Ok(vec![("all", all), ("unlabelled", bare)])
}

fn ljspeech(from: &Path, to: &Path) -> Result<Manifests> {
    let archive = from.join("ljspeech_16k_flac_48utt.tar");
    let files = unpack(&archive, to, "flac")?;
    let list = from.join("transcripts.tsv");
    let text = favor_nn::text::read(&list)?;
    let mut all = Vec::new();
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let line = text.lines().map(|l| l.splitn(3, '\t').collect::<Vec<_>>());
        let words = line.filter(|l| l.first() == Some(&&*name)).find_map(|l| l.get(2).copied());
        let Some(words) = words else {
            return Err(Error::file(&list, format!("no text of {name}")));
        };
        let duration = read_sound(&to.join(&path))?.duration();
        all.push(Utterance { path, text: Some(words.to_owned()), duration });
    }
    Ok(vec![("all", all)])
}

/// Strings of single digits. Those of a quarter of the speakers of AudioMNIST are for testing.
fn digits(data: &Path, to: &Path) -> Result<Manifests> {
    let single = to.join("single");
    import(Corpus::Fsdd, data, &single)?;
    import(Corpus::AudioMnist, data, &single)?;
    let read = |name: &str| Ok::<_, Error>(Manifest::read(&single.join(name))?.utterances);
    let mut train = read("fsdd/train.jsonl")?;
    train.extend(read("fsdd/test.jsonl")?);
    let is_test = |utterance: &Utterance| {
        let name = utterance.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        name.split('_')
            .nth(1)
            .and_then(|s| s.parse::<usize>().ok())
            .is_some_and(|s| s.is_multiple_of(4))
    };
    let (test, more): (Vec<_>, Vec<_>) =
        read("audiomnist/all.jsonl")?.into_iter().partition(is_test);
    train.extend(more);
    let out = vec![
        ("train", strings::joined(&train, to, "train", 0)?),
        ("test", strings::joined(&test, to, "test", 1)?),
    ];
    fs::remove_dir_all(&single).map_err(|e| Error::file(&single, e))?;
    Ok(out)
}

/// An utterance whose file is called `digit_speaker_index.wav`, and the index.
fn digit(archive: &Path, to: &Path, path: &Path) -> Result<(Utterance, String)> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let parts: Vec<&str> = name.split('_').collect();
    let digit = parts.first().and_then(|d| d.parse::<usize>().ok()).and_then(|d| DIGITS.get(d));
    let ([_, _, index], Some(word)) = (&parts[..], digit) else {
        return Err(Error::file(archive, format!("{name} is no digit_speaker_index")));
    };
    let duration = read_sound(&to.join(path))?.duration();
    let utterance =
        Utterance { path: path.to_path_buf(), text: Some((*word).to_owned()), duration };
    Ok((utterance, (*index).to_owned()))
}

/// Extracts the files with this extension from an archive to the folder `sounds` of `to`, and
/// returns their paths there, in order.
fn unpack(archive: &Path, to: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let damaged = |e: std::io::Error| Error::file(archive, format!("damaged: {e}"));
    let folder = to.join("sounds");
    create_folder(&folder)?;
    let mut files = Vec::new();
    for entry in tar::Archive::new(open(archive)?).entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let path = entry.path().map_err(damaged)?.into_owned();
        if !entry.header().entry_type().is_file() || path.extension().is_none_or(|e| e != extension)
        {
            continue;
        }
        // Only the last component of a name is used: an archive cannot write elsewhere.
        let Some(name) = path.file_name() else { continue };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(damaged)?;
        let path = Path::new("sounds").join(name);
        save(&to.join(&path), &bytes)?;
        files.push(path);
    }
    files.sort();
    if files.is_empty() {
        Err(Error::file(archive, format!("holds no .{extension} file")))
    } else {
        Ok(files)
    }
}

fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = std::io::BufReader::new(fs::File::open(path).map_err(|e| Error::file(path, e))?);
    Ok(if path.extension().is_some_and(|e| e == "xz") {
        Box::new(lzma_rust2::XzReader::new(file, false))
    } else {
        Box::new(file)
    })
}

fn file_name(name: &str) -> Result<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(plain) {
        Ok(name)
    } else {
        Err(Error::invalid("utterance", format!("'{name}' is not a file name")))
    }
}

fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    // No manifest names it before all files exist. Written in one step, each would wait for the disk, which takes ten
    // times as long for thousands of small files.
    fs::write(path, bytes).map_err(|e| Error::file(path, e))
}
