//! Inspections of small arrays: figures, orderings, samples and refusals.

use favor::diagnose::median;
use favor::diagnose::{Estimator, effective_sample_sizes, kernel_error, predict, relative_error};
use favor::draw::Stream;
use favor::learned::{Calibration, LearnOptions, learn_maps};
use favor::reference::{Mask, exact_attention, feature_attention};
use favor::{ExactKeys, Family, FeatureMap, FeatureSpec, Kernel, Moments};
use favor_inspect::{
    DRAWS, InspectOptions, Inspection, MapOptions, compared, inspect, inspect_maps,
};
use favor_io::progress::silent;
use favor_io::stats::{mean, mean_and_deviation};
use favor_io::{HeadArrays, SequenceArrays, Sequences, Stack};

fn rows(count: usize, columns: usize, seed: u64) -> Stack {
    let mut stream = Stream::new(seed, 0);
    let entry = |i: usize| 0.2 * (i % columns) as f64 + 0.5 * stream.normal();
    Stack::new((0..count * columns).map(entry).collect(), &[count, columns]).unwrap()
}

/// 40 queries and 30 keys of dimension 6, with values.
fn small() -> HeadArrays {
    HeadArrays::new(rows(40, 6, 1), rows(30, 6, 2), Some(rows(30, 4, 3))).unwrap()
}

fn options(kernel: Kernel) -> InspectOptions {
    InspectOptions::new(kernel).features(vec![16, 128])
}

fn run(arrays: &HeadArrays, options: &InspectOptions) -> Inspection {
    inspect(arrays, options, &silent).unwrap()
}

#[test]
fn every_family_has_its_figures() {
    let found = run(&small(), &options(Kernel::softmax()));
    assert_eq!(found.heads.len(), 1);
    let head = &found.heads[0];
    assert_eq!((head.queries, head.keys, head.dim, head.pairs.all), (40, 30, 6, true));
    let names: Vec<Family> = head.families.iter().map(|f| f.name).collect();
    assert_eq!(names, compared());
    let has_closed_form = |family: Family| family.is_positive() && family != Family::Hyperbolic;
    for family in &head.families {
        assert!(family.objective > head.floor, "{}", family.name);
        assert!(family.features_needed >= 1.0);
        let closed = has_closed_form(family.name);
        assert_eq!(family.features_needed_row_sum.is_some(), closed, "{}", family.name);
        assert_eq!(family.features_needed_output.is_some(), closed);
        for m in &family.measured {
            assert!(m.kernel_error.unwrap() > 0.0 && m.attention_error.unwrap() > 0.0);
            assert_eq!(m.effective_sample_size.is_some(), family.name.is_positive());
            if let Some(size) = m.effective_sample_size {
                assert!(size >= 1.0 && size <= m.features as f64);
            }
        }
    }
    // The default family is the optimum of the class that has closed forms.
    let best = head.families.iter().find(|f| f.name == Family::default()).unwrap();
    let others = head.families.iter().filter(|f| has_closed_form(f.name));
    assert!(others.into_iter().all(|f| best.objective <= f.objective + 1e-9));
    assert!(best.measured[1].attention_error < best.measured[0].attention_error);
    assert!(head.uniform_error.unwrap() > 0.0);
    assert_eq!(head.recommendation.as_ref().unwrap().basis, "attention output");
}

