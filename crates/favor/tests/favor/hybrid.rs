//! Attention with exact keys against its plain definition, in every mode.

mod decode;
mod formats;

use crate::common::{moments, normal};
use favor::diagnose::Estimator;
use favor::draw::Stream;
use favor::learned::{Calibration, LearnOptions, learn_maps};
use favor::reference::{
    Mask, exact_attention, exact_key_sets, feature_attention, hybrid_attention,
};
use favor::{
    AttentionOptions, DecodeState, ExactKeys, Family, FeatureMap, FeatureSpec, Gradients, Kernel,
    Matrix, Method, Qkv, Side, Tensor, attention, attention_backward,
};
use std::ops::Range;

const DIM: usize = 6;
const COLUMNS: usize = 5;

/// A window, global keys, routed keys, and all of them.
fn sets() -> Vec<ExactKeys> {
    let none = ExactKeys::NONE;
    vec![
        none,
        none.near(7),
        none.near(130),
        none.global(5),
        none.routed(3, 4),
        none.near(9).global(4).routed(2, 6),
        none.near(1).global(1).routed(1, 200),
    ]
}

struct Head {
    q: Matrix<f64>,
    k: Matrix<f64>,
    v: Matrix<f64>,
}

impl Head {
    fn new(seed: u64, queries: usize, keys: usize) -> Self {
        let q = normal(seed, queries, DIM, 0.1, 1.0);
        let k = normal(seed + 1, keys, DIM, -0.1, 1.2);
        Self { q, k, v: normal(seed + 2, keys, COLUMNS, 0.3, 1.0) }
    }

    fn map(&self, family: Family, kernel: Kernel) -> FeatureMap {
        let spec = FeatureSpec::new(family, 24).kernel(kernel).seed(3);
        spec.fit(&moments(&self.q), &moments(&self.k)).unwrap()
    }

    fn inputs(&self) -> Qkv<'_, f64> {
        Qkv::new(tensor(&self.q), tensor(&self.k), tensor(&self.v))
    }

    fn run(&self, map: &FeatureMap, exact: ExactKeys, mask: Mask<'_>) -> Vec<f64> {
        let options = AttentionOptions::new().causal(mask.causal).key_mask(mask.keys);
        let method = Method::Hybrid { maps: std::slice::from_ref(map), exact: &[exact] };
        attention(method, self.inputs(), &options).unwrap()
    }

    fn plain(&self, map: &FeatureMap, exact: ExactKeys, mask: Mask<'_>) -> Matrix<f64> {
        hybrid_attention(map, exact, self.q.view(), self.k.view(), self.v.view(), mask).unwrap()
    }

    /// Outputs, and gradients given those of the outputs.
    fn with_gradients(
        &self,
        map: &FeatureMap,
        exact: ExactKeys,
        weight: &Matrix<f64>,
        options: &AttentionOptions<'_>,
    ) -> (Vec<f64>, Gradients<f64>) {
        let method = Method::Hybrid { maps: std::slice::from_ref(map), exact: &[exact] };
        let out = attention(method, self.inputs(), options).unwrap();
        let o = Tensor::new(&out, [1, 1, self.q.rows(), COLUMNS]).unwrap();
        let g = attention_backward(method, self.inputs(), o, tensor(weight), options).unwrap();
        (out, g)
    }

    /// Some of the tokens.
    fn part(&self, rows: Range<usize>) -> Self {
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|m| some_rows(m, rows.clone()));
        Self { q, k, v }
    }
}

fn some_rows(m: &Matrix<f64>, rows: Range<usize>) -> Matrix<f64> {
    Matrix::from_fn(rows.len(), m.columns(), |i, l| m[(rows.start + i, l)])
}

fn tensor(m: &Matrix<f64>) -> Tensor<'_, f64> {
    Tensor::new(m.as_slice(), [1, 1, m.rows(), m.columns()]).unwrap()
}

