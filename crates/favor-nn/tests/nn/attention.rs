//! The operation: the engine against tensor operations, and both against finite differences.

use crate::common::{maps, normal, values};
use burn::tensor::{DType, Device, Tensor, TensorData};
use favor::reference::{Baseline, Mask, baseline_attention};
use favor::{ExactKeys, Family, FeatureMap, Kernel, Rows};
use favor_nn::attention::{
    AttendMethod, AttendOptions, Attention, BackwardFailure, Implementation, KeyMask, attend,
};
use std::collections::BTreeSet;
use std::sync::Arc;

const SHAPE: [usize; 4] = [2, 3, 21, 4];

/// A method for every kind of attention; `auto` with a mixture of choices.
fn methods() -> Vec<AttendMethod> {
    let fit = |family| -> Arc<[_]> { maps(family, SHAPE[1], SHAPE[3], 10).into() };
    Attention::all()
        .chain([Attention::Mean])
        .map(|kind| match kind {
            Attention::Exact => AttendMethod::Exact,
            Attention::Elu => AttendMethod::Elu,
            Attention::Relu => AttendMethod::Relu,
            Attention::Mean => AttendMethod::Mean,
            Attention::Features(family) => AttendMethod::Features(fit(family)),
            Attention::Auto | Attention::Learned => {
                let exact = (0..SHAPE[0] * SHAPE[1])
                    .map(|i| if i % 2 == 0 { ExactKeys::ALL } else { ExactKeys::NONE })
                    .collect();
                AttendMethod::Hybrid { maps: fit(Family::Balanced), exact }
            }
        })
        .collect()
}

fn masks() -> [Option<KeyMask>; 2] {
    [None, Some(KeyMask::of_lengths(&[21, 13], 21))]
}

fn options(mask: Option<&KeyMask>, causal: bool) -> AttendOptions<'_> {
    AttendOptions::default().mask(mask).causal(causal)
}

/// The output, and the gradients of its product with fixed numbers.
fn run(
    inputs: [Tensor<4>; 3],
    method: &AttendMethod,
    mask: Option<&KeyMask>,
    causal: bool,
    implementation: Implementation,
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let [q, k, v] = inputs.map(|t| t.autodiff().require_grad());
    let options = options(mask, causal).implementation(implementation);
    let out = attend(q.clone(), k.clone(), v.clone(), method, &options).unwrap();
    let weights = normal(out.dims(), 77, &Device::flex()).autodiff();
    let gradients = (out.clone() * weights).sum().backward();
    let gradients = [q, k, v].map(|t| values(t.grad(&gradients).unwrap()));
    (values(out), gradients.to_vec())
}

fn inputs() -> [Tensor<4>; 3] {
    [1, 2, 3].map(|seed| normal(SHAPE, seed, &Device::flex()))
}

fn assert_close(a: &[f64], b: &[f64], tolerance: f64, what: &str) {
    let scale = a.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert!((x - y).abs() <= tolerance * scale, "{what}: {x} and {y} at {i}");
    }
    assert_eq!(a.len(), b.len());
}

/// In f64, where rounding is some 1e-15 per step, the two implementations agree to 1e-10.
#[test]
fn engine_and_tensor_operations_agree() {
    for method in methods() {
        for (mask, causal) in masks().iter().flat_map(|m| [(m, false), (m, true)]) {
            let one = run(inputs(), &method, mask.as_ref(), causal, Implementation::Auto);
            let two = run(inputs(), &method, mask.as_ref(), causal, Implementation::Tensors);
            let what = format!("{method:.40?} causal {causal} mask {}", mask.is_some());
            assert_close(&one.0, &two.0, 1e-10, &what);
            for (a, b) in one.1.iter().zip(&two.1) {
                assert_close(a, b, 1e-10, &format!("gradients of {what}"));
            }
        }
    }
}