/// With few rows nothing is sampled, so the library gives the same figures to the last bit.
#[test]
fn figures_are_those_of_the_library() {
    let (arrays, kernel, seed) = (small(), Kernel::attention(6), 5);
    let head = &arrays.heads()[0];
    let (q, k) = (head.queries.view(), head.keys.view());
    let v = head.values.as_ref().unwrap().view();
    let exact = exact_attention(kernel, q, k, v, Mask::none()).unwrap();
    let (mq, mk) = (Moments::of(q).unwrap(), Moments::of(k).unwrap());
    let found = run(&arrays, &options(kernel).seed(seed));
    for report in &found.heads[0].families {
        let family = report.name;
        let estimator = Estimator::fit(family, kernel, &mq, &mk).unwrap();
        let predicted = predict(&estimator, q, k, Some(v)).unwrap();
        for measured in &report.measured {
            let m = measured.features;
            let maps: Vec<_> = (seed..seed + DRAWS)
                .map(|s| FeatureSpec::new(family, m).kernel(kernel).seed(s).fit(&mq, &mk).unwrap())
                .collect();
            let over = |figure: &dyn Fn(&favor::FeatureMap) -> f64| {
                Some(mean(&maps.iter().map(figure).collect::<Vec<_>>()))
            };
            let error = over(&|map| {
                relative_error(&feature_attention(map, q, k, v, Mask::none()).unwrap(), &exact)
            });
            assert_eq!(measured.attention_error, error, "{family}");
            let error = over(&|map| kernel_error(map, q, k).unwrap());
            assert_eq!(measured.kernel_error, error, "{family}");
            if family.is_positive() {
                let size = over(&|map| median(effective_sample_sizes(map, q, k).unwrap()));
                assert_eq!(measured.effective_sample_size, size, "{family}");
            }
            let error = predicted.as_ref().and_then(|p| p.output_error(m as f64));
            assert_eq!(measured.predicted_attention_error, error, "{family}");
        }
    }
}

/// The prediction is the root mean square over independent draws, to first order. A measured figure is a
/// mean over orthogonal ones, whose square is below that of independent ones on average.
#[test]
fn predictions_err_on_the_cautious_side() {
    const SEEDS: u64 = 64;
    let (arrays, kernel) = (small(), Kernel::attention(6));
    let head = &arrays.heads()[0];
    let moments = |m: &favor::Matrix<f64>| Moments::of(m.view()).unwrap();
    let (mq, mk) = (moments(&head.queries), moments(&head.keys));
    for family in [Family::Sde, Family::AdeShifted, Family::Balanced] {
        let estimator = Estimator::fit(family, kernel, &mq, &mk).unwrap();
        let found = predict(&estimator, head.queries.view(), head.keys.view(), None);
        let row_sum = found.unwrap().unwrap().typical_row_sum().exp();
        let mut squares = vec![];
        let mut predicted = 0.0;
        for seed in 0..SEEDS {
            let options = options(kernel).features(vec![128]).families(vec![family]);
            let report = run(&arrays, &options.seed(DRAWS * seed));
            let measured = report.heads[0].families[0].measured[0];
            squares.push(measured.attention_error.unwrap().powi(2));
            predicted = measured.predicted_attention_error.unwrap().powi(2);
        }
        let (mean, deviation) = mean_and_deviation(&squares);
        // The next order is smaller by the relative variance of the row sum.
        let next = 4.0 * row_sum / 128.0 * predicted;
        let allowed = predicted + next + 4.0 * deviation / (SEEDS as f64).sqrt();
        assert!(mean < allowed, "{family}: {mean} for {predicted}");
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let arrays = small();
    let json = |seed| run(&arrays, &options(Kernel::softmax()).seed(seed)).to_json();
    assert_eq!(json(0), json(0));
    assert_ne!(json(0), json(9));
}

#[test]
fn scaling_is_the_kernels() {
    let arrays = small();
    let plain = run(&arrays, &options(Kernel::softmax()));
    assert!(plain.hint.unwrap().contains("d^(-1/4)"));
    assert!(plain.scaling.contains("as given"), "{}", plain.scaling);
    let attention = run(&arrays, &options(Kernel::attention(6)));
    assert!(attention.hint.is_none());
    assert!(attention.scaling.contains("times 0.639"), "{}", attention.scaling);
    let scale = 6_f64.powf(-0.25);
    let gaussian = run(&arrays, &options(Kernel::new(-0.5, scale).unwrap()));
    let (head, other) = (&gaussian.heads[0], &attention.heads[0]);
    assert!(head.floor < 0.0);
    // α moves every objective with the floor and no relative variance.
    for (a, b) in head.families.iter().zip(&other.families) {
        let excess = (a.objective - head.floor) - (b.objective - other.floor);
        assert!(excess.abs() < 1e-9, "{}", a.name);
        let variances = a.mean_log_relative_variance - b.mean_log_relative_variance;
        assert!(variances.abs() < 1e-9);
    }
}

#[test]
fn many_pairs_are_sampled_and_it_is_said() {
    let arrays = HeadArrays::new(rows(2100, 2, 1), rows(2100, 2, 2), None).unwrap();
    let families = vec![Family::Trig, Family::Balanced];
    let options = InspectOptions::new(Kernel::softmax()).features(vec![8]).families(families);
    let found = run(&arrays, &options);
    let pairs = found.heads[0].pairs;
    assert_eq!((pairs.queries, pairs.keys, pairs.all), (2048, 2048, false));
    assert!(found.to_text().contains("sample of 2048 queries and 2048 keys"));
}

#[test]
fn text_and_json_say_the_same() {
    let found = run(&small(), &options(Kernel::softmax()));
    let text = found.to_text();
    assert!(text.contains("balanced") && text.contains("recommendation: for 10 % error"));
    // Arrays in memory have no names to show.
    assert!(text.starts_with("kernel "), "{text}");
    let json: serde_json::Value = serde_json::from_str(&found.to_json()).unwrap();
    assert_eq!(json["floor"].as_f64(), Some(found.heads[0].floor));
    for (written, family) in
        json["families"].as_array().unwrap().iter().zip(&found.heads[0].families)
    {
        assert_eq!(written["name"], family.name.name());
        assert_eq!(written["objective"].as_f64(), Some(family.objective));
        assert_eq!(written["features_needed_output"].as_f64(), family.features_needed_output);
    }
}

#[test]
fn several_heads_have_a_list_and_a_summary() {
    let heads = |rows: usize, columns: usize, seed| {
        let flat = self::rows(2 * rows, columns, seed);
        Stack::new(flat.heads()[0].as_slice().to_vec(), &[2, rows, columns]).unwrap()
    };
    let side = |rows, seed, name| heads(rows, 3, seed).from_source(name);
    let arrays = HeadArrays::new(side(20, 1, "q.npy"), side(15, 2, "k.npy"), None).unwrap();
    let found = run(&arrays, &options(Kernel::softmax()));
    let text = found.to_text();
    assert!(text.starts_with("queries q.npy, keys k.npy\n"), "{text}");
    assert!(text.contains("head 1: 20 queries") && text.contains("median over the 2 heads"));
    let json: serde_json::Value = serde_json::from_str(&found.to_json()).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 2);
    assert_eq!(json[1]["head"], 1);
}

