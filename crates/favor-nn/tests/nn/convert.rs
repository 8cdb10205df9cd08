//! Conversion of small models: gradients of maps, what it brings, files, and what is refused.

use crate::common::{fixture, generator, normal};
use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use favor::learned::{Calibration, LearnOptions, learn_maps};
use favor::{ExactKeys, Family, FeatureMap, FeatureSpec, Kernel};
use favor_io::progress::{Tick, silent};
use favor_nn::bert::Bert;
use favor_nn::run::{
    ConvertOptions, ConvertRequest, EmbedRequest, FinetuneRequest, Source, TuningOptions, Watch,
    convert, embed, finetune,
};
use favor_nn::text::Batch;
use favor_nn::{Attention, Error, FavorAttentionConfig, GivenMaps, LayerOptions};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

fn learned_maps(heads: usize, dim: usize, features: usize, exact: ExactKeys) -> Vec<FeatureMap> {
    let shape = [8, heads, 24, dim];
    let x: Vec<f32> = normal(shape, 4, &Device::flex()).into_data().iter::<f32>().collect();
    let t = favor::Tensor::new(&x, shape).unwrap();
    let spec = FeatureSpec::new(Family::Balanced, features).kernel(Kernel::attention(dim));
    let options = LearnOptions::new().steps(10).exact(exact);
    let found = learn_maps(spec, Calibration::new(t, t), &options).unwrap();
    found.into_iter().map(|head| head.map).collect()
}

/// Changes every number of the maps of a layer along a direction of length one; a central difference of the loss
/// then is the product of that direction and the gradient. In f32 the loss is off by about 1e-6 of its terms,
/// and a step of 0.02 makes 1e-4 of it; its third derivative adds as much.
#[test]
fn maps_of_a_layer_have_gradients() {
    let device = Device::flex().autodiff();
    let xavier = burn::nn::Initializer::XavierUniform { gain: 1.0 };
    let _held = generator();
    device.seed(3);
    for exact in [ExactKeys::NONE, ExactKeys::NONE.near(2).routed(2, 3)] {
        let config = FavorAttentionConfig::new(16, 4)
            .dropout(0.0)
            .attention(LayerOptions::new(Attention::Exact, 1));
        let mut layer = config.init(&xavier, &device).unwrap();
        let given = GivenMaps::fixed(learned_maps(4, 4, 6, exact), vec![exact; 4]).unwrap();
        layer.set_given(Some(given.trained(&device).unwrap())).unwrap();
        let x = normal([2, 20, 16], 1, &device).cast(burn::tensor::DType::F32);
        let g = normal([2, 20, 16], 2, &device).cast(burn::tensor::DType::F32);
        let loss = |layer: &favor_nn::FavorAttention| {
            (layer.forward(x.clone(), None, false).unwrap() * g.clone()).sum()
        };
        let gradients = loss(&layer).backward();
        let mut found = Along { gradients, product: 0.0, by: 0.0 };
        layer.visit(&mut found);
        let value = |by: f64| {
            let mut change = Along { gradients: loss(&layer).backward(), product: 0.0, by };
            f64::from(loss(&layer.clone().map(&mut change)).into_scalar::<f32>())
        };
        let wanted = (value(0.01) - value(-0.01)) / 0.02;
        let product = found.product;
        assert!((product - wanted).abs() < 0.01 * wanted.abs() + 1e-3, "{product} {wanted}");
    }
}

/// Multiplies the gradients of maps by the signs of their numbers' places, and moves the numbers along these.
struct Along {
    gradients: burn::tensor::Gradients,
    product: f64,
    by: f64,
}

fn direction(i: usize) -> f64 {
    (1.7 * i as f64).sin() / 10.0
}

impl burn::module::ModuleVisitor for Along {
    fn visit_float<const D: usize>(&mut self, param: &burn::module::Param<Tensor<D>>) {
        // The maps are the only weights with three axes, and their constants those of this width.
        if D == 3 || (D == 2 && param.val().dims()[1] == 6) {
            let gradient = param.val().grad(&self.gradients).unwrap().into_data();
            let terms = gradient.iter::<f64>().enumerate().map(|(i, g)| g * direction(i));
            self.product += terms.sum::<f64>();
        }
    }
}

