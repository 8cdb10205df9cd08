//! NumPy arrays as the library's views, without copies where the library can read them.

use crate::errors;
use crate::number::{Number, bfloat16};
use favor::{Float, Rows, Scalar, Tensor};
use numpy::{
    PyArray, PyArrayDescr, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyTuple};

/// An array that Python owns and the library reads, on any thread.
pub(crate) struct Array<T> {
    start: *const T,
    /// Numbers from the first to the last, those between them included.
    span: usize,
    pub(crate) shape: Vec<usize>,
    strides: Vec<usize>,
    /// Keeps the numbers where they are.
    _owner: Py<PyAny>,
}

// That nobody writes to an array while a call reads it is the caller's part, as with every NumPy
// function that releases the lock.
// SAFETY: the numbers are only read, `T` is plain data, and the owner is kept until the end.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Send for Array<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Sync for Array<T> {}

/// A new array that a call fills before Python sees it. Nothing is written to it beforehand: zeros
/// that are overwritten at once would cost as much as one per cent of a call.
pub(crate) struct Fresh<T> {
    start: *mut T,
    count: usize,
    array: Py<PyAny>,
}

// SAFETY: nobody but its owner knows of the numbers, and `T` is plain data.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Fresh<T> {}

/// Two types of one layout.
const fn same_layout<A, B>() -> bool {
    size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>()
}

impl<T: Number> Fresh<T> {
    pub(crate) fn new(py: Python<'_>, shape: &[usize]) -> PyResult<Self> {
        const { assert!(same_layout::<T, T::Stored>()) };
        let shape = PyTuple::new(py, shape)?;
        let dtype = numpy::dtype::<T::Stored>(py);
        let made = py.import("numpy")?.call_method1("empty", (shape, dtype))?;
        let array = made.cast_into::<PyArrayDyn<T::Stored>>()?;
        let (start, count) = (array.data().cast::<T>(), array.len());
        Ok(Self { start, count, array: array.into_any().unbind() })
    }

    /// All numbers, to be written.
    pub(crate) fn numbers(&mut self) -> &mut [T] {
        // SAFETY: `numpy.empty` gives numbers one after the other in memory of their own, which
        // `array` keeps, and nobody else has seen the array.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.start, self.count)
        }
    }

    /// The array, once it is filled.
    pub(crate) fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(T::shown(self.array.into_bound(py))?.unbind())
    }
}

/// An argument as a NumPy array; lists and the like become one.
pub(crate) fn array<'py>(
    name: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    if let Ok(array) = value.cast::<PyUntypedArray>() {
        return Ok(array.clone());
    }
    let made = value.py().import("numpy")?.call_method1("asarray", (value,));
    let made = made.map_err(|error| match error.value(value.py()).to_string() {
        // NumPy says neither which argument it was nor what to do.
        told if told.contains("inhomogeneous shape") => errors::value(format!(
            "{name}: parts of different lengths make no array; pad them to one length"
        )),
        _ => error,
    })?;
    made.cast_into::<PyUntypedArray>().map_err(|_| errors::kind(format!("{name} is no array")))
}

/// The name of the numbers of an array.
pub(crate) fn dtype(array: &Bound<'_, PyUntypedArray>) -> PyResult<String> {
    let name: String = array.dtype().getattr("name")?.extract()?;
    let native = array.dtype().is_native_byteorder().unwrap_or(true);
    Ok(if native { name } else { format!("{name} in foreign byte order") })
}

/// A copy, of numbers of another type if one is named, one after the other. Not `ascontiguousarray`:
/// that leaves numbers where they are even if no number may lie there.
fn copied<'py>(
    array: &Bound<'py, PyUntypedArray>,
    dtype: Option<&str>,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let numpy = array.py().import("numpy")?;
    let options = [("dtype", dtype), ("order", Some("C"))].into_py_dict(array.py())?;
    let copy = numpy.call_method("array", (array,), Some(&options))?;
    Ok(copy.cast_into::<PyUntypedArray>()?)
}

impl<T: Number> Array<T> {
    /// A view of an array of this type of number, or of a copy where the library cannot walk along
    /// the original: numbers in reverse order, or not where a number may lie.
    fn read(name: &str, array: &Bound<'_, PyUntypedArray>) -> PyResult<Self> {
        const { assert!(same_layout::<T, T::Stored>()) };
        let wrong = || errors::kind(format!("{name} holds numbers of another type"));
        let stored = T::as_stored(array)?;
        let typed = stored.cast::<PyArrayDyn<T::Stored>>().map_err(|_| wrong())?;
        let size = size_of::<T>() as isize;
        let strides: Option<Vec<usize>> = typed
            .strides()
            .iter()
            .map(|&s| (s >= 0 && s % size == 0).then_some((s / size) as usize))
            .collect();
        let aligned = (typed.data() as usize).is_multiple_of(align_of::<T>());
        let (Some(strides), true) = (strides, aligned) else {
            return Self::read(name, &copied(array, None)?);
        };
        let shape = typed.shape().to_vec();
        let span = if shape.contains(&0) {
            0
        } else {
            1 + shape.iter().zip(&strides).map(|(n, s)| (n - 1) * s).sum::<usize>()
        };
        let start = typed.data().cast_const().cast::<T>();
        let _owner = typed.clone().into_any().unbind();
        Ok(Self { start, span, shape, strides, _owner })
    }

