//! Numbers as NumPy stores them.

use half::{bf16, f16};
use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

/// A number that NumPy can store, under this type or under one of the same layout.
pub(crate) trait Number: Copy + Send + Sync + 'static {
    /// What NumPy stores; of the same size and alignment, and every bit pattern of it is a number.
    type Stored: numpy::Element;

    /// The same numbers, as they are stored.
    fn stored(numbers: Vec<Self>) -> Vec<Self::Stored>;

    /// An array of this type as one of stored numbers, without a copy.
    fn as_stored<'py>(array: &Bound<'py, PyUntypedArray>) -> PyResult<Bound<'py, PyUntypedArray>> {
        Ok(array.clone())
    }

    /// An array of stored numbers as one of this type, without a copy.
    fn shown<'py>(array: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Ok(array)
    }
}

macro_rules! stored_as_they_are {
    ($($T:ty),+) => {
        $(impl Number for $T {
            type Stored = $T;
            fn stored(numbers: Vec<Self>) -> Vec<Self> {
                numbers
            }
        })+
    };
}
stored_as_they_are!(u8, f16, f32, f64);

// NumPy has no bfloat16: its bits travel in a record with one field of that name.
impl Number for bf16 {
    type Stored = u16;

    fn stored(numbers: Vec<Self>) -> Vec<u16> {
        numbers.into_iter().map(Self::to_bits).collect()
    }

    fn as_stored<'py>(array: &Bound<'py, PyUntypedArray>) -> PyResult<Bound<'py, PyUntypedArray>> {
        let bits = array.call_method1("view", (numpy::dtype::<u16>(array.py()),))?;
        Ok(bits.cast_into::<PyUntypedArray>()?)
    }

    fn shown<'py>(array: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        array.call_method1("view", (bfloat16(array.py())?,))
    }
}

/// The type of arrays that hold the bits of bfloat16 numbers.
pub(crate) fn bfloat16(py: Python<'_>) -> PyResult<Bound<'_, PyArrayDescr>> {
    static TYPE: PyOnceLock<Py<PyArrayDescr>> = PyOnceLock::new();
    let made = TYPE.get_or_try_init(py, || -> PyResult<_> {
        let fields = PyList::new(py, [("bfloat16", "u2")])?;
        let made = py.import("numpy")?.call_method1("dtype", (fields,))?;
        Ok(made.cast_into::<PyArrayDescr>()?.unbind())
    })?;
    Ok(made.bind(py).clone())
}
