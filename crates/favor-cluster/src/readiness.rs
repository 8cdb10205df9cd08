//! Whether a scheduler is up and has executors.

use crate::address::Address;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state of a scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// There are executors.
    Ready,
    /// It has no executors yet.
    Empty,
    /// Nothing answers, or not like a scheduler.
    Absent(String),
}

/// Asks a scheduler, on the route that orchestrator probes use.
pub(crate) async fn readiness(address: &Address) -> Readiness {
    match tokio::time::timeout(PATIENCE, ask(address)).await {
        Err(_) => Readiness::Absent(format!("no answer in {} s", PATIENCE.as_secs())),
        Ok(Err(error)) => Readiness::Absent(error.to_string()),
        Ok(Ok(answer)) => read(&answer),
    }
}

/// What the first line of an HTTP response says.
fn read(answer: &str) -> Readiness {
    let mut words = answer.split_whitespace();
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    match words.next() {
        Some("200") if is_http => Readiness::Ready,
        Some("503") if is_http => Readiness::Empty,
        _ => Readiness::Absent("what answers there is not a scheduler".into()),
    }
}

async fn ask(address: &Address) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address.to_string()).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = vec![];
    stream.take(4096).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_is_an_answer() {
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\n"), Readiness::Ready);
        assert_eq!(read("HTTP/1.0 503 Service Unavailable\r\n"), Readiness::Empty);
        for answer in ["", "HTTP/1.1", "HTTP/1.1 404 Not Found", "SSH-2.0 200", "220 200 ready"] {
            assert!(matches!(read(answer), Readiness::Absent(_)), "{answer:?}");
        }
    }
}