impl burn::module::ModuleMapper for Along {
    fn map_float<const D: usize>(
        &mut self,
        param: burn::module::Param<Tensor<D>>,
    ) -> burn::module::Param<Tensor<D>> {
        if !(D == 3 || (D == 2 && param.val().dims()[1] == 6)) {
            return param;
        }
        let by = self.by;
        param.map(|tensor| {
            let (shape, device) = (tensor.dims(), tensor.device());
            let values = tensor.into_data();
            let moved: Vec<f32> = values
                .iter::<f64>()
                .enumerate()
                .map(|(i, v)| (v + by * direction(i)) as f32)
                .collect();
            Tensor::from_data(TensorData::new(moved, shape), &device).require_grad()
        })
    }
}

/// Sentences about cats and dogs, by label.
fn task(path: &Path) {
    let mut text = "sentence\tlabel\n".to_owned();
    for i in 0..160 {
        let (animal, label) = [("cat", "feline"), ("dog", "canine")][i % 2];
        let rest = ["sat on the mat .", "ran fast !", "jump", "and not slow ?"][i / 2 % 4];
        text += &format!("the {animal} {rest}\t{label}\n");
    }
    fs::write(path, text).unwrap();
}

fn unwatched<T>(work: impl FnOnce(Watch<'_>) -> favor_nn::Result<T>) -> favor_nn::Result<T> {
    let stop = AtomicBool::new(false);
    work(Watch::new(&silent, &stop))
}

/// An exact model that knows the task, and the file of the task.
fn teacher(folder: &Path) -> (PathBuf, String) {
    let file = folder.join("animals.tsv");
    task(&file);
    let name = file.to_str().unwrap().to_owned();
    let out = folder.join("exact");
    let request = FinetuneRequest::new(fixture("tiny-bert"), &name, &out)
        .data(folder.to_path_buf())
        .options(TuningOptions::default().epochs(20).batch(8).rate(5e-3).length(16).seed(1));
    let found = unwatched(|w| finetune(&request, w)).unwrap();
    assert_eq!(found.score(), 1.0, "{:?}", found.scores);
    (out, name)
}

fn request(folder: &Path, out: &str, (model, task): &(PathBuf, String)) -> ConvertRequest {
    let options = ConvertOptions::default()
        .learn(40)
        .maps(8)
        .values(8)
        .weights(24)
        .epochs(2)
        .batch(8)
        .length(16)
        .rate(3e-3)
        .task_rate(1e-3);
    ConvertRequest::new(model, Source::Task(task.clone()), folder.join(out))
        .data(folder.to_path_buf())
        .features(8)
        .options(options)
}

fn bytes(folder: &Path) -> [Vec<u8>; 2] {
    ["model.safetensors", "favor_sharp.safetensors"]
        .map(|name| fs::read(folder.join(name)).unwrap())
}

fn vectors(model: &Path, texts: &[&str], batch: usize) -> Vec<Vec<f32>> {
    let texts = texts.iter().map(|t| (*t).to_owned()).collect();
    embed(&EmbedRequest::new(model, texts).batch(batch), &silent).unwrap().vectors
}

/// ReLU attention is far from softmax: what is lost by it at first comes back in a few steps.
#[test]
fn a_task_is_kept() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let exact = teacher(folder.path());
    let request = request(folder.path(), "relu", &exact).attention(Attention::Relu);
    let found = unwatched(|w| convert(&request, w)).unwrap();
    let names: Vec<&str> = found.stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names, ["replace", "values", "weights", "task"]);
    let (first, trained) = (&found.stages[0].distance, &found.stages[2].distance);
    assert!(trained.states < 0.9 * first.states, "{}", found.to_text());
    assert_eq!(found.stages[3].score, Some(1.0), "{}", found.to_text());
}

