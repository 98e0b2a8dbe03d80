//! One cluster: its queue, its batches, and what becomes of what it refuses.
//!
//! ```text
//!     queue -> gather (keys, bytes, time) -> quiet batch -> MN: acknowledged
//!                                              | a server behind the router is away
//!                                              +-> the same batch aloud -> refused keys are parked, the others go on
//! ```
//!
//! A connection that fails keeps its batch and tries the next router. Parked keys are tried again after a pause; until they
//! are delivered, nothing after them counts as acknowledged. Deletes may be repeated and overtake each other: a delete of a
//! key is right at any moment after its commit.
//!
//! **Every delete is sent twice.** A database hands a commit to the followers of its log before it lets other sessions see
//! it: MariaDB and MySQL between binary log and engine, PostgreSQL between log and snapshot. Who misses in between reads the
//! old row and caches it after the delete. So the same delete comes once more a moment later (`repeat_after`), and counts as
//! acknowledged only then.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, BufStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::batch::{self, BatchError, Before, Wire};
use crate::monitor::{Sample, Sampler};
use crate::position::Position;
use crate::stats::{ClusterStats, Stats, lock};

/// One committed transaction on its way to every cluster.
#[derive(Debug)]
pub struct Delivery {
    /// Rises by one; the first is 1.
    pub seq: u64,
    /// What to do.
    pub work: Work,
    /// Where a restart goes on after it.
    pub position: Position,
    /// When it was committed, in microseconds since 1970; 0 when that is not known.
    pub committed_us: u64,
    /// When it was read.
    pub read_at: Instant,
}

/// What a cluster is to do.
#[derive(Debug)]
pub enum Work {
    /// Delete these keys.
    Delete(Vec<Bytes>),
    /// Delete everything, because what changed is not known.
    Flush,
}

impl Delivery {
    fn keys(&self) -> &[Bytes] {
        match &self.work {
            Work::Delete(keys) => keys,
            Work::Flush => &[],
        }
    }
}

/// How connections are made: a network, or a test's idea of one.
pub trait Network: Send + Sync + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send;

    /// Connects to an address.
    ///
    /// # Errors
    ///
    /// When it cannot.
    fn dial(&self, address: &str) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// TCP.
#[derive(Debug, Clone, Copy)]
pub struct Tcp;

impl Network for Tcp {
    type Stream = tokio::net::TcpStream;

    async fn dial(&self, address: &str) -> io::Result<Self::Stream> {
        let stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Limits of batches and waits.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Keys a batch.
    pub batch_keys: usize,
    /// Bytes of keys a batch.
    pub batch_bytes: usize,
    /// How long a batch waits for more keys.
    pub batch_wait: Duration,
    /// How long connecting and an answer may take.
    pub answer_within: Duration,
    /// The first pause after a failure; it doubles up to `retry_max`.
    pub retry_first: Duration,
    /// The longest pause.
    pub retry_max: Duration,
    /// When a delete is repeated; zero for never.
    pub repeat_after: Duration,
    /// Keys of a cluster that may wait in memory, parked ones included.
    pub window_keys: usize,
}

/// The sending end of a cluster's queue.
#[derive(Debug)]
pub struct Queue {
    sender: mpsc::Sender<Arc<Delivery>>,
    room: Arc<Semaphore>,
    window_keys: usize,
    stats: Arc<Stats>,
    index: usize,
}

impl Queue {
    /// Waits for room and appends. False when the cluster's task is gone.
    pub async fn push(&self, delivery: &Arc<Delivery>) -> bool {
        let permits = permits(delivery, self.window_keys);
        let Ok(permit) = self.room.acquire_many(permits).await else { return false };
        // Given back when the keys are acknowledged.
        permit.forget();
        let cluster = &self.stats.clusters[self.index];
        cluster.waiting.fetch_add(delivery.keys().len() as u64, Relaxed);
        self.sender.send(Arc::clone(delivery)).await.is_ok()
    }
}

/// A transaction larger than the window takes all of it.
fn permits(delivery: &Delivery, window_keys: usize) -> u32 {
    u32::try_from(delivery.keys().len().min(window_keys)).unwrap_or(u32::MAX)
}

/// Deliveries that may wait in a queue, whatever their keys.
const QUEUE_MAX: usize = 65_536;

/// One cluster's task.
pub struct Destination<N: Network> {
    network: Arc<N>,
    routers: Vec<String>,
    next_router: usize,
    limits: Limits,
    receiver: mpsc::Receiver<Arc<Delivery>>,
    room: Arc<Semaphore>,
    stats: Arc<Stats>,
    index: usize,
    acked: watch::Sender<u64>,
    sampler: Sampler,
    wire: Option<Wire<N::Stream>>,
    pause: Duration,
    parked: Parked,
    /// What is to be repeated: when, since which delivery, and what.
    repeats: VecDeque<(Instant, u64, Work)>,
    /// The last delivery whose keys are delivered or parked.
    done: u64,
}

/// Keys that a server refused, oldest first, each once.
#[derive(Debug, Default)]
struct Parked {
    keys: VecDeque<(u64, Bytes)>,
    seen: HashSet<Bytes>,
    retry_at: Option<Instant>,
}

impl<N: Network> std::fmt::Debug for Destination<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Destination").field("routers", &self.routers).finish_non_exhaustive()
    }
}

