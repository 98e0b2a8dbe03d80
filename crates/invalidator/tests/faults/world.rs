//! A database's log, caches behind a network, and a disk, all of which fail at random.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use changes::change::{Change, Event, Mark};
use changes::position::Position;
use fastrand::Rng;
use invalidator::change_source::{ChangeSource, SourceError, VisibilityProbe};
use invalidator::checkpoint::Keep;
use invalidator::delivery::{Delivery, Flush, Work};
use invalidator::disk_queue::{Chunk, DiskQueue, Held, Refused, Why};
use invalidator::network::Network;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream, DuplexStream, duplex};
use tokio::time::sleep;

pub(crate) const CLUSTERS: usize = 2;
const KEYS: u64 = 12;
const TRANSACTIONS: usize = 120;

/// Everything that outlives an invalidator.
pub(crate) struct Truth {
    dice: Mutex<Rng>,
    is_calm: AtomicBool,
    /// True if the database reports visibility.
    tells: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The log: each transaction's keys, and whether it is readable.
    log: Vec<Logged>,
    /// The rows that other sessions see, shortly after the log has the commit.
    visible: HashMap<u64, u64>,
    /// The number of transactions that they see.
    seen: u64,
    newest: HashMap<u64, u64>,
    caches: Vec<HashMap<String, (u64, u64)>>,
    /// The next cas unique.
    cas: u64,
    disk: Option<Vec<u8>>,
    /// For each cluster: number, work (none if it was lost) and commit, oldest first; and the total
    /// number stored.
    disk_queues: Vec<VecDeque<(u64, Option<Work>, u64)>>,
    queued: u64,
    /// Unreachable clusters.
    away: [bool; CLUSTERS],
    /// Log positions below this are gone.
    purged: u64,
}

struct Logged {
    keys: Vec<u64>,
    is_garbled: bool,
}

impl Truth {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let state = State {
            caches: vec![HashMap::new(); CLUSTERS],
            disk_queues: vec![VecDeque::new(); CLUSTERS],
            ..State::default()
        };
        let dice = Mutex::new(Rng::with_seed(seed));
        let (is_calm, tells) = (AtomicBool::new(false), !seed.is_multiple_of(3));
        Arc::new(Self { dice, is_calm, tells, state: Mutex::new(state) })
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.dice.lock().unwrap().u64(..bound)
    }

    /// True once in `n` times, and never after `calm`.
    fn fails(&self, n: u64) -> bool {
        !self.is_calm.load(Ordering::Relaxed) && self.below(n) == 0
    }

    /// The number of records that were ever put in a disk queue.
    pub(crate) fn queued(&self) -> u64 {
        self.state.lock().unwrap().queued
    }

    /// Stops all failures.
    pub(crate) fn calm(&self) {
        self.state.lock().unwrap().away = [false; CLUSTERS];
        self.is_calm.store(true, Ordering::Relaxed);
    }

    fn is_away(&self, cluster: usize) -> bool {
        self.state.lock().unwrap().away[cluster]
    }

    pub(crate) fn has_checkpoint(&self) -> bool {
        self.state.lock().unwrap().disk.is_some()
    }

    /// Caches a value of a key in every cluster.
    pub(crate) fn cache(&self, key: u64, value: u64) {
        let mut state = self.state.lock().unwrap();
        state.cas += 1;
        let cas = state.cas;
        for cache in &mut state.caches {
            cache.insert(format!("k{key}"), (value, cas));
        }
    }

    /// True if a cluster has a value of this key.
    pub(crate) fn has_cached(&self, key: u64) -> bool {
        let state = self.state.lock().unwrap();
        state.caches.iter().any(|cache| cache.contains_key(&format!("k{key}")))
    }

    /// Other sessions see the transactions up to this number.
    pub(crate) fn see(&self, number: u64) {
        self.state.lock().unwrap().seen = number;
    }

    pub(crate) fn assert_fresh(&self, seed: u64) {
        let state = self.state.lock().unwrap();
        for (cluster, cache) in state.caches.iter().enumerate() {
            for (key, (value, _)) in cache {
                let number: u64 = key[1..].parse().unwrap();
                assert_eq!(
                    Some(value),
                    state.newest.get(&number),
                    "SEED={seed}: {key} in cluster {cluster}"
                );
            }
        }
    }
}

