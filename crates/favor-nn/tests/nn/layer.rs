//! The layer: how its maps follow the training.

use crate::common::{generator, normal};
use burn::module::Module;
use burn::nn::Initializer;
use burn::tensor::{Device, FloatDType, Tensor};
use favor::{AdaptiveMaps, Coupling, Family, Redraw, Statistics};
use favor_nn::attention::KeyMask;
use favor_nn::{Attention, FavorAttention, FavorAttentionConfig, LayerOptions, Positions};

/// New weights, drawn by burn's generator: a test that calls this holds it.
fn layer(options: LayerOptions) -> FavorAttention {
    let device = Device::flex().autodiff();
    device.seed(1);
    let config = FavorAttentionConfig::new(16, 4).attention(options);
    config.init(&Initializer::XavierUniform { gain: 1.0 }, &device).unwrap()
}

fn options(family: Family) -> LayerOptions {
    LayerOptions::new(Attention::Features(family), 32)
}

fn input(batch: usize, length: usize, seed: u64) -> Tensor<3> {
    normal([batch, length, 16], seed, &Device::flex().autodiff()).cast(FloatDType::F32)
}

fn numbers(x: Tensor<3>) -> Vec<f32> {
    x.into_data().iter::<f32>().collect()
}

/// Every `redraw` calls the maps change; evaluation uses the last and changes nothing.
#[test]
fn maps_change_when_they_are_due() {
    let _held = generator();
    let layer = layer(options(Family::Balanced).redraw(Redraw::Every(3)));
    let x = input(2, 40, 1);
    let outs: Vec<Vec<f32>> =
        (0..7).map(|_| numbers(layer.forward(x.clone(), None, false).unwrap())).collect();
    assert_eq!(outs[0], outs[1]);
    assert_eq!(outs[1], outs[2]);
    assert_ne!(outs[2], outs[3]);
    assert_eq!(outs[4], outs[5]);
    assert_ne!(outs[5], outs[6]);
    let evaluation = layer.valid();
    let plain = x.clone().inner();
    for _ in 0..5 {
        let out = evaluation.forward(plain.clone(), None, false).unwrap();
        assert_eq!(numbers(out), outs[6]);
    }
    assert_eq!(numbers(layer.forward(x, None, false).unwrap()), outs[6]);
}

/// A causal output does not change when what follows changes, statistics included.
#[test]
fn causal_means_causal() {
    let _held = generator();
    for kind in Attention::all() {
        let options = options(Family::Balanced).kind(kind).redraw(Redraw::Every(1));
        let x = input(1, 30, 2);
        if kind == Attention::Auto {
            let message = layer(options).forward(x, None, true).unwrap_err().to_string();
            assert!(message.contains("whole sequence"), "{message}");
            continue;
        }
        let early = x.clone().narrow(1, 0, 12);
        let other = Tensor::cat(vec![early, input(1, 18, 3) * 5.0], 1);
        let state = layer(options);
        let warm = input(1, 30, 4);
        let run = |x: Tensor<3>| {
            let layer = state.clone();
            layer.set_map_state(layer_state(&state, &warm)).unwrap();
            numbers(layer.forward(x, None, true).unwrap().narrow(1, 0, 12))
        };
        let (one, two) = (run(x), run(other));
        for (a, b) in one.iter().zip(&two) {
            assert!((a - b).abs() < 2e-6, "{kind}: {a} {b}");
        }
    }
}

/// The state after two causal calls on the same input.
fn layer_state(layer: &FavorAttention, warm: &Tensor<3>) -> Option<AdaptiveMaps> {
    let mut fresh = layer.clone();
    fresh.set_options(layer.options()).unwrap();
    for _ in 0..2 {
        fresh.forward(warm.clone(), None, true).unwrap();
    }
    fresh.map_state()
}

/// The statistics of a causal sequence itself would carry the future into the past.
#[test]
fn causal_refuses_statistics_of_the_sequence() {
    let _held = generator();
    for statistics in [Statistics::PerSequence, Statistics::PerBatch] {
        let layer = layer(options(Family::Sde).statistics(statistics));
        let message = layer.forward(input(1, 8, 5), None, true).unwrap_err().to_string();
        assert!(message.contains("running average"), "{message}");
    }
}