#[test]
fn a_stopped_conversion_goes_on() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let exact = teacher(folder.path());
    let gentle = |out: &str| {
        let request = request(folder.path(), out, &exact).features(2);
        let options = request.options.rate(1e-4).task_rate(1e-4);
        request.options(options)
    };
    let whole = gentle("whole");
    let found = unwatched(|w| convert(&whole, w)).unwrap();
    let names: Vec<&str> = found.stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names, ["learn", "maps", "values", "weights", "task"]);
    assert_eq!(found.last().unwrap().score, Some(1.0), "{}", found.to_text());
    let [before, after] = found.head_errors.unwrap();
    assert!(after <= before);
    assert!(!whole.out.join("conversion").exists());

    // Stopped while maps are learned, in the second stage of training, and in the last.
    let parts = gentle("parts");
    for words in ["learning maps", "values", "task"] {
        let stop = AtomicBool::new(false);
        let listener = |tick: Tick<'_>| {
            if tick.what.starts_with(words) {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let found = convert(&parts, Watch::new(&listener, &stop));
        assert!(matches!(found, Err(Error::Stopped { .. })), "{words}: {found:?}");
        assert!(!parts.out.join("model.safetensors").exists());
    }
    let other = parts.clone().features(4);
    let message = unwatched(|w| convert(&other, w)).unwrap_err().to_string();
    assert!(message.contains("other settings"), "{message}");
    let again = unwatched(|w| convert(&parts, w)).unwrap();
    assert_eq!(bytes(&whole.out), bytes(&parts.out));
    let scores = |found: &favor_nn::run::Converted| -> Vec<_> {
        found.stages.iter().map(|s| (s.distance, s.score)).collect()
    };
    assert_eq!(scores(&found), scores(&again));
    let card = fs::read_to_string(whole.out.join("README.md")).unwrap();
    assert!(card.contains("2 features per head") && card.contains("| weights |"), "{card}");
    let maps = favor::maps_from_bytes(&bytes(&whole.out)[1]).unwrap();
    let source = &maps[0].learned().unwrap().source;
    assert_eq!(source, "layer 0 of exact, task: animals.tsv");

    // It opens as it is, and goes on learning with its own maps.
    let more = FinetuneRequest::new(&whole.out, &exact.1, folder.path().join("more"))
        .data(folder.path().to_path_buf())
        .options(TuningOptions::default().epochs(1).batch(8).rate(1e-9).length(16));
    assert_eq!(unwatched(|w| finetune(&more, w)).unwrap().score(), 1.0);
    assert_eq!(bytes(&more.out)[1], bytes(&whole.out)[1]);
}

/// A text has one vector, whatever it is padded to and whoever is beside it. Sums in another order differ by
/// rounding: some hundred terms of 1e-7 in each of a few layers.
#[test]
fn neighbours_and_padding_change_nothing() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let exact = teacher(folder.path());
    let texts = ["the cat sat on the mat .", "a dog", "the dog ran fast ! the cat sat . a mat"];
    for (attention, keys) in [
        (Attention::Learned, ExactKeys::NONE),
        (Attention::Learned, ExactKeys::NONE.near(1).routed(2, 2)),
        (Attention::Features(Family::Sde), ExactKeys::NONE),
        (Attention::Elu, ExactKeys::NONE),
    ] {
        let out = format!("{attention}-{}", keys.near);
        let request = request(folder.path(), &out, &exact).attention(attention).exact(keys);
        let request = request.options(
            ConvertOptions::default()
                .learn(5)
                .maps(0)
                .values(0)
                .weights(2)
                .epochs(0)
                .batch(8)
                .length(16),
        );
        unwatched(|w| convert(&request, w)).unwrap();
        let together = vectors(&request.out, &texts, 3);
        let alone = vectors(&request.out, &texts, 1);
        let turned: Vec<&str> = texts.iter().rev().copied().collect();
        let turned: Vec<Vec<f32>> = vectors(&request.out, &turned, 3).into_iter().rev().collect();
        for other in [&alone, &turned] {
            for (a, b) in together.iter().flatten().zip(other.iter().flatten()) {
                assert!((a - b).abs() < 1e-4, "{attention}: {a} {b}");
            }
        }
        // What is written is what was converted: other attention gives other vectors.
        let exactly = LayerOptions::new(Attention::Exact, 1);
        let plain = EmbedRequest::new(&request.out, vec![texts[0].to_owned()]);
        let plain = embed(&plain.attention(Some(exactly)), &silent).unwrap().vectors;
        assert_ne!(plain[0], together[0]);
    }
}

#[test]
fn harmful_heads_stay_exact_and_projections_are_repaired() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let exact = teacher(folder.path());
    let plain = request(folder.path(), "kept", &exact);
    let short = ConvertOptions::default().learn(5).maps(0).values(0).weights(0).epochs(0).batch(8);
    let kept = plain.clone().keep_exact(1).options(short.length(16).repair(true));
    let found = unwatched(|w| convert(&kept, w)).unwrap();
    assert_eq!(found.exact_heads.len(), 1);
    let [learned, keep, repair] = &found.stages[..] else { panic!("{}", found.to_text()) };
    assert!(keep.distance.states < learned.distance.states, "{}", found.to_text());
    // Least squares cannot be worse on the texts themselves, and these sentences are few.
    assert!(repair.distance.states < keep.distance.states, "{}", found.to_text());
    let (model, _) = Bert::open(&kept.out, None, &Device::flex()).unwrap();
    let (layer, head) = found.exact_heads[0];
    let batch = Batch::new(vec![vec![2, 5, 6, 3]]).unwrap();
    assert_eq!(model.encoder.forward(&batch).unwrap().dims()[0], 1);
    let text = fs::read(kept.out.join("favor_sharp.safetensors")).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(text.contains(&format!("\\\"exact\\\":[{head}]")), "{layer}.{head}");

    // With every head exact but one layer, little is left to go wrong.
    let one = plain.layers(Some(vec![1])).out(folder.path().join("one")).options(short.length(16));
    let found = unwatched(|w| convert(&one, w)).unwrap();
    assert!(found.stages[0].distance.states < learned.distance.states);
}

