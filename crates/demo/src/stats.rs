//! Numbers of servers, routers and invalidators, by memcached's `stats`; and the replica's lag.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::database::{ConnectOptions, Session};

/// The time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_millis(150);

/// The interval at which the primary's time is written and the replica's read.
const BEAT: Duration = Duration::from_millis(100);

/// The numbers of one process; empty when it does not answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats(HashMap<String, String>);

impl Stats {
    /// A number; 0 when there is none.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The numbers whose names end like this: an invalidator's, for each cluster.
    pub(crate) fn all(&self, end: &str) -> impl Iterator<Item = u64> {
        self.0
            .iter()
            .filter(move |(name, _)| name.ends_with(end))
            .map(|(_, text)| text.parse().unwrap_or(0))
    }

    /// True if it answered.
    pub(crate) fn is_there(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Queries all of them at once; returns answers in their order.
pub(crate) async fn ask(addresses: &[SocketAddr]) -> Vec<Stats> {
    let mut asking = JoinSet::new();
    for (at, address) in addresses.iter().copied().enumerate() {
        asking.spawn(async move { (at, timeout(ANSWER_MAX, of(address)).await.ok().flatten()) });
    }
    let mut all = vec![Stats::default(); addresses.len()];
    while let Some(answer) = asking.join_next().await {
        if let Ok((at, Some(stats))) = answer {
            all[at] = stats;
        }
    }
    all
}

async fn of(address: SocketAddr) -> Option<Stats> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(b"stats\r\n").await.ok()?;
    let mut text = Vec::new();
    while !text.ends_with(b"END\r\n") {
        if stream.read_buf(&mut text).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    Some(Stats(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
}

/// Milliseconds since 1970; the maximum stands for the year 292 million and later.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Stores the replica's lag in `lag_ms`: the age of the time that it shows.
pub(crate) async fn watch_lag(
    primary: ConnectOptions,
    replica: ConnectOptions,
    lag_ms: Arc<AtomicU64>,
) {
    let (mut primary, mut replica) = (Session::new(primary), Session::new(replica));
    let beat = async {
        loop {
            // The next one makes up for a failed one.
            let _ = primary.pulse(Some(now_ms())).await;
            sleep(BEAT).await;
        }
    };
    let listen = async {
        loop {
            if let Ok(at @ 2..) = replica.pulse(None).await {
                let behind = u64::try_from(now_ms() - at).unwrap_or(0);
                // Relaxed: a number for display.
                lag_ms.store(behind, Ordering::Relaxed);
            }
            sleep(BEAT).await;
        }
    };
    tokio::join!(beat, listen);
}
