//! A load that can be judged: writers of rising versions, look-aside readers with leases, and what
//! both saw.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testkit::Rng;
use testkit::database::Session;
use testkit::staleness::{Read, Write, WriteOutcome};

pub(crate) const KEYS: u64 = 200;
pub(crate) const WRITERS: u64 = 2;

/// What writers and readers share.
pub(crate) struct Shared {
    begin: Instant,
    pub(crate) stop: AtomicBool,
    /// While set, writers and readers rest; `resting` counts those that do.
    pause: AtomicBool,
    resting: AtomicU64,
    pub(crate) writes: Mutex<Vec<Write>>,
    pub(crate) reads: Mutex<Vec<Read>>,
    pub(crate) written: AtomicU64,
}

impl Shared {
    /// Nothing but the first version of every key, which is one more than its number.
    pub(crate) fn new() -> Arc<Self> {
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

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap()
    }

    fn rest(&self) {
        if !self.pause.load(Ordering::Acquire) {
            return;
        }
        self.resting.fetch_add(1, Ordering::AcqRel);
        while self.pause.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(2));
        }
        self.resting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Lets writers and readers rest, and waits until all of them do.
    pub(crate) fn pause(&self, threads: usize) {
        self.pause.store(true, Ordering::Release);
        let end = Instant::now() + Duration::from_secs(120);
        while self.resting.load(Ordering::Acquire) < threads as u64 {
            assert!(Instant::now() < end, "the load does not rest");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Lets them go on, and waits until none rests.
    pub(crate) fn go_on(&self) {
        self.pause.store(false, Ordering::Release);
        while self.resting.load(Ordering::Acquire) > 0 {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Writes its share of the keys, one version after the other; every eighth is undone.
fn writer(shared: &Shared, connect: &dyn Fn() -> Session, share: u64, seed: u64) {
    let mut session = connect();
    let mut rng = Rng::new(seed);
    let mut version = 1_000_000 * (share + 1);
    while !shared.stop.load(Ordering::Acquire) {
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
pub(crate) struct Cache {
    stream: BufReader<TcpStream>,
}

/// What a lease-get answered.
pub(crate) enum Found {
    Version(u64),
    Token(u64),
    Nothing,
}

impl Cache {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and answers the first line of its reply.
    pub(crate) fn ask(&mut self, command: &str) -> io::Result<String> {
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

    pub(crate) fn lease_get(&mut self, key: u64) -> io::Result<Found> {
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
) {
    let mut session = connect();
    let mut rng = Rng::new(seed);
    let mut cache = None;
    while !shared.stop.load(Ordering::Acquire) {
        shared.rest();
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

/// Starts writers, and a reader for each cluster; `session` makes connections to the database,
/// which may be away.
pub(crate) fn start(
    shared: &Arc<Shared>,
    session: &Arc<dyn Fn() -> Session + Send + Sync>,
    clusters: &[SocketAddr],
    seed: u64,
) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    for share in 0..WRITERS {
        let (shared, session) = (Arc::clone(shared), Arc::clone(session));
        threads.push(thread::spawn(move || writer(&shared, session.as_ref(), share, seed ^ share)));
    }
    for (cluster, &address) in (0..).zip(clusters) {
        let (shared, session) = (Arc::clone(shared), Arc::clone(session));
        threads.push(thread::spawn(move || {
            reader(&shared, cluster, address, session.as_ref(), seed ^ u64::from(cluster) << 8);
        }));
    }
    threads
}
