//! Arrays of a `.safetensors` file.

use super::dtype::{Dtype, Number};
use super::layout::{Array, Check, Order};
use super::{Named, choose};
use crate::Problem;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as Stored, TensorView};

/// Reads one array, and returns the name of the array that it read or failed to read.
pub(super) fn read(bytes: &[u8], name: Option<&str>, check: Check) -> Named {
    let tensors = match SafeTensors::deserialize(bytes) {
        Ok(tensors) => tensors,
        Err(e) => return (None, Err(Problem::malformed("safetensors", e.to_string()))),
    };
    let mut names: Vec<String> = tensors.names().into_iter().map(str::to_owned).collect();
    names.sort();
    let chosen = match choose(name, names) {
        Ok(chosen) => chosen,
        Err(e) => return (None, Err(e)),
    };
    let array = tensors
        .tensor(&chosen)
        .map_err(|e| Problem::malformed("safetensors", e.to_string()))
        .and_then(|view| read_view(&view, check));
    (Some(chosen), array)
}

fn read_view(view: &TensorView<'_>, check: Check) -> Result<Array, Problem> {
    let shape: Vec<u64> = view.shape().iter().map(|&n| n as u64).collect();
    check(&shape)?;
    let dtype = Dtype { number: number(view.dtype())?, big_endian: false };
    let values = dtype.read(&mut view.data(), &shape)?;
    Ok(Array::new(values, shape, Order::C))
}

fn number(stored: Stored) -> Result<Number, Problem> {
    Ok(match stored {
        Stored::F16 => Number::F16,
        Stored::BF16 => Number::Bf16,
        Stored::F32 => Number::F32,
        Stored::F64 => Number::F64,
        Stored::I8 => Number::I8,
        Stored::I16 => Number::I16,
        Stored::I32 => Number::I32,
        Stored::I64 => Number::I64,
        Stored::U8 => Number::U8,
        Stored::U16 => Number::U16,
        Stored::U32 => Number::U32,
        Stored::U64 => Number::U64,
        other => return Err(Problem::Dtype(other.to_string())),
    })
}
