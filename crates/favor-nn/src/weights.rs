//! The weights of any model as tensors of a file, and back.

use crate::store::{Stored, Tensors, Views};
use crate::{Error, Result};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Device, Tensor, TensorData};
use safetensors::tensor::{Dtype, TensorView};

/// What a weight is called in a file, and whether it lies there transposed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) name: String,
    pub(crate) transposed: bool,
}

/// The name of a weight, given its path in the model.
pub(crate) type Names = fn(&str) -> Option<Name>;

/// Every weight under its own path, as it is.
pub(crate) fn own_names(path: &str) -> Option<Name> {
    Some(Name { name: format!("weights.{path}"), transposed: false })
}

/// The model with the weights of a file.
pub(crate) fn load<M: Module>(
    model: M,
    tensors: &Views<'_>,
    names: Names,
    device: &Device,
) -> Result<M> {
    let mut loader = Loader { names, tensors, path: vec![], device: device.clone(), error: None };
    let model = model.map(&mut loader);
    match loader.error {
        Some(error) => Err(error),
        None => Ok(model),
    }
}

/// The weights of a model, by the names of the file.
pub(crate) fn collect<M: Module>(model: &M, names: Names) -> Result<Tensors> {
    let mut saver = Saver { names, tensors: Tensors::new(), path: vec![], error: None };
    model.visit(&mut saver);
    match saver.error {
        Some(error) => Err(error),
        None => Ok(saver.tensors),
    }
}

struct Loader<'a> {
    names: Names,
    tensors: &'a Views<'a>,
    path: Vec<String>,
    device: Device,
    error: Option<Error>,
}

impl ModuleMapper for Loader<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let shape: [usize; D] = param.lazy_shape().dims();
        match self.read(shape) {
            Ok(data) => {
                let tensor = Tensor::<D>::from_data(data, &self.device);
                let track = self.device.is_autodiff();
                let tensor = if track { tensor.require_grad() } else { tensor };
                Param::initialized(ParamId::new(), tensor)
            }
            Err(error) => {
                self.error.get_or_insert(error);
                param
            }
        }
    }
}

impl Loader<'_> {
    /// The numbers of the weight at the present path, as our modules hold them.
    fn read<const D: usize>(&self, shape: [usize; D]) -> Result<TensorData> {
        let path = self.path.join(".");
        let Some(Name { name, transposed }) = (self.names)(&path) else {
            return Err(Error::invalid("weights", format!("{path} has no name in files")));
        };
        let Some(view) = self.tensors.get(&name) else {
            let reason = format!("'{name}' is missing: not the weights of a model of this shape");
            return Err(Error::invalid("weights", reason));
        };
        let mut wanted = shape.to_vec();
        if transposed {
            wanted.reverse();
        }
        if view.shape() != wanted {
            let found = view.shape();
            let reason = format!("'{name}' has shape {found:?}; this model needs {wanted:?}");
            return Err(Error::invalid("weights", reason));
        }
        let values = floats(view).ok_or_else(|| {
            let reason = format!("'{name}' holds {:?}; f32, f16 and bf16 are read", view.dtype());
            Error::invalid("weights", reason)
        })?;
        if let Some(bad) = values.iter().find(|v| !v.is_finite()) {
            return Err(Error::invalid("weights", format!("'{name}' holds {bad}")));
        }
        Ok(match (transposed, &shape[..]) {
            (true, &[rows, columns]) => TensorData::new(transpose(&values, columns, rows), shape),
            _ => TensorData::new(values, shape),
        })
    }
}

fn floats(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let bytes = view.data();
    let pairs = || bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
    Some(match view.dtype() {
        Dtype::F32 => {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        }
        Dtype::F16 => pairs().map(|b| half::f16::from_le_bytes(b).to_f32()).collect(),
        Dtype::BF16 => pairs().map(|b| half::bf16::from_le_bytes(b).to_f32()).collect(),
        _ => return None,
    })
}

/// The transpose of a matrix of so many rows and columns.
fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect()
}

struct Saver {
    names: Names,
    tensors: Tensors,
    path: Vec<String>,
    error: Option<Error>,
}

impl ModuleVisitor for Saver {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Err(error) = self.take(param.val()) {
            self.error.get_or_insert(error);
        }
    }
}

impl Saver {
    fn take<const D: usize>(&mut self, tensor: Tensor<D>) -> Result<()> {
        let path = self.path.join(".");
        let Some(Name { name, transposed }) = (self.names)(&path) else {
            return Err(Error::invalid("weights", format!("{path} has no name in files")));
        };
        let mut shape: Vec<usize> = tensor.dims().to_vec();
        let unread = |e| Error::invalid("weights", format!("{path} cannot be read: {e:?}"));
        let mut values = tensor.try_into_vec_as::<f32>().map_err(unread)?;
        if transposed && let &[rows, columns] = &shape[..] {
            values = transpose(&values, rows, columns);
            shape.reverse();
        }
        self.tensors.insert(name, Stored::floats(shape, &values));
        Ok(())
    }
}