/// A map learned on a few short sequences: it has probes.
fn learned() -> FeatureMap {
    let x = normal(71, 6 * 80, DIM, 0.0, 1.1);
    let t = Tensor::new(x.as_slice(), [6, 1, 80, DIM]).unwrap();
    let spec = FeatureSpec::new(Family::Balanced, 24).kernel(Kernel::attention(DIM));
    let options = LearnOptions::new().steps(40);
    learn_maps(spec, Calibration::new(t, t), &options).unwrap().remove(0).map
}

fn worst(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |m, d| {
        assert!(!d.is_nan());
        m.max(d)
    })
}

#[test]
fn the_engine_follows_the_definition() {
    let attention_kernel = Kernel::attention(DIM);
    let gaussian = Kernel::gaussian().scaled(0.6).unwrap();
    for (seed, length) in [(10, 1), (20, 47), (30, 200), (40, 331)] {
        let head = Head::new(seed, length, length);
        let padding: Vec<bool> = (0..length).map(|j| j % 5 != 1 && j / 20 != 3).collect();
        let maps = [
            head.map(Family::Balanced, attention_kernel),
            head.map(Family::Pos, attention_kernel),
            head.map(Family::Sde, gaussian),
            learned(),
        ];
        for (n, map) in maps.iter().enumerate() {
            for exact in sets() {
                for causal in [false, true] {
                    for keys in [None, Some(&padding[..])] {
                        let mask = Mask::new(causal, keys);
                        let off = worst(
                            &head.run(map, exact, mask),
                            head.plain(map, exact, mask).as_slice(),
                        );
                        let masked = keys.is_some();
                        let what = format!("{length}, map {n}, {exact}, {causal}, mask {masked}");
                        assert!(off < 1e-10, "{what}: {off:e}");
                    }
                }
            }
        }
    }
}

#[test]
fn queries_may_be_others_than_keys() {
    for (queries, keys) in [(300, 70), (5, 400), (1, 1)] {
        let head = Head::new(50, queries, keys);
        let padding: Vec<bool> = (0..keys).map(|j| j % 3 != 1).collect();
        for map in [head.map(Family::Balanced, Kernel::attention(DIM)), learned()] {
            for exact in sets().into_iter().filter(|e| e.near == 0) {
                for keys in [None, Some(&padding[..])] {
                    let mask = Mask::new(false, keys);
                    let off = worst(
                        &head.run(&map, exact, mask),
                        head.plain(&map, exact, mask).as_slice(),
                    );
                    assert!(off < 1e-10, "{queries} {keys:?}, {exact}: {off:e}");
                }
            }
        }
    }
}

#[test]
fn both_ends_are_exact_attention_and_features() {
    let head = Head::new(60, 150, 150);
    let map = head.map(Family::Balanced, Kernel::attention(DIM));
    let (q, k, v) = (head.q.view(), head.k.view(), head.v.view());
    for causal in [false, true] {
        let mask = Mask::new(causal, None);
        let exact = exact_attention(map.kernel(), q, k, v, mask).unwrap();
        for all in [ExactKeys::ALL, ExactKeys::NONE.near(150), ExactKeys::NONE.near(10_000)] {
            let off = worst(&head.run(&map, all, mask), exact.as_slice());
            assert!(off < 1e-11, "{all}, {causal}: {off:e}");
        }
        let features = feature_attention(&map, q, k, v, mask).unwrap();
        assert!(worst(&head.run(&map, ExactKeys::NONE, mask), features.as_slice()) < 1e-11);
    }
    let mask = Mask::none();
    let exact = exact_attention(map.kernel(), q, k, v, mask).unwrap();
    let off = worst(&head.run(&map, ExactKeys::NONE.global(150), mask), exact.as_slice());
    assert!(off < 1e-11, "{off:e}");
}

