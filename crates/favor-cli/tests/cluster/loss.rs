//! Executors that are killed while they work, and after they have worked.

use crate::data::{coarse, write};
use crate::harness::{Cluster, Process, Task, favor, names, refused, wait};
use favor_tables::Model;
use std::path::Path;
use std::time::Instant;

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

/// The number of the job that makes the sums; the one before makes the survey.
const SUMS: usize = 1;

/// What a fit writes.
const OUT: &str = "many.favor";

/// A cluster of two executors, and a fit on it.
struct Fitting<'a> {
    folder: &'a Path,
    cluster: Cluster,
    fit: Process,
    /// When the fit began.
    began: Instant,
}

impl<'a> Fitting<'a> {
    fn begin(folder: &'a Path) -> Self {
        tables(folder);
        let cluster = Cluster::start(folder);
        let began = Instant::now();
        let fit = fit(folder, &cluster);
        Self { folder, cluster, fit, began }
    }

    /// The executor that is at a point of the sums now, by its own and the other's tasks of the first stage.
    fn reached(&self, point: impl Fn(&[Task], &[Task]) -> bool) -> Option<usize> {
        let mut all = self.cluster.tasks();
        all.iter_mut().for_each(|tasks| tasks.retain(|t| t.began >= self.began));
        let mut begun: Vec<&Task> = all.iter().flatten().collect();
        begun.sort_by_key(|t| t.began);
        let mut jobs: Vec<&String> = begun.iter().map(|t| &t.job).collect();
        jobs.dedup();
        let id = *jobs.get(SUMS)?;
        let first = all.iter().flatten().filter(|t| t.job == *id).map(|t| t.stage).min()?;
        let of = |e: usize| -> Vec<Task> {
            all[e].iter().filter(|t| t.job == *id && t.stage == first).cloned().collect()
        };
        (0..2).find(|&e| point(&of(e), &of(1 - e)))
    }

    /// Waits for a point. On a busy machine it can be over before anyone looks: when the fit ends without it, another
    /// one begins.
    fn at(&mut self, point: impl Fn(&[Task], &[Task]) -> bool) -> usize {
        wait("point in a job", || {
            let reached = self.reached(&point);
            if reached.is_none() && self.fit.status().is_some() {
                self.assert_success();
                std::fs::remove_file(self.folder.join(OUT)).unwrap();
                self.began = Instant::now();
                self.fit = fit(self.folder, &self.cluster);
            }
            reached
        })
    }

    /// Waits for the end of the fit, which must be a good one.
    fn assert_success(&mut self) {
        let status = self.fit.ended();
        assert!(status.success(), "{:#?}", self.fit.lines());
    }
}

/// A fit that begins.
fn fit(folder: &Path, cluster: &Cluster) -> Process {
    let url = cluster.url();
    let how = ["--cluster", &url, "--partitions", "2", "--out", OUT];
    Process::start(folder, &[&FIT[..], &how].concat(), &[])
}

fn busy(tasks: &[Task]) -> bool {
    tasks.iter().any(|t| !t.done)
}

/// That a model is of all rows and that of one machine.
fn assert_whole(folder: &Path) {
    favor(folder, &[&FIT[..], &["--out", "one.favor"]].concat());
    let load = |name: &str| Model::load(&folder.join(name)).unwrap();
    let (one, many) = (load("one.favor"), load(OUT));
    assert_eq!(many.info().rows, ROWS.iter().sum::<usize>() as u64);
    assert_eq!(one.info().classes, many.info().classes);
    assert_eq!(one.moments().count(), many.moments().count());
    for model in ["one.favor", OUT] {
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

/// An executor that has made its part while the other still works.
fn waits(own: &[Task], other: &[Task]) -> bool {
    !own.is_empty() && !busy(own) && busy(other)
}

#[test]
fn a_busy_executor_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut fitting = Fitting::begin(folder.path());
    let victim = fitting.at(|own, _| busy(own));
    fitting.cluster.executors[victim].kill();
    fitting.assert_success();
    assert_whole(folder.path());
}

#[test]
fn an_idle_executor_is_lost_with_what_it_has_made() {
    let folder = tempfile::tempdir().unwrap();
    let mut fitting = Fitting::begin(folder.path());
    let victim = fitting.at(waits);
    fitting.cluster.executors[victim].kill();
    fitting.assert_success();
    assert_whole(folder.path());
}

/// It is taken for lost, its task is given to the other, and then it finishes that task too.
#[test]
fn a_stalled_executor_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut fitting = Fitting::begin(folder.path());
    loop {
        let other = fitting.at(waits);
        fitting.cluster.executors[1 - other].stop();
        // The fit ends without the other only if the task was just done when its executor stalled.
        let taken = wait("task taken over", || {
            let taken = fitting.reached(|own, _| own.len() == 2);
            if taken.is_none() { fitting.fit.status().map(|_| None) } else { Some(taken) }
        });
        fitting.cluster.executors[1 - other].resume();
        if let Some(taken) = taken {
            assert_eq!(taken, other);
            break;
        }
    }
    fitting.assert_success();
    assert_whole(folder.path());
}

#[test]
fn all_executors_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut fitting = Fitting::begin(folder);
    fitting.at(|own, _| busy(own));
    fitting.cluster.executors.iter_mut().for_each(Process::kill);
    let status = fitting.fit.ended();
    let lines = fitting.fit.lines();
    assert_eq!(status.code(), Some(2), "{lines:#?}");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].starts_with("favor: the cluster gave up: "), "{lines:#?}");
    assert_eq!(names(folder), ["data"]);
    // And the next one is told at once.
    let url = fitting.cluster.url();
    refused(folder, &[&FIT[..], &["--cluster", &url]].concat(), &["has no executors"]);
}

#[test]
fn the_scheduler_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut fitting = Fitting::begin(folder);
    fitting.at(|own, _| busy(own));
    fitting.cluster.scheduler.kill();
    let status = fitting.fit.ended();
    let lines = fitting.fit.lines();
    assert_eq!(status.code(), Some(2), "{lines:#?}");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(names(folder), ["data"]);
}
