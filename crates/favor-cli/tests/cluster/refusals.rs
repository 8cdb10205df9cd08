//! What cannot be done is said in one line, and nothing is written.

use crate::data::{points, write};
use crate::harness::{Cluster, Executor, favor, names, refused};
use std::path::Path;

const FIT: [&str; 7] = ["fit", "data", "--target", "label", "--ignore", "id,y", "--cluster"];

fn table(folder: &Path) {
    std::fs::create_dir_all(folder.join("data")).unwrap();
    for part in 0..2 {
        write(&folder.join(format!("data/{part}.parquet")), points(400 * part, 400));
    }
}

#[test]
fn a_scheduler_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    table(folder);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("df://{free}");
    let parts = ["--cluster: no scheduler answers at 127.0.0.1:", "refused", "start one with"];
    refused(folder, &[&FIT[..], &[&url]].concat(), &parts);
    let somewhere = ["--cluster: 'somewhere' is not an address; give HOST:PORT"];
    refused(folder, &[&FIT[..], &["somewhere"]].concat(), &somewhere);
    let executor = ["cluster", "executor", "--wait", "0", "--scheduler"];
    let address = free.to_string();
    refused(
        folder,
        &[&executor[..], &[&address]].concat(),
        &["--scheduler: no scheduler answers", ", for 0 s", "start one with"],
    );
    assert_eq!(names(folder), ["data"]);

    let cluster = Cluster::with(folder, &[], &[], &[]);
    let url = cluster.url();
    refused(folder, &[&FIT[..], &[&url]].concat(), &["has no executors; start some with"]);
    let again = ["cluster", "scheduler", "--bind", &cluster.address];
    refused(folder, &again, &["--bind: cannot listen at", "in use"]);
}

#[test]
fn contents_that_make_no_sense() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    table(folder);
    std::fs::write(folder.join("gaps.csv"), "a,label\n1,x\n,y\n2,x\n").unwrap();
    std::fs::write(folder.join("ragged.csv"), "a,label\n1,x\n2,y\n3\n").unwrap();
    let cluster = Cluster::start(folder);
    let url = cluster.url();
    let fit = |data: &str, rest: &[&str], parts: &[&str]| {
        let fit = ["fit", data, "--target", "label", "--cluster", &url];
        refused(folder, &[&fit[..], rest].concat(), parts);
    };
    fit(
        "gaps.csv",
        &["--missing", "error"],
        &["favor: column 'a' has missing values (null)", "--missing drop"],
    );
    fit("ragged.csv", &[], &["line 4 has 1 fields where the header has 2"]);
    fit("nowhere.csv", &[], &["nowhere.csv: there is no such file"]);
    fit("data", &["--ignore", "z"], &["column 'z' is not in the table"]);
    let density = ["fit", "data", "--density", "--columns", "colour"];
    let parts = ["column 'colour'", "a density needs numbers", "--ignore"];
    refused(folder, &[&density[..], &["--cluster", &url]].concat(), &parts);
    let strict = ["--missing", "error", "--out", "model.favor"];
    favor(folder, &[&FIT[..], &[&url], &strict].concat());
    let predict = |data: &str, keep: &[&str], parts: &[&str]| {
        let predict = ["predict", "model.favor", data, "--cluster", &url, "--out", "p.csv"];
        refused(folder, &[&predict[..], keep].concat(), parts);
    };
    predict("gaps.csv", &[], &["favor: --cluster: predictions come in no fixed order", "--keep"]);
    predict("gaps.csv", &["--keep", "a"], &["column 'b' is not in the table"]);
    std::fs::write(folder.join("new.csv"), "a,b,flag,colour\n1,0,true,pink\n").unwrap();
    let pink = "favor: column 'colour' holds 'pink', which the model has not seen";
    predict("new.csv", &["--keep", "a"], &[pink]);
    assert_eq!(names(folder), ["data", "gaps.csv", "model.favor", "new.csv", "ragged.csv"]);
}

/// A path that every process resolves in its own folder stands for a disk that is not mounted
/// everywhere.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_one_executor_cannot_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    table(folder);
    std::fs::create_dir(folder.join("elsewhere")).unwrap();
    let elsewhere = folder.join("elsewhere");
    let blind = Executor { folder: Some(&elsewhere), ..Executor::default() };
    let cluster = Cluster::with(folder, &[], &[Executor::default(), blind], &[]);
    // The one that could read takes no task.
    cluster.executors[0].stop();
    let url = cluster.url();
    let files = ["fit", "/proc/self/cwd/data/0.parquet", "/proc/self/cwd/data/1.parquet"];
    let fit = ["--target", "label", "--ignore", "id,y", "--cluster", &url];
    let parts = ["favor: executor 127.0.0.1:", "/proc/self/cwd/data/", "not found"];
    refused(folder, &[&files[..], &fit].concat(), &parts);
    assert_eq!(names(folder), ["data", "elsewhere"]);
}
