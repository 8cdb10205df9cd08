//! Attention for other programs: reads a list of requests as JSON and writes a list of outputs as JSON.
//!
//! ```json
//! [{"q": [[…]], "k": [[…]], "v": [[…]], "family": "balanced", "features": 256, "seeds": [0],
//!   "causal": false, "keys": [true, …], "fit": {"q": [[…]], "k": [[…]]}}]
//! ```
//!
//! `keys` masks padding. `fit` holds the vectors that the map is fitted to; by default the request's
//! own. An answer is `{"outs": [[[…]]]}`, one output per seed, or `{"error": "…"}`. All numbers are
//! read as `f32`.

use favor::{
    AttentionOptions, Family, FeatureSpec, Kernel, Matrix, Method, Moments, Qkv, Tensor, attention,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::error::Error;

#[derive(Deserialize)]
struct Request {
    q: Vec<Vec<f32>>,
    k: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
    family: Family,
    features: usize,
    seeds: Vec<u64>,
    #[serde(default)]
    causal: bool,
    keys: Option<Vec<bool>>,
    fit: Option<Calibration>,
}

#[derive(Deserialize)]
struct Calibration {
    q: Vec<Vec<f32>>,
    k: Vec<Vec<f32>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let requests: Vec<Request> = serde_json::from_reader(std::io::stdin().lock())?;
    let answers: Vec<Value> = requests
        .iter()
        .map(|request| match answer(request) {
            Ok(outs) => json!({ "outs": outs.iter().map(rows).collect::<Vec<_>>() }),
            Err(error) => json!({ "error": error.to_string() }),
        })
        .collect();
    serde_json::to_writer(std::io::stdout().lock(), &answers)?;
    Ok(())
}

fn answer(request: &Request) -> favor::Result<Vec<Matrix<f32>>> {
    let (q, k, v) = (matrix(&request.q)?, matrix(&request.k)?, matrix(&request.v)?);
    let (queries, keys) = match &request.fit {
        Some(fit) => (Moments::of(matrix(&fit.q)?.view())?, Moments::of(matrix(&fit.k)?.view())?),
        None => {
            let all = vec![true; k.rows()];
            let valid = request.keys.as_deref().unwrap_or(&all);
            (Moments::of(q.view())?, Moments::of_masked(k.view(), valid)?)
        }
    };
    let spec = FeatureSpec::new(request.family, request.features);
    let spec = spec.kernel(Kernel::attention(q.columns()));
    let key_mask = request.keys.as_deref();
    let options = AttentionOptions::new().causal(request.causal).key_mask(key_mask);
    let tensor = |m| Tensor::new(Matrix::as_slice(m), [1, 1, m.rows(), m.columns()]);
    let run = |seed: &u64| {
        let map = spec.seed(*seed).fit(&queries, &keys)?;
        let out = attention(
            Method::Features(&[map]),
            Qkv::new(tensor(&q)?, tensor(&k)?, tensor(&v)?),
            &options,
        )?;
        Matrix::new(out, q.rows(), v.columns())
    };
    request.seeds.iter().map(run).collect()
}

fn rows(m: &Matrix<f32>) -> Vec<&[f32]> {
    (0..m.rows()).map(|i| m.row(i)).collect()
}

fn matrix(rows: &[Vec<f32>]) -> favor::Result<Matrix<f32>> {
    Matrix::new(rows.concat(), rows.len(), rows.first().map_or(0, Vec::len))
}