/// Whether the choice of exact keys survives changes of this size: no score is near another.
fn clear_rows(
    head: &Head,
    map: &FeatureMap,
    exact: ExactKeys,
    mask: Mask<'_>,
    size: f64,
) -> Vec<bool> {
    let exact_sets = |q: &Matrix<f64>, k: &Matrix<f64>| {
        exact_key_sets(map, exact, q.view(), k.view(), mask).unwrap()
    };
    let own = exact_sets(&head.q, &head.k);
    let mut clear = vec![true; own.len()];
    // Sets that small changes do not change.
    for seed in 0..6 {
        let mut stream = Stream::new(seed, 5);
        let mut moved = |m: &Matrix<f64>, size: f64| {
            Matrix::from_fn(m.rows(), m.columns(), |i, l| m[(i, l)] + size * stream.normal())
        };
        let (q, k) = (moved(&head.q, size), moved(&head.k, size));
        for ((clear, a), b) in clear.iter_mut().zip(&own).zip(&exact_sets(&q, &k)) {
            *clear &= a == b;
        }
    }
    clear
}

#[test]
fn packed_sequences_see_nothing_else() {
    let offsets = [0, 3, 100, 101, 260];
    let head = Head::new(90, 260, 260);
    let weight = normal(95, 260, COLUMNS, 0.0, 1.0);
    for map in [head.map(Family::Balanced, Kernel::attention(DIM)), learned()] {
        for exact in sets() {
            for causal in [false, true] {
                let options = AttentionOptions::new().causal(causal);
                let packed = options.offsets(Some(&offsets));
                let (out, g) = head.with_gradients(&map, exact, &weight, &packed);
                for rows in offsets.windows(2).map(|w| w[0]..w[1]) {
                    let own = some_rows(&weight, rows.clone());
                    let part = head.part(rows.clone());
                    let (alone, own) = part.with_gradients(&map, exact, &own, &options);
                    let pairs = [(&out, &alone), (&g.q, &own.q), (&g.k, &own.k), (&g.v, &own.v)];
                    for (what, (all, alone)) in ["out", "q", "k", "v"].into_iter().zip(pairs) {
                        let columns = all.len() / 260;
                        let all = &all[rows.start * columns..rows.end * columns];
                        assert_eq!(all, alone, "{what} of {rows:?}, {exact}, causal {causal}");
                    }
                }
            }
        }
    }
}

/// Two sequences of two heads, each head with its own map and exact keys: what each gives alone.
#[test]
fn heads_of_a_batch_are_single_heads() {
    let length = 170;
    let (heads, maps, exact) = batch_of_heads(length);
    let weights: Vec<_> = (0..4).map(|n| normal(360 + n, length, COLUMNS, 0.0, 1.0)).collect();
    let join = |all: [&Matrix<f64>; 4]| all.map(Matrix::as_slice).concat();
    let q = join(heads.each_ref().map(|h| &h.q));
    let k = join(heads.each_ref().map(|h| &h.k));
    let v = join(heads.each_ref().map(|h| &h.v));
    let w = join([&weights[0], &weights[1], &weights[2], &weights[3]]);
    fn t(x: &[f64], length: usize) -> Tensor<'_, f64> {
        Tensor::new(x, [2, 2, length, x.len() / length / 4]).unwrap()
    }
    let inputs = Qkv::new(t(&q, length), t(&k, length), t(&v, length));
    let padding: Vec<bool> = (0..2 * length).map(|j| j % 7 != 3 && j > 20).collect();
    let method = Method::Hybrid { maps: &maps, exact: &exact };
    for causal in [false, true] {
        for masked in [false, true] {
            let options = AttentionOptions::new().causal(causal);
            let all = options.key_mask(masked.then_some(&padding[..]));
            let out = attention(method, inputs, &all).unwrap();
            let (o, w) = (t(&out, length), t(&w, length));
            let g = attention_backward(method, inputs, o, w, &all).unwrap();
            for (n, head) in heads.iter().enumerate() {
                let (own, visible) = (n % 2, &padding[n / 2 * length..][..length]);
                let options = options.key_mask(masked.then_some(visible));
                let (alone, one) =
                    head.with_gradients(&maps[own], exact[own], &weights[n], &options);
                let pairs = [(&out, &alone), (&g.q, &one.q), (&g.k, &one.k), (&g.v, &one.v)];
                for (what, (all, alone)) in ["out", "q", "k", "v"].into_iter().zip(pairs) {
                    let own = &all[n * alone.len()..][..alone.len()];
                    assert_eq!(own, alone, "{what} of {n}, causal {causal}, masked {masked}");
                }
            }
        }
    }
}

