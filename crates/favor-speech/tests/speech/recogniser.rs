//! The transducer's loss against all alignments, and the recogniser against itself.

use crate::common::generator;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use favor::Redraw;
use favor::draw::Stream;
use favor_nn::{Attention, Family, LayerOptions, Positions};
use favor_speech::audio::Features;
use favor_speech::{
    Frames, Recogniser, Search, SpeechConfig, SpeechModel, subsampled, transducer_loss,
};

fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut stream = Stream::new(seed, 77);
    (0..count).map(|_| stream.normal() as f32).collect()
}

fn tensor(values: Vec<f32>, shape: [usize; 4], device: &Device) -> Tensor<4> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// The probability of the labels, by all ways through the lattice, one after the other.
fn by_enumeration(
    scores: &dyn Fn(usize, usize) -> Vec<f64>,
    frames: usize,
    labels: &[usize],
) -> f64 {
    fn ways(
        scores: &dyn Fn(usize, usize) -> Vec<f64>,
        (t, u): (usize, usize),
        frames: usize,
        labels: &[usize],
    ) -> f64 {
        let row = scores(t, u);
        let sum: f64 = row.iter().map(|s| s.exp()).sum();
        let of = |symbol: usize| row[symbol].exp() / sum;
        let by_blank = match (t + 1 < frames, u == labels.len()) {
            (true, _) => of(0) * ways(scores, (t + 1, u), frames, labels),
            (false, end) => of(0) * f64::from(u8::from(end)),
        };
        match labels.get(u) {
            Some(&label) => by_blank + of(label) * ways(scores, (t, u + 1), frames, labels),
            None => by_blank,
        }
    }
    ways(scores, (0, 0), frames, labels)
}

/// Utterances of unlike sizes in one batch; what is beyond their ends is not looked at.
fn lattice() -> ([usize; 4], Vec<usize>, Vec<Vec<usize>>, Vec<f32>) {
    let shape = [4, 5, 4, 6];
    let (frames, labels) = (vec![5, 3, 1, 4], vec![vec![2, 2, 5], vec![1], vec![3, 4], vec![]]);
    let mut scores = random(shape.iter().product(), 1);
    for (i, score) in scores.iter_mut().enumerate() {
        let (b, t, u) = (i / 120, i / 24 % 5, i / 6 % 4);
        if t >= frames[b] || u > labels[b].len() {
            *score = f32::NAN;
        }
    }
    (shape, frames, labels, scores)
}

#[test]
fn the_loss_is_that_of_all_alignments() {
    let (shape, frames, labels, scores) = lattice();
    let device = Device::flex();
    let found = transducer_loss(tensor(scores.clone(), shape, &device), &frames, &labels).unwrap();
    for (b, found) in found.into_data().iter::<f64>().enumerate() {
        let row = |t: usize, u: usize| {
            let start = ((b * 5 + t) * 4 + u) * 6;
            scores[start..start + 6].iter().map(|s| f64::from(*s)).collect()
        };
        let probability = by_enumeration(&row, frames[b], &labels[b]);
        assert!((found + probability.ln()).abs() < 1e-5, "{b}: {found} {}", -probability.ln());
    }
}

/// Central differences in f32 with a step of 0.02: 1e-5 from rounding, 1e-4 from the third derivative.
#[test]
fn gradients_of_the_loss() {
    let (shape, frames, labels, scores) = lattice();
    let device = Device::flex().autodiff();
    let weights = Tensor::<1>::from_data([1.0, -0.5, 2.0, 0.7], &device);
    let loss = |scores: Tensor<4>| {
        (transducer_loss(scores, &frames, &labels).unwrap() * weights.clone()).sum()
    };
    let leaf = tensor(scores.clone(), shape, &device).require_grad();
    let gradients = loss(leaf.clone()).backward();
    let found: Vec<f32> = leaf.grad(&gradients).unwrap().into_data().iter::<f32>().collect();
    let mut checked = 0;
    for (i, &slope) in found.iter().enumerate() {
        if scores[i].is_nan() {
            assert_eq!(slope, 0.0, "padding has no gradient");
            continue;
        }
        let at = |by: f32| {
            let mut moved = scores.clone();
            moved[i] += by;
            loss(tensor(moved, shape, &device)).into_scalar::<f32>()
        };
        let ideal = (at(0.02) - at(-0.02)) / 0.04;
        assert!((slope - ideal).abs() < 5e-4, "{i}: {slope} {ideal}");
        checked += 1;
    }
    assert_eq!(checked, 6 * (5 * 4 + 3 * 2 + 3 + 4));
}

