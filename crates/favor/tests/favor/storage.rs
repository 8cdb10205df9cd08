//! Feature maps as bytes and as JSON: back to the last bit, or an error that says what is wrong.

use crate::common::{assert_same_bits, moments, normal};
use favor::store::{Array, Kind};
use favor::{
    Coupling, Family, FeatureMap, FeatureSpec, Kernel, Matrix, Side, maps_from_bytes,
    maps_to_bytes, maps_to_bytes_with_note, note_from_bytes,
};
use serde_json::json;
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

/// One damaged byte anywhere: an error that says so, never a panic and never another map. The order of
/// names in the header is not part of what a file says, and spaces are not either.
#[test]
fn damaged_files_are_refused() {
    for map in maps().into_iter().step_by(6) {
        let bytes = map.to_bytes().unwrap();
        for place in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[place] ^= flip;
                let result = catch_unwind(AssertUnwindSafe(|| FeatureMap::from_bytes(&damaged)));
                let result = result.unwrap_or_else(|_| panic!("byte {place} xor {flip:#x}"));
                assert!(
                    result.is_err() || result.as_ref() == Ok(&map),
                    "byte {place} xor {flip:#x}"
                );
            }
        }
    }
}

/// Several maps in one file, and one map where one is expected.
#[test]
fn files_hold_one_map_or_several() {
    let all = maps();
    let bytes = maps_to_bytes(&all).unwrap();
    let read = maps_from_bytes(&bytes).unwrap();
    all.iter().zip(&read).for_each(|(a, b)| assert_same("of several", a, b));
    assert_eq!(all.len(), read.len());
    assert_says(&bytes, &["maps where one is expected"]);
    assert_eq!(maps_from_bytes(&maps_to_bytes(&[]).unwrap()).unwrap(), []);
    // What is in the header tells contents apart: maps that differ in one number differ there.
    let header = |bytes: &[u8]| {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        bytes[..8 + length].to_vec()
    };
    let one = all.iter().find(|map| map.parameters().is_some()).unwrap();
    let mut omega = one.omega().unwrap().clone();
    omega[(0, 0)] += 1e-9;
    let other = one.spec().with_omega(one.parameters().unwrap().clone(), omega).unwrap();
    assert_ne!(header(&one.to_bytes().unwrap()), header(&other.to_bytes().unwrap()));
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
    assert_says(&file(Some("{}")), &["without a schema", "favor.maps"]);
    let other = r#"{"schema":"favor.model","version":1}"#;
    assert_says(&file(Some(other)), &["favor.model", "favor.maps"]);
    // A later version need not be readable beyond its number.
    let later = r#"{"schema":"favor.maps","version":6,"contents":"something new"}"#;
    assert_says(&file(Some(later)), &["version 6", "reads version 5"]);
    let no_version = r#"{"schema":"favor.maps"}"#;
    assert_says(&file(Some(no_version)), &["version null"]);
    let no_contents = r#"{"schema":"favor.maps","version":5,"checksum":""}"#;
    assert_says(&file(Some(no_contents)), &["damaged header", "contents"]);
    let unsigned = r#"{"schema":"favor.maps","version":5,"checksum":"0","contents":[]}"#;
    assert_says(&file(Some(unsigned)), &["checksum"]);
}

/// A file of maps with the given header and arrays, and a checksum that is right.
fn written(specs: serde_json::Value, arrays: Vec<Array<'_>>) -> Vec<u8> {
    let contents = json!({ "maps": specs });
    Kind::new("favor.maps", "feature map", 5).write(&contents, arrays).unwrap()
}

