//! Decoding: the sums over all tokens so far, one token at a time in `O(M·d)` however many came
//! before.

mod part;
mod store;

use crate::attention::Shapes;
use crate::engine::mode::Tools;
use crate::engine::tensor::{Scalar, Tensor};
use crate::{Error, ExactKeys, FeatureMap, Qkv, Result};
use part::{How, Part, Step};
use rayon::prelude::*;

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
    /// What single tokens are computed in.
    tools: Tools<T::Real>,
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
        let (parts, tools) = (vec![], Tools::none());
        let mut state = Self { maps, batch, heads, columns: value_dim, exact, parts, tools };
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
        self.exact = exact.to_vec();
        (0..self.heads).try_for_each(|h| self.exact_of(h).check(self.map(h).features()))?;
        self.start()?;
        Ok(self)
    }

    /// Forgets all tokens.
    fn start(&mut self) -> Result<()> {
        let places = 0..self.batch * self.heads;
        let parts: Result<_> = places.map(|i| Part::new(self.how(i), self.columns)).collect();
        self.parts = parts?;
        Ok(())
    }

    fn how(&self, place: usize) -> How<'_> {
        How { map: self.map(place), exact: self.exact_of(place) }
    }

    fn map(&self, place: usize) -> &FeatureMap {
        &self.maps[if self.maps.len() == 1 { 0 } else { place % self.heads }]
    }

    fn exact_of(&self, place: usize) -> ExactKeys {
        self.exact[if self.exact.len() == 1 { 0 } else { place % self.heads }]
    }

    /// Tokens seen so far.
    pub fn tokens(&self) -> usize {
        self.parts[0].tokens()
    }

    /// The memory of what is kept of the tokens, without the maps.
    pub fn size_in_bytes(&self) -> usize {
        self.parts.iter().map(Part::size_in_bytes).sum()
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
}

pub(crate) fn advance<T: Scalar>(state: &mut DecodeState<T>, inputs: Qkv<'_, T>) -> Result<Vec<T>> {
    let shapes = Shapes::of(&inputs);
    // A prompt may have no tokens.
    shapes.check_fit(false, true)?;
    let Qkv { q, k, v } = inputs;
    let [batch, heads, length, dim] = q.shape();
    let DecodeState { batch: own_batch, heads: own_heads, columns, .. } = *state;
    if shapes.output() != [own_batch, own_heads, length, columns] {
        let own = format!("batch {own_batch}, {own_heads} heads and values of dimension {columns}");
        return Err(Error::invalid("tensors", format!("{shapes} for a state of {own}")));
    }
    if let Some(map) = state.maps.iter().find(|m| m.dim() != dim) {
        let reason = format!("a map of dimension {} for heads of {dim}", map.dim());
        return Err(Error::invalid("maps", reason));
    }
    let mut out = vec![T::default(); batch * heads * length * columns];
    if length == 0 {
        return Ok(out);
    }
    let inputs = |i: usize| {
        let (b, h) = (i / heads, i % heads);
        (q.head(b, h, 0, length), k.head(b, h, 0, length), v.head(b, h, 0, length))
    };
    let mut parts = std::mem::take(&mut state.parts);
    let mut tools = std::mem::replace(&mut state.tools, Tools::none());
    let how = |i: usize| state.how(i);
    let outputs = out.chunks_mut(length * columns);
    // A single token is too little work to share out.
    let few = length * batch * heads < 64;
    let steps: Vec<Result<Step<T::Real>>> = if few {
        let work = outputs.zip(&mut parts).enumerate();
        work.map(|(i, (out, part))| part.advance(how(i), inputs(i), out, &mut tools)).collect()
    } else {
        let work: Vec<_> = outputs.zip(&mut parts).enumerate().collect();
        let one = |tools: &mut Tools<_>, (i, (out, part)): (_, (&mut [T], &mut Part<_>))| {
            part.advance(how(i), inputs(i), out, tools)
        };
        work.into_par_iter().map_init(Tools::none, one).collect()
    };
    if steps.iter().any(Result::is_err) {
        let mut result = Ok(out);
        for (part, step) in parts.iter_mut().zip(steps) {
            match step {
                Ok(step) => part.undo(step),
                Err(error) => result = result.and(Err(error)),
            }
        }
        (state.parts, state.tools) = (parts, tools);
        return result;
    }
    let commit = |tools: &mut Tools<_>, (i, (part, step)): (_, (&mut Part<_>, _))| {
        part.commit(step, how(i), inputs(i), tools);
    };
    let work = parts.iter_mut().zip(steps.into_iter().flatten()).enumerate();
    if few {
        work.for_each(|task| commit(&mut tools, task));
    } else {
        let work: Vec<_> = work.collect();
        work.into_par_iter().for_each_init(Tools::none, commit);
    }
    (state.parts, state.tools) = (parts, tools);
    Ok(out)
}
