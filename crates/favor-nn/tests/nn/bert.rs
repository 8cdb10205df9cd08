//! BERT against transformers, and against itself.

use crate::common::{fixture, minilm};
use burn::tensor::{Device, Tensor};
use favor_nn::bert::Bert;
use favor_nn::run::{EmbedRequest, embed};
use favor_nn::text::{Batch, Encoded, TextTokenizer};
use favor_nn::{Attention, LayerOptions, Statistics};
use serde_json::Value;

fn exact() -> LayerOptions {
    LayerOptions::new(Attention::Exact, 1)
}

fn expected(file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixture(file)).unwrap()).unwrap()
}

/// All numbers of a nested list, in order.
fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        number => vec![number.as_f64().unwrap()],
    }
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

fn encode(texts: &[(&str, Option<&str>)]) -> Vec<Encoded> {
    let tokenizer = TextTokenizer::load(&fixture("tiny-bert"), 16).unwrap();
    tokenizer.encode(texts.iter().copied()).unwrap()
}

fn texts() -> Vec<String> {
    let found = expected("tiny.json");
    found["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_owned()).collect()
}

fn batch() -> Batch {
    let texts = texts();
    let encoded = encode(&texts.iter().map(|t| (t.as_str(), None)).collect::<Vec<_>>());
    Batch::of(encoded.iter()).unwrap()
}

/// Compares where there is no padding. Weights of std 0.5 make numbers of a few units, and f32 rounds
/// them at 1e-7 some hundred times.
fn assert_close(found: &[f64], wanted: &[f64], visible: &[bool]) {
    let width = wanted.len() / visible.len();
    assert_eq!(found.len(), wanted.len());
    for (i, (a, b)) in found.iter().zip(wanted).enumerate().filter(|(i, _)| visible[i / width]) {
        assert!((a - b).abs() < 2e-5, "{a} and {b} at {i}");
    }
}

#[test]
fn the_tokenizer_is_that_of_transformers() {
    let wanted = expected("tiny.json");
    let ids: Vec<f64> = batch().ids().iter().map(|i| f64::from(*i)).collect();
    assert_eq!(ids, flat(&wanted["ids"]));
    let texts = texts();
    let pair = &encode(&[(&texts[0], Some(&texts[1]))])[0];
    let types: Vec<f64> = pair.types.iter().map(|i| f64::from(*i)).collect();
    assert_eq!(types, flat(&wanted["pair_types"]));
}

#[test]
fn outputs_are_those_of_transformers() {
    let wanted = expected("tiny.json");
    let (bert, _) = Bert::load(&fixture("tiny-bert"), exact(), &Device::flex()).unwrap();
    let (batch, texts) = (batch(), texts());
    let visible = batch.visible();
    let hidden = numbers(bert.encoder.forward(&batch).unwrap());
    assert_close(&hidden, &flat(&wanted["hidden"]), &visible);
    let places: Vec<usize> = (0..visible.len()).collect();
    let logits = numbers(bert.masked_logits(&batch, &places).unwrap());
    assert_close(&logits, &flat(&wanted["logits"]), &visible);
    let pair = Batch::of(encode(&[(&texts[0], Some(&texts[1]))]).iter()).unwrap();
    let hidden = numbers(bert.encoder.forward(&pair).unwrap());
    assert_close(&hidden, &flat(&wanted["pair_hidden"]), &vec![true; pair.length()]);
    let (classifier, _) =
        Bert::load(&fixture("tiny-classifier"), exact(), &Device::flex()).unwrap();
    let classes = numbers(classifier.classify(&batch).unwrap());
    assert_close(&classes, &flat(&wanted["classes"]), &vec![true; batch.len()]);
}

/// What is saved is what was loaded, name by name and bit by bit.
#[test]
fn saving_gives_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    for (name, classes) in [("tiny-bert", 0), ("tiny-classifier", 3)] {
        let (bert, config) = Bert::load(&fixture(name), exact(), &Device::flex()).unwrap();
        let labels: Vec<String> = (0..classes).map(|i| format!("LABEL_{i}")).collect();
        let labels = (classes > 0).then_some(&labels[..]);
        bert.save(folder.path(), &config, labels, Some(&fixture(name))).unwrap();
        let read =
            |path: std::path::PathBuf| std::fs::read(path.join("model.safetensors")).unwrap();
        let (old, new) = (read(fixture(name)), read(folder.path().to_path_buf()));
        let tensors = |bytes: &[u8]| {
            let file = safetensors::SafeTensors::deserialize(bytes).unwrap();
            let mut all: Vec<(String, Vec<usize>, Vec<u8>)> = file
                .iter()
                .map(|(n, v)| (n.to_owned(), v.shape().to_vec(), v.data().to_vec()))
                .collect();
            all.sort();
            all
        };
        assert_eq!(tensors(&old), tensors(&new));
        let config = |path: std::path::PathBuf| -> Value {
            serde_json::from_slice(&std::fs::read(path.join("config.json")).unwrap()).unwrap()
        };
        assert_eq!(config(fixture(name)), config(folder.path().to_path_buf()));
    }
    assert!(folder.path().join("vocab.txt").exists());
}

