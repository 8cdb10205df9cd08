//! Processes that are waited for by what they say, never by a length of time alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// Seconds after which a silent executor counts as lost.
pub(crate) const EXECUTOR_TIMEOUT: &str = "10";

#[derive(Default)]
struct Said {
    lines: Mutex<Vec<(Instant, String)>>,
    more: Condvar,
}

/// A `favor` process; killed when dropped.
pub(crate) struct Process {
    child: Child,
    said: Arc<Said>,
}

impl Process {
    pub(crate) fn start(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_favor"));
        command.args(arguments).envs(environment.iter().copied()).env_remove("RUST_LOG");
        Self::spawn(command.current_dir(folder))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Said::default());
        listen(child.stdout.take().unwrap(), said.clone());
        listen(child.stderr.take().unwrap(), said.clone());
        Self { child, said }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.timed_lines().into_iter().map(|(_, line)| line).collect()
    }

    fn timed_lines(&self) -> Vec<(Instant, String)> {
        self.said.lines.lock().unwrap().clone()
    }

    /// Waits until a line shows something.
    fn until<T>(&self, what: &str, found: impl Fn(&str) -> Option<T>) -> T {
        let end = Instant::now() + LIMIT;
        let mut lines = self.said.lines.lock().unwrap();
        loop {
            if let Some(found) = lines.iter().find_map(|(_, line)| found(line)) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what} in {LIMIT:?}: {lines:#?}");
            lines = self.said.more.wait_timeout(lines, left).unwrap().0;
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// `kill -STOP`: there, but doing nothing.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    /// `kill -CONT`: goes on where it was stopped.
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// How it ended, if it has.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        wait("end", || self.status())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(stream: impl Read + Send + 'static, said: Arc<Said>) {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            said.lines.lock().unwrap().push((Instant::now(), line));
            said.more.notify_all();
        }
    });
}

/// Asks again and again until there is an answer.
pub(crate) fn wait<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "no {what} in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The address that a process says it has.
fn address(process: &Process, what: &str) -> String {
    process.until(what, |line| Some(line.strip_prefix(what)?.strip_prefix(" at ")?.to_owned()))
}

/// One scheduler and some executors.
pub(crate) struct Cluster {
    pub(crate) scheduler: Process,
    pub(crate) address: String,
    pub(crate) executors: Vec<Process>,
}

/// How an executor of a test differs from the others.
#[derive(Default, Clone, Copy)]
pub(crate) struct Executor<'a> {
    pub(crate) folder: Option<&'a Path>,
    pub(crate) arguments: &'a [&'a str],
}

impl Cluster {
    /// Two executors of one core each.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::with(folder, &[], &[Executor::default(); 2], &[])
    }

    pub(crate) fn with(
        folder: &Path,
        scheduler: &[&str],
        executors: &[Executor<'_>],
        environment: &[(&str, &str)],
    ) -> Self {
        let arguments = [
            "cluster",
            "scheduler",
            "--bind",
            "127.0.0.1:0",
            "--executor-timeout",
            EXECUTOR_TIMEOUT,
        ];
        let process = Process::start(folder, &[&arguments, scheduler].concat(), environment);
        let address = address(&process, "scheduler");
        let executors: Vec<Process> = executors
            .iter()
            .map(|e| {
                let arguments = ["cluster", "executor", "--scheduler", &address, "--cores", "1"];
                let folder = e.folder.unwrap_or(folder);
                Process::start(folder, &[&arguments, e.arguments].concat(), environment)
            })
            .collect();
        let wanted = format!("ready: {} executors", executors.len());
        if !executors.is_empty() {
            wait("executors", || get(&address, "/readyz").contains(&wanted).then_some(()));
        }
        Self { scheduler: process, address, executors }
    }

    /// What `--cluster` takes.
    pub(crate) fn url(&self) -> String {
        format!("df://{}", self.address)
    }

    /// What each executor has said of its tasks.
    pub(crate) fn tasks(&self) -> Vec<Vec<Task>> {
        self.executors.iter().map(|e| tasks(&e.timed_lines())).collect()
    }
}

/// A task of an executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) job: String,
    pub(crate) stage: usize,
    pub(crate) began: Instant,
    pub(crate) done: bool,
}

/// The tasks of which lines speak, as in "task 0 of stage 1 of job Xyz begins".
fn tasks(lines: &[(Instant, String)]) -> Vec<Task> {
    let mut tasks: Vec<(String, Task)> = vec![];
    for (time, line) in lines {
        let Some((_, rest)) = line.split_once("task ") else { continue };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [task, "of", "stage", stage, "of", "job", job, what, ..] = words[..] else { continue };
        let key = format!("{task} {stage} {job}");
        match what {
            "begins" => {
                let stage = stage.parse().unwrap();
                let task = Task { job: job.into(), stage, began: *time, done: false };
                tasks.push((key, task));
            }
            "done" => tasks.iter_mut().filter(|(k, _)| *k == key).for_each(|(_, t)| t.done = true),
            _ => {}
        }
    }
    tasks.into_iter().map(|(_, task)| task).collect()
}

/// What a server answers to a GET, or nothing.
pub(crate) fn get(address: &str, path: &str) -> String {
    exchange(address, "GET", path, &[]).unwrap_or_default()
}

/// A request over HTTP.
pub(crate) fn exchange(
    address: &str,
    method: &str,
    path: &str,
    body: &[u8],
) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: \
         application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(body)?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Runs the command to its end and gives what it said; fails unless it succeeds.
pub(crate) fn favor(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let mut process = Process::start(folder, arguments, &[]);
    let status = process.ended();
    assert!(status.success(), "{arguments:?}: {:#?}", process.lines());
    process.lines()
}

/// Asserts a refusal: exit code 2 and one line with all parts.
pub(crate) fn refused(folder: &Path, arguments: &[&str], parts: &[&str]) -> String {
    let mut process = Process::start(folder, arguments, &[]);
    let status = process.ended();
    let line = wait("line", || process.lines().first().cloned());
    assert_eq!(status.code(), Some(2), "{arguments:?}: {line}");
    assert_eq!(process.lines().len(), 1, "{:#?}", process.lines());
    assert!(line.starts_with("favor: ") && line.len() < 400, "{line}");
    for part in parts {
        assert!(line.contains(part), "{arguments:?}: {line:?} lacks {part:?}");
    }
    line
}

/// The names in a folder, in order.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
