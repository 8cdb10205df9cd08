//! Attention by features: bidirectional, with padding, and causal.

use favor::diagnose::{relative_error, uniform_error};
use favor::draw::Stream;
use favor::reference::{Mask, exact_attention};
use favor::{
    AttentionOptions, Family, FeatureMap, FeatureSpec, Kernel, Matrix, Method, Moments, Qkv,
    Result, Tensor, attention,
};

const LENGTH: usize = 512;
const DIM: usize = 32;

fn main() -> Result<()> {
    let (q, k) = (tokens(1, LENGTH, 0.4), tokens(2, LENGTH, -0.2));
    let v = Matrix::from_fn(LENGTH, 4, |i, c| k[(i, c)].tanh());
    let kernel = Kernel::attention(DIM);
    let spec = FeatureSpec::new(Family::Balanced, 256).kernel(kernel).seed(1);

    // Bidirectional: the map may know the whole sequence.
    let map = spec.fit(&Moments::of(q.view())?, &Moments::of(k.view())?)?;
    let exact = exact_attention(kernel, q.view(), k.view(), v.view(), Mask::none())?;
    let ours = attend(&map, &q, &k, &v, &AttentionOptions::new())?;
    println!("bidirectional, 256 features:  {:.1}% off", 100.0 * relative_error(&ours, &exact));
    println!("the plain mean of the values: {:.1}% off", {
        100.0 * uniform_error(&exact, v.view())?
    });

    // Padding: the last 100 keys and values are garbage and masked.
    let valid: Vec<bool> = (0..LENGTH).map(|j| j < LENGTH - 100).collect();
    let options = AttentionOptions::new().key_mask(Some(&valid));
    let fit =
        |k: &Matrix<f32>| spec.fit(&Moments::of(q.view())?, &Moments::of_masked(k.view(), &valid)?);
    let clean = attend(&fit(&k)?, &q, &k, &v, &options)?;
    let (mut dirty_k, mut dirty_v) = (k.clone(), v.clone());
    for j in LENGTH - 100..LENGTH {
        dirty_k.row_mut(j).fill(f32::NAN);
        dirty_v.row_mut(j).fill(1e30);
    }
    let dirty = attend(&fit(&dirty_k)?, &q, &dirty_k, &dirty_v, &options)?;
    println!("garbage in the padding:       outputs equal: {}", clean == dirty);

    // Causal: the map comes from other sequences, so it cannot know the future.
    let (past_q, past_k) = (tokens(3, 2048, 0.4), tokens(4, 2048, -0.2));
    let map = spec.fit(&Moments::of(past_q.view())?, &Moments::of(past_k.view())?)?;
    let options = AttentionOptions::new().causal(true);
    let before = attend(&map, &q, &k, &v, &options)?;
    let mut later_k = k.clone();
    for j in 256..LENGTH {
        later_k.row_mut(j).iter_mut().for_each(|x| *x *= -5.0);
    }
    let after = attend(&map, &q, &later_k, &v, &options)?;
    let same = (0..256).all(|i| before.row(i) == after.row(i));
    println!("other keys in the future:     outputs of the past equal: {same}");
    Ok(())
}

/// Attention of one sequence and one head.
fn attend(
    map: &FeatureMap,
    q: &Matrix<f32>,
    k: &Matrix<f32>,
    v: &Matrix<f32>,
    options: &AttentionOptions<'_>,
) -> Result<Matrix<f32>> {
    let tensor = |m| Tensor::new(Matrix::as_slice(m), [1, 1, m.rows(), m.columns()]);
    let out = attention(
        Method::Features(std::slice::from_ref(map)),
        Qkv::new(tensor(q)?, tensor(k)?, tensor(v)?),
        options,
    )?;
    Matrix::new(out, q.rows(), v.columns())
}

/// Tokens whose coordinates differ in spread and do not average to zero, like those of trained
/// heads.
fn tokens(seed: u64, rows: usize, centre: f64) -> Matrix<f32> {
    let mut stream = Stream::new(seed, 0);
    Matrix::from_fn(rows, DIM, |_, l| (centre + 0.9_f64.powi(l as i32) * stream.normal()) as f32)
}
