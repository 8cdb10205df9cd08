//! Learned maps from outside: what they promise, and what they refuse.

use crate::common::normal;
use favor::draw::Stream;
use favor::learned::{
    Budget, Calibration, HeadReport, HeldOut, Kept, LayerPlan, LearnOptions, LearnedHead,
    Recommended, held_out, learn_maps, plan_heads,
};
use favor::reference::{Mask, exact_attention, exact_key_sets, hybrid_attention};
use favor::{
    AttentionOptions, Choice, ExactKeys, Family, FeatureMap, FeatureSpec, Kernel, Matrix, Method,
    Moments, Qkv, Result, Side, Tensor, attention, choose_heads, diagnose, maps_from_bytes,
    maps_to_bytes,
};

const SEQUENCES: usize = 24;
const HEADS: usize = 2;
const LENGTH: usize = 72;
const DIM: usize = 8;

/// Heads as real ones are: a few topics that tokens belong to, and queries that look for their topic.
fn heads(seed: u64) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let mut noise = Stream::new(seed, 0);
    let topics = normal(77, HEADS * 6, DIM, 0.0, 2.5);
    let (mut q, mut k, mut v) = (vec![], vec![], vec![]);
    for _ in 0..SEQUENCES {
        for h in 0..HEADS {
            for _ in 0..LENGTH {
                let (asks, says) = (noise.index(6), noise.index(6));
                for l in 0..DIM {
                    q.push((topics[(h * 6 + asks, l)] + 0.5 * noise.normal()) as f32);
                    k.push((topics[(h * 6 + says, l)] + 0.5 * noise.normal()) as f32);
                    v.push((topics[(h * 6 + says, DIM - 1 - l)] + noise.normal()) as f32);
                }
            }
        }
    }
    (q, k, v)
}

const SHAPE: [usize; 4] = [SEQUENCES, HEADS, LENGTH, DIM];

fn spec(features: usize) -> FeatureSpec {
    FeatureSpec::new(Family::Balanced, features).kernel(Kernel::attention(DIM)).seed(3)
}

fn learn(
    seed: u64,
    features: usize,
    options: &LearnOptions<'_>,
    causal: bool,
) -> Result<Vec<LearnedHead>> {
    let (q, k, v) = heads(seed);
    let (q, k, v) = (Tensor::new(&q, SHAPE)?, Tensor::new(&k, SHAPE)?, Tensor::new(&v, SHAPE)?);
    learn_maps(spec(features), Calibration::new(q, k).values(Some(v)).causal(causal), options)
}

/// The errors of a map on sequences that were neither learned from nor held out.
fn errors(head: usize, map: &FeatureMap, exact: ExactKeys, causal: bool) -> Vec<f64> {
    let (q, k, v) = heads(99);
    let mask = Mask::new(causal, None);
    let one = |sequence: usize| {
        let start = (sequence * HEADS + head) * LENGTH * DIM;
        let rows =
            |x: &[f32]| Matrix::from_fn(LENGTH, DIM, |i, l| f64::from(x[start + i * DIM + l]));
        let (q, k, v) = (rows(&q), rows(&k), rows(&v));
        let out = hybrid_attention(map, exact, q.view(), k.view(), v.view(), mask).unwrap();
        let wanted = exact_attention(map.kernel(), q.view(), k.view(), v.view(), mask).unwrap();
        diagnose::relative_error(&out, &wanted)
    };
    (0..SEQUENCES).map(one).collect()
}

/// The queries, keys and values of some sequences of one head.
struct Sequences {
    q: Matrix<f64>,
    k: Matrix<f64>,
    v: Matrix<f64>,
    count: usize,
}

impl Sequences {
    fn new(seed: u64, count: usize, queries: usize, keys: usize) -> Self {
        let q = normal(seed, count * queries, DIM, 0.0, 2.0);
        let k = normal(seed + 1000, count * keys, DIM, 0.0, 2.0);
        Self { q, k, v: normal(seed + 2000, count * keys, 3, 0.5, 1.0), count }
    }

    fn calibration(&self) -> Calibration<'_, f64> {
        let tensor = |m| {
            let shape = [self.count, 1, Matrix::rows(m) / self.count, m.columns()];
            Tensor::new(m.as_slice(), shape).unwrap()
        };
        Calibration::new(tensor(&self.q), tensor(&self.k)).values(Some(tensor(&self.v)))
    }

    /// The error of a map on one sequence, by definition.
    fn error(&self, number: usize, map: &FeatureMap, exact: ExactKeys, causal: bool) -> f64 {
        let own = |m: &Matrix<f64>| {
            let rows = m.rows() / self.count;
            m.view().slice(number * rows, (number + 1) * rows).to_f64(1.0)
        };
        let (q, k, v) = (own(&self.q), own(&self.k), own(&self.v));
        let (q, k, v, mask) = (q.view(), k.view(), v.view(), Mask::new(causal, None));
        let wanted = exact_attention(map.kernel(), q, k, v, mask).unwrap();
        diagnose::relative_error(&hybrid_attention(map, exact, q, k, v, mask).unwrap(), &wanted)
    }

    /// The only sequence that was held out, with what a map was measured to be off by: learning computes in
    /// 32 bits, where logits of some ten are off by 10⁻⁶, and their exponentials are too.
    fn held_out(&self, map: &FeatureMap, exact: ExactKeys, causal: bool, error: f64) -> usize {
        let near = |number: &usize| {
            (self.error(*number, map, exact, causal) - error).abs() < 1e-4 * error.max(1e-2)
        };
        (0..self.count).find(near).expect("the measured error is that of one of the sequences")
    }
}

/// What is kept is as good as anything that it was chosen from.
fn is_never_worse(report: &HeadReport) {
    assert!(report.after <= report.before, "{report:?}");
    assert!(report.exact_alone.is_none_or(|alone| report.after <= alone), "{report:?}");
    assert!(report.kl_before.is_finite() && report.kl_after.is_finite(), "{report:?}");
}

