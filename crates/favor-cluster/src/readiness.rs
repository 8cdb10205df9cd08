//! Whether a scheduler is there and has executors.

use crate::address::Address;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a scheduler says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// There are executors.
    Ready,
    /// It has no executors yet.
    Empty,
    /// Nothing answers, or not as a scheduler does.
    Absent(String),
}

/// Asks a scheduler, by the route that probes of orchestrators use.
pub(crate) async fn readiness(address: &Address) -> Readiness {
    match tokio::time::timeout(PATIENCE, ask(address)).await {
        Err(_) => Readiness::Absent(format!("no answer in {} s", PATIENCE.as_secs())),
        Ok(Err(error)) => Readiness::Absent(error.to_string()),
        Ok(Ok(answer)) => match answer.split_whitespace().nth(1) {
            Some("200") => Readiness::Ready,
            Some("503") => Readiness::Empty,
            _ => Readiness::Absent("what answers there is no scheduler".into()),
        },
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
