//! Decoding: the sums over all tokens so far, one token at a time in `O(M·d)` however many came
//! before.

use super::mode::walk;
use crate::engine::tensor::{Scalar, Tensor};
use crate::engine::tile::Sums;
use crate::store::{Array, Kind};
use crate::{Error, FeatureMap, Float, Qkv, Result};
use rayon::prelude::*;
use safetensors::tensor::Dtype;

const KIND: Kind = Kind::new("favor.decode_state", "decode state", 2);

/// The state of causal attention after some tokens, for a batch of sequences.
///
/// ```
/// use favor::{AttentionOptions, DecodeState, Family, FeatureSpec, Kernel, Method, Moments, Qkv, Rows};
/// use favor::{Tensor, attention};
/// let x: Vec<f64> = (0..10 * 4).map(|i| (i as f64).sin()).collect();
/// let m = Moments::of(Rows::new(&x, 10, 4)?)?;
/// let maps = vec![FeatureSpec::new(Family::Balanced, 16).kernel(Kernel::attention(4)).fit(&m, &m)?];
/// let all = Tensor::new(&x, [1, 1, 10, 4])?;
/// let causal = AttentionOptions::new().causal(true);
/// let batch = attention(Method::Features(&maps), Qkv::new(all, all, all), &causal)?;
///
/// let mut state = DecodeState::<f64>::new(maps, 1, 1, 4)?;
/// let first = Tensor::new(&x[..36], [1, 1, 9, 4])?;
/// state.advance(first, first, first)?; // prefill
/// let last = Tensor::new(&x[36..], [1, 1, 1, 4])?;
/// let out = state.advance(last, last, last)?; // one token
/// assert!((out[0] - batch[36]).abs() < 1e-12);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct DecodeState<T: Scalar> {
    maps: Vec<FeatureMap>,
    batch: usize,
    heads: usize,
    columns: usize,
    sums: Vec<Sums<T::Real>>,
}

impl<T: Scalar> DecodeState<T> {
    /// The state before the first token, for values of dimension `value_dim`. `maps` holds one map
    /// for all heads, or one a head; they must be positive and fitted beforehand.
    pub fn new(
        maps: Vec<FeatureMap>,
        batch: usize,
        heads: usize,
        value_dim: usize,
    ) -> Result<Self> {
        if batch == 0 || heads == 0 || value_dim == 0 {
            let reason = format!("batch {batch}, heads {heads}, value dim {value_dim}");
            return Err(Error::invalid("decode state", reason));
        }
        if maps.len() != 1 && maps.len() != heads {
            return Err(Error::invalid("maps", format!("{} maps for {heads} heads", maps.len())));
        }
        let mut sums = Vec::with_capacity(batch * heads);
        for i in 0..batch * heads {
            let map = &maps[if maps.len() == 1 { 0 } else { i % heads }];
            let packed = map.packed::<T::Real>().ok_or_else(not_positive)?;
            sums.push(Sums::new(&packed.key, value_dim));
        }
        Ok(Self { maps, batch, heads, columns: value_dim, sums })
    }

    /// Tokens seen so far.
    pub fn tokens(&self) -> usize {
        self.sums[0].keys
    }

    /// Attends from new tokens to themselves and everything before them, and adds them to the
    /// state: a whole prompt, or one token. On an error the state is as it was.
    pub fn advance(
        &mut self,
        q: Tensor<'_, T>,
        k: Tensor<'_, T>,
        v: Tensor<'_, T>,
    ) -> Result<Vec<T>> {
        T::advance(self, Qkv::new(q, k, v))
    }