/// Commits transactions, and fills caches with the values that readers see.
pub(crate) async fn change(truth: Arc<Truth>) {
    for version in 1..=TRANSACTIONS as u64 {
        let keys: Vec<u64> = (0..=truth.below(3)).map(|_| truth.below(KEYS)).collect();
        {
            let mut state = truth.state.lock().unwrap();
            state.log.push(Logged { keys: keys.clone(), is_garbled: truth.fails(60) });
            for key in &keys {
                state.newest.insert(*key, version);
            }
            if truth.fails(25) {
                let cluster = usize::try_from(truth.below(CLUSTERS as u64)).unwrap();
                state.away[cluster] = !state.away[cluster];
            }
            if truth.fails(100) {
                state.purged = state.log.len() as u64 - truth.below(3).min(state.log.len() as u64);
            }
        }
        let fill = || {
            let mut state = truth.state.lock().unwrap();
            for cluster in 0..CLUSTERS {
                for _ in 0..2 {
                    let key = truth.below(KEYS);
                    let Some(value) = state.visible.get(&key).copied() else { continue };
                    state.cas += 1;
                    let cas = state.cas;
                    // Like `add`: a cached value stays.
                    state.caches[cluster].entry(format!("k{key}")).or_insert((value, cas));
                }
            }
        };
        // A reader may still see the old row, for longer than the repeat delay if the database
        // reports visibility.
        let is_long = truth.tells && truth.fails(20);
        sleep(Duration::from_millis(truth.below(if is_long { 400 } else { 10 }))).await;
        fill();
        {
            let mut state = truth.state.lock().unwrap();
            for key in &keys {
                state.visible.insert(*key, version);
            }
            state.seen = version;
        }
        fill();
        sleep(Duration::from_millis(truth.below(10))).await;
    }
}

/// The log, read from a position that is a count of transactions.
pub(crate) struct Log {
    truth: Arc<Truth>,
    at: Option<u64>,
    pending: Vec<Event>,
}

impl Log {
    pub(crate) const fn new(truth: Arc<Truth>) -> Self {
        Self { truth, at: None, pending: Vec::new() }
    }
}

impl Log {
    /// Takes the next transaction, if there is one.
    fn read(&mut self) -> Result<bool, SourceError> {
        let Some(at) = self.at else { return Err(SourceError::Lost("closed".to_owned())) };
        let state = self.truth.state.lock().unwrap();
        let Some(logged) = state.log.get(usize::try_from(at).unwrap()) else { return Ok(false) };
        self.at = Some(at + 1);
        let mark = match self.truth.tells {
            true => Mark::Xid(u32::try_from(at + 1).unwrap()),
            false => Mark::Unknown,
        };
        let position = Position::of_lsn(at + 1);
        self.pending.push(Event::Commit { position, committed_us: at, mark });
        if logged.is_garbled {
            self.pending.push(Event::Gap { why: "garbled".to_owned() });
        }
        for key in logged.keys.iter().rev().filter(|_| !logged.is_garbled) {
            let content = Bytes::from(format!("k{key}"));
            self.pending.push(Event::Change(Change::Message { prefix: "mc".to_owned(), content }));
        }
        Ok(true)
    }
}

impl ChangeSource for Log {
    type Probe = Session;

    fn probe(&self) -> Session {
        Session::new(Arc::clone(&self.truth))
    }

    async fn open(&mut self, from: Option<&Position>) -> Result<Position, SourceError> {
        sleep(Duration::from_millis(1)).await;
        self.pending.clear();
        if self.truth.fails(4) {
            return Err(SourceError::Lost("refused".to_owned()));
        }
        let state = self.truth.state.lock().unwrap();
        let at = match from {
            Some(Position::Lsn { lsn: at, .. }) if *at < state.purged => {
                return Err(SourceError::Purged("purged".to_owned()));
            }
            Some(Position::Lsn { lsn: at, .. }) => *at,
            _ if self.truth.tells => state.seen,
            _ => state.log.len() as u64,
        };
        self.at = Some(at);
        Ok(Position::of_lsn(at))
    }

