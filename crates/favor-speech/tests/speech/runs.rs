//! Whole runs on made-up speech: learned by heart, stopped and gone on with, refused.

use crate::common::generator;
use favor::Redraw;
use favor::draw::Stream;
use favor_io::progress::{Tick, silent};
use favor_nn::run::Watch;
use favor_nn::{Attention, Error, Family, LayerOptions};
use favor_speech::audio::{Augment, FrontEnd, Recording, read_sound};
use favor_speech::run::{
    EvaluateRequest, Mode, NstRequest, SpeechRequest, TrainOptions, TrainRequest,
    TranscribeRequest, evaluate, nst, plan, reproduce, train, transcribe,
};
use favor_speech::{Corpus, Manifest, Units, Utterance, import};
use std::f32::consts::TAU;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const RATE: u32 = 8000;

/// Words that are tones.
const WORDS: [(&str, f32); 4] = [("low", 300.0), ("mid", 700.0), ("high", 1500.0), ("top", 3000.0)];

/// A sound in which these words are said, in a voice of its own.
fn say(words: &[usize], seed: u64) -> Vec<f32> {
    let mut stream = Stream::new(seed, 5);
    let mut noise = |count: usize, out: &mut Vec<f32>| {
        out.extend((0..count).map(|_| (0.01 * stream.normal()) as f32));
    };
    let mut samples = Vec::new();
    noise(400, &mut samples);
    for &word in words {
        let hertz = WORDS[word].1;
        let mut part = Vec::new();
        noise(1200, &mut part);
        for (i, sample) in part.iter_mut().enumerate() {
            *sample += 0.3 * (TAU * hertz * i as f32 / RATE as f32).sin();
        }
        samples.extend(part);
        noise(500, &mut samples);
    }
    samples
}

fn write_wav(path: &Path, samples: &[f32]) {
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: RATE,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::create(path, spec).unwrap();
    for sample in samples {
        writer.write_sample((sample * 32767.0) as i16).unwrap();
    }
    writer.finalize().unwrap();
}

/// Ten utterances, one of them silence.
fn ten(folder: &Path) -> PathBuf {
    let said: [&[usize]; 10] =
        [&[0], &[1, 2], &[3, 0, 1], &[2, 2], &[], &[1, 0], &[3], &[0, 3], &[2, 1, 0], &[3, 3]];
    let mut utterances = Vec::new();
    for (i, words) in said.iter().enumerate() {
        let samples = say(words, i as u64);
        let path = PathBuf::from(format!("{i}.wav"));
        write_wav(&folder.join(&path), &samples);
        let text: Vec<&str> = words.iter().map(|w| WORDS[*w].0).collect();
        let duration = samples.len() as f64 / f64::from(RATE);
        utterances.push(Utterance { path, text: Some(text.join(" ")), duration });
    }
    let manifest = folder.join("ten.jsonl");
    Manifest::write(&manifest, &utterances).unwrap();
    manifest
}

fn request(data: &Path, out: PathBuf, attention: LayerOptions) -> TrainRequest {
    let options = TrainOptions::default()
        .shape(Some([32, 2, 2]))
        .epochs(50)
        .batch(5)
        .rate(5e-3)
        .dropout(0.0)
        .augment(Augment::NONE)
        .judge(50);
    TrainRequest::new(vec![data.to_path_buf()], out)
        .test(Some(data.to_path_buf()))
        .attention(attention)
        .options(options)
}

