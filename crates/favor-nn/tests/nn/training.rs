//! Training: gradients of the whole model, every kind learns, and runs go on from checkpoints.

use crate::common::{generator, tiny};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{DType, Device, FloatDType, Gradients, Int, Tensor, TensorData};
use favor::Redraw;
use favor_nn::bert::{Bert, BertConfig};
use favor_nn::text::Batch;
use favor_nn::train::{AdamOptions, Schedule, Trainer};
use favor_nn::{Attention, LayerOptions, Result};

fn device() -> Device {
    Device::flex().autodiff()
}

fn options(kind: Attention) -> LayerOptions {
    LayerOptions::new(kind, 12).redraw(Redraw::Every(7))
}

fn model(config: &BertConfig, options: LayerOptions, seed: u64) -> Bert {
    device().seed(seed);
    let bert = Bert::new(config, options, &device()).unwrap();
    bert.with_masked_head(config, &device()).with_classifier(config, 2, &device())
}

/// Texts whose class is whether a 5 comes before a 6.
fn examples() -> (Batch, Vec<i64>) {
    let texts = vec![
        vec![2, 5, 9, 6, 3],
        vec![2, 6, 9, 5, 3],
        vec![2, 8, 5, 6, 7, 3],
        vec![2, 8, 6, 5, 7, 3],
        vec![2, 5, 6, 3],
        vec![2, 6, 5, 3],
        vec![2, 9, 9, 5, 8, 6, 3],
        vec![2, 9, 9, 6, 8, 5, 3],
    ];
    (Batch::new(texts).unwrap(), vec![1, 0, 1, 0, 1, 0, 1, 0])
}

fn loss(model: &Bert) -> Result<Tensor<1>> {
    let (batch, labels) = examples();
    let device = device();
    let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [8]), &device);
    Ok(CrossEntropyLossConfig::new().init(&device).forward(model.classify(&batch)?, labels))
}

fn trainer(config: &BertConfig, options: LayerOptions, steps: u64) -> Trainer {
    let schedule = Schedule::new(steps, 1e-2).warmup(5);
    Trainer::new(model(config, options, 1), schedule, AdamOptions::default(), 3).unwrap()
}

fn train(trainer: &mut Trainer, steps: std::ops::Range<u64>) {
    for _ in steps {
        trainer.step(loss).unwrap();
    }
}

/// Guessing has a loss of ln 2 = 0.69; all kinds learn the eight texts by heart.
#[test]
fn every_kind_learns() {
    let _held = generator();
    for kind in Attention::all() {
        let options = options(kind).features(32);
        let mut trainer = trainer(&tiny(), options, 200);
        let losses: Vec<f64> = (0..200).map(|_| trainer.step(loss).unwrap()).collect();
        assert!(losses[0] > 0.3, "{kind}: begins at {}", losses[0]);
        let last = losses[195..].iter().sum::<f64>() / 5.0;
        assert!(last < 0.1, "{kind}: ends at {last}");
    }
}

/// Weights in f64, so that finite differences mean something.
struct Widen;

impl ModuleMapper for Widen {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|t| t.detach().cast(FloatDType::F64).detach().require_grad())
    }
}

/// One number of every weight, moved.
struct Nudge {
    path: Vec<String>,
    target: String,
    place: usize,
    by: f64,
}

impl ModuleMapper for Nudge {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.path.join(".") != self.target {
            return param;
        }
        param.map(|t| {
            let (shape, device) = (t.dims(), t.device());
            let mut numbers: Vec<f64> = t.into_data().iter::<f64>().collect();
            numbers[self.place] += self.by;
            Tensor::from_data(TensorData::new(numbers, shape), (&device, DType::F64))
        })
    }
}

/// The gradient of every weight, by path.
struct Collect<'a> {
    path: Vec<String>,
    gradients: &'a Gradients,
    found: Vec<(String, Option<Vec<f64>>)>,
}

impl ModuleVisitor for Collect<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let gradient = param.val().grad(self.gradients);
        let gradient = gradient.map(|g| g.into_data().iter::<f64>().collect());
        self.found.push((self.path.join("."), gradient));
    }
}

/// Classes and masked tokens together, so that every weight has a part.
fn wide_loss(model: &Bert) -> Tensor<1> {
    let (batch, _) = examples();
    let classes = model.classify(&batch).unwrap();
    let masked = model.masked_logits(&batch, &[1, 9, 17, 30]).unwrap();
    let column = |n: usize, seed: f64| {
        let numbers: Vec<f64> = (0..n).map(|i| (seed + 1.7 * i as f64).sin()).collect();
        let data = TensorData::new(numbers, [n]);
        Tensor::<1>::from_data(data, (&device(), DType::F64))
    };
    let sum = |t: Tensor<2>, seed| {
        let n = t.dims().iter().product::<usize>();
        (t.reshape([n]) * column(n, seed)).sum()
    };
    sum(classes, 0.3) + sum(masked, 0.9)
}

