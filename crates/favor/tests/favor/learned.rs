//! Learned maps from outside: what they promise, and what they refuse.

use crate::common::normal;
use favor::draw::Stream;
use favor::learned::{
    Budget, Calibration, Kept, LayerPlan, LearnOptions, LearnedHead, learn_maps, plan_heads,
};
use favor::reference::{Mask, exact_attention, hybrid_attention};
use favor::{
    ExactKeys, Family, FeatureSpec, Kernel, Matrix, Result, Tensor, diagnose, maps_from_bytes,
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

fn learn(seed: u64, options: &LearnOptions<'_>, causal: bool) -> Result<Vec<LearnedHead>> {
    let (q, k, v) = heads(seed);
    let (q, k, v) = (Tensor::new(&q, SHAPE)?, Tensor::new(&k, SHAPE)?, Tensor::new(&v, SHAPE)?);
    learn_maps(spec(16), Calibration::new(q, k).values(Some(v)).causal(causal), options)
}

/// The errors of a map on sequences that were neither learned from nor held out.
fn errors(head: usize, map: &favor::FeatureMap, exact: ExactKeys, causal: bool) -> Vec<f64> {
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

#[test]
fn what_is_learned_holds_on_other_sequences() {
    for causal in [false, true] {
        for exact in
            [ExactKeys::NONE, ExactKeys::NONE.near(4), ExactKeys::NONE.near(4).routed(2, 4)]
        {
            let options = LearnOptions::new().exact(exact).steps(200);
            for (h, head) in learn(5, &options, causal).unwrap().iter().enumerate() {
                let report = &head.report;
                assert!(report.after < 0.7 * report.before, "{report:?}");
                assert!(report.kl_after < 0.5 * report.kl_before, "{report:?}");
                assert_eq!(report.kept, Kept::Learned);
                let found = errors(h, &head.map, exact, causal);
                let mean = found.iter().sum::<f64>() / found.len() as f64;
                let variance = found.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / 23.0;
                // A mean of 24 sequences against one of six.
                let deviation = (variance * (1.0 / 24.0 + 1.0 / 6.0)).sqrt();
                let off = (mean - report.after).abs() / deviation;
                assert!(off < 4.0, "{mean} for {report:?}: {off:.1} deviations");
                let from = head.map.learned().unwrap();
                assert_eq!((from.exact, from.causal), (exact, causal));
                assert_eq!((from.sequences, from.held_out), (18, 6));
                assert_eq!(from.kl_after, report.kl_after);
            }
        }
    }
}

#[test]
fn threads_and_runs_change_no_bit() {
    let options = LearnOptions::new().exact(ExactKeys::NONE.near(2)).steps(12);
    let bytes = |threads: usize| {
        let heads = learn(6, &options.threads(Some(threads)), false).unwrap();
        let maps: Vec<_> = heads.into_iter().map(|h| h.map).collect();
        maps_to_bytes(&maps).unwrap()
    };
    // With three threads there are more threads than heads, and sequences are shared out.
    let one = bytes(1);
    assert!(one == bytes(2) && one == bytes(3));
    let other = learn(6, &options.seed(1), false).unwrap();
    assert_ne!(maps_to_bytes(&other.into_iter().map(|h| h.map).collect::<Vec<_>>()).unwrap(), one);
}

#[test]
fn learned_maps_are_stored_and_say_where_they_are_from() {
    let options = LearnOptions::new().exact(ExactKeys::NONE.near(2).global(4)).steps(20);
    let maps: Vec<_> = learn(7, &options, true).unwrap().into_iter().map(|h| h.map).collect();
    let bytes = maps_to_bytes(&maps).unwrap();
    let again = maps_from_bytes(&bytes).unwrap();
    assert_eq!(again, maps);
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
        assert!(report.after <= report.before, "{report:?}");
        assert!(report.exact_alone.is_none_or(|alone| report.after <= alone), "{report:?}");
        if exact.near == 19 {
            assert!(report.after < 1e-6, "{report:?}");
        }
    }
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
    // Constant queries and keys, and more members than keys, are no reason to fail.
    let options = new().steps(5).exact(ExactKeys::NONE.near(30).routed(2, 50).global(40));
    let head = &learn_maps(spec, Calibration::new(good, good), &options).unwrap()[0];
    assert!(head.report.after < 1e-6, "{:?}", head.report);
    let options = new().steps(5);
    let head = &learn_maps(spec, Calibration::new(good, good), &options).unwrap()[0];
    assert!(head.report.after < 1e-6 && head.report.kl_after < 1e-6, "{:?}", head.report);
}

#[test]
fn learning_can_be_stopped() {
    let stop = std::sync::atomic::AtomicBool::new(true);
    let options = LearnOptions::new().cancel(Some(&stop));
    assert_eq!(learn(1, &options, false).unwrap_err(), favor::Error::Cancelled);
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
    assert!(rms(&large) < rms(&small));
    let falls = |w: &[favor::learned::FrontPoint]| {
        w[0].operations < w[1].operations && w[0].error > w[1].error
    };
    assert!(large.front.windows(2).all(falls));
    assert_eq!(large.front.last().unwrap().error, 0.0); // exact attention
    let tolerant = plan(Budget::Error(0.3));
    for (h, head) in tolerant.heads.iter().enumerate() {
        assert!(head.point.error <= 0.3);
        let found = errors(h, &head.map, head.exact, false);
        let found = found.iter().sum::<f64>() / found.len() as f64;
        // Other sequences than those that were measured.
        assert!(found < 0.3 * 1.25, "{found}");
    }
    let exact = plan(Budget::Error(0.0));
    assert!(exact.heads.iter().all(|head| head.exact == ExactKeys::ALL));
    assert!(plan_heads(spec(16), data, &options, Budget::Error(f64::NAN)).is_err());
}
