//! What the query engine costs: the sums of a classification through it, and by the plain library
//! on the same Arrow batches with as many threads.

use datafusion::arrow::array::{ArrayRef, AsArray, Float32Array, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{Float32Type, Int64Type};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use favor::{FeatureMap, KeySums, Matrix};
use favor_tables::datafusion;
use favor_tables::{FitRequest, Model, Progress, Source, Table, TableHead, Task, fit, register};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

const COLUMNS: usize = 16;
const CLASSES: usize = 8;
const BATCH: usize = 8192;
const BATCHES: usize = 64;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let threads = std::thread::available_parallelism()?.get();
    let batches: Vec<RecordBatch> = (0..BATCHES).map(batch).collect::<Result<_, _>>()?;
    let runtime = favor_tables::runtime(Some(threads))?;
    let session =
        SessionContext::new_with_config(SessionConfig::new().with_target_partitions(threads));
    let share = BATCHES.div_ceil(threads);
    let parts: Vec<Vec<RecordBatch>> = batches.chunks(share).map(<[_]>::to_vec).collect();
    session.register_table("t", Arc::new(MemTable::try_new(batches[0].schema(), parts)?))?;
    let request = FitRequest::of("label")
        .head(Some(TableHead::Nw))
        .task(Some(Task::Classify))
        .bandwidth(1.0 / 0.3);
    let progress = Arc::new(Progress::default());
    let model = runtime.block_on(async {
        let table = Table::open(&session, &Source::Sql("select * from t".into())).await?;
        fit(&table, &request, &progress).await
    })?;
    register(&session, "favor", &model)?;
    let names: Vec<String> = (0..COLUMNS).map(|c| format!("x{c}")).collect();
    let query = format!("select label, favor_sums({}) from t group by label", names.join(", "));
    let query = Source::Sql(query);
    let (mut engine, mut plain) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let found =
            runtime.block_on(async { Table::open(&session, &query).await?.collect().await })?;
        engine = engine.min(start.elapsed().as_secs_f64());
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), CLASSES);
        let start = Instant::now();
        plain_sums(&batches, &model, threads)?;
        plain = plain.min(start.elapsed().as_secs_f64());
    }
    let rows = (BATCH * BATCHES) as f64;
    println!(
        "Sums of {rows} rows in memory, {threads} threads, best of {ROUNDS}: {:.2} M rows/s through the query \
         engine, {:.2} M rows/s by the plain library on the same batches; the engine takes {:+.0} %.",
        rows / engine / 1e6,
        rows / plain / 1e6,
        100.0 * (engine / plain - 1.0)
    );
    Ok(())
}

fn batch(b: usize) -> Result<RecordBatch, datafusion::arrow::error::ArrowError> {
    let index = |i: usize| b * BATCH + i;
    let label = |i: usize| index(i) * 7 % 13 % CLASSES;
    let wave = |i: usize, c: usize| {
        let phase = 0.37 * index(i) as f64 * (1.0 + 0.1 * c as f64);
        (phase.sin() + 0.5 * (label(i) as f64 + c as f64).cos()) as f32
    };
    let mut columns: Vec<(String, ArrayRef)> = (0..COLUMNS)
        .map(|c| {
            let values = (0..BATCH).map(|i| wave(i, c));
            (format!("x{c}"), Arc::new(Float32Array::from_iter_values(values)) as ArrayRef)
        })
        .collect();
    let labels = Int64Array::from_iter_values((0..BATCH).map(|i| label(i) as i64));
    columns.push(("label".into(), Arc::new(labels)));
    RecordBatch::try_from_iter(columns)
}

/// The same sums without an engine: each thread takes its share of the batches.
fn plain_sums(
    batches: &[RecordBatch],
    model: &Model,
    threads: usize,
) -> Result<Vec<KeySums>, favor::Error> {
    let scalings = model.info().encoder.scalings().iter();
    let scales: Vec<(f64, f64)> = scalings.map(|s| (s.centre, 1.0 / s.scale)).collect();
    let map = model.map().expect("a Nadaraya–Watson model");
    let share = batches.len().div_ceil(threads);
    let parts: Vec<_> = std::thread::scope(|scope| {
        let scales = &scales;
        let workers: Vec<_> = batches
            .chunks(share)
            .map(|part| scope.spawn(move || part_sums(part, scales, map)))
            .collect();
        workers.into_iter().map(|w| w.join().expect("no panic")).collect()
    });
    let mut total: Vec<KeySums> = (0..CLASSES).map(|_| KeySums::new(map, 1)).collect();
    for part in parts {
        for (total, part) in total.iter_mut().zip(part?) {
            total.merge(&part)?;
        }
    }
    Ok(total)
}

fn part_sums(
    batches: &[RecordBatch],
    scales: &[(f64, f64)],
    map: &FeatureMap,
) -> Result<Vec<KeySums>, favor::Error> {
    let mut sums: Vec<KeySums> = (0..CLASSES).map(|_| KeySums::new(map, 1)).collect();
    for batch in batches {
        let labels = batch.column(COLUMNS).as_primitive::<Int64Type>().values();
        let mut members: Vec<Vec<usize>> = vec![vec![]; CLASSES];
        labels.iter().enumerate().for_each(|(i, l)| members[*l as usize].push(i));
        for (sums, members) in sums.iter_mut().zip(&members).filter(|(_, m)| !m.is_empty()) {
            let mut rows = Matrix::zeros(members.len(), COLUMNS);
            for (c, (centre, inverse)) in scales.iter().enumerate() {
                let values = batch.column(c).as_primitive::<Float32Type>().values();
                let places = rows.as_mut_slice()[c..].iter_mut().step_by(COLUMNS);
                let encode = |i: &usize| ((f64::from(values[*i]) - centre) * inverse) as f32;
                places.zip(members).for_each(|(p, i)| *p = encode(i));
            }
            let ones = Matrix::from_fn(members.len(), 1, |_, _| 1.0_f32);
            sums.add(map, rows.view(), ones.view())?;
        }
    }
    Ok(sums)
}
