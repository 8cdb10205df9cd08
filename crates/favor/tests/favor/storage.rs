//! Feature maps as bytes and as JSON: back to the last bit, or an error that says what is wrong.

use crate::common::{assert_same_bits, moments, normal};
use favor::{Coupling, Family, FeatureMap, FeatureSpec, Kernel, Matrix, Side};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn maps() -> Vec<FeatureMap> {
    let (x, y) = (normal(1, 30, 3, 0.2, 0.7), normal(2, 30, 3, -0.4, 0.5));
    let kernels = [
        Kernel::softmax(),
        Kernel::gaussian(),
        Kernel::attention(3),
        Kernel::new(0.1 + 0.2, 1.0 / 3.0).unwrap(), // numbers that need all their digits
    ];
    let mut out = vec![];
    for (k, family) in Family::ALL.into_iter().enumerate() {
        for kernel in kernels {
            let coupling = Coupling::ALL[k % Coupling::ALL.len()];
            let spec = FeatureSpec::new(family, 7).kernel(kernel).coupling(coupling);
            let spec = spec.seed(u64::MAX - k as u64);
            out.push(spec.fit(&moments(&x), &moments(&y)).unwrap());
        }
    }
    out
}

/// The same map, with the same features to the last bit.
fn assert_same(what: &str, map: &FeatureMap, again: &FeatureMap) {
    assert_eq!(map, again, "{what}");
    let rows = normal(3, 9, 3, 0.0, 1.0);
    for side in [Side::Query, Side::Key] {
        let (a, b) = (map.features_of(side, rows.view()), again.features_of(side, rows.view()));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_same_bits(what, &a.values, &b.values);
        assert_eq!(a.log_scale, b.log_scale, "{what}");
    }
}

#[test]
fn every_map_comes_back_to_the_last_bit() {
    for map in maps() {
        let what = format!("{} {:?}", map.spec().family, map.kernel());
        assert_same(&what, &map, &FeatureMap::from_bytes(&map.to_bytes().unwrap()).unwrap());
        let text = serde_json::to_string(&map).unwrap();
        assert_same(&what, &map, &serde_json::from_str(&text).unwrap());
        let spec = serde_json::to_string(map.spec()).unwrap();
        assert_eq!(&serde_json::from_str::<FeatureSpec>(&spec).unwrap(), map.spec());
    }
}

