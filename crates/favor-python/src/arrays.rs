//! NumPy arrays as the library's views, without copies where the library can read them.

use crate::errors;
use favor::{Element, Number, Rows, Tensor};
use numpy::{
    PyArray, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
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

impl<T: numpy::Element> Fresh<T> {
    pub(crate) fn new(py: Python<'_>, shape: &[usize]) -> PyResult<Self> {
        let shape = PyTuple::new(py, shape)?;
        let made = py.import("numpy")?.call_method1("empty", (shape, numpy::dtype::<T>(py)))?;
        let array = made.cast_into::<PyArrayDyn<T>>()?;
        Ok(Self { start: array.data(), count: array.len(), array: array.into_any().unbind() })
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
    pub(crate) fn give(self) -> Py<PyAny> {
        self.array
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
    let made = value.py().import("numpy")?.call_method1("asarray", (value,))?;
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

impl<T: numpy::Element> Array<T> {
    /// A view of an array of this type of number, or of a copy where the library cannot walk along
    /// the original: numbers in reverse order, or not where a number may lie.
    fn read(name: &str, array: &Bound<'_, PyUntypedArray>) -> PyResult<Self> {
        let wrong = || errors::kind(format!("{name} holds numbers of another type"));
        let typed = array.cast::<PyArrayDyn<T>>().map_err(|_| wrong())?;
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
        let span = match shape.contains(&0) {
            true => 0,
            false => 1 + shape.iter().zip(&strides).map(|(n, s)| (n - 1) * s).sum::<usize>(),
        };
        let _owner = typed.clone().into_any().unbind();
        Ok(Self { start: typed.data().cast_const(), span, shape, strides, _owner })
    }

    fn numbers(&self) -> &[T] {
        if self.span == 0 {
            return &[];
        }
        // SAFETY: NumPy says that a number lies at every multiple of the strides within the shape;
        // `span` reaches to the last of them and all are in one allocation, which `_owner` keeps.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.start, self.span)
        }
    }

    /// A tensor `[batch, heads, length, dim]`; the first axes may be missing.
    pub(crate) fn tensor(&self) -> favor::Result<Tensor<'_, T>>
    where
        T: Number,
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
        T: Element,
    {
        // One row, or none, has any distance to the next.
        let stride = if self.shape[0] > 1 { self.strides[0] } else { self.shape[1] };
        match self.span {
            0 => Rows::new(&[], self.shape[0], self.shape[1]),
            _ => Rows::with_stride(self.numbers(), self.shape[0], self.shape[1], stride),
        }
    }

    /// The numbers of an array of one axis.
    pub(crate) fn vector(&self) -> Vec<T>
    where
        T: Copy,
    {
        let step = self.strides[0].max(1);
        self.numbers().iter().step_by(step).copied().collect()
    }
}

/// Reads a tensor of two to four axes.
pub(crate) fn read_tensor<T: numpy::Element>(
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

/// Reads a set of vectors, copied only if the numbers of a row are not side by side.
pub(crate) fn read_rows<T: numpy::Element>(
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
    match side_by_side && forward {
        true => Ok(read),
        false => Array::read(name, &copied(array, None)?),
    }
}

/// A set of vectors in `f64`, from any real numbers.
pub(crate) fn doubles(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Array<f64>> {
    let array = array(name, value)?;
    only_numbers(name, &array)?;
    match dtype(&array)?.as_str() {
        "float64" => read_rows(name, &array),
        _ => read_rows(name, &copied(&array, Some("float64"))?),
    }
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

/// A mask of two axes, or one for a batch of one, flat.
pub(crate) fn mask(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<bool>>> {
    let Some(value) = value else { return Ok(None) };
    let array = array(name, value)?;
    let kind = dtype(&array)?;
    if kind != "bool" {
        return Err(errors::kind(format!("{name} holds {kind}; it must hold bool")));
    }
    if !(1..=2).contains(&array.ndim()) {
        return Err(errors::value(format!("{name} has {} axes; [batch, keys]", array.ndim())));
    }
    let array = copied(&array, None)?;
    Ok(Some(Array::<bool>::read(name, &array)?.numbers().to_vec()))
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
pub(crate) fn give<T: numpy::Element>(
    py: Python<'_>,
    numbers: Vec<T>,
    shape: &[usize],
) -> PyResult<Py<PyAny>> {
    Ok(PyArray::from_vec(py, numbers).reshape(shape)?.into_any().unbind())
}

/// A matrix as an array.
pub(crate) fn give_matrix<T: Element + numpy::Element>(
    py: Python<'_>,
    matrix: favor::Matrix<T>,
) -> PyResult<Py<PyAny>> {
    let (rows, columns) = matrix.shape();
    give(py, matrix.into_vec(), &[rows, columns])
}

/// Calls `$body` with `$T` the type of number that all arrays have.
macro_rules! by_type {
    ([$($name:literal => $T:ty),+], $arrays:expr, |$t:ident| $body:expr) => {{
        use numpy::{PyArrayDescrMethods as _, PyUntypedArrayMethods as _};
        let arrays: &[(&str, &pyo3::Bound<'_, numpy::PyUntypedArray>)] = $arrays;
        let first = arrays[0].1.dtype();
        for (name, array) in &arrays[1..] {
            if !array.dtype().is_equiv_to(&first) {
                return Err($crate::errors::kind(format!(
                    "{} holds {} but {name} holds {}; give all the same type",
                    arrays[0].0,
                    $crate::arrays::dtype(arrays[0].1)?,
                    $crate::arrays::dtype(array)?,
                )));
            }
        }
        // By the types themselves: their names are made anew each time that they are asked for.
        match () {
            $(_ if first.is_equiv_to(&numpy::dtype::<$T>(first.py())) => { type $t = $T; $body })+
            _ => Err($crate::errors::kind(format!(
                "{} holds {}; it must hold one of {}",
                arrays[0].0,
                $crate::arrays::dtype(arrays[0].1)?,
                [$($name),+].join(", ")
            ))),
        }
    }};
}
pub(crate) use by_type;
