//! Files, globs, folders and queries.

use crate::common::*;
use datafusion::arrow::array::RecordBatch;
use favor_tables::datafusion;
use favor_tables::{
    FitRequest, Missing, Model, Result, Search, Source, Table, fit, session, write_table,
};
use std::fs;
use std::path::Path;

fn write(folder: &Path, name: &str, batch: RecordBatch) -> String {
    let path = folder.join(name);
    let schema = batch.schema();
    let rows = block(write_table(
        &path,
        &schema,
        Box::pin(futures::stream::iter([Ok::<_, favor_tables::Error>(batch)])),
    ))
    .unwrap();
    assert!(rows > 0);
    path.display().to_string()
}

fn from(source: Source) -> Result<Model> {
    from_with(source, &classify().bandwidth(Search::Validation))
}

fn from_with(source: Source, request: &FitRequest) -> Result<Model> {
    block(async {
        let table = Table::open(&session(Some(2)), &source).await?;
        fit(&table, request, &progress()).await
    })
}

fn files(paths: &[&str]) -> Source {
    Source::Files(paths.iter().map(|p| p.to_string()).collect())
}

fn refused(source: Source, parts: &[&str]) {
    let message = match from(source) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("fitted, where {parts:?} was expected"),
    };
    assert!(!message.contains('\n'), "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn every_format_and_way_gives_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let wanted = fitted(points(0, 600), &classify().bandwidth(Search::Validation)).unwrap();
    let whole: Vec<String> =
        ["w.csv", "w.parquet", "w.arrow"].map(|n| write(folder.path(), n, points(0, 600))).into();
    fs::create_dir(place("parts")).unwrap();
    for (k, name) in ["parts/1.parquet", "parts/2.parquet", "parts/3.parquet"].iter().enumerate() {
        write(folder.path(), name, points(200 * k, 200));
    }
    fs::write(place("parts/notes.txt"), "not a table").unwrap();
    let query = format!("select *, a from '{}' where a > -1e9", whole[1]);
    let query = query.replace("*, a", "*");
    for source in [
        files(&[&whole[0]]),
        files(&[&whole[1]]),
        files(&[&whole[2]]),
        files(&[&place("parts")]),
        files(&[&place("parts/*.parquet")]),
        files(&[&place("parts/3.parquet"), &place("parts/[12].parquet")]),
        Source::Sql(query),
    ] {
        let model = from(source.clone()).unwrap();
        let bandwidth = wanted.info().bandwidth;
        assert_eq!((model.info().rows, model.info().bandwidth), (600, bandwidth));
        let test = points(5000, 50);
        let off = difference(&probabilities(&model, test.clone()), &probabilities(&wanted, test));
        assert!(off < ROUNDING, "{source:?}: {off}");
    }
}

#[test]
fn files_that_are_no_tables_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    fs::write(place("empty.csv"), "").unwrap();
    fs::write(place("empty.parquet"), "").unwrap();
    fs::write(place("header.csv"), "a,label\n").unwrap();
    fs::write(place("fake.parquet"), "this is no parquet file at all").unwrap();
    fs::write(place("x.txt"), "a,b\n1,2\n").unwrap();
    fs::create_dir(place("nothing")).unwrap();
    let good = write(folder.path(), "good.csv", points(0, 50));
    let other = write(folder.path(), "good.parquet", points(0, 50));
    refused(files(&[&place("none.csv")]), &["none.csv", "there is no such file"]);
    refused(files(&[&place("*.tsv")]), &["no file matches"]);
    refused(files(&[&place("nothing")]), &["the folder has no .csv"]);
    refused(files(&[&place("empty.csv")]), &["empty.csv: the file is empty"]);
    refused(files(&[&place("empty.parquet")]), &["the file is empty"]);
    refused(files(&[&place("fake.parquet")]), &["fake.parquet"]);
    refused(files(&[&place("x.txt")]), &["x.txt", "must end in .csv"]);
    refused(files(&[&good, &other]), &["another format"]);
    refused(files(&[]), &["give a file"]);
    let request = classify().ignore(Vec::<String>::new());
    let error = from_with(files(&[&place("header.csv")]), &request).unwrap_err().to_string();
    assert!(error.contains("no rows"), "{error}");
}

#[test]
fn queries_that_cannot_be_read_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = write(folder.path(), "good.parquet", points(0, 50));
    let never = folder.path().join("never.parquet");
    let copy = format!("copy (select * from '{good}') to '{}'", never.display());
    for (query, part) in [
        ("selekt 1".to_string(), "query: "),
        (format!("select nothing from '{good}'"), "nothing"),
        ("select * from 'none.parquet'".to_string(), "none.parquet"),
        (copy, "query: "),
        ("create table t as values (1)".to_string(), "query: "),
    ] {
        refused(Source::Sql(query), &[part]);
    }
    assert!(!never.exists());
}

/// The line is counted from the top of the file, even though the engine reads it in pieces.
#[test]
fn ragged_and_mistyped_lines_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.csv");
    let place = path.display().to_string();
    let request = classify().ignore(Vec::<String>::new());
    let told = |lines: &[String], parts: &[&str]| {
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        let error = from_with(files(&[&place]), &request).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    };
    // More than one piece for two workers.
    let mut lines = vec!["a,b,label".to_string()];
    lines.extend((0..400_000).map(|i| format!("{i}.25,{}.0625,{}", 400_000 - i, i % 2)));
    let mut ragged = lines.clone();
    ragged[300_000].push_str(",9");
    told(&ragged, &["r.csv", "line 300001 has 4 fields where the header has 3"]);
    ragged = lines.clone();
    ragged[5] = "1,2".into();
    told(&ragged, &["line 6 has 2 fields"]);
    let mut mistyped = lines;
    mistyped[350_000] = "1,two,1".into();
    told(&mistyped, &["line 350001: 'two' in column 'b'"]);
}

#[test]
fn empty_fields_of_csv_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.csv");
    let mut text = "a,c,label\n".to_string();
    for i in 0..60 {
        let a = ["1.5", "", "NaN", "2.5", "", "3"][i % 6];
        let c = ["x", "y", "x", "", "y", ""][i % 6];
        text.push_str(&format!("{a},{c},{}\n", i % 2));
    }
    fs::write(&path, text).unwrap();
    let source = files(&[&path.display().to_string()]);
    let request = classify().ignore(Vec::<String>::new());
    let error = from_with(source.clone(), &request).unwrap_err().to_string();
    assert!(error.contains("has missing values"), "{error}");
    let drop = request.clone().missing(Some(Missing::Drop));
    // Left are the rows 0 (mod 6), of one label and one text each.
    let error = from_with(source.clone(), &drop).unwrap_err().to_string();
    assert!(error.contains("is constant"), "{error}");
    let mean = request.missing(Some(Missing::Mean));
    let model = from_with(source, &mean).unwrap();
    assert_eq!(model.info().rows, 60);
}