    async fn next(&mut self) -> Result<Event, SourceError> {
        loop {
            if self.truth.fails(40) {
                self.at = None;
                return Err(SourceError::Lost("lost".to_owned()));
            }
            if let Some(event) = self.pending.pop() {
                return Ok(event);
            }
            if !self.read()? {
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    fn behind_bytes(&self) -> Option<u64> {
        None
    }

    fn confirm(&mut self, _position: &Position) {}
}

/// A session that sees the first `seen` transactions.
pub(crate) struct Session {
    truth: Arc<Truth>,
    seen: u64,
}

impl Session {
    pub(crate) const fn new(truth: Arc<Truth>) -> Self {
        Self { truth, seen: 0 }
    }
}

impl VisibilityProbe for Session {
    async fn refresh(&mut self) -> Result<(), SourceError> {
        sleep(Duration::from_micros(self.truth.below(1000))).await;
        if self.truth.fails(10) {
            return Err(SourceError::Lost("lost".to_owned()));
        }
        let seen = self.truth.state.lock().unwrap().seen;
        sleep(Duration::from_micros(self.truth.below(1000))).await;
        self.seen = seen;
        Ok(())
    }

    fn is_visible(&self, mark: &Mark) -> Option<bool> {
        let Mark::Xid(xid) = mark else { return None };
        Some(u64::from(*xid) <= self.seen)
    }
}

/// A disk that loses nothing it reported as written, and sometimes refuses.
pub(crate) struct Disk(pub(crate) Arc<Truth>);

impl Keep for Disk {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.state.lock().unwrap().disk.clone())
    }

    async fn replace(&self, bytes: Vec<u8>) -> io::Result<()> {
        sleep(Duration::from_micros(self.0.below(3000))).await;
        if self.0.fails(10) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.state.lock().unwrap().disk = Some(bytes);
        Ok(())
    }

    fn path(&self) -> &Path {
        Path::new("simulated")
    }
}

/// A cluster's place on that disk. It takes time, so an invalidator can be killed before and after;
/// it is small, sometimes refuses with a part stored, and occasionally loses a record and knows it.
pub(crate) struct SmallQueue(pub(crate) Arc<Truth>, pub(crate) usize);

const QUEUE_RECORDS: usize = 60;
const CHUNK_RECORDS: usize = 7;

impl SmallQueue {
    fn keep(&self, work: &Work, committed_us: u64) {
        let mut state = self.0.state.lock().unwrap();
        state.queued += 1;
        let number = state.queued;
        state.disk_queues[self.1].push_back((number, Some(work.clone()), committed_us));
    }
}

impl DiskQueue for SmallQueue {
    fn held(&self) -> Held {
        let state = self.0.state.lock().unwrap();
        Held { records: state.disk_queues[self.1].len() as u64, bytes: 0 }
    }

    async fn append(&self, deliveries: Vec<Arc<Delivery>>) -> Result<(), Refused> {
        sleep(Duration::from_micros(self.0.below(3000))).await;
        for (stored, delivery) in deliveries.into_iter().enumerate() {
            if self.0.fails(40) {
                return Err(refused(stored));
            }
            if self.held().records >= QUEUE_RECORDS as u64 {
                return Err(Refused { stored, why: Why::Full });
            }
            self.keep(&delivery.work, delivery.committed_us);
        }
        sleep(Duration::from_micros(self.0.below(3000))).await;
        Ok(())
    }

    async fn replace(&self, flush: Flush) -> Result<(), Refused> {
        sleep(Duration::from_micros(self.0.below(3000))).await;
        if self.0.fails(5) {
            return Err(refused(0));
        }
        self.0.state.lock().unwrap().disk_queues[self.1].clear();
        self.keep(&Work::Flush(flush), 0);
        Ok(())
    }

