//! Tables in a bucket. Needs a server that speaks the protocol of S3: the program `moto_server`,
//! named by `FAVOR_MOTO_SERVER`; `cargo xtask test` installs it.

use crate::data::{points, write};
use crate::harness::{Cluster, Executor, Process, exchange, favor, get, wait};
use favor_tables::Model;
use std::ffi::OsStr;
use std::net::TcpListener;
use std::process::Command;

/// A server that answers, and its address. The port was free when it was asked for; if another process takes it
/// first, the server ends, and another port is tried.
fn server(program: &OsStr) -> (Process, String) {
    for _ in 0..10 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (address, port) = (free.to_string(), free.port().to_string());
        let mut command = Command::new(program);
        let mut server = Process::spawn(command.args(["-H", "127.0.0.1", "-p", &port]));
        let answers = wait("server", || match server.status() {
            Some(_) => Some(false),
            None => get(&address, "/moto-api/").contains("200 OK").then_some(true),
        });
        if answers {
            return (server, address);
        }
    }
    panic!("{} does not serve", program.display());
}

#[test]
fn tables_in_a_bucket() {
    let named = std::env::var_os("FAVOR_MOTO_SERVER").filter(|program| !program.is_empty());
    let Some(program) = named else {
        let reason = "FAVOR_MOTO_SERVER names no program";
        return favor_testing::skipped("cluster::store::tables_in_a_bucket", reason);
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (_server, address) = server(&program);
    let put = |path: &str, body: &[u8]| {
        let answer = exchange(&address, "PUT", path, body).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    put("/shells", &[]);
    std::fs::create_dir(folder.join("train")).unwrap();
    for part in 0..3 {
        let name = format!("train/{part}.parquet");
        write(&folder.join(&name), points(500 * part, 500));
        put(&format!("/shells/{name}"), &std::fs::read(folder.join(&name)).unwrap());
    }
    let endpoint = format!("http://{address}");
    let environment = [
        ("AWS_ENDPOINT", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "someone"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let cluster = Cluster::with(folder, &[], &[Executor::default(); 2], &environment);
    let url = cluster.url();
    let run = |arguments: &[&str]| {
        let mut process = Process::start(folder, arguments, &environment);
        let status = process.ended();
        (status.code(), process.lines())
    };
    let fit =
        ["--target", "label", "--ignore", "id,y", "--features", "64", "--bandwidth", "1", "--out"];
    favor(folder, &[&["fit", "train"], &fit[..], &["one.favor"]].concat());
    let many = ["many.favor", "--cluster", &url, "--partitions", "3"];
    let (code, lines) = run(&[&["fit", "s3://shells/train/*.parquet"], &fit[..], &many].concat());
    assert_eq!(code, Some(0), "{lines:#?}");
    let load = |name: &str| Model::load(&folder.join(name)).unwrap();
    let (one, many) = (load("one.favor"), load("many.favor"));
    assert_eq!(one.info().classes, many.info().classes);
    assert_eq!(one.moments().count(), many.moments().count());

    let predict = ["predict", "one.favor", "--keep", "id", "--out"];
    favor(folder, &[&predict[..], &["one.csv", "train"]].concat());
    let bucket = ["many.csv", "s3://shells/train/", "--cluster", &url];
    let (code, lines) = run(&[&predict[..], &bucket].concat());
    assert_eq!(code, Some(0), "{lines:#?}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("one.csv").lines().count(), 1501);
    let labels = |text: String| -> Vec<String> {
        let mut found: Vec<String> =
            text.lines().map(|l| l.rsplit_once(',').unwrap().0.to_owned()).collect();
        found.sort();
        found
    };
    assert!(labels(read("one.csv")) == labels(read("many.csv")));

    let missing = ["fit", "s3://shells/nowhere/*.parquet", "--density", "--cluster", &url];
    let (code, lines) = run(&missing);
    assert_eq!((code, lines.len()), (Some(2), 1), "{lines:#?}");
    assert!(lines[0].starts_with("favor: s3://shells/nowhere/*.parquet: "), "{lines:#?}");
}
