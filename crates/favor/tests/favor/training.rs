//! Maps that follow the data in training, and the choice between exact and features.

use favor::draw::Stream;
use favor::{
    AdaptiveMaps, AttentionOptions, Choice, ExactKeys, Family, FeatureSpec, Kernel, MapPolicy,
    Method, Moments, Qkv, Redraw, Rows, Statistics, Tensor, attention, attention_backward,
    choose_heads,
};

const SHAPE: [usize; 4] = [2, 3, 40, 8];

fn data(seed: u64, scale: f64) -> Vec<f64> {
    let mut stream = Stream::new(seed, 5);
    (0..SHAPE.iter().product()).map(|_| scale * stream.normal() + 0.3).collect()
}

fn tensor(x: &[f64]) -> Tensor<'_, f64> {
    Tensor::new(x, SHAPE).unwrap()
}

fn spec() -> FeatureSpec {
    FeatureSpec::new(Family::Balanced, 16).kernel(Kernel::attention(8)).seed(3)
}

fn adaptive(heads: usize, redraw: Redraw, statistics: Statistics) -> favor::Result<AdaptiveMaps> {
    let policy = MapPolicy::new().redraw(redraw).statistics(statistics);
    AdaptiveMaps::new(spec(), heads, 8, policy)
}

/// True where a head is exact.
fn exact_keys(choices: &[Choice]) -> Vec<ExactKeys> {
    choices.iter().map(Choice::exact_keys).collect()
}

#[test]
fn evaluation_changes_nothing() {
    let mut maps = adaptive(3, Redraw::Every(1), Statistics::PerBatch).unwrap();
    let (x, y) = (data(1, 1.0), data(2, 3.0));
    let blank = maps.maps().unwrap();
    let trained = maps.training(tensor(&x), tensor(&x), None, false).unwrap();
    assert_ne!(blank, trained);
    for _ in 0..2 {
        let found = maps.evaluation(tensor(&y), tensor(&y), None, false).unwrap();
        assert_eq!(found, trained);
    }
    assert_eq!(maps.calls(), 1);
}

#[test]
fn draws_are_redrawn_when_they_should_be() {
    let x = data(1, 1.0);
    for (redraw, changes) in
        [(Redraw::Never, [false; 4]), (Redraw::Every(2), [false, true, false, true])]
    {
        let mut maps = adaptive(3, redraw, Statistics::Calibrated).unwrap();
        let mut last = maps.training(tensor(&x), tensor(&x), None, false).unwrap();
        for changed in changes {
            let next = maps.training(tensor(&x), tensor(&x), None, false).unwrap();
            assert_eq!(next[0].omega().unwrap() != last[0].omega().unwrap(), changed, "{redraw:?}");
            last = next;
        }
    }
}

#[test]
fn statistics_come_from_where_they_should() {
    let (a, b) = (data(1, 1.0), data(2, 3.0));
    let head = |x: &[f64], batch: usize, head: usize| {
        let start = (batch * 3 + head) * 40 * 8;
        Moments::of(Rows::new(&x[start..start + 40 * 8], 40, 8).unwrap()).unwrap()
    };
    let both = |x: &[f64], h: usize| {
        let mut m = head(x, 0, h);
        m.merge(&head(x, 1, h)).unwrap();
        m
    };
    let fresh = |statistics| adaptive(3, Redraw::Never, statistics).unwrap();
    // Each sequence's own: one map per sequence and head.
    let found =
        fresh(Statistics::PerSequence).training(tensor(&a), tensor(&b), None, false).unwrap();
    assert_eq!(found.len(), 6);
    assert_eq!(found[4], spec().fit(&head(&a, 1, 1), &head(&b, 1, 1)).unwrap());
    let out = attention(
        Method::Features(&found),
        Qkv::new(tensor(&a), tensor(&b), tensor(&a)),
        &AttentionOptions::new(),
    )
    .unwrap();
    let alone = attention(
        Method::Features(&found[4..5]),
        Qkv::new(tensor(&a), tensor(&b), tensor(&a)),
        &AttentionOptions::new(),
    )
    .unwrap();
    assert_eq!(out[4 * 320..5 * 320], alone[4 * 320..5 * 320]);
    // The batch's, forgetting the one before.
    let mut maps = fresh(Statistics::PerBatch);
    maps.training(tensor(&a), tensor(&a), None, false).unwrap();
    let found = maps.training(tensor(&b), tensor(&b), None, false).unwrap();
    assert_eq!(found[2], spec().fit(&both(&b, 2), &both(&b, 2)).unwrap());
    // A running average: mean and covariance of the mixture.
    let mut maps = adaptive(3, Redraw::Every(1), Statistics::Running { keep: 0.75 }).unwrap();
    maps.training(tensor(&a), tensor(&a), None, false).unwrap();
    let found = maps.training(tensor(&b), tensor(&b), None, false).unwrap();
    let mut mixture = both(&a, 0).weighted(0.75 / 80.0);
    mixture.merge(&both(&b, 0).weighted(0.25 / 80.0)).unwrap();
    let expected = spec().fit(&mixture, &mixture).unwrap();
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
    assert!(close(
        found[0].parameters().unwrap().quadratic(),
        expected.parameters().unwrap().quadratic()
    ));
    // Calibrated, then frozen: later data change nothing.
    let mut maps = fresh(Statistics::Calibrated);
    let first = maps.training(tensor(&a), tensor(&a), None, false).unwrap();
    maps.freeze();
    assert_eq!(maps.training(tensor(&b), tensor(&b), None, true).unwrap(), first);
}

