//! Addresses of object stores: the store of this machine's files stands for all.

use crate::common::*;
use favor_tables::{Source, Table, session};

#[test]
fn globs_and_folders_are_expanded() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("deep [1]")).unwrap();
    for (name, rows) in [("a.csv", 1), ("b.csv", 2), ("deep [1]/c.csv", 4), ("note.txt", 8)] {
        let text = format!("x,y\n{}", "1,2\n".repeat(rows));
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    std::fs::write(folder.path().join("empty.csv"), "").unwrap();
    let root = format!("file://{}", folder.path().display());
    let count = |rest: &str| {
        block(async {
            let source = Source::Files(vec![format!("{root}{rest}")]);
            let table = Table::open(&session(Some(1)), &source).await?;
            Ok::<_, favor_tables::Error>(table.frame.count().await?)
        })
    };
    assert_eq!(count("/a.csv"), Ok(1));
    assert_eq!(count("/*.csv"), Ok(3));
    assert_eq!(count("/[ab].csv"), Ok(3));
    assert_eq!(count("/*/*.csv"), Ok(4));
    assert_eq!(count("/**/*.csv"), Ok(7));
    assert_eq!(count("/"), Ok(7));
    for nothing in ["/z*.csv", "/nowhere/", "/*.txt"] {
        let error = count(nothing).unwrap_err().to_string();
        assert!(error.ends_with(&format!("{nothing}: no file matches")), "{error}");
    }
}