/// The error on other sequences is the one on held-out sequences: a mean of 24 against one of six.
fn holds_on_others(head: usize, map: &FeatureMap, exact: ExactKeys, causal: bool, error: f64) {
    let found = errors(head, map, exact, causal);
    let mean = found.iter().sum::<f64>() / found.len() as f64;
    let variance = found.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / 23.0;
    let deviation = (variance * (1.0 / 24.0 + 1.0 / 6.0)).sqrt();
    let off = (mean - error).abs() / deviation;
    assert!(off < 4.0, "{mean} for {error}: {off:.1} deviations");
}

#[test]
fn what_is_learned_holds_on_other_sequences() {
    for causal in [false, true] {
        for exact in
            [ExactKeys::NONE, ExactKeys::NONE.near(4), ExactKeys::NONE.near(4).routed(2, 4)]
        {
            let options = LearnOptions::new().exact(exact).steps(200);
            for (h, head) in learn(5, 16, &options, causal).unwrap().iter().enumerate() {
                let report = &head.report;
                assert!(report.after < 0.7 * report.before, "{report:?}");
                assert!(report.kl_after < 0.5 * report.kl_before, "{report:?}");
                assert_eq!(report.kept, Kept::Learned);
                holds_on_others(h, &head.map, exact, causal, report.after);
                let from = head.map.learned().unwrap();
                assert_eq!((from.exact, from.causal), (exact, causal));
                assert_eq!((from.sequences, from.tokens, from.held_out), (18, 18 * LENGTH, 6));
                assert_eq!(from.kl_after, report.kl_after);
            }
        }
    }
}

#[test]
fn threads_and_runs_change_no_bit() {
    let options = LearnOptions::new().exact(ExactKeys::NONE.near(2)).steps(12);
    let bytes = |threads: usize| {
        let heads = learn(6, 16, &options.threads(Some(threads)), false).unwrap();
        let maps: Vec<_> = heads.into_iter().map(|h| h.map).collect();
        maps_to_bytes(&maps).unwrap()
    };
    // With three threads there are more threads than heads, and sequences are shared out.
    let one = bytes(1);
    assert!(one == bytes(2) && one == bytes(3));
    let other = learn(6, 16, &options.seed(1), false).unwrap();
    assert_ne!(maps_to_bytes(&other.into_iter().map(|h| h.map).collect::<Vec<_>>()).unwrap(), one);
}

#[test]
fn learned_maps_are_stored_and_say_where_they_are_from() {
    let options = LearnOptions::new().exact(ExactKeys::NONE.near(2).global(4)).steps(20);
    let maps: Vec<_> = learn(7, 16, &options, true).unwrap().into_iter().map(|h| h.map).collect();
    let bytes = maps_to_bytes(&maps).unwrap();
    let again = maps_from_bytes(&bytes).unwrap();
    assert_eq!(again, maps);
    assert_eq!(again[1].learned().unwrap().tokens, 18 * LENGTH);
    assert_eq!(again[1].learned().unwrap().exact, options.exact);
    assert!(again[0].omega().is_none() && again[0].parameters().is_none());
    let refused = diagnose::Estimator::of(&again[0]).unwrap_err().to_string();
    assert!(refused.contains("measure its error"), "{refused}");
    for place in (0..bytes.len()).step_by(97) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        assert!(maps_from_bytes(&damaged).is_err(), "byte {place}");
    }
}

/// Two short sequences: whatever is learned from one is worth little on the other.
#[test]
fn little_data_make_nothing_worse() {
    let (q, k) = (normal(1, 2 * 20, DIM, 0.0, 2.0), normal(2, 2 * 20, DIM, 0.0, 2.0));
    let shape = [2, 1, 20, DIM];
    let (q, k) =
        (Tensor::new(q.as_slice(), shape).unwrap(), Tensor::new(k.as_slice(), shape).unwrap());
    for exact in [ExactKeys::NONE, ExactKeys::NONE.near(3), ExactKeys::NONE.near(19)] {
        let options = LearnOptions::new().exact(exact).steps(150);
        let head = &learn_maps(spec(32), Calibration::new(q, k), &options).unwrap()[0];
        let report = &head.report;
        is_never_worse(report);
        if exact.near == 19 {
            assert!(report.after < 1e-6, "{report:?}");
        }
    }
}

/// The same with keys that the map itself finds: what is returned is what was measured, switched off or not.
#[test]
fn little_data_make_no_found_keys_worse() {
    let none = ExactKeys::NONE;
    let sets = [none.routed(2, 3), none.global(4), none.near(1).global(3).routed(2, 2)];
    let mut kept = vec![];
    for seed in 0..6 {
        // Blocks of 48 keys route causal queries: some have no exact key.
        let data = Sequences::new(seed, 2, 60, 60);
        for (exact, causal) in sets.into_iter().flat_map(|e| [(e, false), (e, true)]) {
            let options = LearnOptions::new().exact(exact).steps(40).seed(seed);
            let calibration = data.calibration().causal(causal);
            let head = &learn_maps(spec(4), calibration, &options).unwrap()[0];
            is_never_worse(&head.report);
            data.held_out(&head.map, exact, causal, head.report.after);
            kept.push(head.report.kept);
        }
    }
    for every in [Kept::Learned, Kept::Start, Kept::ExactAlone] {
        assert!(kept.contains(&every), "{kept:?}");
    }
}

/// What is said to be held out is what is measured: a sequence, or a piece of the only one.
#[test]
fn what_is_held_out_is_known() {
    let exact = ExactKeys::NONE.near(2);
    for seed in 0..4 {
        for (count, length) in [(4, 24), (1, 90)] {
            let data = Sequences::new(400 + seed, count, length, length);
            let options = LearnOptions::new().exact(exact).steps(10).seed(seed);
            let head = &learn_maps(spec(8), data.calibration(), &options).unwrap()[0];
            let [HeldOut { sequence, ref tokens, .. }] = held_out(count, length, &options)[..]
            else {
                panic!("one of {count} is held out")
            };
            let first = sequence * length + tokens.start;
            let own = |m: &Matrix<f64>| m.view().slice(first, first + tokens.len()).to_f64(1.0);
            let (q, k, v) = (own(&data.q), own(&data.k), own(&data.v));
            let piece = Sequences { q, k, v, count: 1 };
            assert_eq!(piece.held_out(&head.map, exact, false, head.report.after), 0);
        }
    }
    assert!(held_out(1, 1, &LearnOptions::new()).is_empty());
}