/// A running average reaches the maps when they are drawn again, and keeps as much of what was before as
/// if every call in between had been averaged.
#[test]
fn running_averages_count_the_calls_between_draws() {
    let (a, b) = (data(1, 1.0), data(2, 3.0));
    let run = |redraw, calls: usize, keep| {
        let mut maps = adaptive(3, redraw, Statistics::Running { keep }).unwrap();
        maps.training(tensor(&a), tensor(&a), None, false).unwrap();
        for _ in 1..calls {
            maps.training(tensor(&a), tensor(&a), None, false).unwrap();
        }
        maps.training(tensor(&b), tensor(&b), None, false).unwrap()
    };
    let quadratic = |maps: &[favor::FeatureMap]| maps[0].parameters().unwrap().quadratic().to_vec();
    // Three calls apart with 0.9 each: as one call with 0.9³.
    let apart = quadratic(&run(Redraw::Every(3), 3, 0.9));
    let one = quadratic(&run(Redraw::Every(1), 1, 0.9_f64.powi(3)));
    for (a, b) in apart.iter().zip(&one) {
        assert!((a - b).abs() < 1e-12, "{apart:?} {one:?}");
    }
    // Between draws nothing changes, and without redrawing nothing after the first call.
    assert_eq!(run(Redraw::Every(5), 3, 0.9), run(Redraw::Every(5), 1, 0.9));
    assert_eq!(run(Redraw::Never, 3, 0.9), run(Redraw::Never, 1, 0.9));
}

/// A calibration replaces what was learned before it, over all its batches.
#[test]
fn calibration_begins_the_statistics() {
    let (a, b) = (data(1, 1.0), data(2, 3.0));
    let calibrated = |statistics, noise: bool| {
        let mut maps = adaptive(3, Redraw::Every(1), statistics).unwrap();
        if noise {
            maps.calibrate(tensor(&b), tensor(&a), None).unwrap();
            maps.end_calibration();
        }
        maps.calibrate(tensor(&a), tensor(&a), None).unwrap();
        maps.calibrate(tensor(&b), tensor(&b), None).unwrap();
        maps.end_calibration();
        maps
    };
    let fixed = calibrated(Statistics::Calibrated, false);
    assert_eq!(fixed.maps().unwrap(), calibrated(Statistics::Calibrated, true).maps().unwrap());
    // Calibrated statistics stay; a running average goes on from them.
    let parameters = |maps: &[favor::FeatureMap]| maps[0].parameters().unwrap().clone();
    for (statistics, moves) in
        [(Statistics::Calibrated, false), (Statistics::Running { keep: 0.5 }, true)]
    {
        let mut maps = calibrated(statistics, false);
        let before = parameters(&maps.maps().unwrap());
        let after = parameters(&maps.training(tensor(&b), tensor(&b), None, false).unwrap());
        assert_eq!(before != after, moves, "{statistics:?}");
    }
}

