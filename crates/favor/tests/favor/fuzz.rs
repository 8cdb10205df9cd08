//! Random shapes, masks, scales and modes: the engine equals the plain way, or both refuse. Case `n` is
//! always the same one; `FAVOR_FUZZ_CASES` sets how many are tried.

use favor::draw::Stream;
use favor::reference::{Mask, exact_attention, hybrid_attention};
use favor::{
    AttentionOptions, Coupling, Error, ExactKeys, Family, FeatureSpec, Kernel, Matrix, Method,
    Moments, Qkv, Tensor, attention, attention_backward, attention_into,
};

/// How many cases are tried unless `FAVOR_FUZZ_CASES` says otherwise.
const CASES: u64 = 10_000;

/// A comparison tells something if it allows less than this part of what the outputs can be at most.
const SHARP: f64 = 1e-4;

struct Case {
    q: Matrix<f64>,
    k: Matrix<f64>,
    v: Matrix<f64>,
    mask: Option<Vec<bool>>,
    causal: bool,
    exact: ExactKeys,
    features: usize,
    family: Family,
    coupling: Coupling,
}

fn draw_case(seed: u64) -> Case {
    let mut s = Stream::new(seed, 1234);
    let most = if s.index(4) == 0 { 300 } else { 40 };
    let keys = 1 + s.index(most);
    let causal = s.index(2) == 0;
    let near = [0, 0, 1 + s.index(60)][s.index(3)];
    let queries = if causal || near > 0 { keys } else { 1 + s.index(60) };
    let (dim, columns) = (1 + s.index(40), 1 + s.index(40));
    let families: Vec<Family> = Family::ALL.into_iter().filter(|f| f.is_positive()).collect();
    let family = families[s.index(families.len())];
    let coupling = Coupling::ALL[s.index(Coupling::ALL.len())];
    let features = 1 + s.index(80);
    let mut exact = ExactKeys::NONE.near(near);
    if s.index(3) == 0 {
        exact = exact.global(s.index(6)).routed(s.index(4).min(features), s.index(9));
    }
    // Scales over many powers of ten, offsets, constant columns and repeated rows.
    let scale = 10.0_f64.powf(2.5 * s.normal() - 1.0).min(1e6);
    let offset = if s.index(3) == 0 { scale } else { 0.0 };
    let constant = s.index(4) == 0;
    let repeated = s.index(4) == 0;
    let mut fill = |rows: usize, columns: usize, scale: f64| {
        let mut m = Matrix::from_fn(rows, columns, |_, l| {
            if constant && l == 0 { scale } else { scale * s.normal() + offset }
        });
        if repeated && rows > 1 {
            let first = m.row(0).to_vec();
            m.row_mut(rows - 1).copy_from_slice(&first);
        }
        m
    };
    let (q, k) = (fill(queries, dim, scale), fill(keys, dim, scale));
    let v = fill(keys, columns, 1.0);
    let mut s = Stream::new(seed, 4321);
    let mask = (s.index(2) == 0).then(|| (0..keys).map(|_| s.index(3) > 0).collect());
    Case { q, k, v, mask, causal, exact, features, family, coupling }
}

/// Checks one case, and says whether its outputs could be compared: the logits of huge inputs are
/// rounded by more than one, and then only the bounds of the outputs are known.
fn check(seed: u64) -> bool {
    let case = draw_case(seed);
    let Case { q, k, v, mask, causal, exact, features, family, coupling } = &case;
    let what = format!(
        "case {seed}: {:?} {:?} {:?} {family} {coupling} M {features} causal {causal} {exact} mask {}",
        q.shape(),
        k.shape(),
        v.shape(),
        mask.is_some()
    );
    let kernel = Kernel::attention(q.columns());
    let spec = FeatureSpec::new(*family, *features).kernel(kernel).coupling(*coupling).seed(seed);
    let moments = |m: &Matrix<f64>| Moments::of(m.view());
    let map = [spec.fit(&moments(q).unwrap(), &moments(k).unwrap()).expect(&what)];
    let plain_mask = Mask::new(*causal, mask.as_deref());
    let options = AttentionOptions::new().causal(*causal).key_mask(mask.as_deref());
    let method = Method::Hybrid { maps: &map, exact: &[*exact] };
    let tensor = |m: &'_ Matrix<f64>| [1, 1, m.rows(), m.columns()];
    let t = |m| Tensor::new(Matrix::as_slice(m), tensor(m)).unwrap();
    let ours = attention(method, Qkv::new(t(q), t(k), t(v)), &options).expect(&what);
    // Whatever was in the memory before, every number is written.
    let mut over = vec![f64::NAN; ours.len()];
    attention_into(method, Qkv::new(t(q), t(k), t(v)), &options, &mut over).expect(&what);
    assert_eq!(over, ours, "{what}");
    assert!(ours.iter().all(|x| x.is_finite()), "{what}");
    // Outputs are averages of the values: within their range, whatever the features do.
    let bound = v.as_slice().iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    assert!(ours.iter().all(|x| x.abs() <= bound * (1.0 + 1e-9)), "{what}");
    // Logits carry rounding of their own size.
    let size = |m: &Matrix<f64>| m.as_slice().iter().fold(0.0_f64, |a, x| a.max(x.abs()));
    let logit = size(q) * size(k) * (q.columns() as f64).sqrt();
    let transformed = logit + (size(q).powi(2) + size(k).powi(2)) * (q.columns() as f64).sqrt();
    let tolerance = (1e-12 + 1e-12 * transformed) * bound.max(1.0);
    let compared = tolerance < SHARP * bound;
    let all = attention(Method::Exact(kernel), Qkv::new(t(q), t(k), t(v)), &options).expect(&what);
    if compared {
        let close = |with: &str, a: &[f64], b: &[f64]| {
            let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(
                worst <= tolerance,
                "{what}, {with}: {worst:e} over {tolerance:e}, logits {logit:e}"
            );
        };
        let reference =
            exact_attention(kernel, q.view(), k.view(), v.view(), plain_mask).expect(&what);
        close("exact", &all, reference.as_slice());
        let (q, k, v) = (q.view(), k.view(), v.view());
        // Repeated rows tie: which of two equal keys is exact is then no difference in the result.
        if mask.as_ref().is_none_or(|mask| mask.contains(&true)) {
            let plain = hybrid_attention(&map[0], *exact, q, k, v, plain_mask).expect(&what);
            close("hybrid", &ours, plain.as_slice());
        } else {
            close("no keys", &ours, &vec![0.0; ours.len()]);
        }
    }
    let shape = [1, 1, q.rows(), v.columns()];
    let out = Tensor::new(&ours, shape).unwrap();
    match attention_backward(method, Qkv::new(t(q), t(k), t(v)), out, out, &options) {
        Ok(g) => {
            let mut all = g.q.iter().chain(&g.k).chain(&g.v);
            assert!(all.all(|x| x.is_finite()), "{what}: gradients");
        }
        Err(error) => assert!(matches!(error, Error::Overflow { .. }), "{what}: {error}"),
    }
    compared
}

#[test]
fn random_cases() {
    let cases = match std::env::var("FAVOR_FUZZ_CASES") {
        Ok(text) => text.parse().expect("FAVOR_FUZZ_CASES is a number of cases"),
        Err(_) => CASES,
    };
    let compared = (0..cases).filter(|&seed| check(seed)).count() as u64;
    eprintln!("{cases} cases, the outputs of {compared} compared");
    assert!(10 * compared >= 9 * cases, "only {compared} of {cases} cases were compared");
}