/// Calibration computes exactly, learns, and is frozen; the maps then fit the data.
#[test]
fn calibration_helps() {
    let _held = generator();
    let options = options(Family::Balanced).statistics(Statistics::Calibrated);
    let mut layer = layer(options).valid();
    let x = (input(4, 64, 6) * 2.0 + 1.0).inner();
    let mut exact = layer.clone();
    exact.set_options(options.kind(Attention::Exact)).unwrap();
    let wanted = numbers(exact.forward(x.clone(), None, false).unwrap());
    let error = |out: Vec<f32>| -> f32 {
        out.iter().zip(&wanted).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt()
    };
    let before = error(numbers(layer.forward(x.clone(), None, false).unwrap()));
    layer.begin_calibration();
    assert_eq!(numbers(layer.forward(x.clone(), None, false).unwrap()), wanted);
    layer.end_calibration();
    let after = error(numbers(layer.forward(x.clone(), None, false).unwrap()));
    assert!(after < before, "{after} after, {before} before");
    layer.set_options(options).unwrap();
    assert_eq!(error(numbers(layer.forward(x, None, false).unwrap())), before);
}

/// What is kept of the statistics is a fraction per call, however rarely the maps are fitted again. What a
/// causal call teaches is there for the one after it.
#[test]
fn rare_redraws_forget_as_fast() {
    let _held = generator();
    let statistics = Statistics::Running { keep: 0.5 };
    let usual = options(Family::Balanced).redraw(Redraw::Every(40)).statistics(statistics);
    for causal in [false, true] {
        let old = layer(usual);
        // The second draw of the one is the first of the other.
        let mut new = old.clone();
        new.set_options(usual.seed(usual.seed + 1)).unwrap();
        let (before, after) = (input(2, 20, 7), input(2, 20, 8) * 3.0 + 1.0);
        for _ in 0..40 {
            old.forward(before.clone(), None, causal).unwrap();
        }
        let second = |layer: &FavorAttention| {
            layer.forward(after.clone(), None, causal).unwrap();
            numbers(layer.forward(after.clone(), None, causal).unwrap())
        };
        let (found, wanted) = (second(&old), second(&new));
        // 2⁻⁴⁰ of the old statistics are left, far below the rounding of single precision.
        let size = wanted.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        let error = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error <= 1e-4 * size, "causal {causal}: {error:e} of {size:e}");
    }
}

/// What the maps of every kind have learned goes into a file and comes back.
#[test]
fn states_of_every_kind_are_read_back() {
    let _held = generator();
    for kind in Attention::all() {
        let trained = layer(options(Family::Balanced).kind(kind).redraw(Redraw::Every(1)));
        let x = input(2, 20, 20);
        for _ in 0..3 {
            trained.forward(x.clone() * 2.0 + 0.5, None, false).unwrap();
        }
        let bytes_of =
            |layer: &FavorAttention| layer.map_state().map(|maps| maps.to_bytes().unwrap());
        let bytes = bytes_of(&trained);
        let state = bytes.as_ref().map(|bytes| AdaptiveMaps::from_bytes(bytes).unwrap());
        let out = |layer: &FavorAttention| {
            numbers(layer.valid().forward(x.clone().inner(), None, false).unwrap())
        };
        let mut fresh = trained.clone();
        fresh.set_options(trained.options()).unwrap();
        // Maps that know nothing of the data are others, where there are any.
        assert_eq!(out(&fresh) != out(&trained), is_fitted(kind), "{kind}");
        fresh.set_map_state(state).unwrap();
        assert_eq!(out(&fresh), out(&trained), "{kind}");
        assert_eq!(bytes_of(&fresh), bytes, "{kind}");
        let usual = trained.options();
        let without = if bytes.is_some() { Attention::Exact } else { Attention::Auto };
        for other in [usual.kind(without), usual.seed(7), usual.coupling(Coupling::Iid)] {
            let has_others = bytes.is_some() || other.kind == without;
            assert_eq!(
                layer(other).set_map_state(fresh.map_state()).is_err(),
                has_others,
                "{kind}"
            );
        }
    }
}

/// Whether three calls leave other maps than none: those with a new draw for each call do. Sequences of
/// twenty are too short for `auto` to leave exact attention.
fn is_fitted(kind: Attention) -> bool {
    matches!(kind, Attention::Features(_))
}

