//! The fast engine against the plain implementations, and its gradients against finite differences.

use favor::draw::Stream;
use favor::reference::{self, Mask, exact_attention, feature_attention};
use favor::store::{Array, Kind};
use favor::{
    AttentionOptions, Coupling, DecodeState, Error, ExactKeys, Family, FeatureMap, FeatureSpec,
    Gradients, Kernel, Matrix, Method, Moments, Qkv, Rows, Tensor, attention, attention_backward,
    kernel_product, kernel_product_backward,
};

struct Case {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    dim: usize,
    columns: usize,
    features: usize,
    spread: f64,
}

const CASES: [Case; 6] = [
    Case { batch: 1, heads: 1, queries: 1, keys: 1, dim: 1, columns: 1, features: 1, spread: 1.0 },
    Case {
        batch: 2,
        heads: 2,
        queries: 50,
        keys: 50,
        dim: 16,
        columns: 16,
        features: 32,
        spread: 1.0,
    },
    Case {
        batch: 1,
        heads: 3,
        queries: 131,
        keys: 131,
        dim: 7,
        columns: 5,
        features: 21,
        spread: 1.5,
    },
    Case {
        batch: 1,
        heads: 2,
        queries: 300,
        keys: 300,
        dim: 64,
        columns: 64,
        features: 130,
        spread: 0.8,
    },
    Case {
        batch: 2,
        heads: 1,
        queries: 97,
        keys: 97,
        dim: 33,
        columns: 17,
        features: 64,
        spread: 6.0,
    },
    Case {
        batch: 1,
        heads: 1,
        queries: 2100,
        keys: 2100,
        dim: 8,
        columns: 4,
        features: 16,
        spread: 1.0,
    },
];

impl Case {
    fn tensors(&self, seed: u64) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let mut stream = Stream::new(seed, 1);
        let heads = self.batch * self.heads;
        let mut fill = |n: usize, spread: f64| -> Vec<f64> {
            (0..n).map(|i| spread * stream.normal() + 0.1 * (i % 3) as f64).collect()
        };
        let q = fill(heads * self.queries * self.dim, self.spread);
        let k = fill(heads * self.keys * self.dim, self.spread);
        (q, k, fill(heads * self.keys * self.columns, 1.0))
    }

    fn map(&self, q: &[f64], k: &[f64], family: Family) -> FeatureMap {
        let moments =
            |x: &[f64]| Moments::of(Rows::new(x, x.len() / self.dim, self.dim).unwrap()).unwrap();
        FeatureSpec::new(family, self.features)
            .kernel(Kernel::attention(self.dim))
            .coupling(Coupling::Orthogonal)
            .seed(5)
            .fit(&moments(q), &moments(k))
            .unwrap()
    }

    fn shapes(&self) -> ([usize; 4], [usize; 4], [usize; 4]) {
        let lead = [self.batch, self.heads];
        let shape = |l, d| [lead[0], lead[1], l, d];
        (shape(self.queries, self.dim), shape(self.keys, self.dim), shape(self.keys, self.columns))
    }

    /// Hides every fifth key, the first ones, so that causal queries see none, and more than a tile of
    /// them where a later piece begins.
    fn mask(&self) -> Vec<bool> {
        let place = |i: usize| i % self.keys;
        let hidden = |i: usize| i % 5 == 1 || place(i) < 3 || (1000..1200).contains(&place(i));
        (0..self.batch * self.keys).map(|i| !hidden(i)).collect()
    }
}

fn t<T: favor::Scalar>(x: &[T], shape: [usize; 4]) -> Tensor<'_, T> {
    Tensor::new(x, shape).unwrap()
}

fn single(x: &[f64]) -> Vec<f32> {
    x.iter().map(|v| *v as f32).collect()
}

