//! Exact keys in narrow number formats: outputs, decoding and gradients are off by rounding alone.

use super::{COLUMNS, DIM, Head, clear_rows, learned, sets, tensor, worst};
use crate::common::normal;
use favor::reference::{Mask, exact_key_sets};
use favor::{
    AttentionOptions, DecodeState, ExactKeys, Family, FeatureMap, Kernel, Matrix, Method, Qkv,
    Scalar, Side, Tensor, attention, attention_backward,
};
use half::{bf16, f16};

/// The unit roundoff of `f32`, in which all narrow formats are computed.
const SINGLE: f64 = f32::EPSILON as f64 / 2.0;

/// A format that is narrower than the definition's.
struct Format<T> {
    from: fn(f64) -> T,
    to: fn(T) -> f64,
    /// The unit roundoff that results are rounded with in the end, if it is not that of `f32`.
    own: f64,
}

const F32: Format<f32> = Format { from: |x| x as f32, to: f64::from, own: 0.0 };
const F16: Format<f16> = Format { from: f16::from_f64, to: f16::to_f64, own: 1.0 / 2048.0 };
const BF16: Format<bf16> = Format { from: bf16::from_f64, to: bf16::to_f64, own: 1.0 / 256.0 };

impl<T: Scalar> Format<T> {
    fn narrow(&self, numbers: &[f64]) -> Vec<T> {
        numbers.iter().map(|x| (self.from)(*x)).collect()
    }

    fn wide(&self, numbers: &[T]) -> Vec<f64> {
        numbers.iter().map(|x| (self.to)(*x)).collect()
    }

    /// The nearest numbers that the format can hold.
    fn round(&self, m: &Matrix<f64>) -> Matrix<f64> {
        let rounded = self.wide(&self.narrow(m.as_slice()));
        Matrix::new(rounded, m.rows(), m.columns()).unwrap()
    }

    fn head(&self, seed: u64, length: usize) -> Head {
        let Head { q, k, v } = Head::new(seed, length, length);
        Head { q: self.round(&q), k: self.round(&k), v: self.round(&v) }
    }
}

/// The numbers of a head in a narrow format.
struct Narrow<T> {
    q: Vec<T>,
    k: Vec<T>,
    v: Vec<T>,
}

impl<T: Scalar> Narrow<T> {
    fn new(head: &Head, format: &Format<T>) -> Self {
        let [q, k, v] = [&head.q, &head.k, &head.v].map(|m| format.narrow(m.as_slice()));
        Self { q, k, v }
    }

    fn inputs(&self) -> Qkv<'_, T> {
        self.tokens(0, self.q.len() / DIM)
    }

    fn tokens(&self, start: usize, count: usize) -> Qkv<'_, T> {
        fn part<T: Scalar>(x: &[T], start: usize, count: usize, columns: usize) -> Tensor<'_, T> {
            let rows = &x[start * columns..][..count * columns];
            Tensor::new(rows, [1, 1, count, columns]).unwrap()
        }
        let [q, k] = [&self.q, &self.k].map(|x| part(x, start, count, DIM));
        Qkv::new(q, k, part(&self.v, start, count, COLUMNS))
    }
}

/// What the engine sums up for each row.
struct Sums {
    /// The estimates of all pairs that are seen.
    estimates: Matrix<f64>,
    /// The denominators.
    left: Vec<f64>,
    /// How much is summed up, what is taken back included, against what is left.
    summed: Vec<f64>,
}

impl Sums {
    fn new(head: &Head, map: &FeatureMap, exact: ExactKeys, mask: Mask<'_>) -> Self {
        let logs = |side, m: &Matrix<f64>| map.log_features(side, m.view()).unwrap();
        let (p, s) = (logs(Side::Query, &head.q), logs(Side::Key, &head.k));
        let kernel = map.kernel().log_matrix(head.q.view(), head.k.view()).unwrap();
        let sets = exact_key_sets(map, exact, head.q.view(), head.k.view(), mask).unwrap();
        let estimates = Matrix::from_fn(head.q.rows(), head.k.rows(), |i, j| {
            let pairs = p.row(i).iter().zip(s.row(j)).map(|(p, s)| (p + s).exp());
            let seen = !mask.causal || j <= i;
            if seen { pairs.sum::<f64>() / map.features() as f64 } else { 0.0 }
        });
        let row = |(i, set): (usize, &Vec<usize>)| {
            let (mut left, mut all): (f64, f64) = (0.0, estimates.row(i).iter().sum());
            for (j, estimate) in estimates.row(i).iter().enumerate() {
                if set.binary_search(&j).is_ok() {
                    left += kernel[(i, j)].exp();
                    all += estimate + kernel[(i, j)].exp();
                } else {
                    left += estimate;
                }
            }
            (left, all / left)
        };
        let (left, summed) = sets.iter().enumerate().map(row).unzip();
        Self { estimates, left, summed }
    }

    fn most(&self) -> f64 {
        self.summed.iter().copied().fold(0.0, f64::max)
    }