/// Numbers at the ends of f64: the smallest subnormal, and many random bit patterns, through a
/// shift vector.
#[test]
fn numbers_keep_all_their_bits() {
    let mut stream = favor::draw::Stream::new(1, 1);
    let mut numbers = vec![5e-324, -0.0, 1.0 / 3.0, 0.1 + 0.2, 2.2250738585072014e-308];
    numbers.extend((0..200).map(|_| stream.normal() * 10_f64.powf(40.0 * stream.normal())));
    let d = numbers.len();
    let zeros = vec![0.0; d];
    let p = favor::Parameters::new(zeros.clone(), Matrix::identity(d), zeros, numbers.clone());
    let map = FeatureSpec::new(Family::Balanced, 2).with_parameters(p.unwrap()).unwrap();
    let text = serde_json::to_string(&map).unwrap();
    let read: FeatureMap = serde_json::from_str(&text).unwrap();
    let bytes = FeatureMap::from_bytes(&map.to_bytes().unwrap()).unwrap();
    for again in [read, bytes] {
        let shift = again.parameters().unwrap().key_shift();
        assert!(shift.iter().zip(&numbers).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}

#[test]
fn truncated_files_are_refused_at_every_length() {
    for map in maps().into_iter().step_by(9) {
        let bytes = map.to_bytes().unwrap();
        for length in 0..bytes.len() {
            let error = FeatureMap::from_bytes(&bytes[..length]).unwrap_err().to_string();
            assert!(error.starts_with("not a readable feature map"), "{length}: {error}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(FeatureMap::from_bytes(&longer).is_err(), "a byte too many");
        let text = serde_json::to_string(&map).unwrap();
        for length in (0..text.len()).step_by(7) {
            assert!(serde_json::from_str::<FeatureMap>(&text[..length]).is_err());
        }
    }
}

/// One damaged byte anywhere: an error, or a map that is still valid (a changed digit of ω cannot
/// be told from a meant one) and works. Never a panic.
#[test]
fn damaged_files_are_refused_or_still_valid() {
    let rows = normal(3, 4, 3, 0.0, 0.5);
    let (mut refused, mut read) = (0, 0);
    for map in maps().into_iter().step_by(6) {
        let bytes = map.to_bytes().unwrap();
        for place in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[place] ^= flip;
                let result = catch_unwind(AssertUnwindSafe(|| {
                    let map = FeatureMap::from_bytes(&damaged)?;
                    // A valid map has finite features, or says that they overflow.
                    if let Ok(features) = map.features_of(Side::Query, rows.view()) {
                        let mut all = features.values.as_slice().iter().chain(&features.log_scale);
                        assert!(all.all(|v| v.is_finite()));
                    }
                    Ok::<_, favor::Error>(map)
                }));
                match result.unwrap_or_else(|_| panic!("byte {place} xor {flip:#x}")) {
                    Ok(_) => read += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(refused > 100 && read > 100, "{refused} refused, {read} read");
}

/// A safetensors file with the given `favor` entry and one array.
fn file(entry: Option<&str>) -> Vec<u8> {
    let data = [0_u8; 16];
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F64, vec![1, 2], &data);
    let metadata = entry.map(|e| [("favor".to_string(), e.to_string())].into_iter().collect());
    safetensors::serialize([("omega", view.unwrap())], metadata).unwrap()
}

fn message(bytes: &[u8]) -> String {
    FeatureMap::from_bytes(bytes).unwrap_err().to_string()
}

#[track_caller]
fn assert_says(bytes: &[u8], parts: &[&str]) {
    let text = message(bytes);
    parts.iter().for_each(|part| assert!(text.contains(part), "{text:?} does not say {part:?}"));
}

#[test]
fn foreign_files_are_told_apart() {
    let not_safetensors = "not a complete safetensors file";
    assert_says(b"", &[not_safetensors]);
    assert_says(b"%PDF-1.7 and so on, for as long as it takes", &[not_safetensors]);
    assert_says(&[0xff; 64], &[not_safetensors]);
    assert_says(&file(None), &["without the 'favor' entry"]);
    assert_says(&file(Some("no json")), &["damaged header"]);
    assert_says(&file(Some("{}")), &["null", "favor.feature_map"]);
    let other = r#"{"schema":"favor.model","version":1}"#;
    assert_says(&file(Some(other)), &["favor.model", "favor.feature_map"]);
    // A later version need not be readable beyond its number.
    let later = r#"{"schema":"favor.feature_map","version":2,"spec":"something new"}"#;
    assert_says(&file(Some(later)), &["version 2", "reads version 1"]);
    let no_version = r#"{"schema":"favor.feature_map"}"#;
    assert_says(&file(Some(no_version)), &["version null"]);
    let no_spec = r#"{"schema":"favor.feature_map","version":1}"#;
    assert_says(&file(Some(no_spec)), &["damaged header", "spec"]);
}

fn header(spec: &str) -> String {
    format!(r#"{{"schema":"favor.feature_map","version":1,"spec":{spec}}}"#)
}

#[test]
fn headers_that_contradict_the_arrays_are_refused() {
    let spec = |family: &str, kernel: &str, features: &str| {
        header(&format!(
            r#"{{"family":"{family}","kernel":{kernel},"features":{features},"coupling":"iid","seed":1}}"#
        ))
    };
    let softmax = r#"{"alpha":0.0,"scale":1.0}"#;
    assert_says(&file(Some(&spec("pos", softmax, "1"))), &["'quadratic' is missing"]);
    assert_says(&file(Some(&spec("trig", softmax, "1"))), &["'offsets' is missing"]);
    assert_says(&file(Some(&spec("new", softmax, "1"))), &["damaged header", "new"]);
    assert_says(&file(Some(&spec("pos", softmax, "-1"))), &["damaged header"]);
    let bad = r#"{"alpha":0.0,"scale":-2.0}"#;
    assert_says(&file(Some(&spec("pos", bad, "1"))), &["scale", "-2"]);

    let map = &maps()[4 * 2];
    assert_eq!(map.spec().family, Family::Pos);
    let bytes = map.to_bytes().unwrap();
    let patched = |from: &str, to: &str| {
        let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
        let mut out = bytes.clone();
        out[at..at + from.len()].copy_from_slice(to.as_bytes());
        out
    };
    let seven = r#"\"features\":7"#;
    assert_says(&patched(seven, r#"\"features\":8"#), &["(7, 3)", "8 features"]);
    assert_says(&patched("\"F64\"", "\"I64\""), &["64-bit floats"]);
    assert_says(&patched("key_shift", "key_shyft"), &["'key_shift' is missing"]);
    // The same family name of another kind: positive parameters, trigonometric family.
    assert_says(&patched(r#"\"pos\""#, r#"\"xyz\""#), &["damaged header"]);
}

/// Numbers that no valid map holds, in the place of a number of each array.
#[test]
fn numbers_that_are_not_finite_are_refused() {
    for map in maps().into_iter().step_by(4) {
        let bytes = map.to_bytes().unwrap();
        let mut arrays = vec![("ω", map.omega().as_slice())];
        if let Some(p) = map.parameters() {
            arrays.push(("query transform", p.query_transform().as_slice()));
        }
        for (name, numbers) in arrays {
            let old = numbers[0].to_le_bytes();
            let at = bytes.windows(8).rposition(|w| w == old).unwrap();
            for bad in [f64::NAN, f64::INFINITY] {
                let mut damaged = bytes.clone();
                damaged[at..at + 8].copy_from_slice(&bad.to_le_bytes());
                let what = format!("{} {name}", map.spec().family);
                let text = message(&damaged);
                assert!(text.contains(name) || text.contains("transform"), "{what}: {text}");
            }
        }
    }
}

#[test]
fn lengths_in_headers_are_not_believed() {
    for length in [u64::MAX, u64::MAX / 2, 1 << 40, 1 << 27, 100_000_001] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{\"favor\":1}");
        assert_says(&bytes, &["not a complete safetensors file"]);
    }
    let giant =
        r#"{"omega":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,16]}}"#;
    let mut bytes = (giant.len() as u64).to_le_bytes().to_vec();
    bytes.extend(giant.as_bytes());
    bytes.extend([0; 16]);
    assert_says(&bytes, &["not a readable feature map"]);
    let nested = "[".repeat(100_000);
    assert_says(&file(Some(&nested)), &["damaged header"]);
}

#[test]
fn json_maps_are_checked_like_files() {
    let map = &maps()[4 * 10];
    let value = serde_json::to_value(map).unwrap();
    type Edit = fn(&mut serde_json::Value);
    let edits: [(&str, Edit); 6] = [
        ("features", |v| v["spec"]["features"] = 3.into()),
        ("quadratic", |v| v["parameters"]["quadratic"][0] = 0.5.into()),
        ("transform", |v| v["parameters"]["query_transform"]["data"][0] = 40.0.into()),
        ("parameters", |v| v["parameters"] = serde_json::Value::Null),
        ("scale", |v| v["spec"]["kernel"]["scale"] = 0.0.into()),
        ("rows", |v| v["omega"]["rows"] = 6.into()),
    ];
    for (what, edit) in edits {
        let mut damaged = value.clone();
        edit(&mut damaged);
        assert!(serde_json::from_value::<FeatureMap>(damaged).is_err(), "{what}");
    }
}