/// Central differences of step 1e-5 are right to about 1e-10 of the third derivative and 1e-11 of
/// rounding.
#[test]
fn gradients_are_those_of_finite_differences() {
    let step = 1e-5;
    for method in methods() {
        for (mask, causal) in masks().iter().flat_map(|m| [(m, false), (m, true)]) {
            let (_, gradients) =
                run(inputs(), &method, mask.as_ref(), causal, Implementation::Auto);
            let weights = values(normal(SHAPE, 77, &Device::flex()));
            let loss = |which: usize, place: usize, by: f64| -> f64 {
                let mut moved = inputs();
                let mut numbers = values(moved[which].clone());
                numbers[place] += by;
                let data = TensorData::new(numbers, SHAPE);
                moved[which] = Tensor::from_data(data, (&Device::flex(), DType::F64));
                let [q, k, v] = moved;
                let out = attend(q, k, v, &method, &options(mask.as_ref(), causal)).unwrap();
                values(out).iter().zip(&weights).map(|(a, b)| a * b).sum()
            };
            for (which, gradient) in gradients.iter().enumerate() {
                for place in [0, 37, 101, 222, 333, 444, 503] {
                    let slope =
                        (loss(which, place, step) - loss(which, place, -step)) / (2.0 * step);
                    let found = gradient[place];
                    let scale = slope.abs().max(1.0);
                    assert!(
                        (slope - found).abs() < 1e-7 * scale,
                        "{method:.30?}, input {which} at {place}: {slope} {found}"
                    );
                }
            }
        }
    }
}

/// Cross-attention, with values of another width than keys, and per-sequence maps.
#[test]
fn cross_attention_agrees() {
    let device = Device::flex();
    let q = normal([2, 3, 7, 4], 1, &device);
    let (k, v) = (normal([2, 3, 11, 4], 2, &device), normal([2, 3, 11, 5], 3, &device));
    let mask = KeyMask::of_lengths(&[4, 11], 11);
    let each: Arc<[_]> = maps(Family::Sde, 6, 4, 9).into();
    let per_head =
        methods().into_iter().filter(|method| !matches!(method, AttendMethod::Hybrid { .. }));
    for method in per_head.chain([AttendMethod::Features(each)]) {
        let inputs = || [q.clone(), k.clone(), v.clone()];
        let one = run(inputs(), &method, Some(&mask), false, Implementation::Auto);
        let two = run(inputs(), &method, Some(&mask), false, Implementation::Tensors);
        assert_close(&one.0, &two.0, 1e-10, "values");
        one.1.iter().zip(&two.1).for_each(|(a, b)| assert_close(a, b, 1e-10, "gradients"));
    }
}

/// Heads that are exact are so by the kernel of their own map, whatever it is.
#[test]
fn exact_heads_use_the_kernels_of_their_maps() {
    let refit = |map: &FeatureMap, kernel: Kernel| {
        let parameters = map.parameters().unwrap().clone();
        map.spec().kernel(kernel).with_parameters(parameters).unwrap()
    };
    let kernels = [Kernel::softmax(), Kernel::gaussian(), Kernel::new(-0.2, 0.7).unwrap()];
    let own = maps(Family::Balanced, SHAPE[1], SHAPE[3], 10);
    let maps: Arc<[_]> = own.iter().zip(kernels).map(|(map, kernel)| refit(map, kernel)).collect();
    for exact in [vec![ExactKeys::ALL], [ExactKeys::ALL, ExactKeys::NONE, ExactKeys::ALL].into()] {
        let method = AttendMethod::Hybrid { maps: maps.clone(), exact: exact.into() };
        for (mask, causal) in masks().iter().flat_map(|m| [(m, false), (m, true)]) {
            let one = run(inputs(), &method, mask.as_ref(), causal, Implementation::Auto);
            let two = run(inputs(), &method, mask.as_ref(), causal, Implementation::Tensors);
            assert_close(&one.0, &two.0, 1e-10, "values");
            one.1.iter().zip(&two.1).for_each(|(a, b)| assert_close(a, b, 1e-10, "gradients"));
        }
    }
}