fn run<T>(step: u64, work: impl FnOnce(Watch<'_>) -> favor_nn::Result<T>) -> favor_nn::Result<T> {
    let stop = AtomicBool::new(false);
    let listener = |tick: Tick<'_>| stop.store(tick.done >= step, Ordering::Relaxed);
    work(Watch::new(&listener, &stop))
}

/// A hundred steps are enough for ten utterances with words, exact and by features, and two hundred
/// with characters, of which there are four times as many; the model in its folder then hears them all.
#[test]
fn ten_utterances_are_learned_by_heart() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let data = ten(folder.path());
    let sde = LayerOptions::new(Attention::Features(Family::Sde), 32);
    let exact = LayerOptions::new(Attention::Exact, 1);
    for (attention, units, epochs) in
        [(exact, Units::Words, 50), (exact, Units::Characters, 100), (sde, Units::Words, 50)]
    {
        let out = folder.path().join(format!("{}-{units:?}", attention.kind));
        let mut request = request(&data, out.clone(), attention);
        (request.options.units, request.options.epochs) = (units, epochs);
        let found = run(u64::MAX, |w| train(&request, w)).unwrap();
        let errors = found.errors.unwrap();
        assert_eq!((found.epochs.len() as u64, found.utterances), (epochs, 10));
        let judge =
            |beam: usize| evaluate(&EvaluateRequest::new(&out, &data).beam(beam), &silent).unwrap();
        let (greedy, beam) = (judge(1), judge(3));
        assert_eq!(greedy.errors, errors, "the model in its folder is the one that was judged");
        for judged in [greedy, beam] {
            let wrong = judged.utterances.iter().filter(|(said, heard)| *said != heard.text);
            let wrong: Vec<_> = wrong.collect();
            assert!(wrong.is_empty(), "{units:?} {}: {wrong:?}", attention.kind);
        }
        let files = vec![folder.path().join("2.wav"), folder.path().join("4.wav")];
        let request = TranscribeRequest::new(out, files);
        let heard = transcribe(&request, &silent, &|_| {}).unwrap();
        assert_eq!((heard[0].text.as_str(), heard[1].text.as_str()), ("top low mid", ""));
        assert!(heard[0].confidence > 0.0 && heard[0].confidence <= 1.0);
        let pieces = request.piece(Some(0.5));
        let heard = transcribe(&pieces, &silent, &|_| {}).unwrap();
        assert_eq!(heard[0].text, "top low mid");
    }
}

/// With all that is random: a run that is stopped and goes on ends with the very same bits.
#[test]
fn speech_runs_go_on() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let data = ten(folder.path());
    let attention =
        LayerOptions::new(Attention::Features(Family::Balanced), 16).redraw(Redraw::Every(3));
    let short = |out: &str| {
        let mut request = request(&data, folder.path().join(out), attention);
        let options = &mut request.options;
        (options.epochs, options.dropout, options.augment) = (4, 0.1, Augment::default());
        request
    };
    let (whole, parts) = (short("whole"), short("parts"));
    run(u64::MAX, |w| train(&whole, w)).unwrap();
    let stopped = run(3, |w| train(&parts, w));
    assert!(matches!(stopped, Err(Error::Stopped { step: 3, steps: 8, .. })));
    run(u64::MAX, |w| train(&parts, w)).unwrap();
    let bytes = |out: &Path| fs::read(out.join("model.safetensors")).unwrap();
    assert!(bytes(&whole.out) == bytes(&parts.out));
    let names = |out: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(out).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&parts.out), ["model.safetensors", "training.csv"]);
    let log = fs::read_to_string(parts.out.join("training.csv")).unwrap();
    assert_eq!(log.lines().count(), 5, "{log}");
    // Another seed is another model: the comparison can fail.
    let mut other = short("other");
    other.options.seed = 1;
    run(u64::MAX, |w| train(&other, w)).unwrap();
    assert!(bytes(&whole.out) != bytes(&other.out));
}

/// A teacher and a student, stopped within the student; with a bar that nobody clears, the student
/// learns what its teacher did.
#[test]
fn students_follow_their_teacher() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let data = ten(folder.path());
    let options = request(&data, PathBuf::new(), LayerOptions::default()).options.epochs(2);
    let request = |out: &str, confidence: f64| {
        NstRequest::new(&data, &data, folder.path().join(out))
            .test(Some(data.clone()))
            .attention(LayerOptions::new(Attention::Exact, 1))
            .options(options)
            .generations(1)
            .confidence(confidence)
    };
    let all = request("all", 0.0);
    // The teacher makes 4 steps; its student, with twice the utterances, 8.
    let stop = AtomicBool::new(false);
    let listener = |tick: Tick<'_>| {
        stop.store(tick.what.starts_with("generation 1") && tick.done == 3, Ordering::Relaxed);
    };
    let found = nst(&all, Watch::new(&listener, &stop));
    assert!(matches!(found, Err(Error::Stopped { step: 3, steps: 8, .. })), "{found:?}");
    let found = run(u64::MAX, |w| nst(&all, w)).unwrap();
    assert_eq!((found[0].labelled, found[1].labelled), ([0, 10], [10, 10]));
    assert!(found.iter().all(|g| g.errors.is_some()));
    let again = run(u64::MAX, |w| nst(&all, w)).unwrap();
    assert_eq!(found, again);
    let none = run(u64::MAX, |w| nst(&request("none", 1.0), w)).unwrap();
    assert_eq!(none[1].labelled, [0, 10]);
    let stop = AtomicBool::new(false);
    let watch = Watch::new(&silent, &stop);
    let message = nst(&request("all", 0.5), watch).unwrap_err().to_string();
    assert!(message.contains("other settings"), "{message}");
    let message = nst(&request("odd", 1.5), watch).unwrap_err().to_string();
    assert!(message.contains("confidence") && !folder.path().join("odd").exists(), "{message}");
}