/// A calibration without a batch changes nothing; the state says that one is going on.
#[test]
fn a_calibration_begins_with_its_first_batch() {
    let (a, b) = (data(1, 1.0), data(2, 3.0));
    let mut maps = adaptive(3, Redraw::Every(5), Statistics::Calibrated).unwrap();
    maps.calibrate(tensor(&a), tensor(&a), None).unwrap();
    assert!(maps.is_calibrating());
    maps.end_calibration();
    let before = maps.maps().unwrap();
    maps.begin_calibration();
    let mut again = AdaptiveMaps::from_bytes(&maps.to_bytes().unwrap()).unwrap();
    assert!(maps.is_calibrating() && again.is_calibrating());
    maps.end_calibration();
    assert!(!maps.is_calibrating());
    assert_eq!(maps.maps().unwrap(), before);
    again.calibrate(tensor(&b), tensor(&b), None).unwrap();
    let mut alone = adaptive(3, Redraw::Every(5), Statistics::Calibrated).unwrap();
    alone.calibrate(tensor(&b), tensor(&b), None).unwrap();
    assert_eq!(again.maps().unwrap(), alone.maps().unwrap());
}

/// Maps that were given serve every call until the next draw or calibration, through a file too.
#[test]
fn given_maps_stay_until_the_next_draw() {
    let x = data(1, 1.0);
    let t = tensor(&x);
    let given = favor::fit_heads(spec().seed(99), t, t, None).unwrap();
    for statistics in
        [Statistics::Running { keep: 0.9 }, Statistics::PerBatch, Statistics::PerSequence]
    {
        let mut maps = adaptive(3, Redraw::Every(2), statistics).unwrap();
        maps.set_maps(given.clone()).unwrap();
        assert_eq!(maps.maps().unwrap(), given);
        for _ in 0..2 {
            maps = AdaptiveMaps::from_bytes(&maps.to_bytes().unwrap()).unwrap();
            assert_eq!(maps.training(t, t, None, false).unwrap(), given, "{statistics:?}");
            assert_eq!(maps.evaluation(t, t, None, false).unwrap(), given, "{statistics:?}");
        }
        assert_ne!(maps.training(t, t, None, false).unwrap()[0], given[0], "{statistics:?}");
        maps.set_maps(given.clone()).unwrap();
        maps.calibrate(t, t, None).unwrap();
        assert_ne!(maps.maps().unwrap(), given, "{statistics:?}");
    }
    let mut causal = adaptive(3, Redraw::Never, Statistics::default()).unwrap();
    causal.set_maps(given.clone()).unwrap();
    for _ in 0..3 {
        assert_eq!(causal.training(t, t, None, true).unwrap(), given);
    }
    let message = causal.set_maps(given[1..].to_vec()).unwrap_err().to_string();
    assert!(message.contains("2 maps for 3 heads"), "{message}");
}

/// A state that was stored goes on as if it had not been.
#[test]
fn states_are_taken_up_where_they_were_left() {
    let (a, b) = (data(1, 1.0), data(2, 3.0));
    let mut maps = adaptive(3, Redraw::Every(2), Statistics::Running { keep: 0.8 }).unwrap();
    for x in [&a, &b, &a] {
        let mut again = AdaptiveMaps::from_bytes(&maps.to_bytes().unwrap()).unwrap();
        assert_eq!(again.maps().unwrap(), maps.maps().unwrap());
        let wanted = maps.training(tensor(x), tensor(x), None, false).unwrap();
        assert_eq!(again.training(tensor(x), tensor(x), None, false).unwrap(), wanted);
    }
    let bytes = maps.to_bytes().unwrap();
    for cut in [0, 7, 100, bytes.len() - 1] {
        assert!(AdaptiveMaps::from_bytes(&bytes[..cut]).is_err(), "{cut}");
    }
}

/// Padding enters no statistic, even if it holds NaN.
#[test]
fn padding_enters_no_statistic() {
    let mut x = data(1, 1.0);
    let mask: Vec<bool> = (0..2 * 40).map(|i| i % 40 < 30).collect();
    let run = |x: &[f64]| {
        let mut maps = adaptive(3, Redraw::Never, Statistics::PerBatch).unwrap();
        maps.training(tensor(x), tensor(x), Some(&mask), false).unwrap()
    };
    let before = run(&x);
    for (i, v) in x.iter_mut().enumerate() {
        if i / 8 % 40 >= 30 {
            *v = f64::NAN;
        }
    }
    assert_eq!(run(&x), before);
}

