//! Decoding: the sums over all tokens so far, one token at a time in `O(M·d)` however many came
//! before.

use super::mode::{Hybrid, State, StateUndo, Tools, walk};
use crate::engine::tensor::{Scalar, Tensor};
use crate::engine::tile::Sums;
use crate::store::{Array, Kind};
use crate::{Error, ExactKeys, FeatureMap, Float, Qkv, Result};
use rayon::prelude::*;
use safetensors::tensor::Dtype;
use serde::{Deserialize, Serialize};

const KIND: Kind = Kind::new("favor.decode_state", "decode state", 4);

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
    /// One for all heads, or one per head.
    exact: Vec<ExactKeys>,
    parts: Vec<Part<T::Real>>,
}

/// What is kept of the tokens of one head.
#[derive(Debug, Clone)]
enum Part<R> {
    Features(Sums<R>),
    Hybrid(Box<State<R>>),
}

impl<R> Part<R> {
    fn sums(&self) -> &Sums<R> {
        match self {
            Self::Features(sums) => sums,
            Self::Hybrid(state) => &state.sums,
        }
    }

    fn sums_mut(&mut self) -> &mut Sums<R> {
        match self {
            Self::Features(sums) => sums,
            Self::Hybrid(state) => &mut state.sums,
        }
    }
}

/// The header of a stored state.
#[derive(Serialize, Deserialize)]
struct Header {
    tokens: usize,
    exact: Vec<ExactKeys>,
}