/// Heads of two sequences, two each, with the maps and exact keys of both.
fn batch_of_heads(length: usize) -> ([Head; 4], [FeatureMap; 2], [ExactKeys; 2]) {
    let heads = [300, 310, 320, 330].map(|seed| Head::new(seed, length, length));
    let maps = [heads[0].map(Family::Balanced, Kernel::attention(DIM)), learned()];
    let none = ExactKeys::NONE;
    (heads, maps, [none.near(7).routed(3, 4), none.near(30).global(4).routed(2, 9)])
}

#[test]
fn padding_and_the_future_change_nothing() {
    let (head, longer) = (Head::new(100, 170, 170), Head::new(110, 230, 230));
    let map = head.map(Family::Balanced, Kernel::attention(DIM));
    let join = |a: &Matrix<f64>, b: &Matrix<f64>| {
        Matrix::from_fn(230, a.columns(), |i, l| if i < 170 { a[(i, l)] } else { 3.0 * b[(i, l)] })
    };
    let longer = Head {
        q: join(&head.q, &longer.q),
        k: join(&head.k, &longer.k),
        v: join(&head.v, &longer.v),
    };
    let padding: Vec<bool> = (0..230).map(|j| j < 170).collect();
    for exact in sets() {
        let alone = head.run(&map, exact, Mask::none());
        let padded = longer.run(&map, exact, Mask::none().keys(Some(&padding)));
        assert!(worst(&alone, &padded[..alone.len()]) < 1e-12, "{exact}");
        let alone = head.run(&map, exact, Mask::causal());
        let future = longer.run(&map, exact, Mask::causal());
        assert!(worst(&alone, &future[..alone.len()]) < 1e-12, "{exact}");
        // Padding before the text, as batches of prompts have it.
        let turned =
            |m: &Matrix<f64>| Matrix::from_fn(230, m.columns(), |i, l| m[((i + 170) % 230, l)]);
        let left = Head { q: turned(&longer.q), k: turned(&longer.k), v: turned(&longer.v) };
        let padding: Vec<bool> = (0..230).map(|j| j >= 60).collect();
        let left = left.run(&map, exact, Mask::causal().keys(Some(&padding)));
        assert!(worst(&alone, &left[60 * COLUMNS..]) < 1e-12, "{exact}, padded on the left");
    }
}

/// Outside the window only what a key is counts, not where it lies, also among keys of equal weight.
#[test]
fn the_order_of_far_keys_changes_nothing() {
    let (length, seen, far) = (170, 60, 100);
    let head = Head::new(105, length, length);
    let map = head.map(Family::Balanced, Kernel::attention(DIM));
    // Every far key with its value twice.
    let twin = |j: usize| if j < far { j } else { far + (j - far) / 2 };
    let twins = |m: &Matrix<f64>| Matrix::from_fn(length, m.columns(), |j, l| m[(twin(j), l)]);
    let head = Head { q: twins(&head.q), k: twins(&head.k), v: twins(&head.v) };
    // 11 and 70 have no common factor.
    let place = |j: usize| if j < far { j } else { far + (j - far) * 11 % (length - far) };
    let moved = |m: &Matrix<f64>| Matrix::from_fn(length, m.columns(), |j, l| m[(place(j), l)]);
    let other = Head { q: head.q.clone(), k: moved(&head.k), v: moved(&head.v) };
    for exact in sets().into_iter().filter(|exact| seen + exact.near <= far) {
        let [a, b] = [&head, &other].map(|h| h.run(&map, exact, Mask::none()));
        let rows = seen * COLUMNS;
        assert!(worst(&a[..rows], &b[..rows]) < 1e-12, "{exact}");
    }
}

