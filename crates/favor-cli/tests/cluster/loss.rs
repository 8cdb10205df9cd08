//! Executors that are killed while they work, and after they have worked.

use crate::data::{coarse, write};
use crate::harness::{Cluster, Process, Task, favor, names, refused, wait};
use favor_tables::Model;
use std::path::Path;

/// Rows of the file that takes long and of the one that does not.
const ROWS: [usize; 2] = [1_500_000, 500];

const FIT: [&str; 9] =
    ["fit", "data", "--target", "label", "--classify", "--features", "1024", "--bandwidth", "1"];

fn tables(folder: &Path) {
    std::fs::create_dir(folder.join("data")).unwrap();
    for (name, rows) in ["long", "short"].into_iter().zip(ROWS) {
        write(&folder.join(format!("data/{name}.parquet")), coarse(rows));
    }
}

/// A cluster of two executors, and a fit on it that has begun.
fn begun(folder: &Path) -> (Cluster, Process) {
    tables(folder);
    let cluster = Cluster::start(folder);
    let url = cluster.url();
    let how = ["--cluster", &url, "--partitions", "2", "--out", "many.favor"];
    let fit = Process::start(folder, &[&FIT[..], &how].concat(), &[]);
    (cluster, fit)
}

/// Waits until the executors are at a point of their job number `job`, given the tasks of its first
/// stage; gives which executor it was found for.
fn at(cluster: &Cluster, job: usize, point: impl Fn(&[Task], &[Task]) -> bool) -> usize {
    wait("point in a job", || {
        let all = cluster.tasks();
        let mut begun: Vec<&Task> = all.iter().flatten().collect();
        begun.sort_by_key(|t| t.began);
        let mut jobs: Vec<&String> = begun.iter().map(|t| &t.job).collect();
        jobs.dedup();
        let id = *jobs.get(job)?;
        let first = all.iter().flatten().filter(|t| t.job == *id).map(|t| t.stage).min()?;
        let of = |e: usize| -> Vec<Task> {
            all[e].iter().filter(|t| t.job == *id && t.stage == first).cloned().collect()
        };
        (0..2).find(|&e| point(&of(e), &of(1 - e)))
    })
}

fn busy(tasks: &[Task]) -> bool {
    tasks.iter().any(|t| !t.done)
}

/// That a model is of all rows and that of one machine.
fn assert_whole(folder: &Path) {
    favor(folder, &[&FIT[..], &["--out", "one.favor"]].concat());
    let load = |name: &str| Model::load(&folder.join(name)).unwrap();
    let (one, many) = (load("one.favor"), load("many.favor"));
    assert_eq!(many.info().rows, ROWS.iter().sum::<usize>() as u64);
    assert_eq!(one.info().classes, many.info().classes);
    assert_eq!(one.moments().count(), many.moments().count());
    for model in ["one.favor", "many.favor"] {
        let predict = ["predict", model, "data/short.parquet", "--proba", "--out"];
        favor(folder, &[&predict[..], &[&format!("{model}.csv")]].concat());
    }
    let rows = |name: &str| -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        text.lines().skip(1).map(|l| l.split(',').map(str::to_owned).collect()).collect()
    };
    let (one, many) = (rows("one.favor.csv"), rows("many.favor.csv"));
    assert_eq!((one.len(), many.len()), (ROWS[1], ROWS[1]));
    for (a, b) in one.iter().zip(&many) {
        assert_eq!(a.len(), b.len());
        for (x, y) in a.iter().zip(b) {
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((x - y).abs() <= 2e-5 * x.abs().max(1.0), "{a:?} {b:?}");
        }
    }
}

#[test]
fn a_busy_executor_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut cluster, mut fit) = begun(folder);
    // The second job is that of the sums.
    let victim = at(&cluster, 1, |own, _| busy(own));
    cluster.executors[victim].kill();
    let status = fit.ended();
    assert!(status.success(), "{:#?}", fit.lines());
    assert_whole(folder);
}

#[test]
fn an_idle_executor_is_lost_with_what_it_has_made() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut cluster, mut fit) = begun(folder);
    let victim = at(&cluster, 1, |own, other| !own.is_empty() && !busy(own) && busy(other));
    cluster.executors[victim].kill();
    let status = fit.ended();
    assert!(status.success(), "{:#?}", fit.lines());
    assert_whole(folder);
}

/// It is taken for lost, its task is given to the other, and then it finishes that task too.
#[test]
fn a_stalled_executor_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (cluster, mut fit) = begun(folder);
    let other = at(&cluster, 1, |own, other| !own.is_empty() && !busy(own) && busy(other));
    cluster.executors[1 - other].stop();
    let taken = at(&cluster, 1, |own, _| own.len() == 2);
    assert_eq!(taken, other);
    cluster.executors[1 - other].resume();
    let status = fit.ended();
    assert!(status.success(), "{:#?}", fit.lines());
    assert_whole(folder);
}

#[test]
fn all_executors_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut cluster, mut fit) = begun(folder);
    at(&cluster, 1, |own, _| busy(own));
    cluster.executors.iter_mut().for_each(Process::kill);
    let status = fit.ended();
    assert_eq!(status.code(), Some(2), "{:#?}", fit.lines());
    assert_eq!(fit.lines().len(), 1, "{:#?}", fit.lines());
    assert!(fit.lines()[0].starts_with("favor: the cluster gave up: "), "{:#?}", fit.lines());
    assert_eq!(names(folder), ["data"]);
    // And the next one is told at once.
    let url = cluster.url();
    refused(folder, &[&FIT[..], &["--cluster", &url]].concat(), &["has no executors"]);
}

#[test]
fn the_scheduler_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut cluster, mut fit) = begun(folder);
    at(&cluster, 1, |own, _| busy(own));
    cluster.scheduler.kill();
    let status = fit.ended();
    assert_eq!(status.code(), Some(2), "{:#?}", fit.lines());
    assert_eq!(fit.lines().len(), 1, "{:#?}", fit.lines());
    assert_eq!(names(folder), ["data"]);
}
