//! Processes of different builds refuse each other's functions.

use favor_cluster::{
    Cluster, Error, ExecutorOptions, SchedulerOptions, serve_executor, serve_scheduler,
};
use favor_tables::{FitRequest, Source};
use std::sync::mpsc;
use std::time::Duration;

/// How long anything may take before the test gives up.
const LIMIT: Duration = Duration::from_secs(300);

const OTHER: &str = "0.0.9-1";

/// Runs a process of the cluster on threads of its own, until the test ends; gives its address.
fn begun(serve: impl AsyncFnOnce(mpsc::Sender<String>) + Send + 'static) -> String {
    let (told, address) = mpsc::channel();
    std::thread::spawn(move || {
        favor_tables::runtime(Some(2)).unwrap().block_on(serve(told));
    });
    address.recv_timeout(LIMIT).expect("a process that begins")
}

fn scheduler(options: SchedulerOptions) -> String {
    begun(async move |told| {
        let started = |at: &str| told.send(at.to_owned()).unwrap();
        serve_scheduler(&options.bind("127.0.0.1:0"), started).await.unwrap();
    })
}

fn executor(options: ExecutorOptions) {
    begun(async move |told| {
        let started = |at: &str| told.send(at.to_owned()).unwrap();
        serve_executor(&options.cores(Some(1)), started).await.unwrap();
    });
}

/// What a fit on the cluster of a scheduler says once that has executors.
fn refusal(scheduler: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    std::fs::write(&path, "a,label\n1,x\n2,y\n3,x\n4,y\n").unwrap();
    let source = Source::Files(vec![path.display().to_string()]);
    let cluster = Cluster::at(scheduler).unwrap().partitions(1);
    let request = FitRequest::of("label").bandwidth(1.0);
    favor_tables::runtime(Some(2)).unwrap().block_on(async {
        loop {
            match cluster.fit(&source, &request, &Default::default()).await {
                Err(Error::NoExecutors { .. }) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return error.to_string(),
                Ok(_) => panic!("a fit by functions of another version"),
            }
        }
    })
}

fn assert_refused(message: &str, role: &str) {
    let start = format!("the {role} has the functions of favor {OTHER}, but");
    assert!(message.starts_with(&start), "{message}");
    assert!(message.ends_with("run one version of favor everywhere"), "{message}");
}

#[test]
fn a_scheduler_of_another_version() {
    let address = scheduler(SchedulerOptions::default().version(OTHER));
    executor(ExecutorOptions::new(&address));
    assert_refused(&refusal(&address), "scheduler");
}

#[test]
fn an_executor_of_another_version() {
    let address = scheduler(SchedulerOptions::default());
    executor(ExecutorOptions::new(&address).version(OTHER));
    assert_refused(&refusal(&address), "executor");
}