impl<T: Scalar> DecodeState<T> {
    /// The state before the first token, for values of dimension `value_dim`. `maps` holds one map
    /// for all heads, or one per head; they must be positive and fitted beforehand.
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
        let exact = vec![ExactKeys::NONE];
        let mut state = Self { maps, batch, heads, columns: value_dim, exact, parts: vec![] };
        state.start()?;
        Ok(state)
    }

    /// The same with keys that are exact, one entry for all heads or one per head, before the first token.
    /// Memory and the time of a token then grow with the number of exact keys, and stay flat in the
    /// number of tokens.
    ///
    /// ```
    /// use favor::{DecodeState, ExactKeys, Family, FeatureSpec, Kernel, Moments, Rows, Tensor};
    /// let x: Vec<f64> = (0..10 * 4).map(|i| (i as f64).sin()).collect();
    /// let m = Moments::of(Rows::new(&x, 10, 4)?)?;
    /// let maps = vec![FeatureSpec::new(Family::Balanced, 16).kernel(Kernel::attention(4)).fit(&m, &m)?];
    /// let exact = ExactKeys::NONE.near(4).routed(2, 2);
    /// let mut state = DecodeState::<f64>::new(maps, 1, 1, 4)?.exact_keys(&[exact])?;
    /// let all = Tensor::new(&x, [1, 1, 10, 4])?;
    /// assert_eq!(state.advance(all, all, all)?.len(), 40);
    /// assert!(state.size_in_bytes() > 0);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn exact_keys(mut self, exact: &[ExactKeys]) -> Result<Self> {
        let bad = |reason: String| Err(Error::invalid("exact keys", reason));
        if self.tokens() > 0 {
            return bad(format!("set after {} tokens", self.tokens()));
        }
        if exact.len() != 1 && exact.len() != self.heads {
            return bad(format!("{} entries for {} heads", exact.len(), self.heads));
        }
        if exact.iter().any(ExactKeys::is_all) {
            return bad("decoding keeps a window, not all keys".into());
        }
        let features = self.maps.iter().map(FeatureMap::features).min().unwrap_or(0);
        if let Some(e) = exact.iter().find(|e| e.slots > features) {
            return bad(format!("{} preferred slots of {features} features", e.slots));
        }
        self.exact = exact.to_vec();
        self.start()?;
        Ok(self)
    }

    /// Forgets all tokens.
    fn start(&mut self) -> Result<()> {
        self.parts.clear();
        for i in 0..self.batch * self.heads {
            let (map, exact) = (self.map(i), self.exact_of(i));
            let packed = map.packed::<T::Real>().ok_or_else(not_positive)?;
            let part = if exact.is_none() {
                Part::Features(Sums::new(&packed.key, self.columns))
            } else {
                let hybrid = Hybrid::new(map, exact).ok_or_else(not_positive)?;
                Part::Hybrid(Box::new(State::new(&hybrid, self.columns)))
            };
            self.parts.push(part);
        }
        Ok(())
    }

    fn map(&self, place: usize) -> &FeatureMap {
        &self.maps[if self.maps.len() == 1 { 0 } else { place % self.heads }]
    }

    fn exact_of(&self, place: usize) -> ExactKeys {
        self.exact[if self.exact.len() == 1 { 0 } else { place % self.heads }]
    }

    /// Tokens seen so far.
    pub fn tokens(&self) -> usize {
        self.parts[0].sums().keys
    }

    /// The memory of what is kept of the tokens, without the maps.
    pub fn size_in_bytes(&self) -> usize {
        let size = |part: &Part<T::Real>| match part {
            Part::Features(sums) => {
                let numbers = sums.values.len() + sums.totals.len() + sums.exponents.len();
                numbers * size_of::<T::Real>()
            }
            Part::Hybrid(state) => state.size_in_bytes(),
        };
        self.parts.iter().map(size).sum()
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
        for sums in self.parts.iter().map(Part::sums) {
            let put = |out: &mut Vec<u8>, x: &T::Real| out.extend(x.to_f64().to_le_bytes());
            sums.exponents[..features].iter().for_each(|x| put(&mut exponents, x));
            sums.totals[..features].iter().for_each(|x| put(&mut totals, x));
            for row in sums.values.chunks(sums.width).take(features) {
                row[..self.columns].iter().for_each(|x| put(&mut values, x));
            }
        }
        let (b, h, c) = (self.batch, self.heads, self.columns);
        let mut arrays = vec![
            Array::new("exponents", Dtype::F64, [b, h, features], exponents),
            Array::new("totals", Dtype::F64, [b, h, features], totals),
            Array::new("values", Dtype::F64, [b, h, features, c], values),
        ];
        for (i, part) in self.parts.iter().enumerate() {
            if let Part::Hybrid(state) = part {
                arrays.extend(state.to_arrays(i));
            }
        }
        KIND.write(&Header { tokens: self.tokens(), exact: self.exact.clone() }, arrays)
    }

    /// Takes up a state where [`DecodeState::to_bytes`] left it, with the same maps.
    pub fn from_bytes(maps: Vec<FeatureMap>, bytes: &[u8]) -> Result<Self> {
        let bad = |reason: &str| KIND.bad(reason);
        let file = KIND.read::<Header>(bytes)?;
        let (shape, values) = file.f64("values")?;
        let tokens = file.contents.tokens;
        let &[batch, heads, features, columns] = &shape[..] else {
            return Err(bad("values of the wrong shape"));
        };
        if maps.iter().any(|m| m.features() != features) {
            return Err(bad("the maps have another number of features"));
        }
        let ((_, exponents), (_, totals)) = (file.f64("exponents")?, file.f64("totals")?);
        let state = Self::new(maps, batch, heads, columns)?;
        let mut state = state.exact_keys(&file.contents.exact)?;
        let count = batch * heads * features;
        let finite = totals.iter().chain(&values).all(|v| v.is_finite())
            && exponents.iter().all(|e| !e.is_nan() && *e < f64::INFINITY);
        if exponents.len() != count || totals.len() != count || !finite {
            return Err(bad("sums of the wrong shape or not finite"));
        }
        for i in 0..batch * heads {
            let exact = state.exact_of(i);
            let hybrid = Hybrid::<T::Real>::new(state.map(i), exact);
            let hybrid = hybrid.map(|h| h.shape(columns));
            if let (Part::Hybrid(part), Some(shape)) = (&mut state.parts[i], hybrid) {
                part.restore(shape, &file, i, tokens)?;
            }
            let sums = state.parts[i].sums_mut();
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
    let columns = state.columns;
    let inputs = |i: usize| {
        let (b, h) = (i / heads, i % heads);
        (q.head(b, h, 0, length), k.head(b, h, 0, length), v.head(b, h, 0, length))
    };
    let mut parts = std::mem::take(&mut state.parts);
    let state_of = &*state;
    let one = |i: usize,
               part: &mut Part<T::Real>,
               out: &mut [T],
               tools: &mut Option<Tools<T::Real>>|
     -> Result<Undo<T::Real>> {
        let map = state_of.map(i);
        match part {
            Part::Features(sums) => {
                let packed = map.packed::<T::Real>().ok_or_else(not_positive)?;
                let next = walk(inputs(i), packed, sums.clone(), None, 0, out)?;
                Ok(Undo::Features(std::mem::replace(sums, next)))
            }
            Part::Hybrid(part) => {
                let hybrid = Hybrid::new(map, state_of.exact_of(i)).ok_or_else(not_positive)?;
                part.advance(&hybrid, inputs(i), out, tools).map(Undo::Hybrid)
            }
        }
    };
    let outputs = out.chunks_mut(length * columns);
    // A single token is too little work to share out.
    let undos: Vec<Result<_>> = if length * batch * heads < 64 {
        let (work, mut tools) = (outputs.zip(&mut parts).enumerate(), None);
        work.map(|(i, (out, part))| one(i, part, out, &mut tools)).collect()
    } else {
        let work: Vec<_> = outputs.zip(&mut parts).enumerate().collect();
        work.into_par_iter().map(|(i, (out, part))| one(i, part, out, &mut None)).collect()
    };
    let failed = undos.iter().any(Result::is_err);
    let mut result = Ok(());
    for (part, undo) in parts.iter_mut().zip(undos) {
        match (part, undo) {
            (_, Err(error)) => result = result.and(Err(error)),
            (Part::Features(sums), Ok(Undo::Features(old))) if failed => *sums = old,
            (Part::Hybrid(part), Ok(Undo::Hybrid(undo))) if failed => part.undo(undo),
            _ => {}
        }
    }
    state.parts = parts;
    result.map(|()| out)
}

/// What a head was before it was led on.
enum Undo<R> {
    Features(Sums<R>),
    Hybrid(StateUndo<R>),
}

fn not_positive() -> Error {
    let reason = "decoding needs a positive family whose numbers fit the data's format";
    Error::invalid("maps", reason)
}