#[test]
fn threads_change_no_bit() {
    fn check<T: favor::Scalar + PartialEq>(narrow: impl Fn(f64) -> T) {
        let length = 2500;
        let head = Head::new(120, length, length);
        let map = head.map(Family::Balanced, Kernel::attention(DIM));
        let exact = [ExactKeys::NONE.near(9).global(4).routed(2, 6)];
        let method = Method::Hybrid { maps: std::slice::from_ref(&map), exact: &exact };
        let [q, k, v] = [&head.q, &head.k, &head.v]
            .map(|m| m.as_slice().iter().map(|x| narrow(*x)).collect::<Vec<T>>());
        let t = |x, columns| Tensor::new(x, [1, 1, length, columns]).unwrap();
        let inputs = Qkv::new(t(&q, DIM), t(&k, DIM), t(&v, COLUMNS));
        for causal in [false, true] {
            let run = |threads: usize| {
                let options = AttentionOptions::new().causal(causal).threads(Some(threads));
                let out = attention(method, inputs, &options).unwrap();
                let o = Tensor::new(&out, [1, 1, length, COLUMNS]).unwrap();
                let g = attention_backward(method, inputs, o, o, &options).unwrap();
                (out, g)
            };
            assert!(run(1) == run(3), "{}, causal {causal}", std::any::type_name::<T>());
        }
    }
    check(|x| x);
    check(|x| x as f32);
}

/// A head, and a map that is far too large near its centre: nearly all that the features give is taken back.
fn overestimated(length: usize, spread: f64) -> (Head, FeatureMap) {
    let mut head = Head::new(160, length, length);
    for i in 0..length {
        head.q.row_mut(i).iter_mut().for_each(|x| *x *= spread);
        head.k.row_mut(i).iter_mut().for_each(|x| *x *= spread);
    }
    // Frequencies that are sums of queries and keys: the estimates of those pairs are off by e^‖ω‖²/2.
    let kernel = Kernel::attention(DIM);
    let scale = kernel.scale();
    let omega = Matrix::from_fn(24, DIM, |m, l| scale * (head.q[(m, l)] + head.k[(m, l)]));
    let (mq, mk) = (moments(&head.q), moments(&head.k));
    let estimator = Estimator::fit(Family::Pos, kernel, &mq, &mk).unwrap();
    let spec = FeatureSpec::new(Family::Pos, 24).kernel(kernel);
    let map = spec.with_omega(estimator.parameters().unwrap().clone(), omega).unwrap();
    (head, map)
}