/// The divergence of the weights of a sequence, by definition. It is computed from logarithms, because
/// features that are switched off are too small for a number.
fn divergence(map: &FeatureMap, exact: ExactKeys, q: &Matrix<f64>, k: &Matrix<f64>) -> f64 {
    let sets = exact_key_sets(map, exact, q.view(), k.view(), Mask::none()).unwrap();
    let logits = map.kernel().log_matrix(q.view(), k.view()).unwrap();
    let p = map.log_features(Side::Query, q.view()).unwrap();
    let s = map.log_features(Side::Key, k.view()).unwrap();
    let log_sum = |logs: &[f64]| {
        let max = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        max + logs.iter().map(|l| (l - max).exp()).sum::<f64>().ln()
    };
    let estimate = |i: usize, j: usize| {
        let logs: Vec<f64> = p.row(i).iter().zip(s.row(j)).map(|(p, s)| p + s).collect();
        log_sum(&logs) - (map.features() as f64).ln()
    };
    let one = |i: usize| {
        let exact_logs = logits.row(i);
        let logs: Vec<f64> = (0..k.rows())
            .map(|j| if sets[i].contains(&j) { exact_logs[j] } else { estimate(i, j) })
            .collect();
        let (of_exact, of_map) = (log_sum(exact_logs), log_sum(&logs));
        let pairs = exact_logs.iter().zip(&logs);
        pairs.map(|(e, m)| (e - of_exact).exp() * (e - of_exact - m + of_map)).sum::<f64>()
    };
    (0..q.rows()).map(one).sum::<f64>() / q.rows() as f64
}

/// The divergences of a report and of a map's origin are those of the start and of what was returned, even
/// if that is a map whose features are switched off.
#[test]
fn divergences_are_those_of_what_is_returned() {
    let exact = ExactKeys::NONE.near(1);
    let mut kept = vec![];
    for seed in 0..8 {
        let mut data = Sequences::new(300 + seed, 2, 20, 20);
        if seed % 2 == 0 {
            data.k = data.q.clone(); // queries look for themselves
        }
        let learn = |steps: usize| {
            let options = LearnOptions::new().exact(exact).steps(steps);
            learn_maps(spec(2), data.calibration(), &options).unwrap().remove(0)
        };
        let head = learn(30);
        let report = head.report;
        let number = data.held_out(&head.map, exact, false, report.after);
        let own = |m: &Matrix<f64>| m.view().slice(20 * number, 20 * (number + 1)).to_f64(1.0);
        let (q, k) = (own(&data.q), own(&data.k));
        let expected = divergence(&head.map, exact, &q, &k);
        // Logarithms are off by some 10⁻⁵ in 32 bits.
        let close = |found: f64, expected: f64| (found - expected).abs() < 1e-4 * (1.0 + expected);
        assert!(close(report.kl_after, expected), "{report:?}: {expected}");
        let start = learn(0);
        assert_eq!(start.report.kl_before, report.kl_before);
        if start.report.kept == Kept::Start {
            assert!(close(report.kl_before, divergence(&start.map, exact, &q, &k)), "{report:?}");
        }
        let from = head.map.learned().unwrap();
        assert_eq!((from.kl_before, from.kl_after), (report.kl_before, report.kl_after));
        kept.push(report.kept);
    }
    assert!(kept.contains(&Kept::ExactAlone) && kept.contains(&Kept::Learned), "{kept:?}");
}

/// Keys that hardly anyone but their own query looks for, too many for two slots: on some such heads features
/// do harm, and the window alone is kept.
#[test]
fn features_can_be_switched_off() {
    let (sequences, length, dim) = (6, 40, 16);
    let spec = FeatureSpec::new(Family::Balanced, 2).kernel(Kernel::attention(dim));
    let options = LearnOptions::new().exact(ExactKeys::NONE.near(1)).steps(0);
    let mut switched_off = 0;
    for seed in 0..8 {
        let x = normal(100 + seed, sequences * length, dim, 0.0, 1.6);
        let t = Tensor::new(x.as_slice(), [sequences, 1, length, dim]).unwrap();
        let head = &learn_maps(spec, Calibration::new(t, t).values(Some(t)), &options).unwrap()[0];
        if head.report.kept != Kept::ExactAlone {
            continue;
        }
        switched_off += 1;
        let rows = x.view().slice(0, length);
        let out =
            hybrid_attention(&head.map, options.exact, rows, rows, rows, Mask::none()).unwrap();
        let alone = Matrix::from_fn(length, dim, |i, l| {
            let near = i.saturating_sub(1)..(i + 2).min(length);
            let weight = |j: usize| spec.kernel.value(rows.row(i), rows.row(j)).unwrap();
            let total: f64 = near.clone().map(weight).sum();
            near.map(|j| weight(j) * rows.row(j)[l]).sum::<f64>() / total
        });
        assert!(diagnose::relative_error(&out, &alone) < 1e-12);
        assert!(head.report.after < head.report.before);
        // The engine in 32 bits: logits of some ten are off by 10⁻⁶.
        let rows: Vec<f32> = rows.iter().flatten().map(|x| *x as f32).collect();
        let t = Tensor::new(&rows, [1, 1, length, dim]).unwrap();
        let method =
            Method::Hybrid { maps: std::slice::from_ref(&head.map), exact: &[options.exact] };
        let out = attention(method, Qkv::new(t, t, t), &AttentionOptions::new()).unwrap();
        let out = Matrix::from_fn(length, dim, |i, l| f64::from(out[i * dim + l]));
        assert!(diagnose::relative_error(&out, &alone) < 1e-5);
    }
    assert!(switched_off > 0);
}

#[test]
fn padding_is_not_looked_at() {
    let (q, k, v) = heads(8);
    let options = LearnOptions::new().exact(ExactKeys::NONE.near(3).routed(2, 3)).steps(8);
    let run = |length: usize, fill: f32| {
        let wide = |x: &[f32]| -> Vec<f32> {
            let mut out = vec![];
            for rows in x.chunks(LENGTH * DIM) {
                out.extend_from_slice(rows);
                out.resize(out.len() + (length - LENGTH) * DIM, fill);
            }
            out
        };
        let shape = [SEQUENCES, HEADS, length, DIM];
        let (q, k, v) = (wide(&q), wide(&k), wide(&v));
        let mask: Vec<bool> = (0..SEQUENCES * length).map(|i| i % length < LENGTH).collect();
        let t = |x| Tensor::new(x, shape).unwrap();
        let data = Calibration::new(t(&q), t(&k)).values(Some(t(&v))).mask(Some(&mask));
        learn_maps(spec(16), data, &options).unwrap()
    };
    assert_eq!(run(LENGTH, 0.0), run(LENGTH + 9, f32::NAN));
}

