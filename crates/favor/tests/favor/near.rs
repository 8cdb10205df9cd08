//! Attention with a near field against its definition: neighbours by the kernel, the rest by features,
//! in one normalisation.

use crate::common::{moments, normal, plain_features};
use favor::{
    AttentionOptions, Coupling, Family, FeatureMap, FeatureSpec, Kernel, Matrix, Method, Qkv, Side,
    Tensor, attention,
};

const LENGTH: usize = 400;
const NEAR: usize = 30;

/// How much wider than asked a near field may be on either side: the engine rounds it up to whole
/// tiles, and with all keys in it there would be no linear time.
const WIDER: usize = 80;

struct Head {
    q: Matrix<f64>,
    k: Matrix<f64>,
    v: Matrix<f64>,
    map: FeatureMap,
}

impl Head {
    fn new(seed: u64) -> Self {
        let (q, k) = (normal(seed, LENGTH, 2, 0.1, 0.7), normal(seed + 1, LENGTH, 2, 0.1, 0.7));
        let spec = FeatureSpec::new(Family::Balanced, 64).kernel(Kernel::attention(2));
        let map = spec.coupling(Coupling::Orthogonal).seed(5).fit(&moments(&q), &moments(&k));
        Self { q, k, v: normal(seed + 2, LENGTH, 3, 0.0, 1.0), map: map.unwrap() }
    }

    fn tensors(&self) -> [Tensor<'_, f64>; 3] {
        [&self.q, &self.k, &self.v]
            .map(|m| Tensor::new(m.as_slice(), [1, 1, m.rows(), m.columns()]).unwrap())
    }

    /// The weights of all pairs, exact and by features.
    fn weights(&self) -> (Matrix<f64>, Matrix<f64>) {
        let logs = self.map.kernel().log_matrix(self.q.view(), self.k.view()).unwrap();
        let exact = Matrix::from_fn(LENGTH, LENGTH, |i, j| logs[(i, j)].exp());
        let p = plain_features(&self.map, Side::Query, &self.q);
        let s = plain_features(&self.map, Side::Key, &self.k);
        let count = self.map.features() as f64;
        let estimated =
            Matrix::from_fn(LENGTH, LENGTH, |i, j| crate::common::dot(p.row(i), s.row(j)) / count);
        (exact, estimated)
    }
}

/// The distance of one output from the definition with the nearest allowed near field `first..last`.
fn distance(
    out: &[f64],
    query: usize,
    (exact, estimated): (&[f64], &[f64]),
    (v, seen): (&Matrix<f64>, &dyn Fn(usize) -> bool),
) -> f64 {
    // Sums over the first keys of weights times (1, v), by features and, beside them, what the near
    // field changes: the difference of two of them is the change by the keys between.
    let width = 1 + v.columns();
    let mut all = vec![0.0; width];
    let mut change = vec![vec![0.0; width]];
    for j in 0..LENGTH {
        let mut next = change[j].clone();
        if seen(j) {
            for c in 0..width {
                let factor = if c == 0 { 1.0 } else { v[(j, c - 1)] };
                all[c] += estimated[j] * factor;
                next[c] += (exact[j] - estimated[j]) * factor;
            }
        }
        change.push(next);
    }
    let (least, most) = (query.saturating_sub(NEAR), (query + NEAR + 1).min(LENGTH));
    let firsts = least.saturating_sub(WIDER)..=least;
    let lasts = most..=(most + WIDER).min(LENGTH);
    let fields = firsts.flat_map(|f| lasts.clone().map(move |l| (f, l)));
    let off = fields.map(|(first, last)| {
        let sum = |c: usize| all[c] + change[last][c] - change[first][c];
        let entries = out.iter().enumerate();
        entries.map(|(c, o)| (o - sum(c + 1) / sum(0)).abs()).fold(0.0, f64::max)
    });
    off.fold(f64::INFINITY, f64::min)
}

#[test]
fn a_near_field_follows_its_definition() {
    let padding: Vec<bool> = (0..LENGTH).map(|j| j % 5 != 1).collect();
    for seed in [31, 41] {
        let head = Head::new(seed);
        let [q, k, v] = head.tensors();
        let (exact, estimated) = head.weights();
        let map = std::slice::from_ref(&head.map);
        for causal in [false, true] {
            for key_mask in [None, Some(&padding[..])] {
                let options = AttentionOptions::new().causal(causal).key_mask(key_mask).near(NEAR);
                let out = attention(Method::Features(map), Qkv::new(q, k, v), &options).unwrap();
                for (i, out) in out.chunks(head.v.columns()).enumerate() {
                    let seen =
                        |j: usize| (!causal || j <= i) && key_mask.is_none_or(|mask| mask[j]);
                    let weights = (exact.row(i), estimated.row(i));
                    let off = distance(out, i, weights, (&head.v, &seen));
                    // Sums of 400 terms of alternating sign, rounded in another order.
                    let what = format!("query {i}, causal {causal}, mask {}", key_mask.is_some());
                    assert!(off < 1e-12, "{what}: {off:e}");
                }
            }
        }
    }
}

#[test]
fn a_near_field_of_everything_is_exact_attention() {
    let padding: Vec<bool> = (0..LENGTH).map(|j| j % 5 != 1).collect();
    let head = Head::new(51);
    let [q, k, v] = head.tensors();
    for causal in [false, true] {
        for key_mask in [None, Some(&padding[..])] {
            let options = AttentionOptions::new().causal(causal).key_mask(key_mask).near(LENGTH);
            let all = attention(
                Method::Features(std::slice::from_ref(&head.map)),
                Qkv::new(q, k, v),
                &options,
            )
            .unwrap();
            let exact =
                attention(Method::Exact(head.map.kernel()), Qkv::new(q, k, v), &options).unwrap();
            let off = all.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 1e-12, "causal {causal}, mask {}: {off:e}", key_mask.is_some());
        }
    }
}
