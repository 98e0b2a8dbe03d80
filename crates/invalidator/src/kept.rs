//! Deletes that a router keeps for a server that it cannot reach. Other routers of the cluster may
//! reach the server, so they are asked at once, and then all routers periodically.
//!
//! The router that keeps a delete executes it when its server is back, even if this process ends.
//! So the position does not wait for it, but `lag_ms` and `kept_by_routers` do.
//!
//! The atomics here are counters for `stats`. Relaxed is enough: no other data depends on them.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::BufStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::batch::{self, BatchError, Hint};
use crate::clock::older;
use crate::network::Network;
use crate::stats::Stats;

/// Maximum number of deletes watched at a time.
const WATCHED_MAX: usize = 100_000;

/// Keys per delete request to one router.
const ROUND_KEYS: usize = 256;

/// The pauses between two rounds when the last one did nothing.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];

/// A delete that a router keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) key: Bytes,
    /// Commit time, in microseconds since 1970; 0 if unknown.
    pub(crate) committed_us: u64,
    /// The router that keeps it; none after the others were asked.
    pub(crate) by: Option<usize>,
}

/// A channel to a task for the cluster at `index`, and the task.
pub(crate) fn kept_deletes<N: Network>(
    network: Arc<N>,
    routers: Vec<String>,
    within: Duration,
    stats: Arc<Stats>,
    index: usize,
) -> (mpsc::Sender<Kept>, KeptDeletes<N>) {
    let (sender, receiver) = mpsc::channel(WATCHED_MAX);
    let (waiting, seen) = (VecDeque::new(), HashSet::new());
    (sender, KeptDeletes { network, routers, within, receiver, stats, index, waiting, seen })
}

/// The kept deletes of one cluster.
#[derive(Debug)]
pub(crate) struct KeptDeletes<N> {
    network: Arc<N>,
    routers: Vec<String>,
    /// The time limit for a router.
    within: Duration,
    receiver: mpsc::Receiver<Kept>,
    stats: Arc<Stats>,
    index: usize,
    /// New ones are in front.
    waiting: VecDeque<Kept>,
    seen: HashSet<Bytes>,
}

impl<N: Network> KeptDeletes<N> {
    /// Has them executed until no sender is left.
    pub(crate) async fn run(mut self) {
        let mut pause = PAUSES[0];
        let mut due = Instant::now();
        loop {
            let is_waiting = !self.waiting.is_empty();
            tokio::select! {
                kept = self.receiver.recv() => {
                    let Some(kept) = kept else { return };
                    self.take(kept);
                    while let Ok(kept) = self.receiver.try_recv() {
                        self.take(kept);
                    }
                    self.count();
                }
                () = sleep_until(due), if is_waiting => {}
            }
            if self.round().await {
                pause = PAUSES[0];
                due = Instant::now();
            } else {
                due = Instant::now() + pause;
                pause = (pause * 2).min(PAUSES[1]);
            }
            self.count();
        }
    }

    fn take(&mut self, kept: Kept) {
        if self.waiting.len() >= WATCHED_MAX {
            let own = &self.stats.clusters[self.index];
            own.kept_unwatched.fetch_add(1, Relaxed);
        } else if self.seen.insert(kept.key.clone()) {
            self.waiting.push_front(kept);
        }
    }

    /// Asks the routers to execute some of them. Returns true if there is more to do at once.
    async fn round(&mut self) -> bool {
        let begin = self.waiting.len().min(ROUND_KEYS);
        let (fresh, old): (Vec<Kept>, Vec<Kept>) =
            self.waiting.drain(..begin).partition(|kept| kept.by.is_some());
        let has_fresh = !fresh.is_empty();
        let asked = fresh.len() + old.len();
        let fresh = self.ask_all(fresh, Hint::Executed).await;
        let old = self.ask_all(old, Hint::Now).await;
        let has_done = fresh.len() + old.len() < asked;
        self.waiting.extend(fresh.into_iter().chain(old).map(|kept| Kept { by: None, ..kept }));
        !self.waiting.is_empty() && (has_done || has_fresh)
    }