/// A single sequence is cut into pieces of what can be seen, wherever the padding is.
#[test]
fn padding_leaves_no_piece_empty() {
    let data = Sequences::new(40, 1, 60, 60);
    let options = LearnOptions::new().exact(ExactKeys::NONE.routed(2, 3)).steps(8);
    let expected = learn_maps(spec(8), data.calibration(), &options).unwrap();
    assert_eq!(expected[0].map.learned().unwrap().sequences, 3);
    // Without a window, places do not matter. Two thirds of all places are padding.
    for first in [0, 70, 120] {
        let mask: Vec<bool> = (0..180).map(|i| (first..first + 60).contains(&i)).collect();
        let wide = |m: &Matrix<f64>| {
            let entry = |i: usize, l: usize| if mask[i] { m[(i - first, l)] } else { f64::NAN };
            Matrix::from_fn(180, m.columns(), entry)
        };
        let (q, k, v) = (wide(&data.q), wide(&data.k), wide(&data.v));
        let padded = Sequences { q, k, v, count: 1 };
        let calibration = padded.calibration().mask(Some(&mask));
        let found = learn_maps(spec(8), calibration, &options).unwrap();
        assert_eq!(found, expected);
        assert_eq!(found[0].map.learned().unwrap().tokens, 45);
    }
}

