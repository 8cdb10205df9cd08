//! Work on the state of decoding: prompts and single tokens.

use super::inputs::Inputs;
use favor::{DecodeState, ExactKeys, FeatureMap, Result, Tensor};

/// Tokens of a piece of a prompt.
const PIECE: usize = 512;

/// Tokens measured together: one alone is too short for the clock.
pub(super) const TOKENS: usize = 192;

/// The state before the first token.
fn state(inputs: &Inputs, map: &FeatureMap, exact: ExactKeys) -> Result<DecodeState<f32>> {
    let [batch, heads, _, dim] = inputs.shape;
    DecodeState::new(vec![map.clone()], batch, heads, dim)?.exact_keys(&[exact])
}

/// Takes in all tokens, at once or in pieces; returns the size of the state.
pub(super) fn prompt<'a>(
    inputs: &'a Inputs,
    map: &FeatureMap,
    exact: ExactKeys,
    in_pieces: bool,
) -> Result<usize> {
    let [batch, heads, length, dim] = inputs.shape;
    let strides = [heads * length * dim, length * dim, dim, 1];
    let mut state = state(inputs, map, exact)?;
    let step = if in_pieces { PIECE } else { length };
    for start in (0..length).step_by(step) {
        let shape = [batch, heads, step.min(length - start), dim];
        let piece = |x: &'a [f32]| Tensor::with_strides(&x[start * dim..], shape, strides);
        state.advance(piece(&inputs.q[..])?, piece(&inputs.k[..])?, piece(&inputs.v[..])?)?;
    }
    Ok(state.size_in_bytes())
}

/// A state that goes on token by token.
pub(super) struct Decoder<'a> {
    state: DecodeState<f32>,
    shape: [usize; 4],
    tokens: Box<dyn Iterator<Item = &'a [f32]> + 'a>,
}

impl<'a> Decoder<'a> {
    /// After all tokens of the inputs.
    pub(super) fn new(inputs: &'a Inputs, map: &FeatureMap, exact: ExactKeys) -> Result<Self> {
        let [batch, heads, _, dim] = inputs.shape;
        let mut state = state(inputs, map, exact)?;
        let all = |x| Tensor::new(x, inputs.shape);
        state.advance(all(&inputs.q[..])?, all(&inputs.k[..])?, all(&inputs.v[..])?)?;
        // They are all new, as in a text.
        let tokens = inputs.k.chunks(batch * heads * dim).rev().cycle();
        Ok(Self { state, shape: [batch, heads, 1, dim], tokens: Box::new(tokens) })
    }

    /// [`TOKENS`] more tokens of every sequence.
    pub(super) fn run(&mut self) -> Result<()> {
        for token in self.tokens.by_ref().take(TOKENS) {
            let token = Tensor::new(token, self.shape)?;
            self.state.advance(token, token, token)?;
        }
        Ok(())
    }

    pub(super) fn size_in_bytes(&self) -> usize {
        self.state.size_in_bytes()
    }
}