    fn numbers(&self) -> &[T] {
        if self.span == 0 {
            return &[];
        }
        // SAFETY: NumPy says that a number lies at every multiple of the strides within the shape;
        // `span` reaches to the last of them and all are in one allocation, which `_owner` keeps.
        // `T` has the layout of what is stored there, and takes every bit pattern of it.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.start, self.span)
        }
    }

    /// A tensor `[batch, heads, length, dim]`; the first axes may be missing.
    pub(crate) fn tensor(&self) -> favor::Result<Tensor<'_, T>>
    where
        T: Scalar,
    {
        let fill = |values: &[usize], rest: usize| {
            let mut out = [rest; 4];
            out[4 - values.len()..].copy_from_slice(values);
            out
        };
        Tensor::with_strides(self.numbers(), fill(&self.shape, 1), fill(&self.strides, 0))
    }

    /// A set of vectors.
    pub(crate) fn rows(&self) -> favor::Result<Rows<'_, T>>
    where
        T: Float,
    {
        // One row, or none, has any distance to the next.
        let stride = if self.shape[0] > 1 { self.strides[0] } else { self.shape[1] };
        match self.span {
            0 => Rows::new(&[], self.shape[0], self.shape[1]),
            _ => Rows::with_stride(self.numbers(), self.shape[0], self.shape[1], stride),
        }
    }

    /// The numbers of an array of one axis.
    fn vector(&self) -> Vec<T> {
        let step = self.strides[0].max(1);
        self.numbers().iter().step_by(step).copied().collect()
    }
}

/// The number formats of tensors.
pub(crate) enum TensorFormat {
    F16,
    Bf16,
    F32,
    F64,
}