#[test]
fn constant_values_are_pointed_out() {
    let ones = Stack::new(vec![1.0; 60], &[30, 2]).unwrap();
    let arrays = HeadArrays::new(rows(40, 6, 1), rows(30, 6, 2), Some(ones)).unwrap();
    let found = run(&arrays, &options(Kernel::softmax()));
    assert!(found.heads[0].warnings[0].contains("plain mean of the values is already exact"));
}

#[test]
fn degenerate_data_give_finite_figures() {
    for (name, values) in [
        ("one", vec![0.5, 1.0]),
        ("same", vec![1.0, 2.0, 1.0, 2.0, 1.0, 2.0]),
        ("zero", vec![0.0; 4]),
    ] {
        let stack = || Stack::new(values.clone(), &[values.len() / 2, 2]).unwrap();
        let arrays = HeadArrays::new(stack(), stack(), Some(stack())).unwrap();
        let found = run(&arrays, &InspectOptions::new(Kernel::softmax()).features(vec![4]));
        for family in &found.heads[0].families {
            assert!(family.objective.is_finite(), "{name} {}", family.name);
            assert!(family.mean_log_relative_variance.is_finite());
            assert!(family.features_needed.is_finite());
        }
    }
}

#[test]
fn refusals_say_what_is_wrong() {
    let huge = Stack::new(vec![1e200; 60], &[10, 6]).unwrap();
    let huge = HeadArrays::new(huge, rows(30, 6, 2), None).unwrap();
    let good = options(Kernel::softmax());
    let cases: [(&HeadArrays, InspectOptions, &str); 4] = [
        (&small(), good.clone().features(vec![64, 0]), "features: 0 is out of range"),
        (&small(), good.clone().features(vec![]), "features: give at least one"),
        (&small(), good.clone().families(vec![]), "families: give at least one"),
        (&huge, good, "head 0: "),
    ];
    for (arrays, options, words) in cases {
        let message = inspect(arrays, &options, &silent).unwrap_err().to_string();
        assert!(message.starts_with(words), "{message:?} lacks {words:?}");
        assert!(!message.contains('\n'));
    }
}

