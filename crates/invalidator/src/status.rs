//! The status port: `stats` as in memcached, and metrics and health over HTTP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Check, Page, Pages};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stats::Stats;

/// The pages of an invalidator.
#[derive(Debug)]
pub struct Status {
    /// Its numbers.
    pub stats: Arc<Stats>,
    /// The current time, in microseconds since 1970.
    pub now_us: fn() -> u64,
}

impl Pages for Status {
    fn metrics(&self) -> Page {
        self.stats.page((self.now_us)())
    }

    /// An answer is enough: the tasks that follow the log end the process when they end.
    fn live(&self) -> Vec<Check> {
        Vec::new()
    }

    fn ready(&self) -> Vec<Check> {
        self.stats.ready()
    }

    fn started(&self) -> Vec<Check> {
        self.stats.started()
    }

    fn line(&self, line: &str) -> Option<String> {
        match line {
            "stats" => Some(self.stats.text((self.now_us)())),
            "quit" => None,
            _ => Some("ERROR\r\n".to_owned()),
        }
    }
}

/// Asks a running invalidator for its stats.
///
/// # Errors
///
/// When nothing answers at the address.
pub async fn ask(address: &str) -> io::Result<String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"stats\r\nquit\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    timeout(Duration::from_secs(5), asked)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
