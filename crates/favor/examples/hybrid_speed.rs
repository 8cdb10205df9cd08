//! The cost of exact keys: times of attention with them, as ratios to features alone.
//!
//! Runs are interleaved and the best of each counts, so other work on the machine matters little.
//! `hybrid_speed [length] [rounds] [part]`, where the part is `forward`, `causal`, `decode` or all of them.

use favor::draw::Stream;
use favor::{
    AttentionOptions, DecodeState, ExactKeys, Family, FeatureMap, FeatureSpec, Kernel, Method,
    Moments, Qkv, Rows, Tensor, attention, attention_backward,
};
use std::error::Error;
use std::time::Instant;

const DIM: usize = 64;
const HEADS: usize = 8;
const PARTS: [&str; 3] = ["forward", "causal", "decode"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let length: usize = arguments.next().map_or(Ok(4096), |a| a.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(5), |a| a.parse())?;
    let part = arguments.next();
    if let Some(name) = part.as_deref().filter(|name| !PARTS.contains(name)) {
        return Err(format!("no part is called {name}: it is one of {}", PARTS.join(", ")).into());
    }
    let asked = |name: &str| part.as_deref().is_none_or(|part| part == name);
    let mut noise = Stream::new(1, 0);
    let mut draw = |count: usize| (0..count).map(|_| noise.normal() as f32).collect::<Vec<f32>>();
    let shape = [1, HEADS, length, DIM];
    let (q, k, v) =
        (draw(HEADS * length * DIM), draw(HEADS * length * DIM), draw(HEADS * length * DIM));
    let g = draw(HEADS * length * DIM);
    let inputs =
        Qkv::new(Tensor::new(&q, shape)?, Tensor::new(&k, shape)?, Tensor::new(&v, shape)?);
    let near = |n: usize| ExactKeys::NONE.near(n);
    let sets = [ExactKeys::NONE, near(16), near(64), near(16).routed(4, 8)];
    for features in [64, 128] {
        let maps = [map(&q, &k, features)?];
        let mut bidirectional = None;
        for causal in [false, true] {
            if !asked(if causal { "causal" } else { "forward" }) {
                continue;
            }
            let options = AttentionOptions::new().causal(causal);
            let mut best = [[f64::INFINITY; 2]; 4];
            for _ in 0..rounds {
                for (best, exact) in best.iter_mut().zip(&sets) {
                    let exact = [*exact];
                    let method = Method::Hybrid { maps: &maps, exact: &exact };
                    let start = Instant::now();
                    let out = attention(method, inputs, &options)?;
                    best[0] = best[0].min(start.elapsed().as_secs_f64());
                    let out = Tensor::new(&out, shape)?;
                    let start = Instant::now();
                    attention_backward(method, inputs, out, Tensor::new(&g, shape)?, &options)?;
                    best[1] = best[1].min(start.elapsed().as_secs_f64());
                }
            }
            for (n, what) in ["forward", "backward"].iter().enumerate() {
                print!("M {features:3}, causal {causal:5}, {what:8}: {:7.1} ms", 1e3 * best[0][n]);
                for (exact, time) in sets.iter().zip(&best).skip(1) {
                    print!(", {exact}: {:.2} ×", time[n] / best[0][n]);
                }
                println!();
            }
            if !causal {
                bidirectional = Some(best[0][0]);
            }
            if let Some(one) = bidirectional {
                let both = (best[0][0] + best[0][1]) / one;
                println!(
                    "    forward and backward: {both:.2} × forward of every query to every key"
                );
            }
        }
        if asked("decode") {
            decode(&maps[0], inputs, &sets, rounds)?;
        }
    }
    Ok(())
}

fn map(q: &[f32], k: &[f32], features: usize) -> favor::Result<FeatureMap> {
    let moments = |x: &[f32]| Moments::of(Rows::new(x, x.len() / DIM, DIM)?);
    let spec = FeatureSpec::new(Family::Balanced, features).kernel(Kernel::attention(DIM));
    spec.fit(&moments(q)?, &moments(k)?)
}

/// The time per token after a prompt.
fn decode(
    map: &FeatureMap,
    inputs: Qkv<'_, f32>,
    sets: &[ExactKeys],
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    const TOKENS: usize = 96;
    let mut states = vec![];
    for exact in sets {
        let state = DecodeState::<f32>::new(vec![map.clone()], 1, HEADS, DIM)?;
        let mut state = state.exact_keys(&[*exact])?;
        state.advance(inputs.q, inputs.k, inputs.v)?;
        states.push(state);
    }
    let mut noise = Stream::new(2, 0);
    let mut best = vec![f64::INFINITY; sets.len()];
    for _ in 0..rounds {
        // New tokens each time: repeated ones would become new members of every slot they are in.
        let mut token = || (0..HEADS * DIM).map(|_| noise.normal() as f32).collect();
        let tokens: Vec<Vec<f32>> = (0..TOKENS).map(|_| token()).collect();
        for (state, best) in states.iter_mut().zip(&mut best) {
            let start = Instant::now();
            for token in &tokens {
                let t = Tensor::new(token, [1, HEADS, 1, DIM])?;
                state.advance(t, t, t)?;
            }
            *best = best.min(start.elapsed().as_secs_f64() / TOKENS as f64);
        }
    }
    print!("M {:3}, a token of {HEADS} heads  : {:7.1} µs", map.features(), 1e6 * best[0]);
    for (exact, time) in sets.iter().zip(&best).skip(1) {
        print!(", {exact}: {:.2} ×", time / best[0]);
    }
    let sizes: Vec<String> =
        states.iter().map(|s| (s.size_in_bytes() / 1024).to_string()).collect();
    println!("; states of {} KiB", sizes.join(", "));
    Ok(())
}