/// A causal call knows the calls before it and nothing of its own tokens.
#[test]
fn causal_calls_do_not_see_themselves() {
    let refused = adaptive(3, Redraw::Never, Statistics::PerBatch).unwrap().training(
        tensor(&data(1, 1.0)),
        tensor(&data(1, 1.0)),
        None,
        true,
    );
    assert!(refused.unwrap_err().to_string().contains("causal"));
    let run = |first: &[f64], second: &[f64]| {
        let statistics = Statistics::Running { keep: 0.5 };
        let mut maps = adaptive(3, Redraw::Every(1), statistics).unwrap();
        let one = maps.training(tensor(first), tensor(first), None, true).unwrap();
        (one, maps.training(tensor(second), tensor(second), None, true).unwrap())
    };
    let (a, b) = (data(1, 1.0), data(2, 3.0));
    assert_eq!(run(&a, &a).0, run(&b, &a).0);
    assert_eq!(run(&a, &a).1, run(&a, &b).1);
    assert_ne!(run(&a, &a).1, run(&b, &a).1);
    // Evaluation knows them all.
    for causal in [false, true] {
        let mut maps = adaptive(3, Redraw::Never, Statistics::Calibrated).unwrap();
        maps.training(tensor(&a), tensor(&a), None, causal).unwrap();
        maps.training(tensor(&b), tensor(&b), None, causal).unwrap();
        let mut all = adaptive(3, Redraw::Never, Statistics::Calibrated).unwrap();
        all.training(tensor(&a), tensor(&a), None, false).unwrap();
        let wanted = all.training(tensor(&b), tensor(&b), None, false).unwrap();
        assert!(maps.maps().unwrap() == wanted, "causal {causal}");
    }
}

#[test]
fn policies_that_make_no_sense_are_refused() {
    let new = adaptive;
    assert!(new(0, Redraw::Never, Statistics::PerBatch).is_err());
    assert!(new(1, Redraw::Every(0), Statistics::PerBatch).is_err());
    assert!(new(1, Redraw::Never, Statistics::Running { keep: 1.5 }).is_err());
}

/// Short: exact. Long and even: features. Long and spiky: exact again, and it says why.
#[test]
fn heads_are_computed_as_they_should_be() {
    let shape = [1, 2, 1000, 8];
    let mut stream = Stream::new(6, 6);
    let mut x: Vec<f64> = (0..2 * 8000).map(|_| 0.5 * stream.normal()).collect();
    x[8000..].iter_mut().for_each(|v| *v *= 30.0); // the second head is spiky
    let t = Tensor::new(&x, shape).unwrap();
    let maps: Vec<_> = x
        .chunks(8000)
        .map(|head| {
            let m = Moments::of(Rows::new(head, 1000, 8).unwrap()).unwrap();
            spec().fit(&m, &m).unwrap()
        })
        .collect();
    let options = AttentionOptions::new();
    let choices = choose_heads(&maps, Qkv::new(t, t, t), &options, 0.9).unwrap();
    assert!(matches!(choices[0], Choice::Features { .. }), "{choices:?}");
    assert!(matches!(choices[1], Choice::ExactIsNeeded { .. }), "{choices:?}");
    // No closed form predicts trigonometric features: their error is measured.
    let trig: Vec<_> = x
        .chunks(8000)
        .map(|head| {
            let m = Moments::of(Rows::new(head, 1000, 8).unwrap()).unwrap();
            FeatureSpec::new(Family::Trig, 64).kernel(Kernel::attention(8)).fit(&m, &m).unwrap()
        })
        .collect();
    for choice in choose_heads(&trig, Qkv::new(t, t, t), &options, 1e-3).unwrap() {
        assert!(matches!(choice, Choice::ExactIsNeeded { .. }), "{choice:?}");
    }
    let out = attention(
        Method::Hybrid { maps: &maps, exact: &exact_keys(&choices) },
        Qkv::new(t, t, t),
        &options,
    )
    .unwrap();
    let features = attention(Method::Features(&maps), Qkv::new(t, t, t), &options).unwrap();
    let exact =
        attention(Method::Exact(Kernel::attention(8)), Qkv::new(t, t, t), &options).unwrap();
    assert_eq!(out[..8000], features[..8000]);
    assert_eq!(out[8000..], exact[8000..]);
    let short = Tensor::new(&x[..2 * 20 * 8], [1, 2, 20, 8]).unwrap();
    let choices = choose_heads(&maps, Qkv::new(short, short, short), &options, 0.9).unwrap();
    assert_eq!(choices, [Choice::ExactIsShort; 2]);
    assert!(
        attention(
            Method::Hybrid {
                maps: &maps,
                exact: &[exact_keys(&choices), exact_keys(&choices[..1])].concat()
            },
            Qkv::new(t, t, t),
            &options
        )
        .is_err()
    );
}