    /// The largest gradients of keys and of values that can come by features, before those that exact keys
    /// take back.
    fn through_features(
        &self,
        head: &Head,
        map: &FeatureMap,
        (weight, out): (&Matrix<f64>, &[f64]),
    ) -> (f64, f64) {
        let slopes = key_slopes(head, map);
        let (mut of_keys, mut of_values) = (0.0_f64, 0.0_f64);
        for (j, slope) in slopes.into_iter().enumerate() {
            let (mut key, mut value) = (0.0, 0.0);
            for (i, left) in self.left.iter().enumerate() {
                let share = self.estimates[(i, j)] / left;
                let out = &out[i * COLUMNS..][..COLUMNS];
                let terms = weight.row(i).iter().zip(head.v.row(j)).zip(out);
                key += share * terms.map(|((w, v), o)| w * (v - o)).sum::<f64>().abs();
                value += share * weight.row(i).iter().fold(0.0_f64, |a, w| a.max(w.abs()));
            }
            of_keys = of_keys.max(key * slope);
            of_values = of_values.max(value);
        }
        (of_keys, of_values)
    }
}

/// How much the logarithms of the features of each key change with it at most, along any axis.
fn key_slopes(head: &Head, map: &FeatureMap) -> Vec<f64> {
    let step = 1e-5;
    let mut slopes = vec![0.0_f64; head.k.rows()];
    for axis in 0..DIM {
        let [up, down] = [step, -step].map(|step| {
            let shift = |l: usize| if l == axis { step } else { 0.0 };
            let k = Matrix::from_fn(head.k.rows(), DIM, |j, l| head.k[(j, l)] + shift(l));
            map.log_features(Side::Key, k.view()).unwrap()
        });
        for (j, slope) in slopes.iter_mut().enumerate() {
            let rises = up.row(j).iter().zip(down.row(j)).map(|(a, b)| (a - b).abs());
            *slope = rises.fold(*slope, |a, rise| a.max(rise / (2.0 * step)));
        }
    }
    slopes
}

/// What an output may be off by in `f32`, in units of the largest value and of what is summed up: every
/// weight is off by some roundoff for each term of its logit, and the sums for each number in them.
fn rounding(head: &Head, map: &FeatureMap) -> f64 {
    let size = |m: &Matrix<f64>| m.as_slice().iter().fold(0.0_f64, |a, x| a.max(x.abs()));
    let logs = |side, m: &Matrix<f64>| size(&map.log_features(side, m.view()).unwrap());
    // Terms of a logit and of a log-feature: those that cancel count too.
    let square = |m: &Matrix<f64>| size(m).powi(2) * DIM as f64;
    let logit = map.kernel().scale().powi(2) * (square(&head.q) + square(&head.k));
    let logit = logit + logs(Side::Query, &head.q) + logs(Side::Key, &head.k);
    let numbers = map.features() + head.k.rows() + COLUMNS;
    2.0 * SINGLE * ((DIM + 4) as f64 * logit + numbers as f64)
}

/// Rows of outputs that were compared with the definition, and how many of them to a hundredth.
#[derive(Default)]
struct Compared {
    rows: usize,
    sharp: usize,
}

impl Compared {
    /// Compares outputs, where the choice of exact keys is clear.
    fn add<T: Scalar>(
        &mut self,
        format: &Format<T>,
        (head, map, exact): (&Head, &FeatureMap, ExactKeys),
        mask: Mask<'_>,
        outs: &[Vec<T>],
    ) {
        let largest = head.v.as_slice().iter().fold(0.0_f64, |a, x| a.max(x.abs()));
        let plain = head.plain(map, exact, mask);
        let clear = clear_rows(head, map, exact, mask, 1e-4);
        let (each, sums) = (rounding(head, map), Sums::new(head, map, exact, mask));
        for (n, out) in outs.iter().enumerate() {
            let out = format.wide(out);
            for (i, row) in out.chunks(COLUMNS).enumerate().filter(|(i, _)| clear[*i]) {
                let most = largest * (each * sums.summed[i] + format.own);
                let off = worst(row, plain.row(i));
                let causal = mask.causal;
                assert!(off < most, "{n}: {exact}, causal {causal}, row {i}: {off:e}, {most:e}");
                self.rows += 1;
                self.sharp += usize::from(most < 1e-2 * largest);
            }
        }
    }

    /// There were so many rows at least, nearly all of them sharp.
    fn expect(&self, rows: usize) {
        let Self { rows: found, sharp } = self;
        assert!(*found > rows && 10 * sharp > 9 * found, "{found} compared, {sharp} sharply");
    }
}

fn outputs_follow_the_definition<T: Scalar>(format: &Format<T>) {
    let mut compared = Compared::default();
    let learned = learned();
    for seed in [80, 81, 82] {
        let head = format.head(seed, 250);
        let narrow = Narrow::new(&head, format);
        for map in [&head.map(Family::Balanced, Kernel::attention(DIM)), &learned] {
            for exact in sets() {
                for causal in [false, true] {
                    let options = AttentionOptions::new().causal(causal);
                    let method =
                        Method::Hybrid { maps: std::slice::from_ref(map), exact: &[exact] };
                    let out = attention(method, narrow.inputs(), &options).unwrap();
                    let mask = Mask::new(causal, None);
                    compared.add(format, (&head, map, exact), mask, &[out]);
                }
            }
        }
    }
    compared.expect(10_000);
}

