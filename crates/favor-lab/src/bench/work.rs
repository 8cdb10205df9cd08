//! The kinds of work, and how each is measured.

use super::decoding::{self, Decoder};
use super::inputs::Inputs;
use super::seen::Seen;
use super::sgemm::Squares;
use super::{BenchOptions, Measured, memory};
use crate::{Error, Result};
use favor::diagnose::{break_even, relative_error};
use favor::{
    AttentionOptions, ExactKeys, FeatureMap, FeatureSpec, Kernel, Matrix, Method, Moments, Qkv,
    Rows, attention, attention_backward, attention_into, kernel_product,
};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Exact work beyond this length takes too long to wait for.
const LONGEST_EXACT: usize = 16_384;

/// Attention's error is measured on no more tokens than this.
const LONGEST_CHECK: usize = 4096;

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Attention by features.
    Forward,
    /// Attention by features and its gradients.
    Backward,
    /// Causal attention by features.
    Causal,
    /// Causal attention by features and its gradients.
    CausalBackward,
    /// Exact attention.
    Exact,
    /// Exact causal attention.
    ExactCausal,
    /// Exact attention and its gradients.
    ExactBackward,
    /// A prompt in the state of decoding, all tokens at once.
    Prompt,
    /// The same in pieces of 512 tokens.
    PromptPieces,
    /// One token after so many others.
    Decode,
    /// What the first call with a map takes longer than the second: packing the map.
    Pack,
    /// A product with the Gaussian kernel, `dim` columns, 4 values.
    Product,
    /// The product of two square matrices by faer: what the machine can do.
    Sgemm,
}

impl Work {
    /// Every kind of our own.
    pub const OURS: [Self; 12] = [
        Self::Forward,
        Self::Backward,
        Self::Causal,
        Self::CausalBackward,
        Self::Exact,
        Self::ExactCausal,
        Self::ExactBackward,
        Self::Prompt,
        Self::PromptPieces,
        Self::Decode,
        Self::Pack,
        Self::Product,
    ];

    /// The name in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Causal => "causal",
            Self::CausalBackward => "causal_backward",
            Self::Exact => "exact",
            Self::ExactCausal => "exact_causal",
            Self::ExactBackward => "exact_backward",
            Self::Prompt => "prompt",
            Self::PromptPieces => "prompt_pieces",
            Self::Decode => "decode",
            Self::Pack => "pack",
            Self::Product => "product",
            Self::Sgemm => "sgemm",
        }
    }

    pub(super) fn uses_features(self) -> bool {
        !matches!(self, Self::Exact | Self::ExactCausal | Self::ExactBackward | Self::Sgemm)
    }

    pub(super) fn bearable(self, length: usize) -> bool {
        self.uses_features() || length <= LONGEST_EXACT
    }

    /// Whether exact keys can stand beside the features.
    fn takes_exact_keys(self) -> bool {
        self.uses_features() && !matches!(self, Self::Product | Self::Pack)
    }

    /// Whether keys can be padding, and sequences packed.
    fn is_attention(self) -> bool {
        let other = [
            Self::Prompt,
            Self::PromptPieces,
            Self::Decode,
            Self::Pack,
            Self::Product,
            Self::Sgemm,
        ];
        !other.contains(&self)
    }

    fn causal(self) -> bool {
        matches!(self, Self::Causal | Self::CausalBackward | Self::ExactCausal)
    }
}

impl std::str::FromStr for Work {
    type Err = String;
    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let all = || Self::OURS.into_iter().chain([Self::Sgemm]);
        let names: Vec<&str> = all().map(Self::name).collect();
        all().find(|w| w.name() == name).ok_or_else(|| favor::unknown_name(name, &names))
    }
}