/// The plain implementation, head by head.
fn plain(
    case: &Case,
    map: &FeatureMap,
    x: (&[f64], &[f64], &[f64]),
    causal: bool,
    mask: Option<&[bool]>,
) -> Vec<f64> {
    let (sq, sk, sv) = (case.queries * case.dim, case.keys * case.dim, case.keys * case.columns);
    let mut out = vec![];
    for head in 0..case.batch * case.heads {
        let rows = |x: &[f64], size: usize, columns: usize| {
            Matrix::new(x[head * size..(head + 1) * size].to_vec(), size / columns, columns)
                .unwrap()
        };
        let (q, k, v) =
            (rows(x.0, sq, case.dim), rows(x.1, sk, case.dim), rows(x.2, sv, case.columns));
        let batch = head / case.heads;
        let keys = mask.map(|m| &m[batch * case.keys..(batch + 1) * case.keys]);
        let result =
            feature_attention(map, q.view(), k.view(), v.view(), Mask::new(causal, keys)).unwrap();
        out.extend_from_slice(result.as_slice());
    }
    out
}

fn worst(a: &[f64], b: &[f64]) -> f64 {
    let unit = b.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / unit.max(1e-300)
}

/// Every mode of the engine equals the plain implementation: in `f64` to rounding, in `f32` to the
/// rounding of logits of the case's size.
#[test]
fn engine_equals_the_plain_way() {
    for (c, case) in CASES.iter().enumerate() {
        let (q, k, v) = case.tensors(c as u64);
        let (sq, sk, sv) = case.shapes();
        let mask = case.mask();
        for family in [Family::Balanced, Family::Sde, Family::Sade, Family::Pos] {
            let map = [case.map(&q, &k, family)];
            for causal in [false, true] {
                for key_mask in [None, Some(&mask[..])] {
                    let expected = plain(case, &map[0], (&q, &k, &v), causal, key_mask);
                    let options = AttentionOptions::new().causal(causal).key_mask(key_mask);
                    let double = attention(
                        Method::Features(&map),
                        Qkv::new(t(&q, sq), t(&k, sk), t(&v, sv)),
                        &options,
                    )
                    .unwrap();
                    let what =
                        format!("case {c} {family} causal {causal} mask {}", key_mask.is_some());
                    let error = worst(&double, &expected);
                    assert!(error < 1e-11, "{what}: f64 differs by {error:e}");
                    let (q, k, v) = (single(&q), single(&k), single(&v));
                    let out = attention(
                        Method::Features(&map),
                        Qkv::new(t(&q, sq), t(&k, sk), t(&v, sv)),
                        &options,
                    )
                    .unwrap();
                    let out: Vec<f64> = out.into_iter().map(f64::from).collect();
                    // A logit of size s carries an error of s·2⁻²⁴, which the exponential turns
                    // into a relative one; logits grow with the square of the spread.
                    let logit = case.spread * case.spread * (case.dim as f64).sqrt();
                    let tolerance = 64.0 * (logit + 4.0) * 2.0_f64.powi(-24);
                    let error = worst(&out, &expected);
                    assert!(
                        error < tolerance,
                        "{what}: f32 differs by {error:e}, not {tolerance:e}"
                    );
                }
            }
        }
    }
}

type Inputs<'a> = (&'a [f64], &'a [f64], &'a [f64]);

type Run<'a> = &'a dyn Fn(&[f64], &[f64], &[f64]) -> Vec<f64>;

/// Central differences of `Σ weight · run(q,k,v)` along random directions, against the gradients.
fn check_gradients(
    what: &str,
    (q, k, v): Inputs<'_>,
    weight: &[f64],
    run: Run<'_>,
    g: &Gradients<f64>,
) {
    let mut stream = Stream::new(9, 9);
    let loss = |out: Vec<f64>| -> f64 { out.iter().zip(weight).map(|(a, b)| a * b).sum() };
    for (which, gradient) in [("q", &g.q), ("k", &g.k), ("v", &g.v)] {
        let mut direction: Vec<f64> = gradient.iter().map(|_| stream.normal()).collect();
        let unit = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
        direction.iter_mut().for_each(|d| *d /= unit);
        let step = 1e-5;
        let moved = |x: &[f64], sign: f64| -> Vec<f64> {
            x.iter().zip(&direction).map(|(x, d)| x + sign * step * d).collect()
        };
        let at = |sign: f64| match which {
            "q" => loss(run(&moved(q, sign), k, v)),
            "k" => loss(run(q, &moved(k, sign), v)),
            _ => loss(run(q, k, &moved(v, sign))),
        };
        let numeric = (at(1.0) - at(-1.0)) / (2.0 * step);
        let analytic: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
        let size = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        // The differences are good to step² of the third derivative and to rounding over the step.
        assert!(
            (numeric - analytic).abs() < 1e-6 * (1.0 + size),
            "{what} d{which}: {analytic} against {numeric}"
        );
    }
}