/// Texts go through alone, together, or in another order: each comes out the same, for every kind of
/// attention whose maps do not depend on the batch.
#[test]
fn padding_and_order_change_nothing() {
    for kind in Attention::all() {
        let options = LayerOptions::new(kind, 16).statistics(Statistics::PerSequence);
        let (bert, _) = Bert::load(&fixture("tiny-bert"), options, &Device::flex()).unwrap();
        let texts = texts();
        let encoded = encode(&texts.iter().map(|t| (t.as_str(), None)).collect::<Vec<_>>());
        let vectors = |order: &[usize]| -> Vec<Vec<f64>> {
            let batch = Batch::of(order.iter().map(|i| &encoded[*i])).unwrap();
            numbers(bert.embed(&batch).unwrap()).chunks(16).map(<[_]>::to_vec).collect()
        };
        let together = vectors(&[0, 1, 2]);
        let turned = vectors(&[2, 0, 1]);
        for i in 0..3 {
            let alone = vectors(&[i]);
            for (j, a) in together[i].iter().enumerate() {
                let (b, c) = (alone[0][j], turned[(i + 1) % 3][j]);
                assert!((a - b).abs() < 5e-6 && (a - c).abs() < 5e-6, "{kind}: {a} {b} {c}");
            }
        }
    }
}

/// Positions beyond the model's are interpolated: the first and the last are its own.
#[test]
fn long_texts_interpolate_positions() {
    let (bert, _) = Bert::load(&fixture("tiny-bert"), exact(), &Device::flex()).unwrap();
    let long = Batch::new(vec![vec![7; 31]]).unwrap();
    assert_eq!(bert.encoder.forward(&long).unwrap().dims(), [1, 31, 16]);
    // 31 tokens on 16 positions: every second one stands at a position of the model.
    let request = |text: &str, length| {
        EmbedRequest::new(fixture("tiny-bert"), vec![text.to_owned()]).length(length)
    };
    let text = "the cat sat on the mat and ".repeat(20);
    let silent = favor_io::progress::silent;
    let cut = embed(&request(&text, None), &silent).unwrap();
    assert_eq!((cut.tokens[0], cut.cut, cut.interpolated), (16, 1, 0));
    let whole = embed(&request(&text, Some(500)), &silent).unwrap();
    assert_eq!((whole.tokens[0], whole.cut, whole.interpolated), (142, 0, 1));
    let norm: f32 = whole.vectors[0].iter().map(|v| v * v).sum();
    assert!((norm - 1.0).abs() < 1e-5);
}

#[test]
fn minilm_embeds_as_in_transformers() {
    let Some(model) = minilm("minilm_embeds_as_in_transformers") else { return };
    let wanted = expected("minilm.json");
    let texts = wanted["texts"].as_array().unwrap().iter();
    let texts = texts.map(|t| t.as_str().unwrap().to_owned()).collect();
    let request = EmbedRequest::new(model, texts).batch(8);
    let found = embed(&request, &favor_io::progress::silent).unwrap();
    let found: Vec<f64> = found.vectors.iter().flatten().map(|v| f64::from(*v)).collect();
    let wanted = flat(&wanted["embeddings"]);
    assert_eq!(found.len(), wanted.len());
    let worst = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < 1e-5, "{worst}");
}
