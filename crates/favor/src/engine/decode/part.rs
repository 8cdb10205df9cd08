//! What is kept of the tokens of one head.

use crate::engine::mode::{Hybrid, State, StateUndo, Tools, walk_on};
use crate::engine::tensor::{Scalar, Strided};
use crate::engine::tile::{Pending, Scratch, Sums};
use crate::map::{Cached, PackedSide};
use crate::simd::Constants;
use crate::{Error, ExactKeys, FeatureMap, Result};

type Inputs<'a, T> = (Strided<'a, T>, Strided<'a, T>, Strided<'a, T>);

/// How a head is computed.
#[derive(Clone, Copy)]
pub(super) struct How<'m> {
    pub(super) map: &'m FeatureMap,
    pub(super) exact: ExactKeys,
}

/// The state of a head.
#[derive(Debug, Clone)]
pub(super) enum Part<R> {
    /// Features alone.
    Features(Sums<R>),
    /// With exact keys; `f32` has the sums in `f64` too, in case its digits do not suffice.
    Hybrid(Box<State<R>>, Option<Box<WideSums<R>>>),
    /// With exact keys, since the digits of `R` did not suffice.
    Wide(Box<State<f64>>),
}

/// What some tokens made of a head.
pub(super) enum Step<R> {
    /// It has changed, and was this before.
    FromFeatures(Pending<R>),
    FromHybrid(StateUndo<R>),
    FromWide(StateUndo<f64>),
    /// It has not changed yet, and becomes this.
    ToWide(Box<State<f64>>),
}

impl<'m> How<'m> {
    fn hybrid<R: Cached>(self) -> Result<Hybrid<'m, R>> {
        Hybrid::new(self.map, self.exact).ok_or_else(not_positive)
    }

    fn keys<R: Cached>(self) -> Result<&'m PackedSide<R>> {
        self.map.packed::<R>().map(|map| &map.key).ok_or_else(not_positive)
    }
}

impl<R: Cached> Part<R> {
    /// Before the first token, for values of so many columns.
    pub(super) fn new(how: How<'_>, columns: usize) -> Result<Self> {
        if how.exact.is_none() {
            return Ok(Self::Features(Sums::new(how.keys()?, columns)));
        }
        let state = State::new(&how.hybrid()?, columns);
        let narrow = size_of::<R>() < size_of::<f64>();
        let wide = narrow.then(|| WideSums::new(how, columns)).transpose()?;
        Ok(Self::Hybrid(Box::new(state), wide.map(Box::new)))
    }

    /// Tokens so far.
    pub(super) fn tokens(&self) -> usize {
        match self {
            Self::Features(sums) => sums.keys,
            Self::Hybrid(state, _) => state.sums.keys,
            Self::Wide(state) => state.sums.keys,
        }
    }

    pub(super) fn size_in_bytes(&self) -> usize {
        match self {
            Self::Features(sums) => sums.size_in_bytes(),
            Self::Hybrid(state, wide) => {
                state.size_in_bytes() + wide.as_ref().map_or(0, |wide| wide.size_in_bytes())
            }
            Self::Wide(state) => state.size_in_bytes(),
        }
    }

    /// Attends from new tokens to themselves and all before. On an error nothing has changed.
    pub(super) fn advance<T: Scalar<Real = R>>(
        &mut self,
        how: How<'_>,
        inputs: Inputs<'_, T>,
        out: &mut [T],
        tools: &mut Tools<R>,
    ) -> Result<Step<R>> {
        match self {
            Self::Features(sums) => {
                let map = how.map.packed::<R>().ok_or_else(not_positive)?;
                walk_on(inputs, map, sums, out, &mut tools.walk).map(Step::FromFeatures)
            }
            Self::Hybrid(state, wide) => {
                match (state.advance(&how.hybrid()?, inputs, out, tools), wide) {
                    // A sequence would start again in `f64`. Its first tokens are gone, but not their sums.
                    (Err(Error::Overflow { .. }), Some(wide)) => {
                        let hybrid = how.hybrid::<f64>()?;
                        let sums = wide.settled(how.keys()?)?;
                        let mut state = state.widened(&hybrid, inputs.2.columns, sums)?;
                        let undo = advance_wide(&mut state, &hybrid, inputs, out)?;
                        state.settle(&undo);
                        Ok(Step::ToWide(Box::new(state)))
                    }
                    (undo, _) => undo.map(Step::FromHybrid),
                }
            }
            Self::Wide(state) => {
                advance_wide(state, &how.hybrid()?, inputs, out).map(Step::FromWide)
            }
        }
    }