/// Gradients in every mode: features and exact, bidirectional and causal, with and without masks.
#[test]
fn gradients_equal_finite_differences() {
    for (c, case) in CASES.iter().enumerate().take(5) {
        let (q, k, v) = case.tensors(100 + c as u64);
        let (sq, sk, sv) = case.shapes();
        let out_shape = [sq[0], sq[1], sq[2], sv[3]];
        let mask = case.mask();
        let mut stream = Stream::new(7, 7);
        let weight: Vec<f64> = (0..out_shape.iter().product()).map(|_| stream.normal()).collect();
        for causal in [false, true] {
            for key_mask in [None, Some(&mask[..])] {
                let options = AttentionOptions::new().causal(causal).key_mask(key_mask);
                let what = format!("case {c} causal {causal} mask {}", key_mask.is_some());
                for family in [Family::Balanced, Family::Sade, Family::Ge] {
                    let map = [case.map(&q, &k, family)];
                    let run = |q: &[f64], k: &[f64], v: &[f64]| {
                        attention(
                            Method::Features(&map),
                            Qkv::new(t(q, sq), t(k, sk), t(v, sv)),
                            &options,
                        )
                        .unwrap()
                    };
                    let out = run(&q, &k, &v);
                    let (o, w) = (t(&out, out_shape), t(&weight, out_shape));
                    let (tq, tk, tv) = (t(&q, sq), t(&k, sk), t(&v, sv));
                    let g = attention_backward(
                        Method::Features(&map),
                        Qkv::new(tq, tk, tv),
                        o,
                        w,
                        &options,
                    )
                    .unwrap();
                    check_gradients(&format!("{what} {family}"), (&q, &k, &v), &weight, &run, &g);
                }
                for kernel in [Kernel::attention(case.dim), Kernel::gaussian().scaled(0.3).unwrap()]
                {
                    let run = |q: &[f64], k: &[f64], v: &[f64]| {
                        attention(
                            Method::Exact(kernel),
                            Qkv::new(t(q, sq), t(k, sk), t(v, sv)),
                            &options,
                        )
                        .unwrap()
                    };
                    let out = run(&q, &k, &v);
                    let (o, w) = (t(&out, out_shape), t(&weight, out_shape));
                    let (tq, tk, tv) = (t(&q, sq), t(&k, sk), t(&v, sv));
                    let g = attention_backward(
                        Method::Exact(kernel),
                        Qkv::new(tq, tk, tv),
                        o,
                        w,
                        &options,
                    )
                    .unwrap();
                    check_gradients(&format!("{what} exact"), (&q, &k, &v), &weight, &run, &g);
                }
            }
        }
    }
}

/// The blocked exact path against the plain one.
#[test]
fn blocked_exact_equals_the_plain_one() {
    for (c, case) in CASES.iter().enumerate() {
        let (q, k, v) = case.tensors(200 + c as u64);
        let (sq, sk, sv) = case.shapes();
        let mask = case.mask();
        let kernels = [Kernel::attention(case.dim), Kernel::gaussian().scaled(0.3).unwrap()];
        for (kernel, causal) in kernels.into_iter().flat_map(|k| [(k, false), (k, true)]) {
            for key_mask in [None, Some(&mask[..])] {
                let options = AttentionOptions::new().causal(causal).key_mask(key_mask);
                let ours = attention(
                    Method::Exact(kernel),
                    Qkv::new(t(&q, sq), t(&k, sk), t(&v, sv)),
                    &options,
                )
                .unwrap();
                let mut expected = vec![];
                for head in 0..case.batch * case.heads {
                    let rows = |x: &[f64], n: usize, d: usize| {
                        Matrix::new(x[head * n * d..(head + 1) * n * d].to_vec(), n, d).unwrap()
                    };
                    let q = rows(&q, case.queries, case.dim);
                    let (k, v) = (rows(&k, case.keys, case.dim), rows(&v, case.keys, case.columns));
                    let batch = head / case.heads;
                    let keys = key_mask.map(|m| &m[batch * case.keys..(batch + 1) * case.keys]);
                    let mask = Mask::new(causal, keys);
                    let out = exact_attention(kernel, q.view(), k.view(), v.view(), mask).unwrap();
                    expected.extend_from_slice(out.as_slice());
                }
                let error = worst(&ours, &expected);
                assert!(error < 1e-11, "case {c} causal {causal}: {error:e}");
            }
        }
    }
}