impl<N: Network> Destination<N> {
    /// The cluster at `index` of the stats, its queue's end, and how far it has acknowledged.
    #[must_use]
    pub fn new(
        network: Arc<N>,
        routers: Vec<String>,
        limits: Limits,
        stats: Arc<Stats>,
        index: usize,
        sampler: Sampler,
    ) -> (Self, Queue, watch::Receiver<u64>) {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let (acked, acked_seen) = watch::channel(0);
        let room = Arc::new(Semaphore::new(limits.window_keys));
        let queue = Queue {
            sender,
            room: Arc::clone(&room),
            window_keys: limits.window_keys,
            stats: Arc::clone(&stats),
            index,
        };
        let destination = Self {
            network,
            routers,
            next_router: 0,
            limits,
            receiver,
            room,
            stats,
            index,
            acked,
            sampler,
            wire: None,
            pause: limits.retry_first,
            parked: Parked::default(),
            repeats: VecDeque::new(),
            done: 0,
        };
        (destination, queue, acked_seen)
    }

    fn own(&self) -> &ClusterStats {
        &self.stats.clusters[self.index]
    }

    /// Delivers until the queue's sender is gone and everything is delivered.
    pub async fn run(mut self) {
        while let Some(deliveries) = self.gather().await {
            if !deliveries.is_empty() {
                self.deliver(&deliveries).await;
            }
            self.again().await;
        }
        while !self.parked.keys.is_empty() || !self.repeats.is_empty() {
            sleep_until(self.next_turn()).await;
            self.again().await;
        }
    }