#[test]
fn lattices_that_make_no_sense_are_refused() {
    let device = Device::flex();
    let scores = || Tensor::<4>::zeros([1, 2, 2, 3], &device);
    let refused = |frames: &[usize], labels: &[Vec<usize>]| {
        transducer_loss(scores(), frames, labels).unwrap_err().to_string()
    };
    assert!(refused(&[3], &[vec![1]]).contains("3 frames"));
    assert!(refused(&[0], &[vec![1]]).contains("0 frames"));
    assert!(refused(&[2], &[vec![1, 1]]).contains("2 labels"));
    assert!(refused(&[2], &[vec![0]]).contains("label 0"));
    assert!(refused(&[2], &[vec![3]]).contains("label 3"));
    assert!(refused(&[2, 2], &[vec![1]]).contains("batch of 1"));
}

fn tiny() -> SpeechConfig {
    SpeechConfig::small(5, 6)
        .width(16)
        .layers(2)
        .heads(2)
        .feed(2)
        .kernel(5)
        .prediction(8)
        .joint(12)
        .dropout(0.0)
}

/// New weights, drawn by burn's generator: a test that calls this holds it.
fn recogniser(config: &SpeechConfig, options: LayerOptions, device: &Device) -> Recogniser {
    device.seed(4);
    Recogniser::new(config, options, device).unwrap()
}

fn utterance(frames: usize, seed: u64) -> Features {
    Features::new(random(5 * frames, seed), 5).unwrap()
}

fn options(kind: Attention) -> LayerOptions {
    LayerOptions::new(kind, 24)
}

/// An utterance gives the same alone and beside a longer one, up to the rounding of sums in another
/// order (1e-6 of numbers of order one, in each of some ten layers).
#[test]
fn padding_changes_nothing() {
    let _held = generator();
    let relative = tiny().positions(Positions::Relative(10));
    let kinds = Attention::all().map(|kind| (kind, tiny()));
    for (kind, config) in kinds.chain([(Attention::Exact, relative)]) {
        let model = recogniser(&config, options(kind), &Device::flex());
        for frames in [1, 2, 3, 4, 5, 21, 22, 23] {
            let (short, long) = (utterance(frames, 3), utterance(40, 4));
            let encode = |of: &[&Features]| {
                let frames = Frames::new(of.iter().copied()).unwrap();
                let (states, lengths) = model.encode(&frames).unwrap();
                assert_eq!(lengths[0], subsampled(of[0].frames()));
                states.narrow(0, 0, 1).narrow(1, 0, lengths[0]).into_data()
            };
            let (alone, beside) = (encode(&[&short]), encode(&[&short, &long]));
            assert_eq!(alone.shape(), beside.shape());
            let worst = alone.iter::<f32>().zip(beside.iter::<f32>()).map(|(a, b)| (a - b).abs());
            let worst = worst.fold(0.0, f32::max);
            assert!(worst < 1e-4, "{kind} {frames}: {worst}");
        }
    }
}

/// The loss of a first guess is the mean of the utterances' own, whatever padding they get, and follows
/// the loudness, not its scale.
#[test]
fn a_first_guess_is_made_for_each_utterance() {
    let _held = generator();
    let model = recogniser(&tiny(), options(Attention::Exact), &Device::flex());
    let utterances = [utterance(21, 3), utterance(40, 4)];
    let labels = [vec![1, 2], vec![2]];
    let loudness = |by: f32| [21, 40].map(|n: usize| random(n, 7).iter().map(|l| by * l).collect());
    let loss = |chosen: &[usize], loudness: [Vec<f32>; 2]| {
        let frames = Frames::new(chosen.iter().map(|i| &utterances[*i])).unwrap();
        let loudness: Vec<Vec<f32>> = chosen.iter().map(|i| loudness[*i].clone()).collect();
        let labels: Vec<Vec<usize>> = chosen.iter().map(|i| labels[*i].clone()).collect();
        model.spread_loss(&frames, &loudness, &labels).map(|loss| loss.into_scalar::<f32>())
    };
    let each = [0, 1].map(|i| loss(&[i], loudness(1.0)).unwrap());
    let both = loss(&[0, 1], loudness(3.0)).unwrap();
    assert!((both - (each[0] + each[1]) / 2.0).abs() < 1e-4, "{both} {each:?}");
    assert!((loss(&[0], loudness(-1.0)).unwrap() - each[0]).abs() > 1e-3);
    assert!(loss(&[0], [vec![0.0; 20], vec![]]).is_err());
}