/// Prefill and single tokens, in any cut, equal the causal batch; a state survives being stored.
#[test]
fn decoding_equals_the_causal_batch() {
    let case = Case { batch: 2, ..CASES[2] };
    let (q, k, v) = case.tensors(3);
    let (sq, sk, sv) = case.shapes();
    let maps: Vec<_> = (0..3)
        .map(|s| {
            let spec = *case.map(&q, &k, Family::Balanced).spec();
            let m = Moments::of(Rows::new(&q, q.len() / case.dim, case.dim).unwrap()).unwrap();
            spec.seed(s).fit(&m, &m).unwrap()
        })
        .collect();
    let options = AttentionOptions::new().causal(true);
    let batch =
        attention(Method::Features(&maps), Qkv::new(t(&q, sq), t(&k, sk), t(&v, sv)), &options)
            .unwrap();
    let mut state = DecodeState::<f64>::new(maps.clone(), 2, 3, case.columns).unwrap();
    let cuts = [0, 60, 61, 62, 63, 64, 100, 130, 131];
    for pair in cuts.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        let part = |x: &[f64], d: usize| -> Vec<f64> {
            x.chunks(case.queries * d).flat_map(|h| h[start * d..end * d].to_vec()).collect()
        };
        let (q, k, v) = (part(&q, case.dim), part(&k, case.dim), part(&v, case.columns));
        let shape = |d| [2, 3, end - start, d];
        let (tq, tk) = (t(&q, shape(case.dim)), t(&k, shape(case.dim)));
        let out = state.advance(tq, tk, t(&v, shape(case.columns))).unwrap();
        let expected = part(&batch, case.columns);
        let error = worst(&out, &expected);
        assert!(error < 1e-12, "tokens {start}..{end}: {error:e}");
        state = DecodeState::from_bytes(maps.clone(), &state.to_bytes().unwrap()).unwrap();
        assert_eq!(state.tokens(), end);
    }
    let bytes = state.to_bytes().unwrap();
    for cut in [0, 7, 50, bytes.len() - 1] {
        assert!(DecodeState::<f64>::from_bytes(maps.clone(), &bytes[..cut]).is_err());
    }
}

/// The maps of heads may have different numbers of features.
#[test]
fn states_of_unequal_maps_are_stored() {
    let (length, dim, columns) = (9, 4, 3);
    let mut stream = Stream::new(31, 0);
    let mut fill = |n: usize| -> Vec<f64> { (0..n).map(|_| stream.normal()).collect() };
    let (x, v) = (fill(2 * length * dim), fill(2 * length * columns));
    let m = Moments::of(Rows::new(&x, 2 * length, dim).unwrap()).unwrap();
    let kernel = Kernel::attention(dim);
    let map = |features| FeatureSpec::new(Family::Balanced, features).kernel(kernel).fit(&m, &m);
    for sizes in [[24, 7], [7, 24]] {
        let maps = sizes.map(|features| map(features).unwrap()).to_vec();
        let x = t(&x, [1, 2, length, dim]);
        let v = t(&v, [1, 2, length, columns]);
        let mut state = DecodeState::<f64>::new(maps.clone(), 1, 2, columns).unwrap();
        state.advance(x, x, v).unwrap();
        let mut again = DecodeState::from_bytes(maps, &state.to_bytes().unwrap()).unwrap();
        assert_eq!(state.advance(x, x, v).unwrap(), again.advance(x, x, v).unwrap());
    }
}

