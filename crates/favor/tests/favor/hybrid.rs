//! Attention with exact keys against its plain definition, in every mode.

use crate::common::{moments, normal};
use favor::diagnose::Estimator;
use favor::draw::Stream;
use favor::learned::{Calibration, LearnOptions, learn_maps};
use favor::reference::{
    Mask, exact_attention, exact_key_sets, feature_attention, hybrid_attention,
};
use favor::{
    AttentionOptions, DecodeState, ExactKeys, Family, FeatureMap, FeatureSpec, Kernel, Matrix,
    Method, Qkv, Scalar, Side, Tensor, attention, attention_backward,
};

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

/// What each row of an output may be off by, in units of the largest value, when all is computed with this
/// unit roundoff `u`: every weight is off by some `u` for each term of its logit, the sums by some `u` for
/// each number in them, and what is taken back makes both larger against what is left.
fn rounding(head: &Head, map: &FeatureMap, exact: ExactKeys, mask: Mask<'_>, u: f64) -> Vec<f64> {
    let logs = |side, m: &Matrix<f64>| map.log_features(side, m.view()).unwrap();
    let (p, s) = (logs(Side::Query, &head.q), logs(Side::Key, &head.k));
    let kernel = map.kernel().log_matrix(head.q.view(), head.k.view()).unwrap();
    let sets = exact_key_sets(map, exact, head.q.view(), head.k.view(), mask).unwrap();
    let size = |m: &Matrix<f64>| m.as_slice().iter().fold(0.0_f64, |a, x| a.max(x.abs()));
    // Terms of a logit and of a log-feature: those that cancel count too.
    let square = |m: &Matrix<f64>| size(m).powi(2) * DIM as f64;
    let logit = map.kernel().scale().powi(2) * (square(&head.q) + square(&head.k));
    let each = u * ((DIM + 4) as f64 * (logit + size(&p) + size(&s)));
    let sums = u * (map.features() + head.k.rows() + COLUMNS) as f64;
    let row = |(i, set): (usize, &Vec<usize>)| {
        let seen = (0..head.k.rows()).filter(|j| !mask.causal || *j <= i);
        let (mut left, mut all) = (0.0, 0.0);
        for j in seen {
            let pairs = p.row(i).iter().zip(s.row(j)).map(|(p, s)| (p + s).exp());
            let estimate = pairs.sum::<f64>() / map.features() as f64;
            let weight = kernel[(i, j)].exp();
            let is_exact = set.binary_search(&j).is_ok();
            left += if is_exact { weight } else { estimate };
            all += if is_exact { 2.0 * estimate + weight } else { estimate };
        }
        2.0 * (each + sums) * all / left
    };
    sets.iter().enumerate().map(row).collect()
}

fn narrow_runs<T: Scalar>(own: f64, from: impl Fn(f64) -> T, to: impl Fn(T) -> f64) {
    let (mut compared, mut sharp) = (0, 0);
    for seed in [80, 81, 82] {
        let head = Head::new(seed, 250, 250);
        // What the narrow format can hold.
        let round =
            |m: &Matrix<f64>| Matrix::from_fn(m.rows(), m.columns(), |i, l| to(from(m[(i, l)])));
        let head = Head { q: round(&head.q), k: round(&head.k), v: round(&head.v) };
        let largest = head.v.as_slice().iter().fold(0.0_f64, |a, x| a.max(x.abs()));
        for map in [head.map(Family::Balanced, Kernel::attention(DIM)), learned()] {
            for exact in sets() {
                for causal in [false, true] {
                    let mask = Mask::new(causal, None);
                    let narrow = Narrow::new(&head, &from);
                    let options = AttentionOptions::new().causal(causal);
                    let method =
                        Method::Hybrid { maps: std::slice::from_ref(&map), exact: &[exact] };
                    let ours = attention(method, narrow.inputs(), &options).unwrap();
                    let plain = head.plain(&map, exact, mask);
                    let clear = clear_rows(&head, &map, exact, mask, 1e-4);
                    let allowed = rounding(&head, &map, exact, mask, f64::from(f32::EPSILON) / 2.0);
                    for (i, row) in ours.chunks(COLUMNS).enumerate().filter(|(i, _)| clear[*i]) {
                        let row: Vec<f64> = row.iter().map(|x| to(*x)).collect();
                        let (off, most) = (worst(&row, plain.row(i)), largest * (allowed[i] + own));
                        assert!(off < most, "{exact}, causal {causal}, row {i}: {off:e}, {most:e}");
                        compared += 1;
                        sharp += usize::from(most < 1e-2 * largest);
                    }
                }
            }
        }
    }
    assert!(compared > 10_000 && 10 * sharp > 9 * compared, "{compared} compared, {sharp} sharply");
}