/// What is heard does depend on the order of frames, with every kind of attention.
#[test]
fn order_matters() {
    let _held = generator();
    let config = tiny().kernel(1);
    for kind in Attention::all() {
        let model = recogniser(&config, options(kind), &Device::flex());
        // Blocks of four frames that change places: convolutions of one frame do not see it.
        let (zeros, ones) = (vec![0.0; 40], random(40, 2));
        let encode = |parts: [&[f32]; 4]| {
            let features = Features::new(parts.concat(), 5).unwrap();
            let (states, _) = model.encode(&Frames::new([&features]).unwrap()).unwrap();
            let last = states.dims()[1] - 1;
            states.narrow(1, last, 1).into_data().iter::<f32>().collect::<Vec<f32>>()
        };
        let other = random(40, 9);
        let (a, b) =
            (encode([&ones, &zeros, &other, &zeros]), encode([&other, &zeros, &ones, &zeros]));
        let change = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(change > 1e-4, "{kind}: {change}");
    }
}

struct Moved<'a> {
    gradients: &'a Gradients,
    by: f64,
}

impl ModuleMapper for Moved<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = param.val().grad(self.gradients) else { return param };
        let by = self.by;
        param.map(|t| {
            let device = t.device();
            let moved = t.without_autodiff() + gradient * by;
            Tensor::from_data(moved.into_data(), &device)
        })
    }
}

struct Norm<'a> {
    gradients: &'a Gradients,
    square: f64,
    without: usize,
}

impl ModuleVisitor for Norm<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        match param.val().grad(self.gradients) {
            Some(g) => self.square += g.into_data().iter::<f64>().map(|g| g * g).sum::<f64>(),
            None => self.without += 1,
        }
    }
}

/// Along its gradient a loss changes by the square of the gradient's norm, times the step. Steps are
/// such that it changes by some per cent, which f32 knows to within 1e-4 of it.
#[test]
fn gradients_of_the_whole_recogniser() {
    let _held = generator();
    let device = Device::flex().autodiff();
    let relative = tiny().positions(Positions::Relative(10));
    let sde = Attention::Features(Family::Sde);
    for (kind, config) in [(Attention::Exact, tiny()), (Attention::Exact, relative), (sde, tiny())]
    {
        let options = options(kind).redraw(Redraw::Never);
        let model = recogniser(&config, options, &device);
        let (one, two) = (utterance(21, 5), utterance(30, 6));
        let frames = Frames::new([&one, &two]).unwrap();
        let labels = [vec![1, 2, 2], vec![5, 4]];
        let loss = |model: &Recogniser| model.loss(&frames, &labels).unwrap();
        // Maps are fitted by the first call and then stay.
        loss(&model);
        let first = loss(&model);
        let value = f64::from(first.clone().into_scalar::<f32>());
        let gradients = first.backward();
        let mut norm = Norm { gradients: &gradients, square: 0.0, without: 0 };
        model.visit(&mut norm);
        assert_eq!(norm.without, 0);
        let step = 0.005 * value / norm.square;
        let at = |by: f64| {
            let moved = model.clone().map(&mut Moved { gradients: &gradients, by });
            f64::from(loss(&moved).into_scalar::<f32>())
        };
        let slope = (at(step) - at(-step)) / (2.0 * step);
        let ratio = slope / norm.square;
        assert!((ratio - 1.0).abs() < 0.01, "{kind} {:?}: {ratio}", config.positions);
    }
}

/// Pieces with all of the context are the whole.
#[test]
fn a_stream_of_pieces_hears_the_same() {
    let _held = generator();
    let device = Device::flex();
    let config = tiny();
    let network = recogniser(&config, options(Attention::Exact), &device);
    let features = utterance(93, 7);
    let (states, lengths) = network.encode(&Frames::new([&features]).unwrap()).unwrap();
    let search = Search::new(&network).unwrap();
    let whole = search.run(&network, states, &lengths, 1).unwrap().remove(0);
    let texts = ["a b c d e"];
    let vocabulary = favor_speech::Vocabulary::of(texts, favor_speech::Units::Words).unwrap();
    let front = favor_speech::audio::FrontEnd::log_mel(8000, 5);
    let attention = options(Attention::Exact);
    let model = SpeechModel { config, front, vocabulary, attention, network };
    let mut told = 0;
    let heard = model.listen_in_pieces(&features, 20, 1000, |_| told += 1).unwrap();
    assert_eq!((heard.labels, told), (whole.labels.clone(), 5));
    assert!((heard.score - whole.score).abs() < 1e-3);
    let beam = model.listen(std::slice::from_ref(&features), 4, |_| {}).unwrap().remove(0);
    assert!(beam.score >= whole.score - 1e-3, "{} {}", beam.score, whole.score);
    // A model in a file is the same model.
    let folder = tempfile::tempdir().unwrap();
    model.save(folder.path()).unwrap();
    let again = SpeechModel::load(folder.path(), &device).unwrap();
    assert_eq!(again.listen(&[features], 4, |_| {}).unwrap()[0], beam);
}