/// A file can be whole and yet hold no state.
#[test]
fn states_that_are_none_are_refused() {
    let case = &CASES[1];
    let (q, k, _) = case.tensors(3);
    let maps = vec![case.map(&q, &k, Family::Balanced)];
    let (features, columns) = (case.features, 2);
    let written = |exponent: f64, total: f64, value: f64| {
        let arrays = vec![
            Array::f64("0.exponents", [features], &vec![exponent; features]),
            Array::f64("0.totals", [features], &vec![total; features]),
            Array::f64("0.values", [features, columns], &vec![value; features * columns]),
        ];
        let exact = [favor::ExactKeys::NONE];
        let header =
            serde_json::json!({"tokens": 1, "batch": 1, "heads": 1, "exact": exact, "wide": []});
        Kind::new("favor.decode_state", "decode state", 5).write(&header, arrays).unwrap()
    };
    let read = |bytes: Vec<u8>| DecodeState::<f64>::from_bytes(maps.clone(), &bytes);
    assert_eq!(read(written(0.0, 1.0, 1.0)).unwrap().tokens(), 1);
    // No key yet.
    assert!(read(written(f64::NEG_INFINITY, 0.0, 0.0)).is_ok());
    for bad in [f64::NAN, f64::INFINITY] {
        for bytes in [written(bad, 1.0, 1.0), written(0.0, bad, 1.0), written(0.0, 1.0, bad)] {
            assert!(read(bytes).unwrap_err().to_string().contains("not finite"), "{bad}");
        }
    }
}

/// The fused product equals the plain one, and its gradients finite differences.
#[test]
fn products_equal_the_plain_way() {
    for kernel in [Kernel::gaussian(), Kernel::softmax(), Kernel::new(0.1, 0.7).unwrap()] {
        for family in [Family::Balanced, Family::Sde, Family::Pos, Family::Trig] {
            let mut stream = Stream::new(4, 4);
            let mut fill = |n: usize, d: usize| {
                Matrix::from_fn(n, d, |_, l| 0.6 * stream.normal() + 0.2 * l as f64)
            };
            let (x, y, c) = (fill(1100, 5), fill(2500, 5), fill(2500, 3));
            let (mx, my) = (Moments::of(x.view()).unwrap(), Moments::of(y.view()).unwrap());
            let map = FeatureSpec::new(family, 37).kernel(kernel).fit(&mx, &my).unwrap();
            let fast = kernel_product(&map, x.view(), y.view(), c.view()).unwrap();
            let plain = reference::kernel_product(&map, x.view(), y.view(), c.view()).unwrap();
            let (fast, plain) = (fast.to_matrix().unwrap(), plain.to_matrix().unwrap());
            let error = worst(fast.as_slice(), plain.as_slice());
            assert!(error < 1e-11, "{family}: {error:e}");
            if !family.is_positive() {
                continue;
            }
            let weight = fill(1100, 3);
            let g =
                kernel_product_backward(&map, x.view(), y.view(), c.view(), weight.view()).unwrap();
            let g = Gradients { q: g.x.into_vec(), k: g.y.into_vec(), v: g.c.into_vec() };
            let run = |x: &[f64], y: &[f64], c: &[f64]| {
                let rows = |v, d| Rows::new(v, v.len() / d, d).unwrap();
                kernel_product(&map, rows(x, 5), rows(y, 5), rows(c, 3))
                    .unwrap()
                    .to_matrix()
                    .unwrap()
                    .into_vec()
            };
            let inputs = (x.as_slice(), y.as_slice(), c.as_slice());
            check_gradients(&format!("product {family}"), inputs, weight.as_slice(), &run, &g);
        }
    }
}