/// Padding may hold NaN; it shows nowhere.
#[test]
fn padding_is_not_looked_at() {
    let mask = KeyMask::of_lengths(&[21, 13], 21);
    for method in methods() {
        for implementation in [Implementation::Auto, Implementation::Tensors] {
            let clean = run(inputs(), &method, Some(&mask), false, implementation);
            let [q, k, v] = inputs();
            let spoil = |t: Tensor<4>| {
                let mut numbers = values(t);
                for (i, x) in numbers.iter_mut().enumerate() {
                    if i >= SHAPE[1..].iter().product() && i / SHAPE[3] % SHAPE[2] >= 13 {
                        *x = f64::NAN;
                    }
                }
                Tensor::from_data(TensorData::new(numbers, SHAPE), (&Device::flex(), DType::F64))
            };
            let spoiled = run([q, spoil(k), spoil(v)], &method, Some(&mask), false, implementation);
            assert_eq!(clean.0, spoiled.0, "{method:.30?} {implementation:?}");
            assert_eq!(clean.1, spoiled.1, "{method:.30?} {implementation:?}");
        }
    }
}

/// Linear attention against the plain implementation of the library.
#[test]
fn baselines_are_those_of_the_library() {
    for (method, baseline) in
        [(AttendMethod::Elu, Baseline::Elu), (AttendMethod::Relu, Baseline::Relu { epsilon: 1e-3 })]
    {
        for causal in [false, true] {
            let [q, k, v] = inputs();
            let options = options(None, causal);
            let out = attend(q.clone(), k.clone(), v.clone(), &method, &options);
            let out = values(out.unwrap());
            let head = SHAPE[2] * SHAPE[3];
            let [q, k, v] = [q, k, v].map(values);
            for h in 0..SHAPE[0] * SHAPE[1] {
                let rows = |x: &'_ Vec<f64>| x[h * head..(h + 1) * head].to_vec();
                let (q, k, v) = (rows(&q), rows(&k), rows(&v));
                let view = |x| Rows::new(x, SHAPE[2], SHAPE[3]).unwrap();
                let mask = if causal { Mask::causal() } else { Mask::none() };
                let wanted = baseline_attention(&baseline, view(&q), view(&k), view(&v), mask);
                assert_close(&out[h * head..(h + 1) * head], wanted.unwrap().as_slice(), 1e-12, "");
            }
        }
    }
}

/// Each query gets the mean of the values that are no padding.
#[test]
fn the_plain_mean_is_one() {
    let [q, k, v] = inputs();
    let mask = KeyMask::of_lengths(&[21, 13], 21);
    let out = attend(q, k, v.clone(), &AttendMethod::Mean, &options(Some(&mask), false));
    let (out, v) = (values(out.unwrap()), values(v));
    let (head, dim) = (SHAPE[2] * SHAPE[3], SHAPE[3]);
    for h in 0..SHAPE[0] * SHAPE[1] {
        let visible = [21, 13][h / SHAPE[1]];
        for c in 0..dim {
            let sum: f64 = (0..visible).map(|i| v[h * head + i * dim + c]).sum();
            for i in 0..SHAPE[2] {
                let found = out[h * head + i * dim + c];
                assert!((found - sum / visible as f64).abs() < 1e-12, "{found}");
            }
        }
    }
}

