//! The gradients of maps through attention against finite differences of the plain definition.

use favor::draw::Stream;
use favor::learned::{Calibration, LearnOptions, MapGradient, learn_maps, map_gradients};
use favor::{
    AttentionOptions, ExactKeys, Family, FeatureMap, FeatureSpec, Kernel, Matrix, Method, Qkv,
    Scalar, Side, Tensor, attention,
};

const BATCH: usize = 2;
const HEADS: usize = 2;
const LENGTH: usize = 130;
const DIM: usize = 4;
const SHAPE: [usize; 4] = [BATCH, HEADS, LENGTH, DIM];
const FEATURES: usize = 9;

fn noise(seed: u64, scale: f64) -> Vec<f64> {
    let mut stream = Stream::new(seed, 5);
    (0..SHAPE.iter().product()).map(|_| scale * stream.normal()).collect()
}

fn maps(exact: ExactKeys) -> Vec<FeatureMap> {
    let (q, k) = (noise(1, 1.2), noise(2, 1.2));
    let (q, k) = (Tensor::new(&q, SHAPE).unwrap(), Tensor::new(&k, SHAPE).unwrap());
    let spec = FeatureSpec::new(Family::Balanced, FEATURES).kernel(Kernel::attention(DIM));
    let options = LearnOptions::new().steps(20).exact(exact);
    let learned = learn_maps(spec, Calibration::new(q, k), &options).unwrap();
    learned.into_iter().map(|head| head.map).collect()
}

/// A map whose number `which` is changed: weights of the queries, of the keys, constants.
fn changed(map: &FeatureMap, which: usize, by: f64) -> FeatureMap {
    let (query, key) = (map.side(Side::Query), map.side(Side::Key));
    let (mut a, mut b, mut c) =
        (query.weights.clone(), key.weights.clone(), query.constants.clone());
    let size = FEATURES * DIM;
    match which {
        n if n < size => a[(n / DIM, n % DIM)] += by,
        n if n < 2 * size => b[((n - size) / DIM, n % DIM)] += by,
        n => c[n - 2 * size] += by,
    }
    map.with_weights(a, b, c).unwrap()
}

fn number(gradient: &MapGradient, which: usize) -> f64 {
    let size = FEATURES * DIM;
    match which {
        n if n < size => gradient.query.as_slice()[n],
        n if n < 2 * size => gradient.key.as_slice()[n - size],
        n => gradient.constants[n - 2 * size],
    }
}

struct Case {
    exact: ExactKeys,
    causal: bool,
    masked: bool,
}

impl Case {
    fn mask(&self) -> Option<Vec<bool>> {
        self.masked.then(|| (0..BATCH * LENGTH).map(|j| j % 5 != 2).collect())
    }

    fn gradients<T: Scalar>(&self, maps: &[FeatureMap], from: fn(f64) -> T) -> Vec<MapGradient> {
        let mask = self.mask();
        let options = AttentionOptions::new().causal(self.causal).key_mask(mask.as_deref());
        let [q, k, v, g] = [(3, 1.2), (4, 1.2), (5, 1.0), (6, 1.0)]
            .map(|(seed, scale)| noise(seed, scale).into_iter().map(from).collect::<Vec<T>>());
        let [q, k, v, g] = [&q, &k, &v, &g].map(|x| Tensor::new(x, SHAPE).unwrap());
        let exact = [self.exact];
        let method = Method::Hybrid { maps, exact: &exact };
        let out = attention(method, Qkv::new(q, k, v), &options).unwrap();
        let out = Tensor::new(&out, SHAPE).unwrap();
        map_gradients(method, Qkv::new(q, k, v), out, g, &options).unwrap()
    }

    /// `Σ g·out`.
    fn loss(&self, maps: &[FeatureMap]) -> f64 {
        let mask = self.mask();
        let options = AttentionOptions::new().causal(self.causal).key_mask(mask.as_deref());
        let (q, k, v, g) = (noise(3, 1.2), noise(4, 1.2), noise(5, 1.0), noise(6, 1.0));
        let [q, k, v] = [&q, &k, &v].map(|x| Tensor::new(x, SHAPE).unwrap());
        let exact = [self.exact];
        let method = Method::Hybrid { maps, exact: &exact };
        let out = attention(method, Qkv::new(q, k, v), &options).unwrap();
        out.iter().zip(&g).map(|(o, g)| o * g).sum()
    }
}

fn cases() -> Vec<Case> {
    let none = ExactKeys::NONE;
    let exact = [none, none.near(3), none.routed(2, 3), none.near(2).routed(2, 3).global(5)];
    let kinds = [(false, false), (true, false), (false, true), (true, true)];
    let all = exact
        .into_iter()
        .flat_map(|exact| kinds.map(|(causal, masked)| Case { exact, causal, masked }));
    all.collect()
}