/// Cross-attention with a mask of the keys, in training and in evaluation.
#[test]
fn cross_attention_learns_without_padding() {
    let _held = generator();
    let mask = KeyMask::of_lengths(&[5, 9], 9);
    for kind in Attention::all() {
        let layer = layer(options(Family::Balanced).kind(kind));
        let (x, y) = (input(2, 6, 9), input(2, 9, 10));
        let run = |y: Tensor<3>| {
            let mut fresh = layer.clone();
            fresh.set_options(layer.options()).unwrap();
            let out = fresh.forward_cross(x.clone(), y.clone(), y, Some(&mask), false).unwrap();
            numbers(out)
        };
        let spoiled = Tensor::cat(
            vec![
                Tensor::cat(
                    vec![y.clone().narrow(0, 0, 1).narrow(1, 0, 5), input(1, 4, 11) * 100.0],
                    1,
                ),
                y.clone().narrow(0, 1, 1),
            ],
            0,
        );
        assert_eq!(run(y), run(spoiled), "{kind}");
    }
}

#[test]
fn senseless_options_are_refused() {
    let device = Device::flex();
    let make = |heads, options| {
        let config = FavorAttentionConfig::new(16, heads).attention(options);
        config.init(&Initializer::Zeros, &device).map(|_| ()).unwrap_err().to_string()
    };
    let usual = options(Family::Ge);
    assert!(make(3, usual).contains("not a multiple"));
    for family in [Family::Trig, Family::TrigPair] {
        let message = make(4, usual.kind(Attention::Features(family)));
        assert!(message.contains("positive family"), "{message}");
    }
    assert!(make(4, usual.features(0)).contains("features"));
    assert!(make(4, usual.redraw(Redraw::Every(0))).contains("redraw"));
    let statistics = Statistics::Running { keep: 2.0 };
    assert!(make(4, usual.statistics(statistics)).contains("keep"));
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let _held = generator();
    let wide = |x: Tensor<3>| Tensor::cat(vec![x.clone(), x], 2);
    for kind in Attention::all() {
        let layer = layer(options(Family::Balanced).kind(kind));
        let refused = |q: Tensor<3>, k: Tensor<3>, v: Tensor<3>, what: &str| {
            let error = layer.forward_cross(q, k, v, None, false).unwrap_err().to_string();
            assert!(error.contains(what), "{kind}: {error}");
        };
        let x = || input(2, 5, 12);
        let width = "a width of 32 where the layer takes 16";
        refused(wide(x()), x(), x(), &format!("queries: {width}"));
        refused(x(), wide(x()), x(), &format!("keys: {width}"));
        refused(x(), x(), wide(x()), &format!("values: {width}"));
        refused(x(), input(3, 5, 13), x(), "keys [3, 4, 5, 4]");
        refused(x(), input(2, 7, 14), x(), "values [2, 4, 5, 4]");
        let mask = KeyMask::of_lengths(&[3, 4], 6);
        let refused = layer.forward(x(), Some(&mask), false).map(|_| ()).unwrap_err().to_string();
        let wanted = ["key mask: shape [2, 6]", "mask: 12 entries for 2 × 5 keys"];
        assert!(wanted.iter().any(|w| refused.contains(w)), "{kind}: {refused}");
        let longer = input(2, 7, 15);
        let refused = layer.forward_cross(x(), longer.clone(), longer, None, true);
        let refused = refused.map(|_| ()).unwrap_err().to_string();
        // Auto refuses causal calls of any shape.
        let wanted =
            if kind == Attention::Auto { "whole sequence" } else { "5 queries and 7 keys" };
        assert!(refused.contains(wanted), "{kind}: {refused}");
    }
    let relative = FavorAttentionConfig::new(16, 4)
        .attention(LayerOptions::new(Attention::Exact, 1))
        .positions(Positions::Relative(8))
        .init(&Initializer::Zeros, &Device::flex())
        .unwrap();
    let mask = KeyMask::of_lengths(&[3, 4], 6);
    let refused = relative.forward(input(2, 5, 17).inner(), Some(&mask), false);
    assert!(refused.map(|_| ()).unwrap_err().to_string().contains("key mask"));
}