#[test]
fn a_query_without_keys_gives_zeros() {
    let mask = KeyMask::of_lengths(&[21, 0], 21);
    for method in methods() {
        for implementation in [Implementation::Auto, Implementation::Tensors] {
            let (out, gradients) = run(inputs(), &method, Some(&mask), false, implementation);
            assert!(
                out[out.len() / 2..].iter().all(|x| *x == 0.0),
                "{method:.30?} {implementation:?}"
            );
            assert!(
                gradients.iter().flatten().all(|x| x.is_finite()),
                "{method:.30?} {implementation:?}"
            );
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let [q, k, v] = inputs();
    for implementation in [Implementation::Auto, Implementation::Tensors] {
        let refused = |k: &Tensor<4>, method: &AttendMethod, mask: Option<&KeyMask>, part: &str| {
            let options = options(mask, false).implementation(implementation);
            let message = attend(q.clone(), k.clone(), v.clone(), method, &options)
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(message.contains(part), "{message}");
        };
        let short = k.clone().narrow(2, 0, 5);
        refused(&short, &AttendMethod::Exact, None, "values [2, 3, 21, 4] do not fit");
        refused(&k.clone().narrow(3, 0, 2), &AttendMethod::Elu, None, "keys [2, 3, 21, 2]");
        let mask = KeyMask::of_lengths(&[3], 21);
        refused(
            &k,
            &AttendMethod::Relu,
            Some(&mask),
            "key mask: shape [1, 21] where keys are [2, 21]",
        );
        let wrong = AttendMethod::Features(maps(Family::Pos, 2, 4, 8).into());
        refused(&k, &wrong, None, "2 maps");
        let exact = [ExactKeys::ALL; 4].into();
        let wrong = AttendMethod::Hybrid { maps: maps(Family::Pos, 3, 4, 8).into(), exact };
        refused(&k, &wrong, None, "4 entries for 3 heads");
    }
    let causal = |keys: usize| {
        let cut = |t: &Tensor<4>| t.clone().narrow(2, 0, keys);
        let options = options(None, true);
        attend(q.clone(), cut(&k), cut(&v), &AttendMethod::Exact, &options).map(|_| ())
    };
    assert!(causal(20).unwrap_err().to_string().contains("21 queries and 20 keys"));
    assert!(causal(21).is_ok());
    let nan = k.clone() * f64::NAN;
    let message = attend(q.clone(), nan, v.clone(), &AttendMethod::Exact, &options(None, false));
    assert!(message.map(|_| ()).unwrap_err().to_string().contains("NaN"));
}

/// Every kind has a name of its own, which is read back; families whose features can be negative are no
/// kind of attention.
#[test]
fn kinds_are_known_by_their_names() {
    let names: BTreeSet<&str> = Attention::all().map(Attention::name).collect();
    let positive = Family::ALL.into_iter().filter(|family| family.is_positive()).count();
    assert_eq!((names.len(), Attention::all().count()), (positive + 4, positive + 4));
    for kind in Attention::all() {
        assert_eq!(kind.name().parse::<Attention>().unwrap(), kind);
        let json = serde_json::to_string(&kind).unwrap();
        assert_eq!(serde_json::from_str::<Attention>(&json).unwrap(), kind);
    }
    for name in ["unknown", "trig", "trig_pair"] {
        let message = name.parse::<Attention>().unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("balanced"), "{message}");
    }
}

/// A gradient that the engine refuses: NaN out, and the reason where the call was told to leave it.
#[test]
fn failed_backward_passes_leave_their_cause() {
    for method in methods() {
        let failure = BackwardFailure::default();
        let options = options(None, false).failure(failure.clone());
        let [q, k, v] = inputs().map(|t| t.autodiff().require_grad());
        let out = attend(q.clone(), k.clone(), v.clone(), &method, &options).unwrap();
        // Derivatives of a root at zero: finite in value, infinite in slope.
        let loss = ((out * 0.0).sqrt()).sum();
        let gradients = loss.backward();
        for tensor in [q, k, v] {
            let gradient = values(tensor.grad(&gradients).unwrap());
            assert!(gradient.iter().any(|g| g.is_nan()), "{method:.30?}");
        }
        let by_engine =
            !matches!(method, AttendMethod::Elu | AttendMethod::Relu | AttendMethod::Mean);
        let cause = failure.take().map(|error| error.to_string());
        assert_eq!(cause.is_some(), by_engine, "{method:.30?}");
        assert!(cause.is_none_or(|cause| cause.contains("NaN at row 0")), "{method:.30?}");
    }
}