/// The grid is planned, run, and not run twice.
#[test]
fn the_speech_grid_goes_on() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    // In the place of the corpus.
    let data = out.join("data/an4");
    fs::create_dir_all(&data).unwrap();
    let manifest = ten(&data);
    for name in ["train", "test", "labelled", "unlabelled"] {
        fs::copy(&manifest, data.join(format!("{name}.jsonl"))).unwrap();
    }
    let options = request(&manifest, PathBuf::new(), LayerOptions::default()).options;
    let request = SpeechRequest::new(folder.path(), &out)
        .attentions(vec![Attention::Exact, Attention::Features(Family::Sde)])
        .features(vec![4, 8])
        .seeds(1)
        .options(options.epochs(1))
        .redraw(Redraw::Every(10))
        .confidence(0.0);
    let planned = || {
        let stop = AtomicBool::new(false);
        plan(&request, Watch::new(&silent, &stop)).unwrap()
    };
    assert_eq!((planned().done, planned().ahead.len()), (0, 6));
    let first = run(u64::MAX, |w| reproduce(&request, w)).unwrap();
    assert_eq!((planned().done, planned().ahead.len()), (6, 0));
    let second = run(u64::MAX, |w| reproduce(&request, w)).unwrap();
    assert_eq!(first, second);
    assert_eq!(fs::read_to_string(out.join("speech.csv")).unwrap().lines().count(), 7);
    let table = fs::read_to_string(out.join("speech.md")).unwrap();
    assert!(table.contains("| NST | 8 |"), "{table}");
    assert!(fs::read_to_string(out.join("speech.svg")).unwrap().contains("TRANS-4"));
}

/// Attention is replaced in a model that was trained exactly, and judged beside it.
#[test]
fn attention_is_replaced_in_a_trained_model() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let data = out.join("data/digits");
    fs::create_dir_all(&data).unwrap();
    let manifest = ten(&data);
    for name in ["train", "test", "labelled", "unlabelled"] {
        fs::copy(&manifest, data.join(format!("{name}.jsonl"))).unwrap();
    }
    let options = request(&manifest, PathBuf::new(), LayerOptions::default()).options;
    let request = SpeechRequest::new(folder.path(), &out)
        .corpus(Corpus::Digits)
        .modes(vec![Mode::Replaced])
        .attentions(vec![
            Attention::Mean,
            Attention::Features(Family::Sde),
            Attention::Learned,
            Attention::Exact,
        ])
        .features(vec![32])
        .seeds(1)
        .options(options.kernel(Some(1)));
    let found = run(u64::MAX, |w| reproduce(&request, w)).unwrap();
    let rates: Vec<_> = found
        .cells
        .iter()
        .map(|(c, e, _)| (c.mode, c.attention, e.words.value, e.each.len()))
        .collect();
    // Ten utterances are learned by heart. Their words are tones, which a frame tells apart; some are lost without
    // attention all the same.
    let [exact, mean, sde, learned] = &rates[..] else { panic!("{rates:?}") };
    assert_eq!((exact.0, exact.1, exact.3), (Mode::Trans, Attention::Exact, 10));
    assert_eq!(
        (mean.1, sde.1, learned.1),
        (Attention::Mean, request.attentions[1], Attention::Learned)
    );
    assert!(exact.2 == 0.0 && mean.2 > 0.1, "{rates:?}");
    assert!(sde.2 < 0.1 && learned.2 < 0.1, "{rates:?}");
    let table = found.to_markdown();
    assert!(table.contains("| Plain mean | REPLACED | – |"), "{table}");
    let message =
        |request: SpeechRequest| run(u64::MAX, |w| reproduce(&request, w)).unwrap_err().to_string();
    let trained = message(request.clone().modes(vec![Mode::Trans]));
    assert!(trained.contains("learned"), "{trained}");
    assert!(message(request.clone().corpus(Corpus::LjSpeech)).contains("ljspeech"));
}

