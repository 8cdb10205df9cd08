//! The fast engine against the plain implementations, and its gradients against finite differences.

use favor::draw::Stream;
use favor::{
    Coupling, Family, FeatureMap, FeatureSpec, Kernel, Mask, Matrix, Moments, Options, Rows,
    Tensor, attention, attention_backward, feature_attention,
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

    fn mask(&self) -> Vec<bool> {
        (0..self.batch * self.keys).map(|i| i % 5 != 1).collect()
    }
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
            feature_attention(map, q.view(), k.view(), v.view(), Mask { causal, keys }).unwrap();
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
                    let options = Options { causal, key_mask, ..Options::default() };
                    let t = |x, s| Tensor::new(x, s).unwrap();
                    let double =
                        attention(&map, t(&q, sq), t(&k, sk), t(&v, sv), &options).unwrap();
                    let what =
                        format!("case {c} {family} causal {causal} mask {}", key_mask.is_some());
                    let error = worst(&double, &expected);
                    assert!(error < 1e-11, "{what}: f64 differs by {error:e}");
                    let (q, k, v) = (single(&q), single(&k), single(&v));
                    let t = |x, s| Tensor::new(x, s).unwrap();
                    let out = attention(&map, t(&q, sq), t(&k, sk), t(&v, sv), &options).unwrap();
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

/// Gradients against central differences in `f64`, bidirectional and causal, with and without masks.
#[test]
fn gradients_equal_finite_differences() {
    for (c, case) in CASES.iter().enumerate().take(5) {
        let (q, k, v) = case.tensors(100 + c as u64);
        let (sq, sk, sv) = case.shapes();
        let out_shape = [sq[0], sq[1], sq[2], sv[3]];
        let mask = case.mask();
        let mut stream = Stream::new(9, 9);
        for family in [Family::Balanced, Family::Sade, Family::Ge] {
            let map = [case.map(&q, &k, family)];
            for causal in [false, true] {
                for key_mask in [None, Some(&mask[..])] {
                    let options = Options { causal, key_mask, ..Options::default() };
                    let run = |q: &[f64], k: &[f64], v: &[f64]| {
                        let t = |x, s| Tensor::new(x, s).unwrap();
                        attention(&map, t(q, sq), t(k, sk), t(v, sv), &options).unwrap()
                    };
                    let out = run(&q, &k, &v);
                    let weight: Vec<f64> = out.iter().map(|_| stream.normal()).collect();
                    let loss =
                        |out: &[f64]| -> f64 { out.iter().zip(&weight).map(|(a, b)| a * b).sum() };
                    let t = |x, s| Tensor::new(x, s).unwrap();
                    let g = attention_backward(
                        &map,
                        t(&q, sq),
                        t(&k, sk),
                        t(&v, sv),
                        t(&out, out_shape),
                        t(&weight, out_shape),
                        &options,
                    )
                    .unwrap();
                    for (which, gradient) in [("q", &g.q), ("k", &g.k), ("v", &g.v)] {
                        let mut direction: Vec<f64> =
                            gradient.iter().map(|_| stream.normal()).collect();
                        let unit = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
                        direction.iter_mut().for_each(|d| *d /= unit);
                        let step = 1e-5;
                        let moved = |x: &[f64], sign: f64| -> Vec<f64> {
                            x.iter().zip(&direction).map(|(x, d)| x + sign * step * d).collect()
                        };
                        let at = |sign: f64| match which {
                            "q" => loss(&run(&moved(&q, sign), &k, &v)),
                            "k" => loss(&run(&q, &moved(&k, sign), &v)),
                            _ => loss(&run(&q, &k, &moved(&v, sign))),
                        };
                        let numeric = (at(1.0) - at(-1.0)) / (2.0 * step);
                        let analytic: f64 =
                            gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
                        let size = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
                        assert!(
                            (numeric - analytic).abs() < 1e-6 * (1.0 + size),
                            "case {c} {family} causal {causal} mask {} d{which}: {analytic} against {numeric}",
                            key_mask.is_some()
                        );
                    }
                }
            }
        }
    }
}
