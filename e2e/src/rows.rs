//! A load that can be judged: writers of rising versions, look-aside readers with leases, and the
//! histories of both.
//!
//! Relaxed is enough for the number of writes: it is only printed and compared.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::invalidator::Invalidator;
use testkit::Rng;
use testkit::database::Session;
use testkit::staleness::{Read, Write, WriteOutcome};

/// Rows that are written and read. [`settle`] uses one more.
pub const KEYS: u64 = 200;

/// Selects the version of each row, in the order of their numbers.
pub const ALL: &str = "SELECT v FROM items ORDER BY id";

const WRITERS: u64 = 2;

/// The state that writers and readers share.
#[derive(Debug)]
pub struct Shared {
    begin: Instant,
    stop: AtomicBool,
    /// While set, writers and readers rest; `resting` counts those at rest.
    pause: AtomicBool,
    resting: AtomicU64,
    /// The history of writes.
    pub writes: Mutex<Vec<Write>>,
    /// The history of reads.
    pub reads: Mutex<Vec<Read>>,
    /// The number of writes.
    pub written: AtomicU64,
}

impl Shared {
    /// Contains only the first version of every key, which is the key's number plus one.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let first =
            |key| Write { key, version: key + 1, called: 0, outcome: WriteOutcome::Committed(0) };
        Arc::new(Self {
            begin: Instant::now(),
            stop: AtomicBool::new(false),
            pause: AtomicBool::new(false),
            resting: AtomicU64::new(0),
            writes: Mutex::new((0..=KEYS).map(first).collect()),
            reads: Mutex::new(Vec::new()),
            written: AtomicU64::new(0),
        })
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap()
    }

    fn rest(&self) {
        // Acquire and AcqRel: partners of `pause` and `go_on`, and `stop` of `end`. A thread that
        // waits for all to rest sees their records.
        if !self.pause.load(Ordering::Acquire) {
            return;
        }
        // AcqRel: partner of `pause`.
        self.resting.fetch_add(1, Ordering::AcqRel);
        while self.pause.load(Ordering::Acquire) && !self.is_over() {
            thread::sleep(Duration::from_millis(2));
        }
        self.resting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Pauses writers and readers, and waits until all of them rest.
    pub fn pause(&self, threads: usize) {
        // Release and Acquire: partners of `rest`.
        self.pause.store(true, Ordering::Release);
        let end = Instant::now() + Duration::from_secs(120);
        while self.resting.load(Ordering::Acquire) < threads as u64 {
            assert!(Instant::now() < end, "the load does not rest");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Resumes them, and waits until none rests.
    pub fn go_on(&self) {
        // Release and Acquire: partners of `rest`.
        self.pause.store(false, Ordering::Release);
        while self.resting.load(Ordering::Acquire) > 0 {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends writers and readers.
    pub fn end(&self) {
        // Release: partner of `is_over`.
        self.stop.store(true, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        // Acquire: partner of `end`.
        self.stop.load(Ordering::Acquire)
    }

    /// Reads every key in every cluster and compares it with the rows that [`ALL`] selects. A proxy
    /// may take a moment to detect that a server is back.
    pub fn compare(&self, clusters: &[SocketAddr], rows: &str) {
        let truth: Vec<u64> = rows.lines().map(|row| row.parse().unwrap()).collect();
        let end = Instant::now() + Duration::from_secs(120);
        for (cluster, &address) in (0..).zip(clusters) {
            let mut cache = Cache::connect(address).unwrap();
            for (key, newest) in (0..KEYS).zip(&truth) {
                let (called, found) = loop {
                    let called = self.now();
                    match cache.lease_get(key) {
                        Ok(found) => break (called, found),
                        Err(error) => {
                            let late = Instant::now() > end;
                            assert!(!late, "item:{key} in cluster {cluster}: {error}");
                        }
                    }
                    thread::sleep(Duration::from_millis(50));
                    cache = Cache::connect(address).unwrap();
                };
                let version =
                    if let Found::Version(version) = found { Some(version) } else { None };
                assert!(
                    version.is_none_or(|version| version == *newest),
                    "item:{key} in cluster {cluster} is {version:?}, and in the database {newest}"
                );
                let returned = self.now();
                let read = Read { cluster, key, called, returned, version };
                self.reads.lock().unwrap().push(read);
            }
        }
    }
}

/// Writes its share of the keys, one version after the other. Rolls back every eighth write.
fn writer(shared: &Shared, connect: &dyn Fn() -> Session, share: u64, seed: u64) {
    let mut session = connect();
    let mut rng = Rng::new(seed);
    let mut version = 1_000_000 * (share + 1);
    while !shared.is_over() {
        shared.rest();
        let key = rng.next_u64() % (KEYS / WRITERS) * WRITERS + share;
        version += 1;
        let is_undone = rng.one_in(8);
        let update = format!("UPDATE items SET v = {version} WHERE id = {key}");
        let called = shared.now();
        let done = if is_undone {
            session.run(&format!("BEGIN; {update}; ROLLBACK"))
        } else {
            session.run(&update)
        };
        let acknowledged = shared.now();
        let outcome = match done {
            Some(_) if is_undone => WriteOutcome::Undone,
            Some(_) => WriteOutcome::Committed(acknowledged),
            None => {
                thread::sleep(Duration::from_millis(20));
                session = connect();
                WriteOutcome::Unknown
            }
        };
        shared.writes.lock().unwrap().push(Write { key, version, called, outcome });
        shared.written.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_micros(rng.next_u64() % 2000));
    }
}

/// A connection to a cache or proxy.
#[derive(Debug)]
struct Cache {
    stream: BufReader<TcpStream>,
}

/// The reply to a lease-get.
#[derive(Debug)]
enum Found {
    Version(u64),
    Token(u64),
    Nothing,
}

impl Cache {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and returns the first line of its reply.
    fn ask(&mut self, command: &str) -> io::Result<String> {
        self.stream.get_mut().write_all(command.as_bytes())?;
        self.line()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn lease_get(&mut self, key: u64) -> io::Result<Found> {
        self.stream.get_mut().write_all(format!("lease-get item:{key}\r\n").as_bytes())?;
        let mut found = Found::Nothing;
        loop {
            let line = self.line()?;
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "END" => return Ok(found),
                "VALUE" | "LVALUE" => {
                    let length: usize = words[words.len() - 1].parse().unwrap();
                    let mut value = vec![0; length + 2];
                    self.stream.read_exact(&mut value)?;
                    let value = String::from_utf8_lossy(&value[..length]).into_owned();
                    found = if words[0] == "VALUE" {
                        Found::Version(value.parse().unwrap())
                    } else {
                        match words[2].parse().unwrap() {
                            0 | 1 => Found::Nothing,
                            token => Found::Token(token),
                        }
                    };
                }
                _ => return Err(io::Error::other(line)),
            }
        }
    }

    fn lease_set(&mut self, key: u64, token: u64, version: &str) -> io::Result<()> {
        let set = format!("lease-set item:{key} {token} 0 0 {}\r\n{version}\r\n", version.len());
        self.stream.get_mut().write_all(set.as_bytes())?;
        self.line().map(|_| ())
    }
}

/// Reads through the cache, and fills it from the database.
fn reader(
    shared: &Shared,
    cluster: u16,
    address: SocketAddr,
    connect: &dyn Fn() -> Session,
    seed: u64,
    pause: Duration,
) {
    let mut session = connect();
    let mut rng = Rng::new(seed);
    let mut cache = None;
    while !shared.is_over() {
        shared.rest();
        thread::sleep(pause);
        let key = rng.next_u64() % KEYS;
        let once = |cache: &mut Option<Cache>, session: &mut Session| -> io::Result<()> {
            if cache.is_none() {
                *cache = Some(Cache::connect(address)?);
            }
            let Some(cache) = cache else { return Ok(()) };
            let called = shared.now();
            let found = cache.lease_get(key)?;
            let version = if let Found::Version(version) = found { Some(version) } else { None };
            shared.reads.lock().unwrap().push(Read {
                cluster,
                key,
                called,
                returned: shared.now(),
                version,
            });
            if let Found::Token(token) = found {
                let rows = session.run(&format!("SELECT v FROM items WHERE id = {key}"));
                let Some(rows) = rows else {
                    *session = connect();
                    return Err(io::ErrorKind::NotConnected.into());
                };
                cache.lease_set(key, token, &rows[0])?;
            }
            Ok(())
        };
        if once(&mut cache, &mut session).is_err() {
            cache = None;
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Starts writers, and a reader for each cluster. `session` connects to the database, which may be
/// unavailable. Readers pause before each read.
pub fn start(
    shared: &Arc<Shared>,
    session: &Arc<dyn Fn() -> Session + Send + Sync>,
    clusters: &[SocketAddr],
    seed: u64,
    pause: Duration,
) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    for share in 0..WRITERS {
        let (shared, session) = (Arc::clone(shared), Arc::clone(session));
        threads.push(thread::spawn(move || writer(&shared, session.as_ref(), share, seed ^ share)));
    }
    for (cluster, &address) in (0..).zip(clusters) {
        let (shared, session) = (Arc::clone(shared), Arc::clone(session));
        threads.push(thread::spawn(move || {
            let seed = seed ^ u64::from(cluster) << 8;
            reader(&shared, cluster, address, session.as_ref(), seed, pause);
        }));
    }
    threads
}

/// Waits until earlier writes have reached every cluster: fills the key of an additional row,
/// writes that row, and waits until the key is gone. No other thread may write; `write` runs a
/// statement.
pub fn settle(
    shared: &Shared,
    invalidator: &Invalidator,
    clusters: &[SocketAddr],
    round: u64,
    write: &dyn Fn(&str),
) {
    let end = Instant::now() + Duration::from_secs(120);
    let ask = |command: &str, address| Cache::connect(address)?.ask(command);
    let until = |what: &str, done: &dyn Fn(SocketAddr) -> bool| {
        for &address in clusters {
            while !done(address) {
                let log = || invalidator.log();
                assert!(Instant::now() < end, "{what} in round {round}:\n{}", log());
                thread::sleep(Duration::from_millis(10));
            }
        }
    };
    until("no mark", &|address| {
        ask(&format!("set item:{KEYS} 0 0 1\r\n1\r\n"), address)
            .is_ok_and(|line: String| line == "STORED")
    });
    let version = 10_000_000 + round;
    let called = shared.now();
    write(&format!("UPDATE items SET v = {version} WHERE id = {KEYS}"));
    let outcome = WriteOutcome::Committed(shared.now());
    shared.writes.lock().unwrap().push(Write { key: KEYS, version, called, outcome });
    until("the mark stays", &|address| {
        ask(&format!("mg item:{KEYS}\r\n"), address).is_ok_and(|line| line == "EN")
    });
    // Spooled keys are deleted twice.
    for cluster in 0..clusters.len() {
        for name in ["waiting", "spool_records"] {
            invalidator.until(&format!("cluster:c{cluster}:{name}"), |count| count == 0);
        }
    }
}