    /// The state as bytes of a safetensors file, without the maps.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let features = self.maps[0].features();
        let (mut exponents, mut totals, mut values) = (vec![], vec![], vec![]);
        for sums in &self.sums {
            let put = |out: &mut Vec<u8>, x: &T::Real| out.extend(x.to_f64().to_le_bytes());
            sums.exponents[..features].iter().for_each(|x| put(&mut exponents, x));
            sums.totals[..features].iter().for_each(|x| put(&mut totals, x));
            for row in sums.values.chunks(sums.width).take(features) {
                row[..self.columns].iter().for_each(|x| put(&mut values, x));
            }
        }
        let (b, h, c) = (self.batch, self.heads, self.columns);
        let arrays = vec![
            Array::new("exponents", Dtype::F64, [b, h, features], exponents),
            Array::new("totals", Dtype::F64, [b, h, features], totals),
            Array::new("values", Dtype::F64, [b, h, features, c], values),
        ];
        KIND.write(&self.tokens(), arrays)
    }

    /// Takes up a state where [`DecodeState::to_bytes`] left it, with the same maps.
    pub fn from_bytes(maps: Vec<FeatureMap>, bytes: &[u8]) -> Result<Self> {
        let bad = |reason: &str| KIND.bad(reason);
        let file = KIND.read::<usize>(bytes)?;
        let (tokens, (shape, values)) = (file.contents, file.f64("values")?);
        let &[batch, heads, features, columns] = &shape[..] else {
            return Err(bad("values of the wrong shape"));
        };
        if maps.iter().any(|m| m.features() != features) {
            return Err(bad("the maps have another number of features"));
        }
        let ((_, exponents), (_, totals)) = (file.f64("exponents")?, file.f64("totals")?);
        let mut state = Self::new(maps, batch, heads, columns)?;
        let count = batch * heads * features;
        let finite = totals.iter().chain(&values).all(|v| v.is_finite())
            && exponents.iter().all(|e| !e.is_nan() && *e < f64::INFINITY);
        if exponents.len() != count || totals.len() != count || !finite {
            return Err(bad("sums of the wrong shape or not finite"));
        }
        for (i, sums) in state.sums.iter_mut().enumerate() {
            let own = |all: &[f64], m: usize| T::Real::from_f64(all[i * features + m]);
            for m in 0..features {
                sums.exponents[m] = own(&exponents, m);
                sums.totals[m] = own(&totals, m);
                let row = &values[(i * features + m) * columns..][..columns];
                let target = &mut sums.values[m * sums.width..][..columns];
                target.iter_mut().zip(row).for_each(|(t, v)| *t = T::Real::from_f64(*v));
            }
            // Columns beyond the last feature are copies of it.
            let last = sums.exponents[features - 1];
            sums.exponents[features..].fill(last);
            sums.keys = tokens;
        }
        Ok(state)
    }
}

pub(crate) fn advance<T: Scalar>(state: &mut DecodeState<T>, inputs: Qkv<'_, T>) -> Result<Vec<T>> {
    let Qkv { q, k, v } = inputs;
    let [batch, heads, length, dim] = q.shape();
    let expected = [batch, heads, length, state.columns];
    if (batch, heads) != (state.batch, state.heads)
        || k.shape() != q.shape()
        || v.shape() != expected
    {
        return Err(Error::invalid(
            "tensors",
            format!(
                "queries {:?}, keys {:?} and values {:?} do not fit a state of batch {}, {} heads \
                     and values of dimension {}",
                q.shape(),
                k.shape(),
                v.shape(),
                state.batch,
                state.heads,
                state.columns
            ),
        ));
    }
    if let Some(map) = state.maps.iter().find(|m| m.dim() != dim) {
        let reason = format!("a map of dimension {} for heads of {dim}", map.dim());
        return Err(Error::invalid("maps", reason));
    }
    let mut out = vec![T::default(); batch * heads * length * state.columns];
    if length == 0 {
        return Ok(out);
    }
    let DecodeState { maps, sums, columns, .. } = state;
    let one = |i: usize, sums: &Sums<T::Real>, out: &mut [T]| {
        let map = &maps[if maps.len() == 1 { 0 } else { i % heads }];
        let packed = map.packed::<T::Real>().ok_or_else(not_positive)?;
        let inputs = (
            q.head(i / heads, i % heads, 0, length),
            k.head(i / heads, i % heads, 0, length),
            v.head(i / heads, i % heads, 0, length),
        );
        walk(inputs, packed, sums.clone(), None, 0, out)
    };
    let parts = out.chunks_mut(length * *columns);
    // A single token is too little work to share out.
    let next: Result<Vec<_>> = if length * batch * heads < 64 {
        parts.zip(sums.iter()).enumerate().map(|(i, (o, s))| one(i, s, o)).collect()
    } else {
        let parts: Vec<_> = parts.zip(sums.iter()).enumerate().collect();
        parts.into_par_iter().map(|(i, (o, s))| one(i, s, o)).collect()
    };
    *sums = next?;
    Ok(out)
}

fn not_positive() -> Error {
    let reason = "decoding needs a positive family whose numbers fit the data's format";
    Error::invalid("maps", reason)
}
