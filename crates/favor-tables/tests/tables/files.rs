//! Model files: they come back as they were, and no other bytes are taken for one.

use crate::common::*;
use favor::store::{Array, Kind};
use favor_tables::{FitRequest, HeadKind, Model, Search};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::HashMap;

/// The other heads.
fn heads() -> impl Iterator<Item = FitRequest> {
    [ridge(), ridge_number(), ridge_number().head(Some(HeadKind::Gp.into()))].into_iter()
}

fn models() -> Vec<Model> {
    let auto = Search::CrossValidation { folds: 3 };
    [classify(), regress(), density()]
        .into_iter()
        .map(|r| fitted(points(0, 200), &r.bandwidth(auto).features(16)).unwrap())
        .chain(heads().map(|r| fitted(points(0, 200), &r.features(16)).unwrap()))
        .collect()
}

#[test]
fn models_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    for model in models() {
        let path = folder.path().join("m.favor");
        model.save(&path).unwrap();
        let back = Model::load(&path).unwrap();
        assert_eq!(back, model);
        assert_eq!(Model::from_bytes(&model.to_bytes().unwrap()).unwrap(), model);
        assert_eq!(back.merge(&model).unwrap().info().rows, 2 * model.info().rows);
    }
}

#[test]
fn damaged_files_are_refused() {
    for model in models() {
        let bytes = model.to_bytes().unwrap();
        for length in [0, 1, 7, 8, 9, 100, bytes.len() / 2, bytes.len() - 1] {
            let message = Model::from_bytes(&bytes[..length]).unwrap_err().to_string();
            assert!(message.contains("not a readable model"), "{message}");
        }
        // Any byte of the header and some of the arrays: an error or a model, never a panic.
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        for place in (0..header).step_by(3).chain((header..bytes.len()).step_by(1009)) {
            for value in [0, 0xFF, bytes[place] ^ 0x20] {
                let mut broken = bytes.clone();
                broken[place] = value;
                if let Ok(model) = Model::from_bytes(&broken) {
                    let _ = model.to_text();
                }
            }
        }
    }
}

/// The same arrays under a changed header.
fn with_header(bytes: &[u8], change: impl Fn(&mut serde_json::Value)) -> Vec<u8> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).unwrap();
    let mut header: serde_json::Value =
        serde_json::from_str(&metadata.metadata().as_ref().unwrap()["favor"]).unwrap();
    change(&mut header);
    let tensors = SafeTensors::deserialize(bytes).unwrap();
    let views: Vec<(String, TensorView<'_>)> = tensors.tensors();
    let metadata = HashMap::from([("favor".to_string(), header.to_string())]);
    safetensors::serialize(views, Some(metadata)).unwrap()
}

/// The same arrays under changed contents, with a checksum that is right.
fn with_contents(bytes: &[u8], change: impl Fn(&mut serde_json::Value)) -> Vec<u8> {
    let kind = Kind::new("favor.table_model", "model", 4);
    let (mut contents, arrays) = kind.read::<serde_json::Value>(bytes).unwrap().into_parts();
    change(&mut contents);
    let array = |(name, view): (String, TensorView<'_>)| {
        Array::new(name, view.dtype(), view.shape(), view.data().to_vec())
    };
    kind.write(&contents, arrays.into_iter().map(array).collect()).unwrap()
}

#[test]
fn other_versions_and_foreign_files_are_named() {
    let model = &models()[0];
    let bytes = model.to_bytes().unwrap();
    let refused = |bytes: &[u8]| Model::from_bytes(bytes).unwrap_err().to_string();
    assert_eq!(Model::from_bytes(&with_header(&bytes, |_| {})).unwrap(), *model);
    let newer = refused(&with_header(&bytes, |h| h["version"] = 5.into()));
    assert!(newer.contains("version 5") && newer.contains("reads version 4"), "{newer}");
    let other = refused(&with_header(&bytes, |h| h["schema"] = "favor.other".into()));
    assert!(other.contains("favor.other"), "{other}");
    let map = refused(&model.map().unwrap().to_bytes().unwrap());
    assert!(map.contains("favor.maps"), "{map}");
    assert!(refused(b"a,b\n1,2\n").contains("not a complete safetensors file"));
    let data = [0_u8; 8];
    let view = TensorView::new(Dtype::F64, vec![1], &data).unwrap();
    let foreign = safetensors::serialize([("x", view)], None).unwrap();
    assert!(refused(&foreign).contains("without the 'favor' entry"));
    // Numbers that no fit gives.
    for (name, value) in [("bandwidth", -1.0), ("total_weight", 0.0)] {
        let bad = with_contents(&bytes, |h| h["info"][name] = value.into());
        assert!(refused(&bad).contains("out of its range"), "{name}");
    }
    let fewer = with_contents(&bytes, |h| {
        h["info"]["classes"].as_array_mut().unwrap().pop();
    });
    assert!(refused(&fewer).contains("sums of shape"));
    let lost = with_contents(&bytes, |h| h["info"]["rows"] = 199.into());
    assert!(refused(&lost).contains("the first pass saw 200 rows and the second 199"));
}

#[test]
fn files_that_cannot_be_written_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let model = &models()[0];
    let nowhere = folder.path().join("no/such/folder/m.favor");
    assert!(model.save(&nowhere).unwrap_err().to_string().contains("cannot be written"));
    assert!(model.save(folder.path()).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let missing = Model::load(&folder.path().join("m.favor")).unwrap_err().to_string();
    assert!(missing.contains("there is no such file"), "{missing}");
}