/// What is the same for all heads is named, and of what differs nothing is said in the first head's name.
#[test]
fn maps_may_differ_per_head() {
    let mut noise = Stream::new(5, 0);
    let mut array = |heads: usize| {
        let numbers = (0..4 * heads * 20 * 4).map(|_| noise.normal()).collect();
        Sequences::new(numbers, &[4, heads, 20, 4]).unwrap()
    };
    let x = array(1);
    let learned = |features: usize, near: usize| -> FeatureMap {
        let t = x.tensor().unwrap();
        let spec = FeatureSpec::new(Family::Balanced, features).kernel(Kernel::attention(4));
        let options = LearnOptions::new().exact(ExactKeys::NONE.near(near)).steps(3);
        learn_maps(spec, Calibration::new(t, t), &options).unwrap().remove(0).map
    };
    let maps = [learned(4, 2), learned(4, 3), learned(8, 3)];
    let arrays = SequenceArrays::new(array(2), array(2), None).unwrap();
    let found = |a: usize, b: usize, options: &MapOptions| {
        inspect_maps(&arrays, &[maps[a].clone(), maps[b].clone()], options, &silent).unwrap()
    };
    let own = MapOptions::new();
    for (a, b, options, features, exact) in [
        (0, 0, &own, "; 4 features", "exact keys: window ±2\n"),
        (0, 1, &own, "; 4 features", "exact keys: differ per head\n"),
        (0, 1, &own.near(Some(5)), "; 4 features", "exact keys: window ±5\n"),
        (1, 2, &own, "; features differ per head", "exact keys: window ±3\n"),
    ] {
        let found = found(a, b, options);
        let text = found.to_text();
        assert!(text.contains(&format!("{features}, {exact}")), "{text}");
        assert_eq!(found.features.is_none(), features.contains("differ"));
        assert_eq!(found.exact.is_none(), exact.contains("differ"));
    }
}

/// Each origin of learned maps has a line: what they were learned on, and the losses that they say.
#[test]
fn learned_maps_say_what_they_were_learned_on() {
    let mut noise = Stream::new(6, 0);
    let numbers = (0..4 * 3 * 20 * 4).map(|_| noise.normal()).collect();
    let x = Sequences::new(numbers, &[4, 3, 20, 4]).unwrap();
    let spec = FeatureSpec::new(Family::Balanced, 4).kernel(Kernel::attention(4));
    let learned = |seed: u64| -> Vec<FeatureMap> {
        let (t, options) = (x.tensor().unwrap(), LearnOptions::new().steps(3).seed(seed));
        let heads = learn_maps(spec, Calibration::new(t, t), &options).unwrap();
        heads.into_iter().map(|head| head.map).collect()
    };
    let arrays = SequenceArrays::new(x.clone(), x.clone(), None).unwrap();
    let text = |maps: &[FeatureMap]| {
        let found = inspect_maps(&arrays, maps, &MapOptions::new(), &silent).unwrap();
        let lines = found.to_text().lines().filter(|l| l.contains("learned from")).count();
        assert_eq!(lines, found.learned.len());
        found.to_text()
    };
    let maps = learned(0);
    let loss = median(maps.iter().map(|map| map.learned().unwrap().kl_before));
    let line = "3 maps learned from 3 sequences of 60 tokens in all, 1 held out, seed 0; median divergence \
                there";
    let wanted = format!("\n{line} {} before, ", favor_io::numbers::figures(loss));
    assert!(text(&maps).contains(&wanted), "{}", text(&maps));
    // Two origins, and a map that has a closed form.
    let moments = Moments::of(arrays.keys().head(0, 0).view()).unwrap();
    let drawn = spec.fit(&moments, &moments).unwrap();
    let mixed = text(&[maps[0].clone(), learned(7).remove(1), drawn.clone()]);
    let line = "\n1 map learned from 3 sequences of 60 tokens in all, 1 held out, seed";
    assert!(mixed.contains(&format!("{line} 0; divergence there")), "{mixed}");
    assert!(mixed.contains(&format!("{line} 7; divergence there")), "{mixed}");
    assert!(!text(&[drawn]).contains("learned from"));
}
