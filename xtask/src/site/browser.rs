//! A headless Chromium, spoken to in its DevTools protocol through a pair of pipes: JSON, each message ended by a zero
//! byte.

use crate::places::Scratch;
use crate::step::{execute, output};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Under what names it goes. The variable names another one.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const VARIABLE: &str = "CHROMIUM";

/// Only stops what would never end.
const PATIENCE: Duration = Duration::from_secs(120);

/// The browser to start. It is installed where we may.
pub(super) fn program() -> Result<String, String> {
    if let Ok(name) = std::env::var(VARIABLE) {
        return Ok(name);
    }
    let found = || NAMES.into_iter().find(|name| runs(name)).map(str::to_owned);
    if let Some(name) = found() {
        return Ok(name);
    }
    if is_root() && runs("apt-get") {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        execute(apt.args(["update", "--quiet"]))?;
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        execute(apt.args(["install", "--yes", "--quiet", "--no-install-recommends", "chromium"]))?;
    }
    found().ok_or_else(|| {
        format!(
            "there is no Chromium; on Debian get it by\n\n    apt-get install chromium\n\n\
             or name one in the variable {VARIABLE}"
        )
    })
}

fn runs(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|found| found.status.success())
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// A browser with one open page.
pub(super) struct Browser {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    /// How many commands it got.
    count: u64,
    page: Option<String>,
    /// What it told since the page was opened.
    events: Vec<Value>,
    _profile: Scratch,
}

impl Browser {
    pub(super) fn start(program: &str) -> Result<Self, String> {
        let profile = Scratch::new("browser")?;
        // It reads from descriptor 3 and writes to 4, which only a shell can connect.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", program]);
        command.args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"]);
        command.args(["--disable-dev-shm-usage", "--disable-background-networking"]);
        if is_root() {
            // As root there is no sandbox to be had; the pages are our own.
            command.arg("--no-sandbox");
        }
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|e| format!("{program}: {e}"))?;
        let (input, answers) = (process.stdin.take(), process.stdout.take());
        let (Some(input), Some(answers)) = (input, answers) else {
            return Err(format!("{program}: no pipes"));
        };
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0) {
                let Ok(message) = message.map(|m| serde_json::from_slice(&m)) else { break };
                if message.is_ok_and(|m| sender.send(m).is_err()) {
                    break;
                }
            }
        });
        let mut browser = Self {
            process,
            input,
            messages,
            count: 0,
            page: None,
            events: vec![],
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach)?;
        browser.page = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// The width of the window, in pixels.
    pub(super) fn resize(&mut self, width: u32) -> Result<(), String> {
        let size =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size).map(|_| ())
    }

    /// Opens a page and waits until it and all that it shows are loaded.
    pub(super) fn open(&mut self, url: &str) -> Result<(), String> {
        self.events.clear();
        let answer = self.call("Page.navigate", json!({"url": url}))?;
        if let Some(reason) = answer["errorText"].as_str() {
            return Err(format!("{url}: {reason}"));
        }
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.receive("the page to load")?;
            self.events.push(event);
        }
        Ok(())
    }

    /// What a program on the open page gives, once its promise is kept.
    pub(super) fn evaluate(&mut self, script: &str) -> Result<Value, String> {
        let program = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let mut answer = self.call("Runtime.evaluate", program)?;
        if answer["exceptionDetails"].is_object() {
            return Err(format!("{}", answer["exceptionDetails"]["exception"]["description"]));
        }
        Ok(answer["result"]["value"].take())
    }

    /// The errors that the open page has reported.
    pub(super) fn errors(&self) -> Vec<String> {
        self.events.iter().filter_map(error_in).collect()
    }

    fn call(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.count += 1;
        let mut message = json!({"id": self.count, "method": method, "params": params});
        if let Some(page) = &self.page {
            message["sessionId"] = json!(page);
        }
        let sent = write!(self.input, "{message}\0").and_then(|()| self.input.flush());
        sent.map_err(|e| format!("the browser is gone: {e}"))?;
        loop {
            let mut answer = self.receive(method)?;
            if answer["id"] == self.count {
                return match answer["error"]["message"].as_str() {
                    Some(reason) => Err(format!("{method}: {reason}")),
                    None => Ok(answer["result"].take()),
                };
            }
            self.events.push(answer);
        }
    }

    fn receive(&self, what: &str) -> Result<Value, String> {
        let message = self.messages.recv_timeout(PATIENCE);
        message.map_err(|e| format!("the browser does not answer ({what}): {e}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.call("Browser.close", json!({}));
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The error that an event tells of, if it does.
fn error_in(event: &Value) -> Option<String> {
    let params = &event["params"];
    let text = match event["method"].as_str()? {
        "Log.entryAdded" if params["entry"]["level"] == "error" => {
            let entry = &params["entry"];
            format!("{} {}", entry["text"].as_str()?, entry["url"].as_str().unwrap_or_default())
        }
        "Runtime.exceptionThrown" => {
            let details = &params["exceptionDetails"];
            let thrown = details["exception"]["description"].as_str();
            thrown.or(details["text"].as_str())?.to_owned()
        }
        "Runtime.consoleAPICalled" if params["type"] == "error" => params["args"].to_string(),
        _ => return None,
    };
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_from_news() {
        let entry = |level: &str| {
            let entry = json!({"level": level, "text": "not found", "url": "file:///a.png"});
            error_in(&json!({"method": "Log.entryAdded", "params": {"entry": entry}}))
        };
        assert_eq!(entry("error").as_deref(), Some("not found file:///a.png"));
        assert_eq!(entry("info"), None);
        let details = json!({"text": "Uncaught", "exception": {"description": "Error: x"}});
        let thrown =
            json!({"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": details}});
        assert_eq!(error_in(&thrown).as_deref(), Some("Error: x"));
        assert_eq!(error_in(&json!({"id": 1, "result": {}})), None);
    }
}
