//! Weights as `torch.save` writes them, put into the other format.

use crate::{Error, Result};
use pytorch_reader::{DType, PytorchReader};
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::path::Path;

/// The floating-point tensors of a `pytorch_model.bin`, as the bytes of a `model.safetensors`. Nothing
/// in the file is run.
pub(super) fn to_safetensors(path: &Path) -> Result<Vec<u8>> {
    let damaged =
        |e: String| Error::file(path, format!("not weights of PyTorch: {}", one_line(&e)));
    let reader = PytorchReader::new(path).map_err(|e| damaged(e.to_string()))?;
    let mut read = BTreeMap::new();
    for (name, tensor) in reader.into_tensors() {
        let kind = match tensor.dtype() {
            DType::F32 => Dtype::F32,
            DType::F16 => Dtype::F16,
            DType::BF16 => Dtype::BF16,
            DType::F64 => Dtype::F64,
            // Counters and positions, which are no weights.
            _ => continue,
        };
        let bytes = tensor.read().map_err(|e| damaged(e.to_string()))?;
        read.insert(name, (kind, tensor.shape().to_vec(), bytes));
    }
    let mut views = BTreeMap::new();
    for (name, (kind, shape, bytes)) in &read {
        let view = TensorView::new(*kind, shape.clone(), bytes);
        views.insert(name, view.map_err(|e| damaged(e.to_string()))?);
    }
    safetensors::serialize(views, None).map_err(|e| damaged(e.to_string()))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