pub(super) fn measure(
    work: Work,
    request: &BenchOptions,
    inputs: &Inputs,
    features: usize,
) -> Result<Measured> {
    let [batch, heads, length, dim] = inputs.shape;
    let map = [inputs.map(request, features)?];
    let (masked, packed) =
        (request.masked && work.is_attention(), request.packed && work.is_attention());
    let seen = Seen::new(&request.clone().masked(masked).packed(packed), length);
    let exact_keys = if work.takes_exact_keys() { request.exact } else { ExactKeys::NONE };
    let method = Method::Hybrid { maps: &map, exact: &[exact_keys] };
    let kernel = Kernel::attention(dim);
    let options = seen.options().causal(work.causal()).threads(request.threads);
    let (q, k, v) =
        (inputs.tensor(&inputs.q)?, inputs.tensor(&inputs.k)?, inputs.tensor(&inputs.v)?);
    // Forward products are 2·L·M·d each: two projections, two sums over keys or features.
    let forward = 4.0 * (heads * (batch * length + seen.keys) * features * dim) as f64;
    let exact = 4.0 * (heads * seen.pairs * dim) as f64;
    let mut error = None;
    let (seconds, memory, flops) = match work {
        Work::Forward | Work::Causal => {
            // Memory that the check frees would hide what the work itself needs.
            let mut out = vec![1.0_f32; batch * heads * length * dim];
            let (seconds, memory) = time(request.runs, || {
                attention_into(method, Qkv::new(q, k, v), &options, &mut out)
            })?;
            if length <= LONGEST_CHECK {
                error = Some(check(inputs, method, &options)?);
            }
            (seconds, memory, forward)
        }
        Work::Backward | Work::CausalBackward => {
            let run = || {
                let out = attention(method, Qkv::new(q, k, v), &options)?;
                let out = favor::Tensor::new(&out, inputs.shape)?;
                attention_backward(method, Qkv::new(q, k, v), out, v, &options).map(drop)
            };
            let (seconds, memory) = time(request.runs, run)?;
            (seconds, memory, 3.0 * forward)
        }
        Work::Exact | Work::ExactCausal => {
            let run = || attention(Method::Exact(kernel), Qkv::new(q, k, v), &options).map(drop);
            let (seconds, memory) = time(request.runs, run)?;
            (seconds, memory, if work.causal() { exact / 2.0 } else { exact })
        }
        Work::ExactBackward => {
            let run = || {
                let out = attention(Method::Exact(kernel), Qkv::new(q, k, v), &options)?;
                let out = favor::Tensor::new(&out, inputs.shape)?;
                attention_backward(Method::Exact(kernel), Qkv::new(q, k, v), out, v, &options)
                    .map(drop)
            };
            let (seconds, memory) = time(request.runs, run)?;
            (seconds, memory, 3.5 * exact)
        }
        Work::Prompt | Work::PromptPieces => {
            let in_pieces = work == Work::PromptPieces;
            let mut size = 0;
            let (seconds, _) = time(request.runs, || {
                size = decoding::prompt(inputs, &map[0], exact_keys, in_pieces)?;
                Ok(())
            })?;
            (seconds, u64::try_from(size).ok(), forward)
        }
        Work::Decode => {
            let mut decoder = Decoder::new(inputs, &map[0], exact_keys)?;
            let (seconds, _) = time(request.runs, || decoder.run())?;
            let size = u64::try_from(decoder.size_in_bytes()).ok();
            (seconds / decoding::TOKENS as f64, size, forward / length as f64)
        }
        Work::Pack => (pack(request, inputs, features, &options)?, None, 0.0),
        Work::Sgemm => {
            let squares = Squares::new(length);
            let (seconds, memory) = time(request.runs, || {
                squares.multiply(request.threads);
                Ok(())
            })?;
            (seconds, memory, 2.0 * (length as f64).powi(3))
        }
        Work::Product => {
            let columns = dim;
            let values = 4;
            let x = Rows::new(&inputs.q[..length * columns], length, columns)?;
            let y = Rows::new(&inputs.k[..length * columns], length, columns)?;
            let c = Rows::new(&inputs.v[..length * values], length, values)?;
            let spec = FeatureSpec::new(request.family, features)
                .kernel(Kernel::gaussian().scaled(1.0 / (columns as f64).sqrt())?)
                .seed(request.seed);
            let map = spec.fit(&Moments::of(x)?, &Moments::of(y)?)?;
            let (seconds, memory) = time(request.runs, || kernel_product(&map, x, y, c).map(drop))?;
            let some = x.slice(0, 200);
            let exact = map.kernel().product(some, y, c)?.to_matrix()?;
            let ours = kernel_product(&map, some, y, c)?.to_matrix()?;
            error = Some(relative_error(&ours, &exact));
            (seconds, memory, 4.0 * (length * features * (columns + values)) as f64)
        }
    };
    Ok(Measured {
        work,
        length,
        features,
        exact: exact_keys,
        dim,
        heads,
        batch,
        masked,
        packed,
        seconds,
        // Packing may take no time that the clock can tell, and has no such operations.
        gflops: if flops == 0.0 { 0.0 } else { flops / seconds / 1e9 },
        extra_bytes: memory,
        relative_error: error,
        break_even: break_even(length, length, work.causal()),
    })
}

/// What the first call with a new map takes longer than later ones.
fn pack(
    request: &BenchOptions,
    inputs: &Inputs,
    features: usize,
    options: &AttentionOptions<'_>,
) -> Result<f64> {
    let (q, k, v) =
        (inputs.tensor(&inputs.q)?, inputs.tensor(&inputs.k)?, inputs.tensor(&inputs.v)?);
    let mut out = vec![0.0_f32; inputs.v.len()];
    let mut call = |map: &FeatureMap| -> favor::Result<f64> {
        let start = Instant::now();
        attention_into(
            Method::Features(std::slice::from_ref(map)),
            Qkv::new(q, k, v),
            options,
            &mut out,
        )?;
        Ok(start.elapsed().as_secs_f64())
    };
    let (mut first, mut later) = (f64::INFINITY, f64::INFINITY);
    let began = Instant::now();
    let mut done = 0;
    while done < request.runs || began.elapsed() < LEAST {
        let map = inputs.map(request, features)?;
        first = first.min(call(&map)?);
        later = later.min(call(&map)?);
        done += 1;
    }
    Ok((first - later).max(0.0))
}

/// The error of the features against exact attention.
fn check(inputs: &Inputs, method: Method<'_>, options: &AttentionOptions<'_>) -> Result<f64> {
    let (q, k, v) =
        (inputs.tensor(&inputs.q)?, inputs.tensor(&inputs.k)?, inputs.tensor(&inputs.v)?);
    let [batch, heads, length, dim] = inputs.shape;
    let ours = attention(method, Qkv::new(q, k, v), options)?;
    let exact = attention(Method::Exact(Kernel::attention(dim)), Qkv::new(q, k, v), options)?;
    let matrix = |v| Matrix::new(v, batch * heads * length, dim);
    Ok(relative_error(&matrix(ours)?, &matrix(exact)?))
}

/// Short work is repeated for this long: processors take a while to come up to speed.
const LEAST: Duration = Duration::from_millis(500);

/// The best time of several runs, and the memory of the first.
fn time(runs: usize, mut run: impl FnMut() -> favor::Result<()>) -> Result<(f64, Option<u64>)> {
    let (first, memory) = memory::rise(|| {
        let start = Instant::now();
        run().map(|()| start.elapsed().as_secs_f64())
    });
    let mut best = first.map_err(Error::from)?;
    let began = Instant::now();
    let mut done = 1;
    while done < runs || began.elapsed() < LEAST {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64());
        done += 1;
    }
    Ok((best, memory))
}