    /// Makes a step last.
    pub(super) fn commit<T: Scalar<Real = R>>(
        &mut self,
        step: Step<R>,
        how: How<'_>,
        (_, k, v): Inputs<'_, T>,
        tools: &mut Tools<R>,
    ) {
        match (self, step) {
            (part, Step::ToWide(state)) => *part = Self::Wide(state),
            (Self::Features(sums), Step::FromFeatures(pending)) => {
                sums.settle(&pending, how.map.features());
            }
            (Self::Wide(state), Step::FromWide(undo)) => state.settle(&undo),
            (Self::Hybrid(state, wide), Step::FromHybrid(undo)) => {
                state.settle(&undo);
                // What `f32` could sum, `f64` can.
                let scratch = &mut tools.wide;
                let mut add = |wide: &mut WideSums<R>| wide.add(how.keys()?, (k, v), scratch);
                if wide.as_mut().is_some_and(|wide| add(wide).is_err()) {
                    *wide = None;
                }
            }
            _ => {}
        }
    }

    /// Takes a step back.
    pub(super) fn undo(&mut self, step: Step<R>) {
        match (self, step) {
            (Self::Features(sums), Step::FromFeatures(pending)) => sums.take_back(pending),
            (Self::Hybrid(state, _), Step::FromHybrid(undo)) => state.undo(undo),
            (Self::Wide(state), Step::FromWide(undo)) => state.undo(undo),
            _ => {}
        }
    }
}

/// The same in `f64`.
fn advance_wide<T: Scalar>(
    state: &mut State<f64>,
    hybrid: &Hybrid<'_, f64>,
    (q, k, v): Inputs<'_, T>,
    out: &mut [T],
) -> Result<StateUndo<f64>> {
    let (q, k, v) = (q.to_matrix(), k.to_matrix(), v.to_matrix());
    let inputs = (Strided::of(q.view()), Strided::of(k.view()), Strided::of(v.view()));
    let mut wide = vec![0.0; out.len()];
    let undo = state.advance(hybrid, inputs, &mut wide, &mut Tools::none())?;
    out.iter_mut().zip(&wide).for_each(|(out, x)| *out = T::narrow_f64(*x));
    Ok(undo)
}

/// The sums over all tokens of a head in `f64`.
#[derive(Debug, Clone)]
pub(super) struct WideSums<R> {
    sums: Sums<f64>,
    columns: usize,
    /// Keys and values that are not in the sums yet: one alone takes nearly as long as a block of them.
    keys: Vec<R>,
    values: Vec<R>,
}

impl<R: Cached> WideSums<R> {
    fn new(how: How<'_>, columns: usize) -> Result<Self> {
        Ok(Self::of(Sums::new(how.keys()?, columns), columns))
    }

    pub(super) fn of(sums: Sums<f64>, columns: usize) -> Self {
        Self { sums, columns, keys: vec![], values: vec![] }
    }

    fn add<T: Scalar<Real = R>>(
        &mut self,
        side: &PackedSide<f64>,
        (k, v): (Strided<'_, T>, Strided<'_, T>),
        scratch: &mut Option<Scratch<f64>>,
    ) -> Result<()> {
        for i in 0..k.rows {
            append_row(&mut self.keys, k, i);
            append_row(&mut self.values, v, i);
            if self.keys.len() == ExactKeys::BLOCK * side.dim {
                self.settle(side, scratch)?;
            }
        }
        Ok(())
    }

    /// Puts everything into the sums. Takes and leaves memory, if it fits.
    fn settle(&mut self, side: &PackedSide<f64>, memory: &mut Option<Scratch<f64>>) -> Result<()> {
        let wide = |numbers: &[R]| -> Vec<f64> { numbers.iter().map(|x| x.to_f64()).collect() };
        let (keys, values) = (wide(&self.keys), wide(&self.values));
        let rows: Vec<usize> = (0..keys.len() / side.dim).collect();
        let matrix = |data, columns| Strided {
            data,
            rows: rows.len(),
            columns,
            row_stride: columns,
            column_stride: 1,
        };
        let (k, v) = (matrix(&keys[..], side.dim), matrix(&values[..], self.columns));
        if !rows.is_empty() {
            let fits = |scratch: &Scratch<f64>| scratch.fits(side, self.columns, rows.len());
            if !memory.as_ref().is_some_and(fits) {
                *memory = None;
            }
            let new = || Scratch::new(side, self.columns, rows.len());
            self.sums.add(side, k, v, &rows, memory.get_or_insert_with(new))?;
        }
        self.keys.clear();
        self.values.clear();
        Ok(())
    }

    /// The sums over all tokens.
    pub(super) fn settled(&self, side: &PackedSide<f64>) -> Result<Sums<f64>> {
        let mut all = self.clone();
        all.settle(side, &mut None)?;
        Ok(all.sums)
    }

    fn size_in_bytes(&self) -> usize {
        self.sums.size_in_bytes() + (self.keys.len() + self.values.len()) * size_of::<R>()
    }
}

fn append_row<T: Scalar>(to: &mut Vec<T::Real>, from: Strided<'_, T>, row: usize) {
    let start = to.len();
    to.resize(start + from.columns, T::Real::ZERO);
    from.widen_row(row, &mut to[start..]);
}

pub(super) fn not_positive() -> Error {
    let reason = "decoding needs a positive family whose numbers fit the data's format";
    Error::invalid("maps", reason)
}