#[test]
fn texts_alone_are_enough() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.txt");
    fs::write(&file, "the cat sat on the mat . a dog ran fast , but not the cat !\n".repeat(60))
        .unwrap();
    let options = ConvertOptions::default().learn(20).maps(4).values(4).weights(20).batch(8);
    let request = ConvertRequest::new(
        fixture("tiny-bert"),
        Source::Texts(vec![file]),
        folder.path().join("out"),
    );
    let request = request.features(8).options(options.length(16).rate(2e-3));
    let found = unwatched(|w| convert(&request, w)).unwrap();
    let (first, last) = (&found.stages[0].distance, &found.last().unwrap().distance);
    assert!(last.loss() < first.loss() && found.exact_score.is_none(), "{}", found.to_text());
    // A converted model is not converted again.
    let twice = request.clone().model(request.out.clone()).out(folder.path().join("twice"));
    let message = unwatched(|w| convert(&twice, w)).unwrap_err().to_string();
    assert!(message.contains("converted already"), "{message}");
    // A budget makes stages shorter.
    let hurried = request.clone().out(folder.path().join("hurried"));
    let hurried = hurried.options(request.options.budget(Some(std::time::Duration::ZERO)));
    let found = unwatched(|w| convert(&hurried, w)).unwrap();
    assert!(found.stages.iter().all(|stage| stage.steps <= 1), "{}", found.to_text());
}

#[test]
fn what_makes_no_sense_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("a.txt"), "the cat sat on the mat .\n".repeat(60)).unwrap();
    fs::write(here.join("b.txt"), "the cat\n").unwrap();
    task(&here.join("animals.tsv"));
    let texts = |name: &str| Source::Texts(vec![here.join(name)]);
    let plain = ConvertRequest::new(fixture("tiny-bert"), texts("a.txt"), here.join("out"));
    let plain = plain.features(8).options(ConvertOptions::default().length(16));
    let refused = |request: ConvertRequest, part: &str| {
        let message = unwatched(|w| convert(&request, w)).unwrap_err().to_string();
        assert!(message.contains(part), "{message:?} lacks {part:?}");
        assert!(!here.join("out").exists());
    };
    refused(plain.clone().source(texts("none.txt")), "none.txt");
    refused(plain.clone().source(texts("b.txt")), "too little");
    refused(plain.clone().source(Source::Texts(vec![])), "no file");
    let animals = here.join("animals.tsv").to_str().unwrap().to_owned();
    refused(plain.clone().source(Source::Task(animals)), "fine-tune the exact model first");
    refused(plain.clone().source(Source::Task("qqp".into())), "qqp");
    refused(plain.clone().attention(Attention::Exact), "nothing to convert to");
    refused(plain.clone().attention(Attention::Relu).exact(ExactKeys::NONE.near(2)), "no features");
    refused(plain.clone().exact(ExactKeys::NONE.routed(9, 2)), "9 preferred slots");
    refused(plain.clone().layers(Some(vec![7])), "layers");
    refused(plain.clone().keep_exact(1000), "nothing would be converted");
    refused(plain.clone().options(ConvertOptions::default().length(5000)), "positions");
    refused(plain.clone().model(here.join("nowhere")), "no such folder");
    // Another architecture, and a model without a tokenizer.
    let copy = |name: &str, files: &[&str]| {
        let out = here.join(name);
        fs::create_dir_all(&out).unwrap();
        for file in files {
            fs::copy(fixture("tiny-bert").join(file), out.join(file)).unwrap();
        }
        out
    };
    let dumb = copy("dumb", &["config.json", "model.safetensors"]);
    refused(plain.clone().model(dumb), "neither tokenizer.json nor vocab.txt");
    let other = copy("other", &["model.safetensors", "vocab.txt"]);
    let config = fs::read_to_string(fixture("tiny-bert").join("config.json")).unwrap();
    fs::write(other.join("config.json"), config.replace("\"bert\"", "\"distilbert\"")).unwrap();
    refused(plain.clone().model(other), "only 'bert' is known");
}