/// The outputs with sums in `f32` from which estimates are taken back, as the engine does it. Every estimate and every
/// slot's share is rounded only once, so no arithmetic in `f32` is better.
fn in_single_precision(head: &Head, map: &FeatureMap, sets: &[Vec<usize>]) -> Vec<f64> {
    let logs = |side, m: &Matrix<f64>| map.log_features(side, m.view()).unwrap();
    let (p, s) = (logs(Side::Query, &head.q), logs(Side::Key, &head.k));
    let kernel = map.kernel().log_matrix(head.q.view(), head.k.view()).unwrap();
    let (features, mean) = (map.features(), (map.features() as f64).ln());
    let value = |j: usize, c: usize| if c < COLUMNS { head.v[(j, c)] } else { 1.0 };
    let mut out = vec![];
    for (i, set) in sets.iter().enumerate() {
        let estimate = |j: usize| (0..features).map(|m| (p[(i, m)] + s[(j, m)]).exp()).sum::<f64>();
        let log = |j: usize| estimate(j).ln() - mean;
        let top = (0..head.k.rows()).map(log).fold(f64::NEG_INFINITY, f64::max);
        let sums: Vec<f32> = (0..=COLUMNS)
            .map(|c| {
                let slot = |m: usize| -> f64 {
                    let term = |j: usize| (p[(i, m)] + s[(j, m)] - mean - top).exp() * value(j, c);
                    (0..head.k.rows()).map(term).sum()
                };
                let mut sum = (0..features).map(|m| slot(m) as f32).sum::<f32>();
                for &j in set {
                    sum -= ((log(j) - top).exp() * value(j, c)) as f32;
                    sum += ((kernel[(i, j)] - top).exp() * value(j, c)) as f32;
                }
                sum
            })
            .collect();
        out.extend(sums[..COLUMNS].iter().map(|s| f64::from(s / sums[COLUMNS])));
    }
    out
}

/// Nearly all that the features give is taken back. In `f32` 14 bits of a sum are left or `f64` takes over, and in
/// `f64` 18 or the reference does. A quotient of two sums is off by twice that, times the largest value.
#[test]
fn lost_digits_are_noticed() {
    let length = 120;
    // What is left is a tenth of a rounded `f32`, or less than `f64` can tell.
    for (spread, is_left_in_f64) in [(1.6, true), (3.0, false)] {
        let (mut head, map) = overestimated(length, spread);
        // Numbers that both formats have.
        for m in [&mut head.q, &mut head.k, &mut head.v] {
            *m = Matrix::from_fn(m.rows(), m.columns(), |i, l| f64::from(m[(i, l)] as f32));
        }
        let narrow = |all: &[f64]| -> Vec<f32> { all.iter().map(|x| *x as f32).collect() };
        let [q, k, v] = [&head.q, &head.k, &head.v].map(|m| narrow(m.as_slice()));
        let t = |x: &'_ [f32]| [1, 1, length, x.len() / length];
        let [tq, tk, tv] = [&q, &k, &v].map(|x| Tensor::new(x, t(x)).unwrap());
        let largest = head.v.as_slice().iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        let bound = |bits: i32| 2.0 * largest * 0.5_f64.powi(bits);
        let mut engine_in_f64 = false;
        for exact in
            [ExactKeys::NONE.near(length), ExactKeys::NONE.near(60), ExactKeys::NONE.routed(3, 40)]
        {
            for causal in [false, true] {
                let mask = Mask::new(causal, None);
                let plain = head.plain(&map, exact, mask);
                let wide = head.run(&map, exact, mask);
                let off = worst(&wide, plain.as_slice());
                assert!(off < bound(18), "{exact}, causal {causal}: {off:e}");
                engine_in_f64 |= off > 0.0;
                let method = Method::Hybrid { maps: std::slice::from_ref(&map), exact: &[exact] };
                let options = AttentionOptions::new().causal(causal);
                let out = attention(method, Qkv::new(tq, tk, tv), &options).unwrap();
                assert_eq!(out, narrow(&wide), "{exact}, causal {causal}: not in f64");
                if !causal {
                    let (q, k) = (head.q.view(), head.k.view());
                    let sets = exact_key_sets(&map, exact, q, k, mask).unwrap();
                    let lost = worst(&in_single_precision(&head, &map, &sets), plain.as_slice());
                    assert!(lost > bound(14), "{exact}: {lost:e} is what f32 could do");
                }
            }
        }
        assert_eq!(engine_in_f64, is_left_in_f64, "{spread}");
    }
}

