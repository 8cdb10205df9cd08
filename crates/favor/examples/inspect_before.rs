//! How many features does this need? Predicted from closed forms, then measured.

use favor::diagnose::{Candidate, Estimator, attention_error, break_even, predict, recommend};
use favor::draw::Stream;
use favor::{Coupling, Family, FeatureSpec, Kernel, Matrix, Moments, Result, Rows};

const LENGTH: usize = 256;
const DIM: usize = 32;
const WANTED: f64 = 0.1;

fn main() -> Result<()> {
    for (name, scale) in [("calm", 0.6), ("ordinary", 1.0), ("spiky", 4.0)] {
        let (q, k) = (tokens(1, scale, 0.4), tokens(2, scale, -0.2));
        let v = Matrix::from_fn(LENGTH, 4, |i, c| k[(i, c)].tanh());
        println!("{name} attention:");
        inspect(q.view(), k.view(), v.view())?;
    }
    Ok(())
}

fn inspect(q: Rows<'_, f64>, k: Rows<'_, f64>, v: Rows<'_, f64>) -> Result<()> {
    let kernel = Kernel::attention(DIM);
    let (queries, keys) = (Moments::of(q)?, Moments::of(k)?);
    let mut candidates = vec![];
    for family in [Family::Pos, Family::Ge, Family::Sde, Family::Balanced] {
        let estimator = Estimator::fit(family, kernel, &queries, &keys)?;
        // A sample of a few queries is enough.
        let prediction = predict(&estimator, q.slice(0, 16), k, Some(v))?;
        let Some(features) = prediction.and_then(|p| p.features_for_output(WANTED)) else {
            continue;
        };
        println!("  {:<16} needs {:>8.1e} features for 10%", family.title(), features);
        candidates.push(Candidate { family, features });
    }
    // As if the sequence were long; for 256 tokens, exact attention is cheaper.
    let advice =
        recommend(&candidates, break_even(100_000, 100_000, false)).expect("there are candidates");
    println!("  advice for 100000 tokens: {advice}");
    if let favor::diagnose::Advice::Features { family, features } = advice {
        let mut squares = 0.0;
        for seed in 0..8 {
            let spec = FeatureSpec::new(family, features).kernel(kernel).seed(seed);
            let map = spec.coupling(Coupling::Iid).fit(&queries, &keys)?;
            squares += attention_error(&map, q, k, v)?.powi(2) / 8.0;
        }
        println!("  measured with these:      {:.1}% off", 100.0 * squares.sqrt());
    }
    Ok(())
}

fn tokens(seed: u64, scale: f64, centre: f64) -> Matrix<f64> {
    let mut stream = Stream::new(seed, 0);
    Matrix::from_fn(LENGTH, DIM, |_, l| {
        scale * (centre + 0.85_f64.powi(l as i32) * stream.normal())
    })
}