/// No result depends on the number of threads, to the last bit.
#[test]
fn threads_change_nothing() {
    let case = Case { queries: 5000, keys: 5000, ..CASES[5] };
    let (q, k, v) = case.tensors(8);
    let (sq, sk, sv) = case.shapes();
    let (q, k, v) = (single(&q), single(&k), single(&v));
    let (tq, tk, tv) = (t(&q, sq), t(&k, sk), t(&v, sv));
    let m = Moments::of(Rows::new(&q, 5000, case.dim).unwrap()).unwrap();
    let map = [FeatureSpec::new(Family::Balanced, 16).fit(&m, &m).unwrap()];
    for causal in [false, true] {
        let run = |threads| {
            let options = AttentionOptions::new().causal(causal).threads(Some(threads));
            let out = attention(Method::Features(&map), Qkv::new(tq, tk, tv), &options).unwrap();
            let shape = [sq[0], sq[1], sq[2], sv[3]];
            let o = Tensor::new(&out, shape).unwrap();
            let g =
                attention_backward(Method::Features(&map), Qkv::new(tq, tk, tv), o, o, &options)
                    .unwrap();
            let exact = Tensor::new(&q[..600 * case.dim], [1, 1, 600, case.dim]).unwrap();
            let kernel = Kernel::attention(case.dim);
            let exact =
                attention(Method::Exact(kernel), Qkv::new(exact, exact, exact), &options).unwrap();
            (out, g, exact)
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(3));
    }
}

/// Strides, 16-bit numbers and packed sequences give what plain tensors give.
#[test]
fn layouts_change_nothing() {
    let case = &CASES[1];
    let (q, k, v) = case.tensors(11);
    let (sq, sk, sv) = case.shapes();
    let map = [case.map(&q, &k, Family::Balanced)];
    for causal in [false, true] {
        let options = AttentionOptions::new().causal(causal);
        let expected =
            attention(Method::Features(&map), Qkv::new(t(&q, sq), t(&k, sk), t(&v, sv)), &options)
                .unwrap();
        // [batch, dim, length, heads] in memory.
        let turn = |x: &[f64], [b, h, l, d]: [usize; 4]| -> (Vec<f64>, [usize; 4]) {
            let strides = [h * l * d, 1, h, h * l];
            let mut out = vec![0.0; x.len()];
            for (i, v) in x.iter().enumerate() {
                let (ib, ih, il, id) = (i / (h * l * d), i / (l * d) % h, i / d % l, i % d);
                out[ib * strides[0] + ih + il * strides[2] + id * strides[3]] = *v;
            }
            assert!(b > 0);
            (out, strides)
        };
        let ((q2, tq), (k2, tk), (v2, tv)) = (turn(&q, sq), turn(&k, sk), turn(&v, sv));
        let strided = |x, s, st| Tensor::with_strides(x, s, st).unwrap();
        let (a, b, c) = (strided(&q2, sq, tq), strided(&k2, sk, tk), strided(&v2, sv, tv));
        let out = attention(Method::Features(&map), Qkv::new(a, b, c), &options).unwrap();
        assert!(worst(&out, &expected) < 1e-13);
        // 16-bit numbers: the inputs are rounded, then everything happens in f32.
        let half = |x: &[f64]| x.iter().map(|v| half::f16::from_f64(*v)).collect::<Vec<_>>();
        let (q16, k16, v16) = (half(&q), half(&k), half(&v));
        let out = attention(
            Method::Features(&map),
            Qkv::new(t(&q16, sq), t(&k16, sk), t(&v16, sv)),
            &options,
        )
        .unwrap();
        let wide = |x: &[half::f16]| x.iter().map(|v| v.to_f64()).collect::<Vec<_>>();
        let (q64, k64, v64) = (wide(&q16), wide(&k16), wide(&v16));
        let rounded = attention(
            Method::Features(&map),
            Qkv::new(t(&q64, sq), t(&k64, sk), t(&v64, sv)),
            &options,
        )
        .unwrap();
        assert!(worst(&wide(&out), &rounded) < 2.0_f64.powi(-10));
        // Two sequences packed into one equal the two alone.
        let offsets = [0, 20, 50];
        let packed = options.offsets(Some(&offsets));
        let one = |x: &[f64], d: usize| x[..2 * 50 * d].to_vec(); // the first of the batch
        let (q1, k1, v1) = (one(&q, 16), one(&k, 16), one(&v, 16));
        let shape = [1, 2, 50, 16];
        let both = attention(
            Method::Features(&map),
            Qkv::new(t(&q1, shape), t(&k1, shape), t(&v1, shape)),
            &packed,
        )
        .unwrap();
        for (start, end) in [(0, 20), (20, 50)] {
            let part = |x: &[f64]| -> Vec<f64> {
                x.chunks(50 * 16).flat_map(|h| h[start * 16..end * 16].to_vec()).collect()
            };
            let (q1, k1, v1) = (part(&q1), part(&k1), part(&v1));
            let shape = [1, 2, end - start, 16];
            let alone = attention(
                Method::Features(&map),
                Qkv::new(t(&q1, shape), t(&k1, shape), t(&v1, shape)),
                &options,
            )
            .unwrap();
            assert!(worst(&part(&both), &alone) < 1e-13);
        }
    }
}