#[test]
fn hostile_inputs_are_refused_or_harmless() {
    let head = Head::new(180, 60, 60);
    let map = head.map(Family::Balanced, Kernel::attention(DIM));
    let none = vec![false; 60];
    for exact in sets() {
        for causal in [false, true] {
            let all_masked = Mask::new(causal, Some(&none));
            let out = head.run(&map, exact, all_masked);
            assert!(out.iter().all(|x| *x == 0.0), "{exact}");
            assert_eq!(out, head.plain(&map, exact, all_masked).as_slice(), "{exact}");
            let options = AttentionOptions::new().causal(causal);
            let method = Method::Hybrid { maps: std::slice::from_ref(&map), exact: &[exact] };
            for side in 0..3 {
                let mut bad = Head::new(180, 60, 60);
                let m = [&mut bad.q, &mut bad.k, &mut bad.v];
                m.into_iter().nth(side).unwrap()[(41, 2)] = f64::NAN;
                let error = attention(method, bad.inputs(), &options).unwrap_err().to_string();
                let name = ["queries", "keys", "values"][side];
                assert!(error.contains(name) && error.contains("41"), "{exact}: {error}");
            }
        }
    }
    let more = ExactKeys::NONE.routed(25, 3);
    let method = Method::Hybrid { maps: std::slice::from_ref(&map), exact: &[more] };
    assert!(attention(method, head.inputs(), &AttentionOptions::new()).is_err());
    let state = || DecodeState::<f64>::new(vec![map.clone()], 1, 1, COLUMNS).unwrap();
    assert!(state().exact_keys(&[more]).is_err());
    assert!(state().exact_keys(&[ExactKeys::ALL]).is_err());
    assert!(state().exact_keys(&[ExactKeys::NONE; 3]).is_err());
}

/// Heads may have maps of different sizes: how many slots a head can prefer depends on its own map.
#[test]
fn slots_are_those_of_the_own_map() {
    let heads = [Head::new(90, 120, 120), Head::new(95, 120, 120)];
    let fitted = |(head, features): (&Head, usize)| {
        let spec = FeatureSpec::new(Family::Balanced, features).kernel(Kernel::attention(DIM));
        spec.fit(&moments(&head.q), &moments(&head.k)).unwrap()
    };
    let maps: Vec<FeatureMap> = heads.iter().zip([24, 8]).map(fitted).collect();
    let exact = [ExactKeys::NONE.near(2).routed(16, 2), ExactKeys::NONE.near(2).routed(8, 2)];
    let both = |part: fn(&Head) -> &Matrix<f64>| -> Vec<f64> {
        heads.iter().flat_map(|head| part(head).as_slice().to_vec()).collect()
    };
    let (q, k, v) = (both(|h| &h.q), both(|h| &h.k), both(|h| &h.v));
    let t = |x, columns| Tensor::new(x, [1, 2, 120, columns]).unwrap();
    let inputs = Qkv::new(t(&q, DIM), t(&k, DIM), t(&v, COLUMNS));
    let run = |exact: &[ExactKeys]| {
        let options = AttentionOptions::new().causal(true);
        attention(Method::Hybrid { maps: &maps, exact }, inputs, &options)
    };
    let decode = |exact: &[ExactKeys]| {
        let state = DecodeState::<f64>::new(maps.clone(), 1, 2, COLUMNS)?;
        state.exact_keys(exact)?.advance(inputs.q, inputs.k, inputs.v)
    };
    let plain: Vec<f64> = (0..2)
        .flat_map(|h| heads[h].plain(&maps[h], exact[h], Mask::causal()).as_slice().to_vec())
        .collect();
    assert!(worst(&run(&exact).unwrap(), &plain) < 1e-10);
    assert!(worst(&decode(&exact).unwrap(), &plain) < 1e-10);
    let swapped = [exact[1], exact[0]];
    for refused in [run(&swapped).unwrap_err(), decode(&swapped).unwrap_err()] {
        let reason = "exact keys: 16 preferred slots of 8 features";
        assert_eq!(refused.to_string(), reason);
    }
}