    /// When something that was sent before is to be sent again.
    fn next_turn(&self) -> Instant {
        let repeat = self.repeats.front().map(|(due, ..)| *due);
        let due = [self.parked.retry_at, repeat].into_iter().flatten().min();
        due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600))
    }

    /// Sends again what is due.
    async fn again(&mut self) {
        let now = Instant::now();
        let mut keys: Vec<(u64, Bytes)> = Vec::new();
        let mut flush_since = None;
        while let Some((_, seq, work)) = self.repeats.pop_front_if(|(due, ..)| *due <= now) {
            match work {
                Work::Delete(more) => keys.extend(more.into_iter().map(|key| (seq, key))),
                Work::Flush => flush_since = Some(seq),
            }
        }
        let has_repeats = !keys.is_empty() || flush_since.is_some();
        if self.parked.retry_at.is_some_and(|at| at <= now) {
            self.parked.retry_at = None;
            self.parked.seen.clear();
            let parked = std::mem::take(&mut self.parked.keys);
            keys = parked.into_iter().chain(keys).collect();
        } else if !has_repeats {
            return;
        }
        let all: Vec<(u64, &Bytes)> = keys.iter().map(|(seq, key)| (*seq, key)).collect();
        for chunk in all.chunks(self.limits.batch_keys.max(1)) {
            while let Err(error) = self.send(chunk, &[]).await {
                self.failed(&error).await;
            }
        }
        while flush_since.is_some()
            && let Err(error) = self.flush().await
        {
            self.failed(&error).await;
        }
        self.own().parked.store(self.parked.keys.len() as u64, Relaxed);
        self.acknowledge();
    }

    /// The next batch; empty when something is to be sent again, none at the end.
    async fn gather(&mut self) -> Option<Vec<Arc<Delivery>>> {
        let retry_at = self.next_turn();
        let first = match timeout_at(retry_at, self.receiver.recv()).await {
            Err(_) => return Some(Vec::new()),
            Ok(first) => first?,
        };
        let oldest = if first.keys().is_empty() { 0 } else { first.committed_us };
        self.own().oldest_us.store(oldest, Relaxed);
        let until = Instant::now() + self.limits.batch_wait;
        let (mut keys, mut bytes) = size(&first);
        let mut batch = vec![first];
        while keys < self.limits.batch_keys && bytes < self.limits.batch_bytes {
            let next = if keys == 0 {
                // Nothing to send yet: what says only a position need not wait.
                self.receiver.try_recv().ok()
            } else {
                timeout_at(until, self.receiver.recv()).await.ok().flatten()
            };
            let Some(next) = next else { break };
            let is_flush = matches!(next.work, Work::Flush);
            let (more_keys, more_bytes) = size(&next);
            keys += more_keys;
            bytes += more_bytes;
            batch.push(next);
            if is_flush {
                break;
            }
        }
        Some(batch)
    }

    /// Delivers a batch, however long it takes.
    async fn deliver(&mut self, deliveries: &[Arc<Delivery>]) {
        let mut seen = HashSet::new();
        let mut keys: Vec<(u64, &Bytes)> = Vec::new();
        for delivery in deliveries {
            let fresh = delivery.keys().iter().filter(|key| seen.insert(*key));
            keys.extend(fresh.map(|key| (delivery.seq, key)));
        }
        for chunk in keys.chunks(self.limits.batch_keys.max(1)) {
            while let Err(error) = self.send(chunk, deliveries).await {
                self.failed(&error).await;
            }
        }
        if deliveries.iter().any(|delivery| matches!(delivery.work, Work::Flush)) {
            while let Err(error) = self.flush().await {
                self.failed(&error).await;
            }
            self.own().flushes.fetch_add(1, Relaxed);
        }
        self.repeat_later(deliveries, keys);
        self.finish(deliveries);
        while self.parked.keys.len() > self.limits.window_keys / 2 {
            sleep_until(self.next_turn()).await;
            self.again().await;
        }
    }

    fn repeat_later(&mut self, deliveries: &[Arc<Delivery>], keys: Vec<(u64, &Bytes)>) {
        let due = Instant::now() + self.limits.repeat_after;
        let flush = deliveries.iter().find(|delivery| matches!(delivery.work, Work::Flush));
        if self.limits.repeat_after.is_zero() {
            return;
        }
        if let Some((first, _)) = keys.first() {
            let first = *first;
            let keys = keys.into_iter().map(|(_, key)| key.clone()).collect();
            self.repeats.push_back((due, first, Work::Delete(keys)));
        }
        if let Some(flush) = flush {
            self.repeats.push_back((due, flush.seq, Work::Flush));
        }
    }

    /// Sends one batch; what single servers refuse is parked.
    async fn send(
        &mut self,
        keys: &[(u64, &Bytes)],
        deliveries: &[Arc<Delivery>],
    ) -> Result<(), BatchError> {
        let plain: Vec<&Bytes> = keys.iter().map(|(_, key)| *key).collect();
        let sampled: Vec<&Bytes> =
            plain.iter().copied().filter(|key| self.sampler.takes(key)).collect();
        let within = self.limits.answer_within;
        let wire = self.connected().await?;
        match answer(within, batch::quiet(wire, &plain, &sampled)).await {
            Ok(before) => self.sample(&sampled, &before, keys, deliveries),
            Err(BatchError::Refused(why)) => {
                self.own().fail(&why);
                self.own().retried.fetch_add(1, Relaxed);
                let wire = self.connected().await?;
                let answers = answer(within, batch::aloud(wire, &plain)).await?;
                let refused = keys.iter().zip(answers).filter(|(_, answer)| answer.is_some());
                for ((seq, key), _) in refused {
                    self.park(*seq, key);
                }
            }
            Err(error) => return Err(error),
        }
        self.pause = self.limits.retry_first;
        let own = self.own();
        own.batches.fetch_add(1, Relaxed);
        // A histogram that is full refuses; nothing depends on it.
        let _ = lock(&own.batch_keys).record(plain.len() as u64);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), BatchError> {
        let within = self.limits.answer_within;
        let wire = self.connected().await?;
        answer(within, batch::flush(wire)).await
    }

    fn sample(
        &self,
        sampled: &[&Bytes],
        before: &Before,
        keys: &[(u64, &Bytes)],
        deliveries: &[Arc<Delivery>],
    ) {
        for (key, cas) in sampled.iter().zip(before) {
            let seq = keys.iter().find(|(_, other)| other == key).map(|(seq, _)| *seq);
            let delivery = deliveries.iter().find(|delivery| Some(delivery.seq) == seq);
            if let Some(delivery) = delivery {
                let sample = Sample { key: (*key).clone(), cas: *cas, read_at: delivery.read_at };
                self.sampler.take(sample, &self.own().monitor);
            }
        }
    }

    /// The connection, made if there is none.
    async fn connected(&mut self) -> Result<&mut Wire<N::Stream>, BatchError> {
        if self.wire.is_none() {
            let router = &self.routers[self.next_router % self.routers.len()];
            let dialed = timeout(self.limits.answer_within, self.network.dial(router)).await;
            let stream = dialed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let stream = stream
                .map_err(|error| io::Error::new(error.kind(), format!("{router}: {error}")))?;
            self.wire = Some(BufStream::with_capacity(4096, 1 << 16, stream));
            self.own().connected.store(true, Relaxed);
        }
        match &mut self.wire {
            Some(wire) => Ok(wire),
            None => Err(io::Error::from(io::ErrorKind::NotConnected).into()),
        }
    }

    /// Gives the connection up and pauses; the next attempt goes to the next router.
    async fn failed(&mut self, error: &BatchError) {
        self.wire = None;
        self.next_router = self.next_router.wrapping_add(1);
        let own = self.own();
        own.connected.store(false, Relaxed);
        own.retried.fetch_add(1, Relaxed);
        own.fail(&error.to_string());
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(self.limits.retry_max);
    }

    fn park(&mut self, seq: u64, key: &Bytes) {
        if self.parked.seen.insert(key.clone()) {
            self.parked.keys.push_back((seq, key.clone()));
        }
        let pause = self.limits.retry_max.min(self.limits.retry_first * 4);
        self.parked.retry_at.get_or_insert_with(|| Instant::now() + pause);
        self.own().parked.store(self.parked.keys.len() as u64, Relaxed);
    }

    /// Notes that everything of these deliveries is delivered or parked.
    fn finish(&mut self, deliveries: &[Arc<Delivery>]) {
        let now = Instant::now();
        let own = self.own();
        {
            let mut delivery_us = lock(&own.delivery_us);
            for delivery in deliveries.iter().filter(|delivery| !delivery.keys().is_empty()) {
                let us = now.duration_since(delivery.read_at).as_micros();
                delivery_us.saturating_record(u64::try_from(us).unwrap_or(u64::MAX));
            }
        }
        let keys: usize = deliveries.iter().map(|delivery| delivery.keys().len()).sum();
        own.delivered.fetch_add(keys as u64, Relaxed);
        own.waiting.fetch_sub(keys as u64, Relaxed);
        own.oldest_us.store(0, Relaxed);
        if let Some(last) = deliveries.last() {
            if last.committed_us > 0 {
                own.committed_us.store(last.committed_us, Relaxed);
            }
            self.done = last.seq;
        }
        let given: usize = deliveries
            .iter()
            .map(|delivery| permits(delivery, self.limits.window_keys) as usize)
            .sum();
        self.room.add_permits(given);
        self.acknowledge();
    }

    fn acknowledge(&self) {
        let parked = self.parked.keys.front().map(|(seq, _)| seq - 1);
        let repeat = self.repeats.front().map(|(_, seq, _)| seq - 1);
        let acked = [parked, repeat].into_iter().flatten().fold(self.done, u64::min);
        // Nobody listens any more at the end.
        let _ = self.acked.send_if_modified(|seen| std::mem::replace(seen, acked) != acked);
    }
}

fn size(delivery: &Delivery) -> (usize, usize) {
    let keys = delivery.keys();
    (keys.len(), keys.iter().map(|key| key.len() + 8).sum())
}

async fn answer<T>(
    within: Duration,
    asked: impl Future<Output = Result<T, BatchError>>,
) -> Result<T, BatchError> {
    let answered = timeout(within, asked).await;
    answered.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}