/// Causal means causal: changing the future, even to features e^{±200} away, changes no bit of the
/// past, and huge logits give no NaN.
#[test]
fn the_future_leaves_no_trace() {
    let case = Case { batch: 1, heads: 1, queries: 150, keys: 150, ..CASES[3] };
    let (mut q, mut k, mut v) = case.tensors(21);
    let map = [case.map(&q, &k, Family::Sde)];
    let (sq, sk, sv) = case.shapes();
    let options = AttentionOptions::new().causal(true);
    let before =
        attention(Method::Features(&map), Qkv::new(t(&q, sq), t(&k, sk), t(&v, sv)), &options)
            .unwrap();
    let cut = 100;
    for x in &mut q[cut * 64..] {
        *x *= 30.0;
    }
    for x in &mut k[cut * 64..] {
        *x *= 40.0;
    }
    for x in &mut v[cut * 64..] {
        *x -= 1e6;
    }
    let after =
        attention(Method::Features(&map), Qkv::new(t(&q, sq), t(&k, sk), t(&v, sv)), &options)
            .unwrap();
    assert!(after.iter().all(|v| v.is_finite()));
    // Tiles before the change are untouched to the bit; its own tile to rounding.
    assert_eq!(before[..96 * 64], after[..96 * 64]);
    assert!(worst(&after[..cut * 64], &before[..cut * 64]) < 1e-12);
    assert_ne!(before[cut * 64..], after[cut * 64..]);
}

/// Gradients with exact keys, in every mode and with a kernel that has a factor of its own.
#[test]
fn hybrid_gradients_equal_finite_differences() {
    let cross = [Case { queries: 37, keys: 90, ..CASES[1] }, Case { queries: 64, ..CASES[2] }];
    for (c, case) in CASES[1..5].iter().chain(&cross).enumerate() {
        let (q, k, v) = case.tensors(300 + c as u64);
        let (sq, sk, sv) = case.shapes();
        let out_shape = [sq[0], sq[1], sq[2], sv[3]];
        let mask = case.mask();
        let mut stream = Stream::new(8, 8);
        let weight: Vec<f64> = (0..out_shape.iter().product()).map(|_| stream.normal()).collect();
        for kernel in [Kernel::attention(case.dim), Kernel::gaussian().scaled(0.3).unwrap()] {
            let moments = |x: &[f64]| {
                Moments::of(Rows::new(x, x.len() / case.dim, case.dim).unwrap()).unwrap()
            };
            let spec = FeatureSpec::new(Family::Balanced, case.features).kernel(kernel);
            let map = [spec.fit(&moments(&q), &moments(&k)).unwrap()];
            let square = sq[2] == sk[2];
            let modes = [(false, false), (false, true), (true, false), (true, true)];
            for (causal, masked) in modes.into_iter().filter(|(causal, _)| square || !causal) {
                let key_mask = masked.then_some(&mask[..]);
                let routed = ExactKeys::NONE.global(3).routed(2.min(case.features), 3);
                let some = [routed, ExactKeys::NONE.near(10), routed.near(4)];
                for exact in &some[..if square { 3 } else { 1 }] {
                    let options = AttentionOptions::new().causal(causal).key_mask(key_mask);
                    let method = Method::Hybrid { maps: &map, exact: &[*exact] };
                    let run = |q: &[f64], k: &[f64], v: &[f64]| {
                        attention(method, Qkv::new(t(q, sq), t(k, sk), t(v, sv)), &options).unwrap()
                    };
                    let out = run(&q, &k, &v);
                    let (o, w) = (t(&out, out_shape), t(&weight, out_shape));
                    let (tq, tk, tv) = (t(&q, sq), t(&k, sk), t(&v, sv));
                    let g =
                        attention_backward(method, Qkv::new(tq, tk, tv), o, w, &options).unwrap();
                    let what = format!("case {c}, {exact}, causal {causal}, mask {masked}");
                    check_gradients(&what, (&q, &k, &v), &weight, &run, &g);
                }
            }
        }
    }
}