#[test]
fn headers_that_contradict_the_arrays_are_refused() {
    let softmax = json!({"alpha": 0.0, "scale": 1.0});
    let spec = |family: &str, kernel: &serde_json::Value, features: i64| {
        let spec = json!({
            "family": family, "kernel": kernel, "features": features, "coupling": "iid", "seed": 1
        });
        written(json!([{ "spec": spec }]), vec![Array::f64("0.omega", [1, 2], &[0.0, 0.0])])
    };
    assert_says(&spec("pos", &softmax, 1), &["'0.quadratic' is missing"]);
    assert_says(&spec("trig", &softmax, 1), &["'0.offsets' is missing"]);
    assert_says(&spec("new", &softmax, 1), &["damaged header", "new"]);
    assert_says(&spec("pos", &softmax, -1), &["damaged header"]);
    let bad = json!({"alpha": 0.0, "scale": -2.0});
    assert_says(&spec("pos", &bad, 1), &["scale", "-2"]);

    let map = &maps()[4 * 2];
    assert_eq!(map.spec().family, Family::Pos);
    type Edit<'a> = &'a dyn Fn(&mut serde_json::Value, &mut Vec<Array<'static>>);
    let edited = |edit: Edit<'_>| {
        let (mut specs, mut arrays) = (json!([{ "spec": map.spec() }]), parts(map));
        edit(&mut specs, &mut arrays);
        written(specs, arrays)
    };
    assert_same("unedited", map, &FeatureMap::from_bytes(&edited(&|_, _| {})).unwrap());
    let features = edited(&|specs, _| specs[0]["spec"]["features"] = 8.into());
    assert_says(&features, &["(7, 3)", "8 features"]);
    let missing = edited(&|_, arrays| drop(arrays.pop()));
    assert_says(&missing, &["'0.key_shift' is missing"]);
    let integers = edited(&|_, arrays| {
        arrays.pop();
        arrays.push(Array::new("0.key_shift", safetensors::Dtype::I64, [3], vec![0; 24]));
    });
    assert_says(&integers, &["I64 where F64"]);
    // Positive parameters, but a trigonometric family.
    let other = edited(&|specs, _| specs[0]["spec"]["family"] = "trig".into());
    assert_says(&other, &["'0.offsets' is missing"]);
}

/// The arrays of a positive map, as its file names them.
fn parts(map: &FeatureMap) -> Vec<Array<'static>> {
    let (p, (m, d)) = (map.parameters().unwrap(), map.omega().unwrap().shape());
    vec![
        Array::f64("0.omega", [m, d], map.omega().unwrap().as_slice()),
        Array::f64("0.quadratic", [d], p.quadratic()),
        Array::f64("0.query_transform", [d, d], p.query_transform().as_slice()),
        Array::f64("0.key_transform", [d, d], p.key_transform().as_slice()),
        Array::f64("0.query_shift", [d], p.query_shift()),
        Array::f64("0.key_shift", [d], p.key_shift()),
    ]
}

/// Numbers that no valid map holds, in the place of a number of each array.
#[test]
fn numbers_that_are_not_finite_are_refused() {
    for map in maps().into_iter().filter(|m| m.parameters().is_some()).step_by(4) {
        let d = map.dim();
        for bad in [f64::NAN, f64::INFINITY] {
            for (place, name, shape) in
                [(0, "omega", [map.features(), d]), (2, "query_transform", [d, d])]
            {
                let mut arrays = parts(&map);
                let source = if place == 0 {
                    map.omega().unwrap().as_slice()
                } else {
                    map.parameters().unwrap().query_transform().as_slice()
                };
                let mut numbers = source.to_vec();
                numbers[0] = bad;
                arrays[place] = Array::f64(format!("0.{name}"), shape, &numbers);
                let text = message(&written(json!([{ "spec": map.spec() }]), arrays));
                let what = format!("{} {name}", map.spec().family);
                assert!(text.contains("ω") || text.contains("transform"), "{what}: {text}");
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
        ("quadratic", |v| v["numbers"]["Drawn"]["parameters"]["quadratic"][0] = 0.5.into()),
        ("transform", |v| {
            v["numbers"]["Drawn"]["parameters"]["query_transform"]["data"][0] = 40.0.into();
        }),
        ("parameters", |v| v["numbers"]["Drawn"]["parameters"] = serde_json::Value::Null),
        ("scale", |v| v["spec"]["kernel"]["scale"] = 0.0.into()),
        ("rows", |v| v["numbers"]["Drawn"]["omega"]["rows"] = 6.into()),
    ];
    for (what, edit) in edits {
        let mut damaged = value.clone();
        edit(&mut damaged);
        assert!(serde_json::from_value::<FeatureMap>(damaged).is_err(), "{what}");
    }
}

/// A note is covered by the checksum, and files without one have none.
#[test]
fn notes_are_read_back_and_damage_is_found() {
    let maps = &maps()[..2];
    assert_eq!(note_from_bytes::<String>(&maps_to_bytes(maps).unwrap()).unwrap(), None);
    let bytes = maps_to_bytes_with_note(maps, &"layers 3 and 4").unwrap();
    assert_eq!(maps_from_bytes(&bytes).unwrap(), maps);
    assert_eq!(note_from_bytes::<String>(&bytes).unwrap().unwrap(), "layers 3 and 4");
    assert!(note_from_bytes::<u64>(&bytes).unwrap_err().to_string().contains("note"));
    let mut damaged = bytes.clone();
    let place = bytes.windows(6).position(|w| w == b"layers").unwrap();
    damaged[place] = b'p';
    assert!(note_from_bytes::<String>(&damaged).unwrap_err().to_string().contains("checksum"));
}