/// Central differences in f64 with a step of 1e-5: some 1e-9 off where derivatives are of order one.
#[test]
fn gradients_of_the_whole_model() {
    let _held = generator();
    for kind in Attention::all() {
        // Maps are fitted by the first call and then stay.
        let options = options(kind).redraw(Redraw::Never);
        let model = model(&tiny(), options, 5).map(&mut Widen);
        wide_loss(&model);
        let gradients = wide_loss(&model).backward();
        let mut collect = Collect { path: vec![], gradients: &gradients, found: vec![] };
        model.visit(&mut collect);
        assert_eq!(collect.found.len(), 5 + 2 * 16 + 2 + 5 + 2);
        for (path, gradient) in collect.found {
            let gradient = gradient.unwrap_or_else(|| panic!("{path} has no gradient"));
            // The place of the largest, and one more.
            let top = (0..gradient.len())
                .max_by(|a, b| gradient[*a].abs().total_cmp(&gradient[*b].abs()));
            for place in [top.unwrap(), gradient.len() / 2] {
                let at = |by: f64| {
                    let mut nudge = Nudge { path: vec![], target: path.clone(), place, by };
                    let moved = model.clone().map(&mut nudge);
                    wide_loss(&moved).into_data().iter::<f64>().next().unwrap()
                };
                let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
                let found = gradient[place];
                let scale = slope.abs().max(1.0);
                assert!((slope - found).abs() < 1e-6 * scale, "{kind} {path}: {slope} {found}");
            }
        }
    }
}

/// With dropout and redrawn maps: a run that goes on from a checkpoint ends with the very same bits.
#[test]
fn resumed_runs_are_the_same() {
    let _held = generator();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let config = tiny().hidden_dropout_prob(0.1).attention_probs_dropout_prob(0.1);
    for kind in Attention::all() {
        let mut through = trainer(&config, options(kind), 20);
        train(&mut through, 0..20);
        let mut first = trainer(&config, options(kind), 20);
        train(&mut first, 0..9);
        first.save_checkpoint(&path, "a run").unwrap();
        device().seed(999);
        let mut second = trainer(&config, options(kind), 20);
        second.load_checkpoint(&path, "a run").unwrap();
        assert_eq!(second.steps_made(), 9);
        train(&mut second, 9..20);
        assert_eq!(
            through.model().to_bytes().unwrap(),
            second.model().to_bytes().unwrap(),
            "{kind}"
        );
        // One step more or less is another model: the comparison can fail.
        assert_ne!(through.model().to_bytes().unwrap(), first.model().to_bytes().unwrap());
        let refused = second.load_checkpoint(&path, "another");
        assert!(refused.unwrap_err().to_string().contains("other settings"));
    }
}

#[test]
fn the_same_seed_trains_the_same() {
    let _held = generator();
    let config = tiny().hidden_dropout_prob(0.2);
    let run = || {
        let mut trainer = trainer(&config, options(Attention::Features(favor::Family::Sde)), 8);
        (0..8).map(|_| trainer.step(loss).unwrap()).collect::<Vec<f64>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_run_that_goes_astray_says_so() {
    let _held = generator();
    let schedule = Schedule::new(50, 1e30).warmup(1);
    let model = model(&tiny(), options(Attention::Exact), 1);
    let mut trainer = Trainer::new(model, schedule, AdamOptions::default(), 3).unwrap();
    let message = (0..50).find_map(|_| trainer.step(loss).err()).unwrap().to_string();
    assert!(message.starts_with("step ") && message.ends_with("; lower the rate"), "{message}");
    assert!(!message.contains('\n'), "{message}");
}

/// A vector of the model.
struct Vector(Option<Tensor<1>>);

impl ModuleVisitor for Vector {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let [length] = param.val().dims()[..] {
            self.0 = Some(param.val().reshape([length]));
        }
    }
}

/// A failure that was there before a step is none of the step's.
#[test]
fn a_step_is_not_blamed_for_what_was_before() {
    let _held = generator();
    let mut trainer = trainer(&tiny(), options(Attention::Exact), 10);
    let rootless = trainer.model().classify(&examples().0).unwrap() * 0.0;
    rootless.sqrt().sum().backward();
    // Its gradient has nothing to do with attention.
    let astray = |model: &Bert| {
        let mut vector = Vector(None);
        model.visit(&mut vector);
        Ok((vector.0.unwrap() * 0.0).sqrt().sum())
    };
    let message = trainer.step(astray).unwrap_err().to_string();
    assert_eq!(message, "step 1: the gradient is NaN or infinite; lower the rate");
}

/// A loss that is finite and has no gradient: the root at zero. What the engine has to say against it
/// reaches the one who trains, who can go on with a better loss.
#[test]
fn a_failed_backward_pass_names_its_cause() {
    let _held = generator();
    let rootless = |model: &Bert| Ok((model.classify(&examples().0)? * 0.0).sqrt().sum());
    for kind in Attention::all() {
        let mut trainer = trainer(&tiny(), options(kind), 10);
        let before = trainer.model().to_bytes().unwrap();
        let message = trainer.step(rootless).unwrap_err().to_string();
        // ELU and ReLU are tensor operations, which do not look at what they get.
        let cause = match kind {
            Attention::Elu | Attention::Relu => "the gradient is NaN or infinite",
            _ => "the backward pass of attention failed in layer 2: ",
        };
        assert!(message.starts_with(&format!("step 1: {cause}")), "{kind}: {message}");
        assert!(message.ends_with("; lower the rate"), "{kind}: {message}");
        assert!(cause.starts_with("the gradient") || message.contains("NaN at row"), "{message}");
        assert_eq!(trainer.model().to_bytes().unwrap(), before);
        trainer.step(loss).unwrap();
    }
}