/// What is refused, and that nothing is left behind.
#[test]
fn speech_that_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let attention = LayerOptions::new(Attention::Exact, 1);
    write_wav(&here.join("good.wav"), &say(&[0], 1));
    let good = fs::read(here.join("good.wav")).unwrap();
    fs::write(here.join("cut.wav"), &good[..good.len() - 101]).unwrap();
    fs::write(here.join("text.wav"), "no sound").unwrap();
    fs::write(here.join("text.flac"), "no sound").unwrap();
    fs::write(here.join("sound.mp3"), "no sound").unwrap();
    write_wav(&here.join("empty.wav"), &[]);
    for (name, part) in [
        ("cut.wav", "damaged"),
        ("text.wav", "damaged"),
        ("text.flac", "damaged"),
        ("sound.mp3", "neither .wav nor .flac"),
        ("empty.wav", "no sample"),
        ("none.wav", "No such file"),
    ] {
        let message = read_sound(&here.join(name)).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains(part), "{message}");
        assert_eq!(message.lines().count(), 1);
    }
    let refused = |lines: &str, units: Units| {
        let data = here.join("list.jsonl");
        fs::write(&data, lines).unwrap();
        let mut request = request(&data, here.join("out"), attention);
        request.options.units = units;
        let stop = AtomicBool::new(false);
        let message = train(&request, Watch::new(&silent, &stop)).unwrap_err();
        assert!(!here.join("out").exists(), "something was written");
        message.to_string()
    };
    let line = r#"{"path": "good.wav", "text": "low", "duration": 0.2}"#;
    for (lines, part) in [
        ("", "holds no utterance"),
        (r#"{"path": "none.wav", "text": "low"}"#, "line 1"),
        (&format!("{line}\n{{\"path\": 3}}"), "line 2"),
        (&format!("{line}\n{{\"path\": \"good.wav\"}}"), "has no text"),
        (&format!("{line}\n{{\"path\": \"cut.wav\", \"text\": \"low\"}}"), "cut.wav: damaged"),
        (r#"{"path": "good.wav", "text": " ?! "}"#, "no word"),
    ] {
        let message = refused(lines, Units::Words);
        assert!(message.contains(part) && message.lines().count() == 1, "{message}");
    }
    let request = TranscribeRequest::new(here.join("good.wav"), vec![here.join("good.wav")]);
    let message = transcribe(&request, &silent, &|_| {}).unwrap_err().to_string();
    assert!(message.contains("good.wav"), "{message}");
}

/// A front end brings any rate to its own.
#[test]
fn rates_are_brought_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.wav");
    write_wav(&path, &say(&[1], 3));
    let front = FrontEnd::log_mel(16000, 40);
    let Recording::Sound(samples) = front.read(&path).unwrap() else { panic!() };
    assert_eq!(samples.len(), 2 * say(&[1], 3).len());
}

/// The corpora, where they are at hand.
#[test]
fn corpora_are_imported() {
    let folder = tempfile::tempdir().unwrap();
    for (corpus, sizes) in [
        (Corpus::An4, &[948, 130][..]),
        (Corpus::Fsdd, &[2700, 300]),
        (Corpus::AudioMnist, &[2400, 2400]),
        (Corpus::LjSpeech, &[48]),
        (Corpus::Digits, &[401, 53]),
    ] {
        // Digits are made of two corpora, which are at hand together.
        let name = if corpus == Corpus::Digits { "audiomnist" } else { corpus.name() };
        let relative = format!("speech/{name}");
        let Some(files) = favor_testing::data(&relative) else { continue };
        let written = import(corpus, files.parent().unwrap(), folder.path()).unwrap();
        let found: Vec<usize> = written.iter().map(|(_, count)| *count).collect();
        assert_eq!(found, sizes, "{}", corpus.name());
        let manifest = Manifest::read(&written[0].0).unwrap();
        let first = &manifest.utterances[0];
        let front = FrontEnd::for_file(&first.path).unwrap();
        let features = front.features(&front.read(&first.path).unwrap(), None);
        let seconds = features.frames() as f64 / 100.0;
        assert!((seconds - first.duration).abs() < 0.05, "{seconds} {}", first.duration);
    }
}

#[test]
fn a_corpus_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let message = import(Corpus::An4, Path::new("nowhere"), folder.path()).unwrap_err().to_string();
    assert!(message.contains("nowhere") && message.contains("files of the corpus"), "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