/// In f64: a central difference with a step of 1e-5 is off by 1e-10 of the third derivative and by rounding,
/// 1e-16/1e-5 of a loss of order 10. A step that moves a key from one set to another would show as a jump
/// by far more, and none of these does.
#[test]
fn they_are_those_of_finite_differences() {
    for case in cases() {
        let maps = maps(case.exact);
        let found = case.gradients::<f64>(&maps, |x| x);
        for which in (0..2 * FEATURES * DIM + FEATURES).step_by(5) {
            for head in 0..HEADS {
                let at = |by: f64| {
                    let mut all = maps.clone();
                    all[head] = changed(&maps[head], which, by);
                    case.loss(&all)
                };
                let wanted = (at(1e-5) - at(-1e-5)) / 2e-5;
                let found = number(&found[head], which);
                let close = (found - wanted).abs() < 1e-6 * (1.0 + wanted.abs());
                let Case { exact, causal, masked } = &case;
                assert!(close, "{exact} {causal} {masked} {head} {which}: {found} {wanted}");
            }
        }
    }
}

/// f32 is at most as far from f64 as 130 rounded terms of order one are, and an exponential of logarithms of order ten
/// multiplies that by ten.
#[test]
fn single_precision_is_close() {
    let bound = 130.0 * 10.0 * 0.5 * f64::from(f32::EPSILON);
    for case in cases() {
        let maps = maps(case.exact);
        let wide = case.gradients::<f64>(&maps, |x| x);
        let narrow = case.gradients::<f32>(&maps, |x| x as f32);
        for (wide, narrow) in wide.iter().zip(&narrow) {
            let norm = |m: &Matrix<f64>| m.as_slice().iter().map(|x| x * x).sum::<f64>().sqrt();
            for (a, b) in [(&wide.query, &narrow.query), (&wide.key, &narrow.key)] {
                let off = Matrix::from_fn(FEATURES, DIM, |m, l| a[(m, l)] - b[(m, l)]);
                assert!(norm(&off) < bound * norm(a), "{} {}", norm(&off), norm(a));
            }
        }
    }
}

/// What attention refuses has no gradient either, for the same reason.
#[test]
fn what_attention_refuses_is_refused() {
    let none = ExactKeys::NONE;
    let maps = maps(none);
    let x = noise(1, 1.0);
    let tokens = |length: usize| {
        let shape = [BATCH, HEADS, length, DIM];
        Tensor::new(&x[..shape.iter().product()], shape).unwrap()
    };
    let (nothing, short, long) = (tokens(0), tokens(6), tokens(10));
    let (whole, cross) = (Qkv::new(long, long, long), Qkv::new(short, long, long));
    let options = AttentionOptions::new();
    let cases = [
        (cross, none, options.causal(true)),
        (cross, none.near(2), options),
        (Qkv::new(long, long, short), none, options),
        (Qkv::new(nothing, nothing, nothing), none, options),
        (whole, none.routed(FEATURES + 1, 2), options),
        (whole, none, options.key_mask(Some(&[true; 7]))),
    ];
    for (inputs, exact, options) in cases {
        let method = Method::Hybrid { maps: &maps, exact: &[exact] };
        let refused = attention(method, inputs, &options).unwrap_err();
        let found = map_gradients(method, inputs, inputs.q, inputs.q, &options).unwrap_err();
        assert_eq!(found, refused);
    }
    // Where every key is exact, queries need no place among them.
    let method = Method::Hybrid { maps: &maps, exact: &[ExactKeys::ALL] };
    assert!(attention(method, cross, &options).is_ok());
    let zero = map_gradients(method, cross, short, short, &options).unwrap();
    assert!(zero[0].constants.iter().all(|c| *c == 0.0));
}

#[test]
fn what_does_not_fit_is_refused() {
    let case = Case { exact: ExactKeys::NONE, causal: false, masked: false };
    let maps = maps(case.exact);
    let x = noise(1, 1.0);
    let (t, half) =
        (Tensor::new(&x, SHAPE).unwrap(), Tensor::new(&x, [1, 4, LENGTH, DIM]).unwrap());
    let (inputs, options) = (Qkv::new(t, t, t), AttentionOptions::new());
    let refused = |method: Method<'_>, out, part: &str| {
        let message = map_gradients(method, inputs, out, t, &options).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    refused(Method::Features(&maps[..1]), t, "one per head");
    refused(Method::Features(&maps), half, "output");
    let spec = FeatureSpec::new(Family::Balanced, 4);
    let moments = favor::Moments::of(favor::Rows::new(&x[..8], 2, 4).unwrap()).unwrap();
    let drawn = spec.fit(&moments, &moments).unwrap();
    let side = drawn.side(Side::Query);
    let (weights, constants) = (side.weights.clone(), side.constants.clone());
    let message = drawn.with_weights(weights.clone(), weights, constants).unwrap_err().to_string();
    assert!(message.contains("learned"), "{message}");
    let bad = maps[0].with_weights(Matrix::zeros(3, DIM), Matrix::zeros(3, DIM), vec![0.0; 3]);
    assert!(bad.unwrap_err().to_string().contains("features"));
}