/// Each head has the gradients of the way that was chosen for it.
#[test]
fn gradients_are_those_of_the_choices() {
    let [q, k, v, g] = [1, 2, 3, 4].map(|seed| data(seed, 0.7));
    let [q, k, v, g] = [&q, &k, &v, &g].map(|x| tensor(x));
    let mut maps = adaptive(3, Redraw::Never, Statistics::PerBatch).unwrap();
    let maps = maps.training(q, k, None, false).unwrap();
    let choices = [true, false, true, false, false, true].map(|by_features| {
        if by_features {
            Choice::Features { predicted_error: 0.0, exact: ExactKeys::NONE }
        } else {
            Choice::ExactIsShort
        }
    });
    let options = AttentionOptions::new();
    let kernel = Kernel::attention(8);
    let out = attention(
        Method::Hybrid { maps: &maps, exact: &exact_keys(&choices) },
        Qkv::new(q, k, v),
        &options,
    )
    .unwrap();
    let features = attention(Method::Features(&maps), Qkv::new(q, k, v), &options).unwrap();
    let exact = attention(Method::Exact(kernel), Qkv::new(q, k, v), &options).unwrap();
    let found = attention_backward(
        Method::Hybrid { maps: &maps, exact: &exact_keys(&choices) },
        Qkv::new(q, k, v),
        tensor(&out),
        g,
        &options,
    )
    .unwrap();
    let one = attention_backward(
        Method::Features(&maps),
        Qkv::new(q, k, v),
        tensor(&features),
        g,
        &options,
    )
    .unwrap();
    let two =
        attention_backward(Method::Exact(kernel), Qkv::new(q, k, v), tensor(&exact), g, &options)
            .unwrap();
    for (head, choice) in choices.iter().enumerate() {
        let part = |x: &[f64]| x[head * 320..(head + 1) * 320].to_vec();
        let wanted = if choice.is_exact() { &two } else { &one };
        assert_eq!(part(&found.q), part(&wanted.q));
        assert_eq!(part(&found.k), part(&wanted.k));
        assert_eq!(part(&found.v), part(&wanted.v));
    }
    let few = &choices[..2];
    assert!(
        attention_backward(
            Method::Hybrid { maps: &maps, exact: &exact_keys(few) },
            Qkv::new(q, k, v),
            tensor(&out),
            g,
            &options
        )
        .is_err()
    );
}

/// In cross-attention the mask is that of the keys alone; padded keys leave no trace in the maps.
#[test]
fn cross_attention_has_a_mask_of_keys() {
    let (q, k) = (data(1, 1.0), data(2, 1.0));
    let queries = Tensor::new(&q[..2 * 3 * 11 * 8], [2, 3, 11, 8]).unwrap();
    let mask: Vec<bool> = (0..80).map(|i| i % 40 < 25).collect();
    for statistics in [Statistics::PerBatch, Statistics::PerSequence] {
        let fit = |k: &[f64]| {
            let mut maps = adaptive(3, Redraw::Never, statistics).unwrap();
            maps.training(queries, tensor(k), Some(&mask), false).unwrap()
        };
        let mut spoiled = k.clone();
        for (_, x) in spoiled.iter_mut().enumerate().filter(|(i, _)| i / 8 % 40 >= 25) {
            *x = 1e3;
        }
        assert_eq!(fit(&k), fit(&spoiled));
        spoiled[0] = 1e3;
        assert_ne!(fit(&k), fit(&spoiled));
    }
}