    /// Returns the deletes that no router executed. With [`Hint::Executed`], routers that cannot
    /// reach the server also keep them, and so know that it has old values.
    async fn ask_all(&mut self, mut left: Vec<Kept>, hint: Hint) -> Vec<Kept> {
        for at in 0..self.routers.len() {
            let (others, asked): (Vec<Kept>, Vec<Kept>) =
                left.into_iter().partition(|kept| kept.by == Some(at));
            left = others;
            let keys: Vec<&Bytes> = asked.iter().map(|kept| &kept.key).collect();
            let answers = match self.ask(at, &keys, hint).await {
                Ok(answers) => answers,
                Err(_) => vec![Some(String::new()); asked.len()],
            };
            for (kept, answer) in asked.into_iter().zip(answers) {
                match answer {
                    Some(_) => left.push(kept),
                    None => {
                        self.seen.remove(&kept.key);
                    }
                }
            }
        }
        left
    }

    async fn ask(
        &self,
        at: usize,
        keys: &[&Bytes],
        hint: Hint,
    ) -> Result<Vec<Option<String>>, BatchError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let asked = async {
            let mut wire = BufStream::new(self.network.dial(&self.routers[at]).await?);
            batch::with_replies(&mut wire, keys, hint).await
        };
        let asked = timeout(self.within, asked).await;
        asked.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    fn count(&self) {
        let own = &self.stats.clusters[self.index];
        own.kept.store(self.waiting.len() as u64, Relaxed);
        let oldest = self.waiting.iter().fold(0, |oldest, kept| older(oldest, kept.committed_us));
        own.kept_us.store(oldest, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize};

    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::sleep;

    use super::*;

    /// Routers of which at most one reaches the server.
    #[derive(Default)]
    struct Net {
        reaches: Arc<AtomicUsize>,
        /// Deletes requested with each hint.
        executed: Arc<AtomicU64>,
        now: Arc<AtomicU64>,
    }

    const NOBODY: usize = 9;

    impl Network for Net {
        type Stream = DuplexStream;

        async fn dial(&self, address: &str) -> io::Result<DuplexStream> {
            let (ours, theirs) = duplex(4096);
            let reaches = address.parse() == Ok(self.reaches.load(Relaxed));
            let (executed, now) = (Arc::clone(&self.executed), Arc::clone(&self.now));
            tokio::spawn(async move {
                let mut stream = BufStream::new(theirs);
                let mut line = String::new();
                while stream.read_line(&mut line).await.is_ok_and(|length| length > 0) {
                    let words: Vec<&str> = line.trim_end().split(' ').collect();
                    let answer = match words[..] {
                        ["md", _, hint] => {
                            let count = if hint == "Pnow" { &now } else { &executed };
                            count.fetch_add(1, Relaxed);
                            if reaches { "HD\r\n" } else { "SERVER_ERROR kept for later\r\n" }
                        }
                        _ => "MN\r\n",
                    };
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    stream.flush().await.unwrap();
                    line.clear();
                }
            });
            Ok(ours)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn kept_deletes_go_to_the_other_routers_and_then_to_all() {
        let net = Net::default();
        let (reaches, executed, now) =
            (Arc::clone(&net.reaches), Arc::clone(&net.executed), Arc::clone(&net.now));
        let stats = Arc::new(Stats::new(["c".to_owned()]));
        let routers = ["0", "1", "2"].map(str::to_owned).to_vec();
        let within = Duration::from_secs(1);
        let (sender, kept) = kept_deletes(Arc::new(net), routers, within, Arc::clone(&stats), 0);
        let running = tokio::spawn(kept.run());
        let own = &stats.clusters[0];
        let key = |key: &'static str, committed_us| Kept {
            key: Bytes::from_static(key.as_bytes()),
            committed_us,
            by: Some(0),
        };
        reaches.store(2, Relaxed);
        sender.send(key("a", 7)).await.unwrap();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(
            (executed.load(Relaxed), now.load(Relaxed)),
            (2, 0),
            "the one that kept is not asked"
        );
        assert_eq!((own.kept.load(Relaxed), own.kept_us.load(Relaxed)), (0, 0));
        reaches.store(NOBODY, Relaxed);
        sender.send(key("b", 9)).await.unwrap();
        sender.send(key("c", 8)).await.unwrap();
        sender.send(key("b", 9)).await.unwrap();
        sleep(Duration::from_millis(1)).await;
        assert_eq!((own.kept.load(Relaxed), own.kept_us.load(Relaxed)), (2, 8));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(executed.load(Relaxed), 6, "each router keeps a delete once at the most");
        assert!(now.load(Relaxed) > 6, "they are tried again");
        reaches.store(0, Relaxed);
        sleep(Duration::from_secs(11)).await;
        assert_eq!((own.kept.load(Relaxed), own.kept_us.load(Relaxed)), (0, 0));
        running.abort();
    }
}