/// The format that all arrays have; they must have the same.
pub(crate) fn tensor_format(
    arrays: &[(&str, &Bound<'_, PyUntypedArray>)],
) -> PyResult<TensorFormat> {
    let (name, first) = arrays[0];
    let py = first.py();
    let given = first.dtype();
    for (other, array) in &arrays[1..] {
        if !array.dtype().is_equiv_to(&given) {
            return Err(errors::kind(format!(
                "{name} holds {} but {other} holds {}; give all the same type",
                dtype(first)?,
                dtype(array)?,
            )));
        }
    }
    // By the types themselves: their names are made each time that they are asked for.
    let is = |wanted: Bound<'_, PyArrayDescr>| given.is_equiv_to(&wanted);
    if is(numpy::dtype::<f32>(py)) {
        Ok(TensorFormat::F32)
    } else if is(numpy::dtype::<f64>(py)) {
        Ok(TensorFormat::F64)
    } else if is(numpy::dtype::<half::f16>(py)) {
        Ok(TensorFormat::F16)
    } else if is(bfloat16(py)?) {
        Ok(TensorFormat::Bf16)
    } else {
        let kind = dtype(first)?;
        let reason = "it must hold one of float16, float32, float64, BFLOAT16";
        Err(errors::kind(format!("{name} holds {kind}; {reason}")))
    }
}

/// Reads a tensor of two to four axes.
pub(crate) fn read_tensor<T: Number>(
    name: &str,
    array: &Bound<'_, PyUntypedArray>,
) -> PyResult<Array<T>> {
    match array.ndim() {
        2..=4 => Array::read(name, array),
        n => Err(errors::value(format!(
            "{name} has {n} axes; a tensor is [length, dim], [heads, length, dim] or \
             [batch, heads, length, dim]"
        ))),
    }
}

/// Runs `$body` with the named Python objects read as tensors of their common type `$t`.
macro_rules! tensors {
    (|$t:ident, $($x:ident),+| $body:expr) => {{
        use $crate::arrays::{self, TensorFormat};
        $(let $x = arrays::array(stringify!($x), $x)?;)+
        match arrays::tensor_format(&[$((stringify!($x), &$x)),+])? {
            TensorFormat::F16 => arrays::typed!(half::f16, read_tensor, |$t, $($x),+| $body),
            TensorFormat::Bf16 => arrays::typed!(half::bf16, read_tensor, |$t, $($x),+| $body),
            TensorFormat::F32 => arrays::typed!(f32, read_tensor, |$t, $($x),+| $body),
            TensorFormat::F64 => arrays::typed!(f64, read_tensor, |$t, $($x),+| $body),
        }
    }};
}
pub(crate) use tensors;

/// Runs `$body` with the named Python objects read as sets of vectors: of `f32` if all are, else of `f64`
/// from any real numbers.
macro_rules! rows {
    (|$t:ident, $($x:ident),+| $body:expr) => {{
        use $crate::arrays;
        $(let $x = arrays::array(stringify!($x), $x)?;)+
        if [$(&$x),+].into_iter().all(arrays::is_single) {
            arrays::typed!(f32, read_rows, |$t, $($x),+| $body)
        } else {
            arrays::typed!(f64, read_doubles, |$t, $($x),+| $body)
        }
    }};
}
pub(crate) use rows;

/// `$body` with arrays read as numbers of one type.
macro_rules! typed {
    ($T:ty, $read:ident, |$t:ident, $($x:ident),+| $body:expr) => {{
        #[allow(dead_code)]
        type $t = $T;
        $(let $x: arrays::Array<$T> = arrays::$read(stringify!($x), &$x)?;)+
        $body
    }};
}
pub(crate) use typed;

pub(crate) fn is_single(array: &Bound<'_, PyUntypedArray>) -> bool {
    array.dtype().is_equiv_to(&numpy::dtype::<f32>(array.py()))
}

/// Reads a set of vectors, copied only if the numbers of a row are not side by side.
pub(crate) fn read_rows<T: Number>(
    name: &str,
    array: &Bound<'_, PyUntypedArray>,
) -> PyResult<Array<T>> {
    if array.ndim() != 2 {
        let n = array.ndim();
        return Err(errors::value(format!("{name} has {n} axes; a set of vectors has two")));
    }
    let read = Array::read(name, array)?;
    let side_by_side = read.shape[1] <= 1 || read.strides[1] == 1;
    let forward = read.shape[0] <= 1 || read.strides[0] >= read.shape[1];
    if side_by_side && forward { Ok(read) } else { Array::read(name, &copied(array, None)?) }
}

/// Reads a set of vectors of any real numbers as `f64`.
pub(crate) fn read_doubles(name: &str, array: &Bound<'_, PyUntypedArray>) -> PyResult<Array<f64>> {
    only_numbers(name, array)?;
    if array.dtype().is_equiv_to(&numpy::dtype::<f64>(array.py())) {
        read_rows(name, array)
    } else {
        read_rows(name, &copied(array, Some("float64"))?)
    }
}

/// A set of vectors in `f64`, from any real numbers.
pub(crate) fn doubles(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Array<f64>> {
    read_doubles(name, &array(name, value)?)
}

/// A vector in `f64`.
pub(crate) fn vector(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    let array = array(name, value)?;
    only_numbers(name, &array)?;
    if array.ndim() != 1 {
        return Err(errors::value(format!("{name} has {} axes; one is needed", array.ndim())));
    }
    Ok(Array::<f64>::read(name, &copied(&array, Some("float64"))?)?.vector())
}

/// A mask of keys: two axes, or one for a batch of one, flat.
pub(crate) struct KeyMask(pub(crate) Vec<bool>);

impl<'a, 'py> FromPyObject<'a, 'py> for KeyMask {
    type Error = PyErr;
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let array = array("key_mask", &value)?;
        let kind = dtype(&array)?;
        if kind != "bool" {
            return Err(errors::kind(format!("key_mask holds {kind}; it must hold bool")));
        }
        if !(1..=2).contains(&array.ndim()) {
            let n = array.ndim();
            return Err(errors::value(format!("key_mask has {n} axes; [batch, keys] is needed")));
        }
        // As bytes, since nothing keeps NumPy from storing others than 0 and 1.
        let bytes = array.call_method1("view", (numpy::dtype::<u8>(value.py()),))?;
        let bytes = bytes.call_method0("ravel")?.cast_into::<PyUntypedArray>()?;
        let bytes = Array::<u8>::read("key_mask", &bytes)?.vector();
        Ok(Self(bytes.into_iter().map(|b| b != 0).collect()))
    }
}

/// Real numbers of any width.
fn only_numbers(name: &str, array: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
    let kind: String = array.dtype().getattr("kind")?.extract()?;
    match kind.as_str() {
        "f" | "i" | "u" => Ok(()),
        _ => Err(errors::kind(format!("{name} holds {}; it must hold numbers", dtype(array)?))),
    }
}

/// An array of the given shape that takes over the numbers.
pub(crate) fn give<T: Number>(
    py: Python<'_>,
    numbers: Vec<T>,
    shape: &[usize],
) -> PyResult<Py<PyAny>> {
    let array = PyArray::from_vec(py, T::stored(numbers)).reshape(shape)?;
    Ok(T::shown(array.into_any())?.unbind())
}

/// A matrix as an array.
pub(crate) fn give_matrix<T: Float + Number>(
    py: Python<'_>,
    matrix: favor::Matrix<T>,
) -> PyResult<Py<PyAny>> {
    let (rows, columns) = matrix.shape();
    give(py, matrix.into_vec(), &[rows, columns])
}
