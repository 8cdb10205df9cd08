//! Functions as bytes: the same function comes back, or an error that says why not.

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::PhysicalExtensionCodec;
use favor_cluster::{Codec, version};
use favor_tables::{
    FitRequest, Model, PredictOptions, Source, Table, aggregates, datafusion, fit,
    predict_columns_function, predict_function, session,
};

fn model() -> Model {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv").display().to_string();
    let row = |i: usize| format!("{},{},{}\n", i % 7, i % 5, ["p", "q"][usize::from(i % 7 > 3)]);
    std::fs::write(&path, format!("a,b,label\n{}", (0..80).map(row).collect::<String>())).unwrap();
    let request = FitRequest::of("label").features(16).bandwidth(1.0);
    favor_tables::runtime(Some(1)).unwrap().block_on(async {
        let table = Table::open(&session(Some(1)), &Source::Files(vec![path])).await.unwrap();
        fit(&table, &request, &Default::default()).await.unwrap()
    })
}

fn scalars(model: &Model) -> Vec<ScalarUDF> {
    let options = PredictOptions::default().probabilities(true);
    vec![
        predict_function("favor", model).unwrap(),
        predict_columns_function(model, &options).unwrap(),
    ]
}

fn scalar_bytes(codec: &Codec, function: &ScalarUDF) -> Vec<u8> {
    let (mut logical, mut physical) = (vec![], vec![]);
    LogicalExtensionCodec::try_encode_udf(codec, function, &mut logical).unwrap();
    PhysicalExtensionCodec::try_encode_udf(codec, function, &mut physical).unwrap();
    assert_eq!(logical, physical);
    logical
}

fn aggregate_bytes(codec: &Codec, function: &AggregateUDF) -> Vec<u8> {
    let (mut logical, mut physical) = (vec![], vec![]);
    LogicalExtensionCodec::try_encode_udaf(codec, function, &mut logical).unwrap();
    PhysicalExtensionCodec::try_encode_udaf(codec, function, &mut physical).unwrap();
    assert_eq!(logical, physical);
    logical
}

#[test]
fn functions_come_back_as_they_were() {
    let (model, codec) = (model(), Codec::new("client"));
    for function in scalars(&model) {
        let bytes = scalar_bytes(&codec, &function);
        let name = function.name();
        assert_eq!(*LogicalExtensionCodec::try_decode_udf(&codec, name, &bytes).unwrap(), function);
        assert_eq!(
            *PhysicalExtensionCodec::try_decode_udf(&codec, name, &bytes).unwrap(),
            function
        );
    }
    for function in aggregates("favor", &model).unwrap() {
        let bytes = aggregate_bytes(&codec, &function);
        let name = function.name();
        assert_eq!(
            *LogicalExtensionCodec::try_decode_udaf(&codec, name, &bytes).unwrap(),
            function
        );
        assert_eq!(
            *PhysicalExtensionCodec::try_decode_udaf(&codec, name, &bytes).unwrap(),
            function
        );
    }
    // Functions of others have no bytes.
    let count = datafusion::functions_aggregate::count::count_udaf();
    assert!(aggregate_bytes(&codec, &count).is_empty());
    assert!(scalar_bytes(&codec, &datafusion::functions::math::abs()).is_empty());
}

#[test]
fn other_versions_and_damage_are_refused() {
    let (model, own) = (model(), Codec::new("executor"));
    let function = predict_function("favor", &model).unwrap();
    // Another package, and the same one with other bytes in its functions.
    for other in ["9.8.7-6".to_owned(), format!("{}0", version())] {
        let foreign = scalar_bytes(&Codec::of_version("client", &other), &function);
        let error =
            LogicalExtensionCodec::try_decode_udf(&own, "favor_predict", &foreign).unwrap_err();
        let wanted = format!(
            "the executor has the functions of favor {}, but 'favor_predict' was sent by favor \
             {other}; run one version of favor everywhere",
            version()
        );
        assert!(error.to_string().contains(&wanted), "{error}");
    }
    let bytes = scalar_bytes(&own, &function);
    for cut in [0, 3, 6, 10, 12, 100, bytes.len() - 1] {
        let bytes = &bytes[..cut];
        assert!(LogicalExtensionCodec::try_decode_udf(&own, "favor_predict", bytes).is_err());
        assert!(PhysicalExtensionCodec::try_decode_udaf(&own, "favor_sums", bytes).is_err());
    }
}
