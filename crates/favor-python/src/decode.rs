//! Decoding token by token.

use crate::arguments::{self, Whole, check_size};
use crate::arrays::{self, by_type, give, read_tensor};
use crate::attention::output_shape;
use crate::errors;
use crate::run::{at_once, run};
use half::f16;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A state in each of the formats.
enum State {
    Half(favor::DecodeState<f16>),
    Single(favor::DecodeState<f32>),
    Double(favor::DecodeState<f64>),
}

/// Calls `$body` on the state, whatever its format.
macro_rules! each {
    ($state:expr, |$s:ident| $body:expr) => {
        match $state {
            State::Half($s) => $body,
            State::Single($s) => $body,
            State::Double($s) => $body,
        }
    };
}

/// A format with its place in the state.
trait Format: favor::Number {
    fn get(state: &mut State) -> Option<&mut favor::DecodeState<Self>>;
}

macro_rules! has_place {
    ($T:ty, $variant:ident) => {
        impl Format for $T {
            fn get(state: &mut State) -> Option<&mut favor::DecodeState<Self>> {
                if let State::$variant(s) = state { Some(s) } else { None }
            }
        }
    };
}
has_place!(f16, Half);
has_place!(f32, Single);
has_place!(f64, Double);

/// The state of causal attention after some tokens, for a batch of sequences.
#[pyclass(module = "favor_sharp")]
pub(crate) struct DecodeState {
    state: State,
    maps: Vec<favor::FeatureMap>,
}

#[pymethods]
impl DecodeState {
    #[new]
    #[pyo3(signature = (maps, *, batch=Whole(1), heads=Whole(1), value_dim, dtype="float32"))]
    fn new(
        py: Python<'_>,
        maps: &Bound<'_, PyAny>,
        batch: Whole,
        heads: Whole,
        value_dim: Whole,
        dtype: &str,
    ) -> PyResult<Self> {
        let maps = arguments::maps(maps)?;
        let (copy, dtype) = (maps.clone(), dtype.to_owned());
        let (b, h, d) = (batch.count(), heads.count(), value_dim.count());
        let features = maps.first().map_or(1, favor::FeatureMap::features);
        check_size("decode state", &[b, h, d, features])?;
        let state = run(py, 0.0, move |_| {
            let state = match dtype.as_str() {
                "float16" => favor::DecodeState::new(copy, b, h, d).map(State::Half),
                "float32" => favor::DecodeState::new(copy, b, h, d).map(State::Single),
                "float64" => favor::DecodeState::new(copy, b, h, d).map(State::Double),
                _ => return Err(wrong_dtype(&dtype)),
            };
            state.map_err(|e| e.to_string())
        })?;
        Ok(Self { state, maps })
    }

    /// Tokens seen so far.
    #[getter]
    fn tokens(&self) -> usize {
        each!(&self.state, |s| s.tokens())
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        match self.state {
            State::Half(_) => "float16",
            State::Single(_) => "float32",
            State::Double(_) => "float64",
        }
    }

    /// Attends from new tokens to themselves and everything before them, and adds them.
    fn advance(
        &mut self,
        py: Python<'_>,
        q: &Bound<'_, PyAny>,
        k: &Bound<'_, PyAny>,
        v: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let (q, k, v) = (arrays::array("q", q)?, arrays::array("k", k)?, arrays::array("v", v)?);
        let types = [("q", &q), ("k", &k), ("v", &v)];
        let own = self.dtype();
        by_type!(["float16" => f16, "float32" => f32, "float64" => f64], &types, |T| {
            let Some(state) = T::get(&mut self.state) else {
                let kind = arrays::dtype(&q)?;
                return Err(errors::kind(format!("q holds {kind}; the state is of {own}")));
            };
            let (q, k) = (read_tensor::<T>("q", &q)?, read_tensor::<T>("k", &k)?);
            let v = read_tensor::<T>("v", &v)?;
            let shape = output_shape(&q.shape, &v.shape);
            let features = self.maps.first().map_or(0, favor::FeatureMap::features);
            let work = arguments::work(&q.shape, &k.shape, &v.shape, Some(features));
            // The state itself stays as it is until all is done, so that an interrupted call leaves
            // no trace. A short call cannot be interrupted and needs no copy.
            if work < 1e6 {
                let out = at_once(|| state.advance(q.tensor()?, k.tensor()?, v.tensor()?))?;
                return give(py, out, &shape);
            }
            let mut next = state.clone();
            let (out, next) = run(py, work, move |_| {
                let out = next.advance(q.tensor()?, k.tensor()?, v.tensor()?)?;
                Ok::<_, favor::Error>((out, next))
            })?;
            *state = next;
            give(py, out, &shape)
        })
    }

    /// A state of its own after the same tokens, for continuations that part here.
    fn copy(&self) -> Self {
        let state = match &self.state {
            State::Half(s) => State::Half(s.clone()),
            State::Single(s) => State::Single(s.clone()),
            State::Double(s) => State::Double(s.clone()),
        };
        Self { state, maps: self.maps.clone() }
    }

    fn __copy__(&self) -> Self {
        self.copy()
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        self.copy()
    }

    /// The state as bytes, without the maps.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = each!(&self.state, |s| s.to_bytes()).map_err(errors::library)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Takes up a state where `to_bytes` left it, with the same maps.
    #[staticmethod]
    #[pyo3(signature = (maps, bytes, *, dtype="float32"))]
    fn from_bytes(maps: &Bound<'_, PyAny>, bytes: &[u8], dtype: &str) -> PyResult<Self> {
        let maps = arguments::maps(maps)?;
        let copy = maps.clone();
        let state = match dtype {
            "float16" => favor::DecodeState::from_bytes(copy, bytes).map(State::Half),
            "float32" => favor::DecodeState::from_bytes(copy, bytes).map(State::Single),
            "float64" => favor::DecodeState::from_bytes(copy, bytes).map(State::Double),
            _ => return Err(errors::value(wrong_dtype(dtype))),
        };
        Ok(Self { state: state.map_err(errors::library)?, maps })
    }

    fn __repr__(&self) -> String {
        format!("DecodeState(tokens={}, dtype='{}')", self.tokens(), self.dtype())
    }
}

fn wrong_dtype(dtype: &str) -> String {
    format!("dtype: '{dtype}' is none of float16, float32, float64")
}
