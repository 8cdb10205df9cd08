//! Attention and a model on a graphics device: `cargo test --release -p favor-nn --features wgpu --test wgpu`.
//! Any driver of Vulkan will do; Debian's `mesa-vulkan-drivers` computes on the processor.

#[path = "nn/common.rs"]
#[allow(dead_code)]
mod common;

use burn::tensor::{DType, Device, DeviceKind, Tensor, TensorData};
use common::{maps, normal, tiny, values};
use favor::Family;
use favor_nn::attention::{AttendMethod, AttendOptions, Implementation, KeyMask, attend};
use favor_nn::bert::Bert;
use favor_nn::text::Batch;
use favor_nn::{Attention, LayerOptions};

const SHAPE: [usize; 4] = [2, 3, 21, 4];

/// Some hundred operations per number in 32 bits.
const ROUNDING: f64 = 1e-4;

fn there() -> Device {
    Device::wgpu(DeviceKind::DefaultDevice)
}

fn assert_close(a: &[f64], b: &[f64], what: &str) {
    let scale = a.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    assert_eq!(a.len(), b.len());
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert!((x - y).abs() <= ROUNDING * scale, "{what}: {x} and {y} at {i}");
    }
}

/// The output, and the gradients of its product with fixed numbers.
fn run(
    device: &Device,
    kind: DType,
    method: &AttendMethod,
    mask: &KeyMask,
    causal: bool,
) -> Vec<Vec<f64>> {
    let put = |seed| {
        let data = TensorData::new(values(normal(SHAPE, seed, &Device::flex())), SHAPE);
        Tensor::<4>::from_data(data, (device, kind)).autodiff()
    };
    let [q, k, v] = [1, 2, 3].map(|seed| put(seed).require_grad());
    let options = AttendOptions::default().mask(Some(mask)).causal(causal);
    let out = attend(q.clone(), k.clone(), v.clone(), method, &options).unwrap();
    let gradients = (out.clone() * put(77)).sum().backward();
    let mut found = vec![values(out)];
    found.extend([q, k, v].map(|t| values(t.grad(&gradients).unwrap())));
    found
}

#[test]
fn the_device_agrees_with_the_engine() {
    let fit = |family| AttendMethod::Features(maps(family, SHAPE[1], SHAPE[3], 10).into());
    let mask = KeyMask::of_lengths(&[21, 13], 21);
    let methods = [
        ("exact", AttendMethod::Exact),
        ("elu", AttendMethod::Elu),
        ("relu", AttendMethod::Relu),
        ("pos", fit(Family::Pos)),
        ("sde", fit(Family::Sde)),
        ("balanced", fit(Family::Balanced)),
    ];
    for (name, method) in methods {
        for causal in [false, true] {
            let here = run(&Device::flex(), DType::F64, &method, &mask, causal);
            let there = run(&there(), DType::F32, &method, &mask, causal);
            for (what, (a, b)) in ["output", "q", "k", "v"].iter().zip(here.iter().zip(&there)) {
                assert_close(a, b, &format!("{name}, causal {causal}, {what}"));
            }
        }
    }
}

#[test]
fn a_model_agrees_with_the_engine() {
    let batch = Batch::new(vec![vec![1, 5, 7, 2], vec![3, 4, 9, 11, 2, 6]]).unwrap();
    for kind in ["exact", "sde", "balanced"] {
        let options = LayerOptions::new(kind.parse::<Attention>().unwrap(), 16);
        let config = tiny();
        Device::flex().seed(5);
        let here = Bert::new(&config, options, &Device::flex()).unwrap();
        let bytes = here.to_bytes().unwrap();
        let there =
            Bert::from_bytes(&bytes, &config, options, Implementation::Auto, &there()).unwrap();
        let vectors = |model: &Bert| -> Vec<f64> {
            let vectors = model.embed(&batch).unwrap();
            vectors.into_data().iter::<f64>().collect()
        };
        assert_close(&vectors(&here), &vectors(&there), kind);
    }
}
