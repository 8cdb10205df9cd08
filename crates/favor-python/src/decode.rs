//! Decoding token by token.

use crate::arguments::{self, Maps, Routed, Unsigned, check_size, exact_keys};
use crate::arrays::{give, tensors};
use crate::attention::output_shape;
use crate::errors;
use crate::run::{at_once, run};
use half::{bf16, f16};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A state in any of the formats.
macro_rules! formats {
    ($($name:literal => $variant:ident($T:ty)),+) => {
        #[derive(Clone)]
        enum State {
            $($variant(favor::DecodeState<$T>)),+
        }

        impl State {
            fn new(
                dtype: &str,
                make: (Vec<favor::FeatureMap>, usize, usize, usize),
                exact: favor::ExactKeys,
            ) -> Result<Self, String> {
                let (maps, batch, heads, dim) = make;
                let state = match dtype {
                    $($name => favor::DecodeState::new(maps, batch, heads, dim)
                        .and_then(|state| state.exact_keys(&[exact]))
                        .map(Self::$variant),)+
                    _ => return Err(unknown(dtype)),
                };
                state.map_err(|e| e.to_string())
            }

            fn from_bytes(
                dtype: &str,
                maps: Vec<favor::FeatureMap>,
                bytes: &[u8],
            ) -> Result<Self, String> {
                let state = match dtype {
                    $($name => favor::DecodeState::from_bytes(maps, bytes).map(Self::$variant),)+
                    _ => return Err(unknown(dtype)),
                };
                state.map_err(|e| e.to_string())
            }

            fn to_bytes(&self) -> favor::Result<Vec<u8>> {
                match self { $(Self::$variant(s) => s.to_bytes()),+ }
            }

            fn tokens(&self) -> usize {
                match self { $(Self::$variant(s) => s.tokens()),+ }
            }

            fn size_in_bytes(&self) -> usize {
                match self { $(Self::$variant(s) => s.size_in_bytes()),+ }
            }

            fn dtype(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name),+ }
            }
        }

        fn unknown(dtype: &str) -> String {
            format!("dtype: '{dtype}' is not one of {}", [$($name),+].join(", "))
        }

        $(impl Format for $T {
            const NAME: &'static str = $name;
            fn get(state: &mut State) -> Option<&mut favor::DecodeState<Self>> {
                if let State::$variant(s) = state { Some(s) } else { None }
            }
        })+
    };
}

/// A format with its place in the state.
trait Format: favor::Scalar {
    const NAME: &'static str;
    fn get(state: &mut State) -> Option<&mut favor::DecodeState<Self>>;
}

formats!(
    "float16" => Half(f16),
    "bfloat16" => Brain(bf16),
    "float32" => Single(f32),
    "float64" => Double(f64)
);

/// The state of causal attention after some tokens, for a batch of sequences.
#[pyclass(module = "favor_sharp")]
pub(crate) struct DecodeState {
    state: State,
    features: usize,
}

#[pymethods]
impl DecodeState {
    #[new]
    #[pyo3(signature = (maps, *, batch=Unsigned(1), heads=Unsigned(1), value_dim, near=Unsigned(0),
                        global_keys=Unsigned(0), routed=None, dtype="float32"))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        maps: Maps,
        batch: Unsigned,
        heads: Unsigned,
        value_dim: Unsigned,
        near: Unsigned,
        global_keys: Unsigned,
        routed: Option<Routed>,
        dtype: &str,
    ) -> PyResult<Self> {
        let (batch, heads, dim) = (batch.count(), heads.count(), value_dim.count());
        let features = maps.features();
        check_size("decode state", &[batch, heads, dim, features.max(1)])?;
        let (dtype, exact) = (dtype.to_owned(), exact_keys(near, global_keys, routed));
        let state = run(py, 0.0, move |_| State::new(&dtype, (maps.0, batch, heads, dim), exact))?;
        Ok(Self { state, features })
    }

    /// Tokens seen so far.
    #[getter]
    fn tokens(&self) -> usize {
        self.state.tokens()
    }

    /// The memory of what is kept of the tokens, without the maps.
    #[getter]
    fn size_in_bytes(&self) -> usize {
        self.state.size_in_bytes()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.state.dtype()
    }

    /// Attends from new tokens to themselves and everything before them, and adds them.
    fn advance(
        &mut self,
        py: Python<'_>,
        q: &Bound<'_, PyAny>,
        k: &Bound<'_, PyAny>,
        v: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let own = self.dtype();
        tensors!(|T, q, k, v| {
            let Some(state) = T::get(&mut self.state) else {
                let given = T::NAME;
                return Err(errors::kind(format!("q holds {given}; the state is of {own}")));
            };
            let shape = output_shape(&q.shape, &v.shape);
            let work = arguments::work(&q.shape, &k.shape, &v.shape, Some(self.features));
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
        Self { state: self.state.clone(), features: self.features }
    }

    fn __copy__(&self) -> Self {
        self.copy()
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        self.copy()
    }

    /// The state as bytes, without the maps.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.state.to_bytes().map_err(errors::library)?))
    }

    /// Takes up a state where `to_bytes` left it, with the same maps.
    #[staticmethod]
    #[pyo3(signature = (maps, bytes, *, dtype="float32"))]
    fn from_bytes(maps: Maps, bytes: &[u8], dtype: &str) -> PyResult<Self> {
        let features = maps.features();
        let state = State::from_bytes(dtype, maps.0, bytes).map_err(errors::value)?;
        Ok(Self { state, features })
    }

    fn __repr__(&self) -> String {
        format!("DecodeState(tokens={}, dtype='{}')", self.tokens(), self.dtype())
    }
}