#[test]
fn bad_input_is_refused() {
    let x = vec![0.5_f64; 4 * 2 * 10 * 4];
    let t = |shape| Tensor::new(&x, shape).unwrap();
    let good = t([4, 2, 10, 4]);
    let spec = FeatureSpec::new(Family::Balanced, 8).kernel(Kernel::attention(4));
    let refused = |data: Calibration<'_, f64>, options: LearnOptions<'_>, what: &str| {
        let error = learn_maps(spec, data, &options.steps(3)).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    let new = LearnOptions::new;
    refused(Calibration::new(good, t([2, 4, 10, 4])), new(), "do not fit");
    refused(Calibration::new(good, t([4, 2, 5, 8])), new(), "do not fit");
    refused(Calibration::new(good, good).values(Some(t([4, 2, 5, 8]))), new(), "do not fit");
    refused(Calibration::new(good, good).mask(Some(&[true; 7])), new(), "7 entries for 4 × 10");
    let none = [false; 40];
    refused(Calibration::new(good, good).mask(Some(&none)), new(), "no key that can be seen");
    let short = Tensor::new(&x[..4 * 2 * 6 * 4], [4, 2, 6, 4]).unwrap();
    refused(Calibration::new(short, good).causal(true), new(), "causal attention with 6 queries");
    let window = new().exact(ExactKeys::NONE.near(2));
    refused(Calibration::new(short, good), window, "a window with 6 queries");
    let slots = new().exact(ExactKeys::NONE.routed(9, 2));
    refused(Calibration::new(good, good), slots, "9 preferred slots of 8 features");
    refused(Calibration::new(good, good), new().holdout(1.0), "holdout");
    refused(Calibration::new(good, good), new().rate(f64::NAN), "rate");
    refused(Calibration::new(good, good), new().batch(Some(0)), "0 sequences");
    let lone = Tensor::new(&x[..4], [1, 1, 1, 4]).unwrap();
    refused(Calibration::new(lone, lone), new(), "too short");
    let (six, ten) = (&x[..6 * 4], &x[..10 * 4]);
    let cross = (Tensor::new(six, [1, 1, 6, 4]).unwrap(), Tensor::new(ten, [1, 1, 10, 4]).unwrap());
    let reason =
        "cannot be cut, because its 6 queries have no place among its 10 keys: give several";
    refused(Calibration::new(cross.0, cross.1), new(), reason);
    let mut y = x.clone();
    y[10 * 4 * 3 + 5] = f64::NAN;
    let bad = Tensor::new(&y, [4, 2, 10, 4]).unwrap();
    refused(
        Calibration::new(good, bad),
        new(),
        "sequence 1, head 1: keys holds NaN at row 1, column 1",
    );
    let trig = FeatureSpec::new(Family::Trig, 8).kernel(Kernel::attention(4));
    assert!(learn_maps(trig, Calibration::new(good, good), &new()).is_err());
    // Constant queries and keys, and more exact keys than there are, are no reason to fail.
    let (none, most) = (ExactKeys::NONE, usize::MAX);
    let large = none.near(30).routed(2, 50).global(40);
    for exact in [large, none.near(most), none.routed(2, most), none.global(most)] {
        let options = new().steps(5).exact(exact);
        let head = &learn_maps(spec, Calibration::new(good, good), &options).unwrap()[0];
        assert!(head.report.after < 1e-6, "{:?}", head.report);
        assert_eq!(head.report.exact_keys, 10.0);
    }
    let options = new().steps(5);
    let head = &learn_maps(spec, Calibration::new(good, good), &options).unwrap()[0];
    assert!(head.report.after < 1e-6 && head.report.kl_after < 1e-6, "{:?}", head.report);
    // Where every key is exact, queries need no place among them.
    let options = new().steps(2).exact(ExactKeys::ALL);
    let head = &learn_maps(spec, Calibration::new(short, good), &options).unwrap()[0];
    assert_eq!(head.report.exact_keys, 10.0);
}

#[test]
fn learning_can_be_stopped() {
    let stop = std::sync::atomic::AtomicBool::new(true);
    let options = LearnOptions::new().cancel(Some(&stop));
    assert_eq!(learn(1, 16, &options, false).unwrap_err(), favor::Error::Cancelled);
}

/// Numbers that 32 bits cannot hold make no map, and no silent one.
#[test]
fn numbers_that_are_too_large_are_refused() {
    for (size, of_values) in [(1e20, false), (1e25, false), (1e39, true)] {
        let mut data = Sequences::new(50, 4, 20, 20);
        let large =
            |m: &Matrix<f64>| Matrix::from_fn(m.rows(), m.columns(), |i, l| size * m[(i, l)]);
        if of_values {
            data.v = large(&data.v);
        } else {
            (data.q, data.k) = (large(&data.q), large(&data.k));
        }
        for exact in [ExactKeys::NONE, ExactKeys::NONE.near(3).routed(2, 2)] {
            let options = LearnOptions::new().exact(exact).steps(10);
            let learned = learn_maps(spec(8), data.calibration(), &options).unwrap_err();
            let planned = plan_heads(spec(8), data.calibration(), &options, Budget::Error(0.1));
            for refused in [learned, planned.unwrap_err()] {
                assert!(refused.to_string().contains("too large"), "{refused}");
            }
        }
    }
}

/// All queries are the same: there is one row of weights to learn.
#[test]
fn queries_may_be_constant() {
    let mut data = Sequences::new(60, 8, 24, 24);
    data.q = Matrix::from_fn(8 * 24, DIM, |_, l| data.q[(0, l)]);
    for exact in [ExactKeys::NONE, ExactKeys::NONE.near(2), ExactKeys::NONE.global(3).routed(2, 3)]
    {
        let options = LearnOptions::new().exact(exact).steps(60);
        let head = &learn_maps(spec(8), data.calibration(), &options).unwrap()[0];
        is_never_worse(&head.report);
        assert!(head.report.before.is_finite() && head.report.after.is_finite());
        let out = data.error(3, &head.map, exact, false);
        assert!(out.is_finite(), "{out}");
    }
}

/// Queries that are not the keys' own: errors are those of the definition, and no window is spoken of.
#[test]
fn cross_attention_is_learned() {
    for exact in [ExactKeys::NONE, ExactKeys::NONE.global(3), ExactKeys::NONE.routed(2, 3)] {
        let data = Sequences::new(70, 8, 10, 40);
        let learn = |steps: usize| {
            let options = LearnOptions::new().exact(exact).steps(steps).holdout(0.125);
            learn_maps(spec(8), data.calibration(), &options).unwrap().remove(0)
        };
        let (start, head) = (learn(0), learn(120));
        is_never_worse(&head.report);
        assert_eq!(head.report.kept, Kept::Learned);
        assert_eq!((head.report.window_alone, head.report.before), (None, start.report.before));
        let number = data.held_out(&head.map, exact, false, head.report.after);
        assert_eq!(number, data.held_out(&start.map, exact, false, start.report.after));
        // A plan has no window either.
        let options = LearnOptions::new().exact(exact).steps(10).holdout(0.125);
        for budget in [Budget::Error(0.0), Budget::Error(0.4), Budget::Operations(500.0)] {
            let plan = plan_heads(spec(8), data.calibration(), &options, budget).unwrap();
            let head = &plan.heads[0];
            assert!(head.exact.near == 0 || head.exact == ExactKeys::ALL, "{}", head.exact);
        }
    }
}

/// A pull keeps a map near its start; what is no pull is refused.
#[test]
fn a_pull_keeps_maps_near_their_start() {
    let weights = |pull: f64, steps: usize| -> Vec<f64> {
        let options = LearnOptions::new().steps(steps).pull(pull);
        let head = learn(5, 16, &options, false).unwrap().swap_remove(0);
        assert_eq!(head.report.kept == Kept::Learned, steps > 0, "{:?}", head.report);
        let side = head.map.side(Side::Query);
        side.weights.as_slice().to_vec()
    };
    let start = weights(0.0, 0);
    let distance = |pull: f64| -> f64 {
        weights(pull, 40).iter().zip(&start).map(|(w, s)| (w - s).powi(2)).sum()
    };
    let (free, pulled) = (distance(0.0), distance(5.0));
    assert!(0.0 < pulled && pulled < 0.5 * free, "{pulled} {free}");
    for pull in [-1.0, f64::NAN, f64::INFINITY] {
        let message = learn(5, 16, &LearnOptions::new().pull(pull), false).unwrap_err().to_string();
        assert!(message.contains("pull"), "{message}");
    }
}

/// Where attention is local a window is better, at short lengths exact attention, and elsewhere the map.
#[test]
fn what_measured_best_is_recommended() {
    let options = LearnOptions::new().steps(60);
    let (q, k, v) = heads(5);
    let t = |x| Tensor::new(x, SHAPE).unwrap();
    let data = Calibration::new(t(&q), t(&k)).values(Some(t(&v)));
    let recommended = |features, data, options| -> Vec<Recommended> {
        let heads = learn_maps(spec(features), data, options).unwrap();
        for LearnedHead { report, .. } in &heads {
            let window = report.window_alone.unwrap();
            match report.recommended {
                Recommended::Map => assert!(report.after < window, "{report:?}"),
                Recommended::Window => assert!(window <= report.after, "{report:?}"),
                _ => {}
            }
        }
        heads.iter().map(|head| head.report.recommended).collect()
    };
    assert_eq!(recommended(16, data, &options), [Recommended::Map; HEADS]);
    // The break-even of 72 tokens is at 36 features, or at 20.6 if causal. A key of a window of 2.97 takes 3.5 times
    // as long as (d + v + M) / 2(d + v) of a feature: M + 3.5 · 2.97 (16 + M) / 32 reaches 36 at 23.2.
    let short = options.steps(2);
    let near = short.exact(ExactKeys::NONE.near(1));
    let cases = [(false, short, 36), (true, short, 21), (false, near, 24)];
    for (causal, options, least) in &cases {
        let data = data.causal(*causal);
        assert_eq!(recommended(*least, data, options), [Recommended::Exact; HEADS]);
        assert_ne!(recommended(least - 1, data, options), [Recommended::Exact; HEADS]);
    }
    // Large vectors that look for themselves.
    let own = normal(80, 8 * 60, DIM, 0.0, 4.0);
    let t = Tensor::new(own.as_slice(), [8, 1, 60, DIM]).unwrap();
    let heads = learn_maps(spec(4), Calibration::new(t, t).values(Some(t)), &options).unwrap();
    assert_eq!(heads[0].report.recommended, Recommended::Window, "{:?}", heads[0].report);
}

/// Values turn by a third from token to token: three neighbours have the mean of all around them, and five do
/// not. Where features do harm, the window is therefore kept without them, and recommended at its own width.
#[test]
fn a_window_that_is_kept_alone_is_recommended() {
    let (sequences, length) = (4, 60);
    let turned = |angle: f64, l: usize| if l == 0 { angle.cos() } else { angle.sin() };
    let places = |i: usize| 0.05 * (i % length) as f64 + 0.2 * (i / length) as f64;
    let x = Matrix::from_fn(sequences * length, 2, |i, l| 5.7 * turned(places(i), l));
    let third = std::f64::consts::TAU / 3.0;
    let v = Matrix::from_fn(sequences * length, 2, |i, l| {
        turned(places(i), l) + turned(third * i as f64, l)
    });
    let t = |m| Tensor::new(Matrix::as_slice(m), [sequences, 1, length, 2]).unwrap();
    let data = Calibration::new(t(&x), t(&x)).values(Some(t(&v)));
    let spec = FeatureSpec::new(Family::Balanced, 1).kernel(Kernel::attention(2));
    let options = LearnOptions::new().exact(ExactKeys::NONE.near(1)).steps(0);
    let report = learn_maps(spec, data, &options).unwrap()[0].report;
    assert_eq!((report.kept, report.window), (Kept::ExactAlone, 2), "{report:?}");
    assert!(report.window_alone.unwrap() > 2.0 * report.after, "{report:?}");
    assert_eq!(report.recommended, Recommended::Window, "{report:?}");
}

/// A head is chosen by its error with the keys, and as causally, as its map was learned.
#[test]
fn heads_are_chosen_as_they_were_learned() {
    let length = 60;
    // Few enough, with few features, that exact attention is slower at this length.
    let exact = ExactKeys::NONE.near(1).routed(1, 2);
    let (q, k, v) = heads(99);
    // The beginning of the first sequence of each head.
    let first = |x: &[f32]| -> Vec<f64> {
        let heads = x.chunks(LENGTH * DIM).take(HEADS);
        heads.flat_map(|head| head[..length * DIM].iter().map(|x| f64::from(*x))).collect()
    };
    let (q, k, v) = (first(&q), first(&k), first(&v));
    let t = |x| Tensor::new(x, [1, HEADS, length, DIM]).unwrap();
    let padding: Vec<bool> = (0..length).map(|j| j % 5 != 1).collect();
    for (causal, mask) in [(false, None), (true, None), (true, Some(&padding[..]))] {
        let options = LearnOptions::new().exact(exact).steps(40);
        let maps: Vec<FeatureMap> =
            learn(5, 4, &options, causal).unwrap().into_iter().map(|head| head.map).collect();
        let choose = |tolerance: f64| {
            let options = AttentionOptions::new().key_mask(mask);
            choose_heads(&maps, Qkv::new(t(&q), t(&k), t(&v)), &options, tolerance).unwrap()
        };
        let (loose, tight) = (choose(10.0), choose(1e-9));
        for (h, map) in maps.iter().enumerate() {
            let start = h * length * DIM;
            let rows = |x: &[f64]| Matrix::from_fn(length, DIM, |i, l| x[start + i * DIM + l]);
            let (q, k, v) = (rows(&q), rows(&k), rows(&v));
            let (q, k, v, seen) = (q.view(), k.view(), v.view(), Mask::new(causal, mask));
            // Padding asks nothing.
            let asked: Vec<usize> = (0..length).filter(|i| mask.is_none_or(|m| m[*i])).collect();
            let asked =
                |m: &Matrix<f64>| Matrix::from_fn(asked.len(), DIM, |i, l| m[(asked[i], l)]);
            let out = asked(&hybrid_attention(map, exact, q, k, v, seen).unwrap());
            let wanted = asked(&exact_attention(map.kernel(), q, k, v, seen).unwrap());
            let expected = diagnose::relative_error(&out, &wanted);
            let Choice::Features { predicted_error, exact: own } = loose[h] else {
                panic!("{:?}", loose[h])
            };
            assert!((predicted_error - expected).abs() < 1e-9, "{predicted_error} {expected}");
            assert_eq!((own, loose[h].exact_keys()), (exact, exact));
            assert_eq!(tight[h], Choice::ExactIsNeeded { predicted_error });
            assert_eq!(tight[h].exact_keys(), ExactKeys::ALL);
        }
    }
}

/// A single sequence is cut, so that a part can be held out; long ones are sampled by queries.
#[test]
fn one_long_sequence_is_enough() {
    let (q, k, _) = heads(9);
    let length = SEQUENCES * LENGTH;
    let own = |x: &[f32]| -> Vec<f32> {
        x.chunks(LENGTH * DIM).step_by(HEADS).flatten().copied().collect()
    };
    let (q, k) = (own(&q), own(&k));
    let shape = [1, 1, length, DIM];
    let t = |x| Tensor::new(x, shape).unwrap();
    let options = LearnOptions::new().steps(80).queries(64);
    let head = &learn_maps(spec(16), Calibration::new(t(&q), t(&k)), &options).unwrap()[0];
    assert!(head.report.after < head.report.before, "{:?}", head.report);
    assert!(head.report.kl_after < 0.6 * head.report.kl_before, "{:?}", head.report);
    assert_eq!(head.map.learned().unwrap().sequences, 3);
}

/// Of the N queries of a long sequence, n are measured, and at these what is returned is no worse than its
/// start: with dᵢ the difference of their squared errors at query i, the mean of the sample is at most zero.
/// Queries are independent here, so that evenly spaced ones are a sample without replacement, whose mean has
/// the variance (1 − n/N)·S²/n around that of all queries, S² being the variance of the dᵢ. The maps among
/// which one is chosen, at most 14, are learned from the other sequence alone: that any of them is further
/// off than five deviations has a probability below 14 · 3·10⁻⁷.
#[test]
fn long_sequences_are_sampled() {
    let (length, queries) = (600, 60);
    let mut kept = vec![];
    for seed in 0..4 {
        let mut data = Sequences::new(500 + seed, 2, length, length);
        // Where queries are small the start is hard to beat, and this rate is far too large.
        let is_small = seed % 2 == 1;
        if is_small {
            data.q = data.q.view().to_f64(0.1);
        }
        let rate = if is_small { 3.0 } else { 0.1 };
        for exact in [ExactKeys::NONE, ExactKeys::NONE.near(2)] {
            let options = LearnOptions::new().exact(exact).steps(30).rate(rate).seed(seed);
            let options = options.queries(queries);
            let LearnedHead { map, report, .. } =
                learn_maps(spec(8), data.calibration(), &options).unwrap().remove(0);
            let held = held_out(2, length, &options)[0].sequence;
            let own = |m: &Matrix<f64>, number: usize| {
                m.view().slice(number * length, (number + 1) * length).to_f64(1.0)
            };
            let moments = [&data.q, &data.k].map(|m| Moments::of(own(m, 1 - held).view()).unwrap());
            let start = spec(8).fit(&moments[0], &moments[1]).unwrap();
            let [q, k, v] = [&data.q, &data.k, &data.v].map(|m| own(m, held));
            let (q, k, v) = (q.view(), k.view(), v.view());
            let wanted = exact_attention(map.kernel(), q, k, v, Mask::none()).unwrap();
            let squares = |map: &FeatureMap| -> Vec<f64> {
                let out = hybrid_attention(map, exact, q, k, v, Mask::none()).unwrap();
                let distance = |i: usize| {
                    let pairs = out.row(i).iter().zip(wanted.row(i));
                    pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>()
                };
                (0..length).map(distance).collect()
            };
            let (before, after) = (squares(&start), squares(&map));
            let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
            let sampled =
                |x: &[f64]| x.iter().copied().step_by(length / queries).collect::<Vec<_>>();
            let powers: Vec<f64> =
                (0..length).map(|i| wanted.row(i).iter().map(|x| x * x).sum()).collect();
            let power = mean(&sampled(&powers));
            // Learning computes in 32 bits.
            for (squares, reported) in [(&before, report.before), (&after, report.after)] {
                let error = (mean(&sampled(squares)) / power).sqrt();
                assert!((error - reported).abs() < 1e-4, "{error} for {reported}");
            }
            let differences: Vec<f64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
            let (difference, n) = (mean(&differences), queries as f64);
            let squares = differences.iter().map(|d| (d - difference).powi(2)).sum::<f64>();
            let variance = squares / (length as f64 - 1.0);
            let deviation = ((1.0 - n / length as f64) * variance / n).sqrt();
            assert!(difference <= 5.0 * deviation, "{exact}: {difference} ± {deviation}");
            kept.push(report.kept);
        }
    }
    assert!(kept.contains(&Kept::Learned) && kept.contains(&Kept::Start), "{kept:?}");
}

/// Runs all heads of a plan in one call and compares each with its definition.
fn runs_as_planned(plan: &LayerPlan, q: &[f64], k: &[f64], v: &[f64], mask: Mask<'_>) {
    let maps: Vec<_> = plan.heads.iter().map(|head| head.map.clone()).collect();
    let exact: Vec<_> = plan.heads.iter().map(|head| head.exact).collect();
    let t = |x| Tensor::new(x, [1, HEADS, LENGTH, DIM]).unwrap();
    let options = AttentionOptions::new().causal(mask.causal).key_mask(mask.keys);
    let method = Method::Hybrid { maps: &maps, exact: &exact };
    let out = attention(method, Qkv::new(t(q), t(k), t(v)), &options).unwrap();
    for (h, head) in plan.heads.iter().enumerate() {
        let start = h * LENGTH * DIM;
        let rows = |x: &[f64]| Matrix::from_fn(LENGTH, DIM, |i, l| x[start + i * DIM + l]);
        let (q, k, v) = (rows(q), rows(k), rows(v));
        let wanted =
            hybrid_attention(&head.map, head.exact, q.view(), k.view(), v.view(), mask).unwrap();
        let most = (head.exact.most() as f64).min(LENGTH as f64);
        assert!(head.exact_keys <= most && (head.exact_keys > 0.0) != head.exact.is_none());
        let off = diagnose::relative_error(&rows(&out), &wanted);
        assert!(off < 1e-10, "head {h}, {}: {off:e}", head.exact);
    }
}

/// The first sequence of other data, as 64 bits.
fn other_sequence() -> [Vec<f64>; 3] {
    let (q, k, v) = heads(99);
    [q, k, v].map(|x| x[..HEADS * LENGTH * DIM].iter().map(|x| f64::from(*x)).collect())
}

/// A budget is kept, more of it never hurts, and a tolerance is met by every head.
#[test]
fn a_budget_is_spent_where_it_helps() {
    let (q, k, v) = heads(12);
    let t = |x| Tensor::new(x, SHAPE).unwrap();
    let data = Calibration::new(t(&q), t(&k)).values(Some(t(&v)));
    let options = LearnOptions::new().exact(ExactKeys::NONE.near(3).routed(2, 4)).steps(40);
    let plan = |budget| plan_heads(spec(16), data, &options, budget).unwrap();
    let rms = |plan: &LayerPlan| {
        let squares = plan.heads.iter().map(|h| h.point.error.powi(2)).sum::<f64>();
        (squares / HEADS as f64).sqrt()
    };
    let mean = |plan: &LayerPlan| {
        plan.heads.iter().map(|h| h.point.operations).sum::<f64>() / HEADS as f64
    };
    let (small, large) = (plan(Budget::Operations(300.0)), plan(Budget::Operations(900.0)));
    assert!(mean(&small) <= 300.0 && mean(&large) <= 900.0);
    let [q64, k64, v64] = other_sequence();
    for plan in [&small, &large] {
        runs_as_planned(plan, &q64, &k64, &v64, Mask::none());
    }
    assert!(rms(&large) < rms(&small));
    let falls = |w: &[favor::learned::FrontPoint]| {
        w[0].operations < w[1].operations && w[0].error > w[1].error
    };
    assert!(large.front.windows(2).all(falls));
    assert_eq!(large.front.last().unwrap().error, 0.0); // exact attention
    let tolerant = plan(Budget::Error(0.3));
    for (h, head) in tolerant.heads.iter().enumerate() {
        assert!(head.point.error <= 0.3);
        holds_on_others(h, &head.map, head.exact, false, head.point.error);
    }
    let exact = plan(Budget::Error(0.0));
    assert!(exact.heads.iter().all(|head| head.exact == ExactKeys::ALL));
    assert!(plan_heads(spec(16), data, &options, Budget::Error(f64::NAN)).is_err());
}

/// Without a window, maps of a plan are learned with the other exact keys in place: a plan is as good as what
/// is learned for these keys, at no higher cost.
#[test]
fn plans_need_no_window() {
    let (q, k, v) = heads(15);
    let t = |x| Tensor::new(x, SHAPE).unwrap();
    let data = Calibration::new(t(&q), t(&k)).values(Some(t(&v)));
    for exact in [ExactKeys::NONE.routed(2, 4), ExactKeys::NONE.global(2).routed(6, 3)] {
        let options = LearnOptions::new().exact(exact).steps(60);
        let learned = learn_maps(spec(16), data, &options).unwrap();
        for (h, LearnedHead { report, .. }) in learned.iter().enumerate() {
            assert_eq!(report.kept, Kept::Learned);
            let budget = Budget::Error(report.after);
            let head = plan_heads(spec(16), data, &options, budget).unwrap().heads.swap_remove(h);
            let sizes = diagnose::Operations { features: 16, dim: DIM, values: DIM };
            let most = sizes.per_token(report.exact_keys);
            assert!(head.point.error <= report.after, "{exact}: {:?} {report:?}", head.point);
            assert!(head.point.operations <= most, "{exact}: {:?} {report:?}", head.point);
        }
    }
}

/// What is planned depends neither on threads nor on padding, and runs as planned, causally too.
#[test]
fn plans_know_masks_and_global_keys() {
    let (q, k, v) = heads(13);
    let t = |x| Tensor::new(x, SHAPE).unwrap();
    let mask: Vec<bool> = (0..SEQUENCES * LENGTH).map(|i| i % LENGTH < LENGTH - i % 3).collect();
    let exact = ExactKeys::NONE.near(2).global(3).routed(2, 3);
    let options = LearnOptions::new().exact(exact).steps(15);
    let calibration = Calibration::new(t(&q), t(&k)).values(Some(t(&v))).causal(true);
    let plan = |data, threads: usize, error: f64| {
        let options = options.threads(Some(threads));
        plan_heads(spec(16), data, &options, Budget::Error(error)).unwrap()
    };
    let one = plan(calibration.mask(Some(&mask)), 1, 0.35);
    assert_eq!(one, plan(calibration.mask(Some(&mask)), 2, 0.35));
    // Padding may hold anything.
    let mut filled = q.clone();
    for (place, row) in filled.chunks_mut(DIM).enumerate() {
        let (sequence, token) = (place / (HEADS * LENGTH), place % LENGTH);
        if !mask[sequence * LENGTH + token] {
            row.fill(f32::NAN);
        }
    }
    let other = Calibration::new(t(&filled), t(&k)).values(Some(t(&v))).causal(true);
    assert_eq!(one, plan(other.mask(Some(&mask)), 2, 0.35));
    let [q, k, v] = other_sequence();
    for error in [0.6, 0.35, 0.1] {
        let plan = plan(calibration, 2, error);
        assert!(plan.heads.iter().all(|head| head.point.error <= error));
        assert!(plan.heads.iter().all(|head| head.map.learned().unwrap().causal));
        runs_as_planned(&plan, &q, &k, &v, Mask::causal());
        runs_as_planned(&plan, &q, &k, &v, Mask::causal().keys(Some(&mask[..LENGTH])));
    }
}

/// Two short sequences, as above: a head with features is no worse than its start with the same keys, and
/// none is worse than its exact keys alone. Each map says what it started from and what it became.
#[test]
fn little_data_make_no_plan_worse() {
    let exact = ExactKeys::NONE.near(2).global(3).routed(2, 4);
    let (mut with_features, mut without) = (0, 0);
    for seed in 0..6 {
        let data = Sequences::new(200 + seed, 2, 60, 60);
        for (error, causal) in [(0.9, false), (0.8, true), (0.7, false), (0.6, true)] {
            let calibration = data.calibration().causal(causal);
            let options = LearnOptions::new().exact(exact).steps(40).seed(seed);
            let budget = Budget::Error(error);
            let head = plan_heads(spec(8), calibration, &options, budget).unwrap().heads.remove(0);
            let from = head.map.learned().unwrap();
            assert_eq!(from.exact, head.exact);
            if head.exact == ExactKeys::ALL {
                assert_eq!((from.kl_before, from.kl_after), (0.0, 0.0));
                continue;
            }
            // The start of that size, measured with the keys that were chosen.
            let start = options.exact(head.exact).steps(0);
            let features = head.map.features();
            let report = learn_maps(spec(features), calibration, &start).unwrap()[0].report;
            assert!(report.exact_alone.is_none_or(|alone| head.point.error <= alone));
            assert_eq!(from.kl_before, report.kl_before);
            data.held_out(&head.map, head.exact, causal, head.point.error);
            if head.has_features {
                assert!(head.point.error <= report.before, "{} {report:?}", head.point.error);
                with_features += 1;
            } else {
                assert_ne!(from.kl_before, from.kl_after);
                without += 1;
            }
        }
    }
    assert!(with_features > 0 && without > 0, "{with_features} {without}");
}

/// Less than the cheapest plan takes is refused, and the message says how much that is.
#[test]
fn a_budget_must_suffice() {
    let (q, k, v) = heads(14);
    let t = |x| Tensor::new(x, SHAPE).unwrap();
    let data = Calibration::new(t(&q), t(&k)).values(Some(t(&v)));
    let options = LearnOptions::new().exact(ExactKeys::NONE.near(3)).steps(2);
    let plan = |limit| plan_heads(spec(16), data, &options, Budget::Operations(limit));
    let refused = plan(1.0).unwrap_err().to_string();
    let least = refused.split("takes ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let least: f64 = least.parse().unwrap();
    // A window of ±3: seven keys, fewer at both ends of the sequence, of d + v operations each.
    let keys = 7.0 - 12.0 / LENGTH as f64;
    assert_eq!(least, (keys * 2.0 * DIM as f64).ceil(), "{refused}");
    assert!(plan(least - 1.0).is_err());
    let heads = plan(least).unwrap().heads;
    assert!(heads.iter().all(|head| head.point.operations <= least));
}