#[test]
fn narrow_outputs_follow_the_definition() {
    outputs_follow_the_definition(&F32);
    outputs_follow_the_definition(&F16);
    outputs_follow_the_definition(&BF16);
}

/// Attention in pieces, by way of a file after the first one.
fn decoded<T: Scalar>(
    map: &FeatureMap,
    exact: ExactKeys,
    narrow: &Narrow<T>,
    pieces: &[usize],
) -> Vec<T> {
    let maps = vec![map.clone()];
    let state = DecodeState::<T>::new(maps.clone(), 1, 1, COLUMNS).unwrap();
    let mut state = state.exact_keys(&[exact]).unwrap();
    let mut out = vec![];
    for (n, piece) in pieces.iter().enumerate() {
        if n == 1 {
            state = DecodeState::from_bytes(maps.clone(), &state.to_bytes().unwrap()).unwrap();
        }
        let Qkv { q, k, v } = narrow.tokens(out.len() / COLUMNS, *piece);
        out.extend(state.advance(q, k, v).unwrap());
    }
    out
}

fn decoding_follows_the_definition<T: Scalar>(format: &Format<T>) {
    let mut compared = Compared::default();
    let (learned, length) = (learned(), 170);
    for seed in [83, 84] {
        let head = format.head(seed, length);
        let narrow = Narrow::new(&head, format);
        for map in [&head.map(Family::Balanced, Kernel::attention(DIM)), &learned] {
            for exact in sets() {
                let pieces = [vec![1; length], vec![length], vec![100, 1, 1, 46, 1, 20, 1]];
                let outs = pieces.map(|pieces| decoded(map, exact, &narrow, &pieces));
                compared.add(format, (&head, map, exact), Mask::causal(), &outs);
            }
        }
    }
    compared.expect(8_000);
}

#[test]
fn narrow_decoding_follows_the_definition() {
    decoding_follows_the_definition(&F32);
    decoding_follows_the_definition(&F16);
    decoding_follows_the_definition(&BF16);
}

/// Gradients of a narrow format are those in `f64` of the same numbers, where the choice of exact keys is
/// the same for all rows.
fn gradients_follow_wide_ones<T: Scalar>(format: &Format<T>) {
    let (mut compared, mut sharp) = (0, 0);
    for seed in 200..206 {
        let head = format.head(seed, 120);
        let narrow = Narrow::new(&head, format);
        let map = head.map(Family::Balanced, Kernel::attention(DIM));
        let weight = format.round(&normal(seed + 50, 120, COLUMNS, 0.0, 1.0));
        let narrow_weight = format.narrow(weight.as_slice());
        for exact in sets() {
            for causal in [false, true] {
                let mask = Mask::new(causal, None);
                if clear_rows(&head, &map, exact, mask, 2e-6).contains(&false) {
                    continue;
                }
                let options = AttentionOptions::new().causal(causal);
                let method = Method::Hybrid { maps: std::slice::from_ref(&map), exact: &[exact] };
                let shape = [1, 1, 120, COLUMNS];
                let out = attention(method, narrow.inputs(), &options).unwrap();
                let [o, w] = [&out, &narrow_weight].map(|x| Tensor::new(x, shape).unwrap());
                let ours = attention_backward(method, narrow.inputs(), o, w, &options).unwrap();
                let out = format.wide(&out);
                let (o, w) = (Tensor::new(&out, shape).unwrap(), tensor(&weight));
                let wide = attention_backward(method, head.inputs(), o, w, &options).unwrap();
                // A gradient is a sum over all queries of differences of what outputs are made of. Those of keys
                // and values are rounded to their format twice: by features, and with what exact keys change.
                let sums = Sums::new(&head, &map, exact, mask);
                let each = 4.0 * rounding(&head, &map) * sums.most();
                let (keys, values) = sums.through_features(&head, &map, (&weight, &out));
                for (what, a, b, before) in [
                    ("q", &ours.q, &wide.q, 0.0),
                    ("k", &ours.k, &wide.k, keys),
                    ("v", &ours.v, &wide.v, values),
                ] {
                    let largest = b.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
                    let off = worst(&format.wide(a), b);
                    let most = largest * each + format.own * (largest + before);
                    assert!(off < most, "{exact}, causal {causal}, {what}: {off:e}, {most:e}");
                    sharp += usize::from(most < 0.05 * largest);
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 40 && 2 * sharp > 3 * compared, "{compared} compared, {sharp} sharply");
}

#[test]
fn narrow_gradients_follow_wide_ones() {
    gradients_follow_wide_ones(&F32);
    gradients_follow_wide_ones(&F16);
    gradients_follow_wide_ones(&BF16);
}
