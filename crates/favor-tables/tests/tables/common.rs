//! Tables and plain computations that the tests share.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::Float64Type;
use datafusion::prelude::{SessionConfig, SessionContext};
use favor::{Family, FeatureMap, Kernel, Matrix, reference};
use favor_tables::datafusion;
use favor_tables::{
    Basis, FitRequest, KernelShape, Missing, Model, PredictOptions, Progress, Result, Table,
    TableHead, Task, fit, predict, session,
};
use futures::TryStreamExt;
use std::sync::Arc;

pub(crate) fn block<T>(work: impl Future<Output = T>) -> T {
    favor_tables::runtime(Some(2)).unwrap().block_on(work)
}

pub(crate) fn progress() -> Arc<Progress> {
    Arc::default()
}

/// A number between 0 and 1 for each index.
pub(crate) fn noise(i: usize) -> f64 {
    let mut z = (i as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A normal number for each index.
pub(crate) fn normal(i: usize) -> f64 {
    let (u, v) = (noise(2 * i).max(1e-12), noise(2 * i + 1));
    (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
}

pub(crate) fn numbers(values: impl IntoIterator<Item = f64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(values))
}

pub(crate) fn texts<'a>(values: impl IntoIterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// Three classes of points: two numbers, a flag and a colour, an integer label, a weight and a
/// number to predict.
pub(crate) fn points(start: usize, count: usize) -> RecordBatch {
    let index = || start..start + count;
    let label = |i: usize| (3.0 * noise(7 * i)) as usize;
    let a = |i: usize| 100.0 + 10.0 * normal(i) + 15.0 * label(i) as f64;
    let b = |i: usize| 0.01 * normal(i + 500_000) - 0.01 * label(i) as f64;
    let colour = |i: usize| ["blue", "green", "red"][(3.0 * noise(i + 9_000_000)) as usize];
    let label_values = Int64Array::from_iter_values(index().map(|i| 10 * label(i) as i64));
    RecordBatch::try_from_iter([
        ("a", numbers(index().map(a))),
        ("b", numbers(index().map(b))),
        (
            "flag",
            Arc::new(BooleanArray::from_iter(
                index().map(|i| Some(noise(i) < 0.2 + 0.3 * label(i) as f64)),
            )) as ArrayRef,
        ),
        ("Colour", texts(index().map(colour))),
        ("label", Arc::new(label_values) as ArrayRef),
        ("w", numbers(index().map(|i| f64::from(1 + (i % 3) as u32)))),
        ("y", numbers(index().map(|i| (0.1 * a(i)).sin() + 50.0 * b(i)))),
    ])
    .unwrap()
}

pub(crate) fn table(batch: RecordBatch) -> Table {
    session(Some(2)).read_batch(batch).unwrap().into()
}

/// A table in batches of a size, for so many workers.
pub(crate) fn cut(batch: &RecordBatch, size: usize, workers: usize) -> Table {
    let config = SessionConfig::new().with_batch_size(size).with_target_partitions(workers);
    let pieces = (0..batch.num_rows().div_ceil(size))
        .map(|p| batch.slice(p * size, size.min(batch.num_rows() - p * size)));
    SessionContext::new_with_config(config).read_batches(pieces).unwrap().into()
}

pub(crate) fn classify() -> FitRequest {
    FitRequest::of("label")
        .task(Some(Task::Classify))
        .head(Some(TableHead::Nw))
        .missing(Some(Missing::Error))
        .ignore(["w", "y"])
        .features(64)
        .bandwidth(1.0)
}

/// The same with a ridge head on landmarks.
pub(crate) fn ridge() -> FitRequest {
    FitRequest::of("label")
        .task(Some(Task::Classify))
        .ignore(["w", "y"])
        .basis(Some(Basis::Nystrom))
        .kernel(Some(KernelShape::Gaussian))
        .features(64)
        .bandwidth(2.0)
}

/// A ridge head that predicts the number.
pub(crate) fn ridge_number() -> FitRequest {
    ridge().task(Some(Task::Regress)).target(Some("y".into())).ignore(["w", "label"])
}

pub(crate) fn regress() -> FitRequest {
    classify().task(Some(Task::Regress)).target(Some("y".into())).ignore(["w", "label"])
}

pub(crate) fn density() -> FitRequest {
    FitRequest::density().columns(Some(vec!["a".into(), "b".into()])).features(64).bandwidth(1.0)
}

pub(crate) fn fitted(batch: RecordBatch, request: &FitRequest) -> Result<Model> {
    block(fit(&table(batch), request, &progress()))
}

pub(crate) fn predicted(
    model: &Model,
    batch: RecordBatch,
    options: &PredictOptions,
) -> Result<RecordBatch> {
    let one: Table = session(Some(1)).read_batch(batch).unwrap().into();
    block(async {
        let (schema, batches) = predict(&one, model, options, &progress()).await?;
        let batches: Vec<RecordBatch> = batches.try_collect().await?;
        Ok(concat_batches(&schema, &batches)?)
    })
}

pub(crate) fn column(batch: &RecordBatch, name: &str) -> Vec<f64> {
    let array = batch.column_by_name(name).unwrap_or_else(|| panic!("no column {name}"));
    assert_eq!(array.null_count(), 0);
    array.as_primitive::<Float64Type>().values().to_vec()
}

/// Probabilities of the three classes of `points`, one row per point.
pub(crate) fn probabilities(model: &Model, batch: RecordBatch) -> Matrix<f64> {
    let options = PredictOptions::default().probabilities(true);
    let found = predicted(model, batch, &options).unwrap();
    let columns: Vec<Vec<f64>> =
        model.info().labels().iter().map(|l| column(&found, &format!("p_{l}"))).collect();
    Matrix::from_fn(found.num_rows(), columns.len(), |i, c| columns[c][i])
}

/// The vectors of `points` by hand: numbers by the mean and deviation of `by`, then 0 and 1.
pub(crate) fn vectors(batch: &RecordBatch, by: &RecordBatch) -> Matrix<f64> {
    let scaled = |name: &str| {
        let all = column(by, name);
        let n = all.len() as f64;
        let mean = all.iter().sum::<f64>() / n;
        let deviation = (all.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
        column(batch, name).into_iter().map(|v| (v - mean) / deviation).collect::<Vec<_>>()
    };
    let (a, b) = (scaled("a"), scaled("b"));
    let flag = batch.column_by_name("flag").unwrap().as_boolean().clone();
    let colour = batch.column_by_name("Colour").unwrap().as_string::<i32>().clone();
    Matrix::from_fn(batch.num_rows(), 6, |i, l| match l {
        0 => a[i],
        1 => b[i],
        2 => f64::from(u8::from(flag.value(i))),
        _ => f64::from(u8::from(colour.value(i) == ["blue", "green", "red"][l - 3])),
    })
}

/// The index of the class of each of `points`.
pub(crate) fn classes(batch: &RecordBatch) -> Vec<usize> {
    use datafusion::arrow::datatypes::Int64Type;
    let labels = batch.column_by_name("label").unwrap().as_primitive::<Int64Type>();
    labels.values().iter().map(|l| *l as usize / 10).collect()
}

/// `K(X,Y)·C` by the plain sums of a map, with the rows' scales taken out.
pub(crate) fn plain(
    map: &FeatureMap,
    x: &Matrix<f64>,
    y: &Matrix<f64>,
    c: &Matrix<f64>,
) -> Matrix<f64> {
    reference::kernel_product(map, x.view(), y.view(), c.view()).unwrap().to_matrix().unwrap()
}

/// `K(X,Y)·C` exactly, for the Gaussian kernel of a bandwidth.
pub(crate) fn exact(
    bandwidth: f64,
    x: &Matrix<f64>,
    y: &Matrix<f64>,
    c: &Matrix<f64>,
) -> Matrix<f64> {
    let kernel = Kernel::gaussian().scaled(1.0 / bandwidth).unwrap();
    kernel.product(x.view(), y.view(), c.view()).unwrap().to_matrix().unwrap()
}

/// The largest difference of two matrices.
pub(crate) fn difference(a: &Matrix<f64>, b: &Matrix<f64>) -> f64 {
    assert_eq!(a.shape(), b.shape());
    a.as_slice().iter().zip(b.as_slice()).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}

/// Rows divided by their sums.
pub(crate) fn normalised(mut m: Matrix<f64>) -> Matrix<f64> {
    for i in 0..m.rows() {
        let total: f64 = m.row(i).iter().sum();
        m.row_mut(i).iter_mut().for_each(|v| *v /= total);
    }
    m
}

/// What 32-bit features may be off, relative to sums of positive terms: logarithms of size up to
/// some hundred, each known to 2⁻²⁴.
pub(crate) const ROUNDING: f64 = 2e-5;

pub(crate) const POSITIVE: [Family; 4] =
    [Family::Balanced, Family::Sde, Family::Ge, Family::Hyperbolic];