    async fn read(&self) -> io::Result<Chunk> {
        sleep(Duration::from_micros(self.0.below(500))).await;
        if self.0.fails(20) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut state = self.0.state.lock().unwrap();
        if self.0.fails(60)
            && let Some(first) = state.disk_queues[self.1].front_mut()
        {
            first.1 = None;
        }
        let mut chunk = Chunk::default();
        for (number, work, committed_us) in state.disk_queues[self.1].iter().take(CHUNK_RECORDS) {
            chunk.lost += u64::from(work.is_none());
            let work = work.clone().unwrap_or(Work::Delete(Vec::new()));
            chunk.records.push((*number, work, *committed_us));
        }
        Ok(chunk)
    }

    async fn acknowledge(&self, number: u64, left: Vec<Arc<Delivery>>) -> Result<(), Refused> {
        if !left.is_empty() && self.0.fails(5) {
            return Err(refused(0));
        }
        left.iter().for_each(|delivery| self.keep(&delivery.work, delivery.committed_us));
        let mut state = self.0.state.lock().unwrap();
        state.disk_queues[self.1].retain(|(other, ..)| *other > number);
        Ok(())
    }
}

fn refused(stored: usize) -> Refused {
    Refused { stored, why: Why::Io("no room on the device".to_owned()) }
}

/// The network, with a cache at the end of each address.
pub(crate) struct Net(pub(crate) Arc<Truth>);

impl Network for Net {
    type Stream = DuplexStream;

    async fn dial(&self, address: &str) -> io::Result<DuplexStream> {
        sleep(Duration::from_micros(100)).await;
        if self.0.fails(5) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = duplex(4096);
        let cluster: usize = address.split(':').next().unwrap().parse().unwrap();
        if self.0.is_away(cluster) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let truth = Arc::clone(&self.0);
        tokio::spawn(async move {
            // An ending connection is part of the test.
            let _ = serve(&truth, cluster, theirs).await;
        });
        Ok(ours)
    }
}

/// Answers as a cache does: `mg KEY c`, `md KEY [q] Pexecuted`, `mn`, `flush_all`.
async fn serve(truth: &Truth, cluster: usize, stream: DuplexStream) -> io::Result<()> {
    let mut stream = BufStream::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        if truth.fails(150) || truth.is_away(cluster) {
            return Ok(());
        }
        if truth.fails(400) {
            sleep(Duration::from_millis(300)).await;
        }
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let answer = {
            let mut state = truth.state.lock().unwrap();
            let cache = &mut state.caches[cluster];
            match words[..] {
                ["mn"] => "MN\r\n".to_owned(),
                ["flush_all"] if truth.fails(10) => {
                    // One server is unreachable, and may keep its items.
                    if truth.below(2) == 0 {
                        cache.clear();
                    }
                    "SERVER_ERROR away\r\n".to_owned()
                }
                ["flush_prefix", _] if truth.fails(3) => "SERVER_ERROR away\r\n".to_owned(),
                ["flush_prefix", _] => "OK\r\n".to_owned(),
                ["flush_all"] => {
                    cache.clear();
                    "OK\r\n".to_owned()
                }
                ["mg", key, "c"] => cache
                    .get(key)
                    .map_or_else(|| "EN\r\n".to_owned(), |(_, cas)| format!("HD c{cas}\r\n")),
                ["md", ..] if truth.fails(30) => "SERVER_ERROR away\r\n".to_owned(),
                ["md", key, "q", "Pexecuted"] => {
                    if cache.remove(key).is_some() { "" } else { "NF\r\n" }.to_owned()
                }
                ["md", key, "Pexecuted"] => {
                    if cache.remove(key).is_some() { "HD\r\n" } else { "NF\r\n" }.to_owned()
                }
                _ => panic!("what is this: {line}"),
            }
        };
        stream.write_all(answer.as_bytes()).await?;
        // Answers leave when the request ends, as in a real server.
        if ["mn", "flush_all", "flush_prefix"].contains(&words[0]) {
            stream.flush().await?;
            if truth.fails(100) {
                return Ok(());
            }
        }
    }
}