/// Rows that need no packing are read where they lie: what is no number must be found there too, and
/// an infinity that meets a weight of zero must not be lost.
#[test]
fn numbers_that_are_none_are_refused_in_place() {
    let (length, dim) = (100, 16);
    let mut stream = Stream::new(7, 0);
    let x: Vec<f32> = (0..length * dim).map(|_| stream.normal() as f32).collect();
    let m = Moments::of(Rows::new(&x, length, dim).unwrap()).unwrap();
    let spec = FeatureSpec::new(Family::Balanced, 32).kernel(Kernel::attention(dim));
    let map = [spec.fit(&m, &m).unwrap()];
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for (side, name) in ["queries", "keys", "values"].into_iter().enumerate() {
            let mut data = [x.clone(), x.clone(), x.clone()];
            data[side][42 * dim + 3] = bad;
            let [q, k, v] = data.each_ref().map(|d| Tensor::new(d, [1, 1, length, dim]).unwrap());
            for causal in [false, true] {
                let options = AttentionOptions::new().causal(causal);
                let message = attention(Method::Features(&map), Qkv::new(q, k, v), &options)
                    .unwrap_err()
                    .to_string();
                assert!(message.contains(name) && message.contains("42"), "{bad}: {message}");
                let message =
                    attention(Method::Exact(Kernel::attention(dim)), Qkv::new(q, k, v), &options)
                        .unwrap_err()
                        .to_string();
                assert!(message.contains(name) && message.contains("42"), "{bad}: {message}");
            }
        }
    }
}

/// Logits beyond the format are refused, or what is left of them is right.
#[test]
fn logits_beyond_the_format_give_no_wrong_answer() {
    let kernel = Kernel::softmax();
    let v = [1.0_f32, 2.0, 4.0];
    let keys = [[1.0_f32, 2.0, -1.0], [-1.0, -2.0, -3.0], [1.0, -1.0, 0.0]];
    for k in keys.map(|k| k.map(|k| 1e20 * k)) {
        // Logits of 10²⁰ can be told apart, of 10³⁸ hardly, and those of 10⁴⁰ are infinite.
        for size in [1.0_f32, 1e18, 1e20] {
            let q = [size; 3];
            let wide = |x: &[f32]| x.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
            for causal in [false, true] {
                let rows = |x: &[f32]| Matrix::new(wide(x), 3, 1).unwrap();
                let mask = Mask::new(causal, None);
                let (qs, ks, vs) = (rows(&q), rows(&k), rows(&v));
                let plain = exact_attention(kernel, qs.view(), ks.view(), vs.view(), mask).unwrap();
                let tensor = |x| Tensor::new(x, [1, 1, 3, 1]).unwrap();
                let inputs = Qkv::new(tensor(&q), tensor(&k), tensor(&v));
                let options = AttentionOptions::new().causal(causal);
                match attention(Method::Exact(kernel), inputs, &options) {
                    Ok(out) => assert_eq!(wide(&out), plain.as_slice(), "{k:?} {size} {causal}"),
                    Err(error) => assert!(matches!(error, Error::Overflow { .. }), "{error}"),
                }
            }
        }
    }
}