/// The numbers of a head in a narrow format.
struct Narrow<T> {
    q: Vec<T>,
    k: Vec<T>,
    v: Vec<T>,
}

impl<T: Scalar> Narrow<T> {
    fn new(head: &Head, from: impl Fn(f64) -> T) -> Self {
        let narrow = |m: &Matrix<f64>| m.as_slice().iter().map(|x| from(*x)).collect();
        Self { q: narrow(&head.q), k: narrow(&head.k), v: narrow(&head.v) }
    }

    fn inputs(&self) -> Qkv<'_, T> {
        let t = |x, columns| Tensor::new(Vec::as_slice(x), [1, 1, Vec::len(x) / columns, columns]);
        let [q, k] = [&self.q, &self.k].map(|x| t(x, DIM).unwrap());
        Qkv::new(q, k, t(&self.v, COLUMNS).unwrap())
    }
}

#[test]
fn narrow_formats_follow_the_definition() {
    narrow_runs::<f32>(0.0, |x| x as f32, f64::from);
    // Outputs are rounded to their format in the end.
    let own = half::f16::EPSILON.to_f64();
    narrow_runs::<half::f16>(own, half::f16::from_f64, half::f16::to_f64);
}

/// Gradients in `f32` are those in `f64`, where the choice of exact keys is the same for all rows.
#[test]
fn narrow_gradients_follow_wide_ones() {
    let mut compared = 0;
    for seed in 200..206 {
        let head = Head::new(seed, 120, 120);
        let round = |m: &Matrix<f64>| {
            Matrix::from_fn(m.rows(), m.columns(), |i, l| f64::from(m[(i, l)] as f32))
        };
        let head = Head { q: round(&head.q), k: round(&head.k), v: round(&head.v) };
        let map = head.map(Family::Balanced, Kernel::attention(DIM));
        let weight = normal(seed + 50, 120, COLUMNS, 0.0, 1.0);
        for exact in sets() {
            for causal in [false, true] {
                let mask = Mask::new(causal, None);
                if clear_rows(&head, &map, exact, mask, 2e-6).contains(&false) {
                    continue;
                }
                let options = AttentionOptions::new().causal(causal);
                let method = Method::Hybrid { maps: std::slice::from_ref(&map), exact: &[exact] };
                let out = attention(method, head.inputs(), &options).unwrap();
                let shape = [1, 1, 120, COLUMNS];
                let (o, w) = (Tensor::new(&out, shape).unwrap(), tensor(&weight));
                let wide = attention_backward(method, head.inputs(), o, w, &options).unwrap();
                let narrow = Narrow::new(&head, |x| x as f32);
                let out = attention(method, narrow.inputs(), &options).unwrap();
                let w: Vec<f32> = weight.as_slice().iter().map(|x| *x as f32).collect();
                let [o, w] = [&out, &w].map(|x| Tensor::new(x, shape).unwrap());
                let ours = attention_backward(method, narrow.inputs(), o, w, &options).unwrap();
                // A gradient is a sum over all queries of differences of what outputs are made of.
                let allowed = rounding(&head, &map, exact, mask, f64::from(f32::EPSILON) / 2.0);
                let allowed = 4.0 * allowed.iter().fold(0.0_f64, |a, x| a.max(*x));
                for (what, a, b) in
                    [("q", &ours.q, &wide.q), ("k", &ours.k, &wide.k), ("v", &ours.v, &wide.v)]
                {
                    let a: Vec<f64> = a.iter().map(|x| f64::from(*x)).collect();
                    let largest = b.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
                    let off = worst(&a, b) / largest;
                    assert!(
                        off < allowed,
                        "{exact}, causal {causal}, {what}: {off:e}, {allowed:e}"
                    );
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 40, "{compared} compared");
}

#[test]
fn packed_sequences_see_nothing_else() {
    let offsets = [0, 3, 100, 101, 260];
    let head = Head::new(90, 260, 260);
    let map = head.map(Family::Balanced, Kernel::attention(DIM));
    for exact in sets() {
        for causal in [false, true] {
            let options = AttentionOptions::new().causal(causal).offsets(Some(&offsets));
            let method = Method::Hybrid { maps: std::slice::from_ref(&map), exact: &[exact] };
            let packed = attention(method, head.inputs(), &options).unwrap();
            for w in offsets.windows(2) {
                let cut = |m: &Matrix<f64>| {
                    Matrix::from_fn(w[1] - w[0], m.columns(), |i, l| m[(w[0] + i, l)])
                };
                let part = Head { q: cut(&head.q), k: cut(&head.k), v: cut(&head.v) };
                let alone = part.run(&map, exact, Mask::new(causal, None));
                assert_eq!(packed[w[0] * COLUMNS..w[1] * COLUMNS], alone, "{exact}, {causal}");
            }
        }
    }
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
    let length = 2500;
    let head = Head::new(120, length, length);
    let map = head.map(Family::Balanced, Kernel::attention(DIM));
    let exact = [ExactKeys::NONE.near(9).global(4).routed(2, 6)];
    let method = Method::Hybrid { maps: std::slice::from_ref(&map), exact: &exact };
    for causal in [false, true] {
        let run = |threads: usize| {
            let options = AttentionOptions::new().causal(causal).threads(Some(threads));
            let out = attention(method, head.inputs(), &options).unwrap();
            let o = Tensor::new(&out, [1, 1, length, COLUMNS]).unwrap();
            let g = attention_backward(method, head.inputs(), o, o, &options).unwrap();
            (out, g)
        };
        assert_eq!(run(1), run(3), "causal {causal}");
    }
}

/// Token by token, in any pieces and from a file: the same as at once.
#[test]
fn decoding_is_causal_attention_however_it_is_cut() {
    let length = 230;
    let heads = [Head::new(130, length, length), Head::new(140, length, length)];
    let maps = [heads[0].map(Family::Balanced, Kernel::attention(DIM)), learned()];
    for exact in sets() {
        let kept = [exact, exact.near(exact.near + 3)];
        let whole: Vec<Vec<f64>> =
            (0..2).map(|h| heads[h].run(&maps[h], kept[h], Mask::causal())).collect();
        for pieces in
            [vec![1; length], vec![length], vec![100, 1, 1, 46, 1, 60, 21], vec![47, 2, 181]]
        {
            let state = DecodeState::<f64>::new(maps.to_vec(), 1, 2, COLUMNS).unwrap();
            let mut state = state.exact_keys(&kept).unwrap();
            let mut start = 0;
            let mut outs = [vec![], vec![]];
            for (n, piece) in pieces.iter().enumerate() {
                let part = |of: fn(&Head) -> &Matrix<f64>| -> Vec<f64> {
                    let rows = |h: &Head| {
                        let m = of(h);
                        m.as_slice()[start * m.columns()..(start + piece) * m.columns()].to_vec()
                    };
                    heads.iter().flat_map(rows).collect()
                };
                let (q, k, v) = (part(|h| &h.q), part(|h| &h.k), part(|h| &h.v));
                let t = |x: &'_ [f64]| [1, 2, *piece, x.len() / piece / 2];
                let [q, k, v] = [&q, &k, &v].map(|x| Tensor::new(x, t(x)).unwrap());
                if n % 40 == 3 {
                    // An error leaves the state as it was.
                    let mut bad = vec![0.0; 2 * piece * COLUMNS];
                    bad[piece * COLUMNS] = f64::NAN;
                    let bad_v = Tensor::new(&bad, v.shape()).unwrap();
                    assert!(state.advance(q, k, bad_v).is_err());
                    let bytes = state.to_bytes().unwrap();
                    state = DecodeState::from_bytes(maps.to_vec(), &bytes).unwrap();
                    assert_eq!(state.tokens(), start);
                }
                let out = state.advance(q, k, v).unwrap();
                outs[0].extend_from_slice(&out[..piece * COLUMNS]);
                outs[1].extend_from_slice(&out[piece * COLUMNS..]);
                start += piece;
            }
            for h in 0..2 {
                let off = worst(&outs[h], &whole[h]);
                assert!(off < 1e-10, "{}, pieces of {}: {off:e}", kept[h], pieces[0]);
            }
        }
    }
}

#[test]
fn memory_of_decoding_stays_flat() {
    let head = Head::new(150, 1200, 1200);
    let map = head.map(Family::Balanced, Kernel::attention(DIM));
    let exact = [ExactKeys::NONE.near(9).global(4).routed(2, 6)];
    let mut state =
        DecodeState::<f64>::new(vec![map], 1, 1, COLUMNS).unwrap().exact_keys(&exact).unwrap();
    let mut sizes = vec![];
    for i in 0..1200 {
        let row = |m: &Matrix<f64>| m.row(i).to_vec();
        let (q, k, v) = (row(&head.q), row(&head.k), row(&head.v));
        let t = |x| Tensor::new(Vec::as_slice(x), [1, 1, 1, Vec::len(x)]).unwrap();
        state.advance(t(&q), t(&k), t(&v)).unwrap();
        sizes.push(state.size_in_bytes());
    }
    let most = |part: &[usize]| part.iter().copied().max().unwrap();
    assert!(most(&sizes[600..]) <= most(&sizes[200..400]) * 5 / 4, "{:?}", &sizes[590..620]);
}

/// A map that is far too large near its centre: nearly all that the features give is taken back.
#[test]
fn lost_digits_are_noticed() {
    let length = 120;
    let mut head = Head::new(160, length, length);
    for i in 0..length {
        head.q.row_mut(i).iter_mut().for_each(|x| *x *= 3.0);
        head.k.row_mut(i).iter_mut().for_each(|x| *x *= 3.0);
    }
    let map = {
        // Frequencies that are sums of queries and keys: the estimates of those pairs are off by e^‖ω‖²/2.
        let kernel = Kernel::attention(DIM);
        let scale = kernel.scale();
        let omega = Matrix::from_fn(24, DIM, |m, l| scale * (head.q[(m, l)] + head.k[(m, l)]));
        let (mq, mk) = (moments(&head.q), moments(&head.k));
        let estimator = Estimator::fit(Family::Pos, kernel, &mq, &mk).unwrap();
        let spec = FeatureSpec::new(Family::Pos, 24).kernel(kernel);
        spec.with_omega(estimator.parameters().unwrap().clone(), omega).unwrap()
    };
    let logs = |side, m: &Matrix<f64>| map.log_features(side, m.view()).unwrap();
    let (p, s) = (logs(Side::Query, &head.q), logs(Side::Key, &head.k));
    let kernel = map.kernel().log_matrix(head.q.view(), head.k.view()).unwrap();
    let far = (0..length).any(|i| {
        let pair = |j: usize| {
            (0..24).map(|m| (p[(i, m)] + s[(j, m)]).exp()).sum::<f64>().ln() - kernel[(i, j)]
        };
        (0..length).any(|j| pair(j) > 14.0)
    });
    assert!(far, "the map is not far off");
    for exact in
        [ExactKeys::NONE.near(length), ExactKeys::NONE.near(60), ExactKeys::NONE.routed(3, 40)]
    {
        for causal in [false, true] {
            let mask = Mask::new(causal, None);
            let plain = head.plain(&map, exact, mask);
            assert!(worst(&head.run(&map, exact, mask), plain.as_slice()) < 1e-5, "{exact}");
            let narrow =
                |m: &Matrix<f64>| -> Vec<f32> { m.as_slice().iter().map(|x| *x as f32).collect() };
            let (q, k, v) = (narrow(&head.q), narrow(&head.k), narrow(&head.v));
            let t = |x: &'_ [f32]| [1, 1, length, x.len() / length];
            let inputs = Qkv::new(
                Tensor::new(&q, t(&q)).unwrap(),
                Tensor::new(&k, t(&k)).unwrap(),
                Tensor::new(&v, t(&v)).unwrap(),
            );
            let method = Method::Hybrid { maps: std::slice::from_ref(&map), exact: &[exact] };
            let out = attention(method, inputs, &AttentionOptions::new().causal(causal)).unwrap();
            let out: Vec<f64> = out.iter().map(|x| f64::from(*x)).collect();
            let clear = clear_rows(&head, &map, exact, mask, 1e-4);
            for (i, row) in out.chunks(COLUMNS).enumerate().filter(|(i, _)| clear[*i]) {
                let off = worst(row, plain.row(i));
                assert!(off < 3e-2, "{exact}, causal {causal}, row {i}: {off:e}");
            }
        }
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
