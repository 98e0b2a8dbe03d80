//! The deployment under test, all real processes: cache servers, a proxy that keeps deletes, and,
//! if MariaDB is installed, a database with writers and readers and an invalidator.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::database::{Mysqld, Session};
use testkit::stale_reads::assert_consistent;
use testkit::staleness::{Write, WriteOutcome, judge};
use testkit::{Kind, Launch, Router, Server, Wire};

use super::record::{Part, Record};
use crate::folder::Folder;
use crate::invalidator::{Invalidator, mysqld_source};
use crate::rows::{self, Shared};
use crate::wall_clock::WallClock;

/// Cache servers: one with a memory file, and one whose wall clock the soak sets.
const SERVERS: usize = 2;

/// The server with the memory file.
pub(super) const MEMORY_FILE: usize = 0;

/// `-m` of each server, in MB.
pub(super) const LIMIT_MB: u64 = 128;

/// The first letters of the keys of each server.
const PREFIXES: [&str; SERVERS] = ["a", "b"];

/// The time after a trouble in which everything must work again.
const WHOLE_WITHIN: Duration = Duration::from_secs(60);

/// A path to a server.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) addr: SocketAddr,
    /// The processes on it.
    pub(super) parts: Vec<Part>,
    /// The server at its end, and the first letters of that server's keys.
    pub(super) server: usize,
    pub(super) prefix: &'static str,
}

impl Path {
    pub(super) const fn is_proxied(&self) -> bool {
        self.parts.len() > 1
    }
}

/// A server, and the data that is available while a trouble holds it.
#[derive(Debug)]
struct Slot {
    addr: SocketAddr,
    process: Mutex<Server>,
    /// Increases before it is killed, and when it is back.
    restarts: AtomicU64,
}

/// The database and its clients.
pub(super) struct Rows {
    pub(super) database: Arc<RwLock<Mysqld>>,
    pub(super) invalidator: Mutex<Invalidator>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// The processes. Fields are dropped in order: processes before their folders.
pub(super) struct Tier {
    rows: Option<Rows>,
    proxy: Mutex<Router>,
    proxy_addr: SocketAddr,
    slots: Vec<Slot>,
    pub(super) clock: Option<WallClock>,
    /// The folders of the kept deletes and of the memory file; small file systems if this process
    /// can mount.
    pub(super) spool: Option<Folder>,
    pub(super) memory: Option<Folder>,
    _plain: Vec<Folder>,
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Tier {
    pub(super) fn start(seed: u64, record: &Record) -> Self {
        let spool = Folder::small("soak-spool", "1m");
        let memory = Folder::small("soak-memory", "140m");
        let plain: Vec<Folder> = (0..2).map(|at| Folder::new(&format!("soak-{at}"))).collect();
        let clock = WallClock::new("soak");
        let file = memory.as_ref().unwrap_or(&plain[0]).path().join("memory");
        let common = ["-m", &LIMIT_MB.to_string(), "-I", "4m", "-c", "4096", "-t", "2"];
        let launch = |more: &[&str]| {
            let leases = ["-o", "lease_interval=0"];
            Launch::new(Kind::Holdall).args(&common).args(&leases).args(more)
        };
        let second = launch(&[]);
        let second = match &clock {
            Some(clock) => clock.given_to(second),
            None => second,
        };
        let launches = [launch(&["-e", file.to_str().unwrap()]), second];
        let slots: Vec<Slot> =
            launches.into_iter().map(|launch| Slot::new(launch.start())).collect();
        let folder = spool.as_ref().unwrap_or(&plain[1]).name();
        let args = [
            &["--num-proxies", "2", "--enable-flush-cmd", "-t", "15000", "-r", "50"][..],
            &["--probe-timeout-max", "500", "--file-observer-poll-period-ms", "50", "-a", folder],
        ];
        let addrs: Vec<SocketAddr> = slots.iter().map(|slot| slot.addr).collect();
        let proxy = Router::start(&config(&addrs, 0), &args.concat());
        let proxy_addr = proxy.addr();
        let proxy = Mutex::new(proxy);
        let rows = Rows::start(proxy_addr, seed, record);
        Self { rows, proxy, proxy_addr, slots, clock, spool, memory, _plain: plain }
    }

    /// Every path to every server: directly, and through the proxy.
    pub(super) fn paths(&self) -> Vec<Path> {
        let path = |addr, parts, server| Path { addr, parts, server, prefix: PREFIXES[server] };
        let ways = self.slots.iter().enumerate().map(|(server, slot)| {
            let own = Part::Server(server);
            let proxied = path(self.proxy_addr, vec![Part::Proxy, own], server);
            [path(slot.addr, vec![own], server), proxied]
        });
        ways.flatten().collect()
    }

    /// The addresses of all servers, then of the proxy.
    pub(super) fn addrs(&self) -> Vec<SocketAddr> {
        self.slots.iter().map(|slot| slot.addr).chain([self.proxy_addr]).collect()
    }

    pub(super) fn rows(&self) -> Option<&Rows> {
        self.rows.as_ref()
    }

    /// A number that differs before and after each restart of the server.
    pub(super) fn restarts(&self, server: usize) -> u64 {
        // SeqCst, as in its partner `kill_server`: speed does not matter here.
        self.slots[server].restarts.load(Ordering::SeqCst)
    }

    /// The locked server: nothing else kills or stops it during that time.
    pub(super) fn server(&self, number: usize) -> MutexGuard<'_, Server> {
        self.slots[number].process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The locked proxy.
    pub(super) fn proxy(&self) -> MutexGuard<'_, Router> {
        self.proxy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the server, waits, and restarts it.
    pub(super) fn kill_server(&self, number: usize, pause: impl FnOnce()) {
        let mut server = self.server(number);
        // SeqCst: partner of `restarts`.
        let restarts = &self.slots[number].restarts;
        restarts.fetch_add(1, Ordering::SeqCst);
        server.kill();
        pause();
        server.restart().unwrap_or_else(|error| panic!("server {number} does not start: {error}"));
        restarts.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until every path through these parts serves.
    ///
    /// # Panics
    ///
    /// When a path does not serve in time.
    pub(super) fn until_whole(&self, parts: &[Part], record: &Record) {
        let end = Instant::now() + WHOLE_WITHIN;
        for path in
            self.paths().iter().filter(|path| path.parts.iter().any(|part| parts.contains(part)))
        {
            while !record.is_over() && !serves(path) {
                let late = Instant::now() > end;
                assert!(!late, "{path:?} does not serve {WHOLE_WITHIN:?} after a trouble's end");
                record.sleep(Duration::from_millis(20));
            }
        }
    }

    /// Waits until kept deletes are executed and caches agree with the database, and asserts that
    /// no reader saw a wrong value. Troubles rest.
    pub(super) fn settle(&self, round: u64) {
        self.proxy().wait_for("asynclog_pending", 0);
        if let Some(rows) = &self.rows {
            rows.settle(self.proxy_addr, round);
        }
    }

    /// Connections that each server closed because they held large values for long; none for a
    /// server that does not reply.
    pub(super) fn slow_kicks(&self) -> Vec<Option<u64>> {
        let kicks = |slot: &Slot| {
            let mut wire = Wire::try_connect_within(slot.addr, Duration::from_secs(1)).ok()?;
            wire.try_send(b"stats\r\n").ok()?;
            let (stats, _) = wire.read_until_or_end(b"END\r\n", Duration::from_secs(5));
            let stats = String::from_utf8_lossy(&stats).into_owned();
            stats
                .lines()
                .find_map(|line| line.strip_prefix("STAT slow_kicks ")?.trim().parse().ok())
        };
        self.slots.iter().map(kicks).collect()
    }

    /// The running processes by name, with their logs, except those that a trouble holds.
    pub(super) fn processes(&self) -> Vec<(String, u32, PathBuf)> {
        let mut all = Vec::new();
        for (number, slot) in self.slots.iter().enumerate() {
            if let Some(server) = free(&slot.process) {
                let log = server.log_path().to_owned();
                all.push((format!("server {number}"), server.pid(), log));
            }
        }
        if let Some(proxy) = free(&self.proxy) {
            all.push(("proxy".to_owned(), proxy.pid(), proxy.log_path().to_owned()));
        }
        if let Some(invalidator) = self.rows.as_ref().and_then(|rows| free(&rows.invalidator))
            && let Some(pid) = invalidator.pid()
        {
            all.push(("invalidator".to_owned(), pid, invalidator.log_path()));
        }
        all
    }
}

impl Slot {
    fn new(server: Server) -> Self {
        Self { addr: server.addr(), process: Mutex::new(server), restarts: AtomicU64::new(0) }
    }
}

impl Rows {
    fn start(proxy: SocketAddr, seed: u64, record: &Record) -> Option<Self> {
        let mut version = Command::new("mariadbd");
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        if !version.status().is_ok_and(|status| status.success()) {
            record.not_run("invalidator and database", "MariaDB is not installed");
            return None;
        }
        let flags = ["--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0"];
        let database = Mysqld::mariadb(1, &flags);
        database.sql("CREATE TABLE items (id BIGINT PRIMARY KEY, v BIGINT)");
        let count = rows::KEYS + 1;
        database.sql(&format!("INSERT INTO items SELECT seq - 1, seq FROM seq_1_to_{count}"));
        let keys = "[keys.tables]\n\"shop.items\" = \"item:{id}\"";
        let delivery = "[delivery]\naway_after_ms = 200\non_gap = \"flush\"";
        let source = mysqld_source(&[&database], "");
        let mut invalidator = Invalidator::new(&source, keys, &[proxy], delivery);
        invalidator.start(&[]);
        let (database, shared) = (Arc::new(RwLock::new(database)), Shared::new());
        let theirs = Arc::clone(&database);
        let session: Arc<dyn Fn() -> Session + Send + Sync> =
            Arc::new(move || theirs.read().unwrap().session());
        let threads = rows::start(&shared, &session, &[proxy], seed, Duration::from_millis(2));
        let invalidator = Mutex::new(invalidator);
        Some(Self { database, invalidator, shared, threads })
    }

    fn settle(&self, proxy: SocketAddr, round: u64) {
        self.shared.pause(self.threads.len());
        let invalidator = self.invalidator.lock().unwrap();
        let database = self.database.read().unwrap();
        let write = |statement: &str| drop(database.sql(statement));
        rows::settle(&self.shared, &invalidator, &[proxy], round, &write);
        let delivered = self.shared.now();
        let truth = database.sql(rows::ALL);
        self.shared.compare(&[proxy], &truth);
        let reads = std::mem::take(&mut *self.shared.reads.lock().unwrap());
        let mut writes = self.shared.writes.lock().unwrap();
        assert_consistent(&judge(&writes, &reads, delivered));
        // No cache has older versions any more.
        let newest = |(key, row): (u64, &str)| {
            let outcome = WriteOutcome::Committed(0);
            Write { key, version: row.parse().unwrap(), called: 0, outcome }
        };
        *writes = (0..).zip(truth.lines()).map(newest).collect();
        drop(writes);
        self.shared.go_on();
    }

    /// The number of written rows.
    pub(super) fn written(&self) -> u64 {
        // Relaxed: a number to print.
        self.shared.written.load(Ordering::Relaxed)
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.shared.end();
        for thread in self.threads.drain(..) {
            // The settlement, which waits for it, has seen its panic.
            let _ = thread.join();
        }
    }
}

/// The process, unless a trouble holds it.
fn free<T>(process: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match process.try_lock() {
        Ok(process) => Some(process),
        // The panic of its trouble is on record.
        Err(TryLockError::Poisoned(process)) => Some(process.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// True when a store and a fetch by this path succeed.
fn serves(path: &Path) -> bool {
    let Ok(mut wire) = Wire::try_connect_within(path.addr, Duration::from_secs(1)) else {
        return false;
    };
    let key = format!("{}whole", path.prefix);
    let request = format!("set {key} 0 0 1\r\nx\r\nmn\r\n");
    if wire.try_send(request.as_bytes()).is_err() {
        return false;
    }
    wire.read_until_or_end(b"MN\r\n", Duration::from_secs(2)).0 == b"STORED\r\nMN\r\n"
}

/// The proxy's configuration: servers by the first letters of keys, other keys by a hash. Each turn
/// has a different text.
pub(super) fn config(servers: &[SocketAddr], turn: u64) -> String {
    let [a, b] = servers else { panic!("two servers") };
    let [to_a, to_b] = PREFIXES;
    let spare = format!(r#", "spare": {{"servers": ["127.0.0.1:{}"]}}"#, 1 + turn % 1000);
    let spare = if turn.is_multiple_of(2) { "" } else { &spare };
    format!(
        r#"{{"pools": {{"A": {{"servers": ["{a}"]}}, "B": {{"servers": ["{b}"]}},
                       "all": {{"servers": ["{a}", "{b}"]}}{spare}}},
            "route": {{"type": "PrefixSelectorRoute",
                       "policies": {{"{to_a}": "PoolRoute|A", "{to_b}": "PoolRoute|B"}},
                       "wildcard": "PoolRoute|all"}}}} /* {turn} */"#
    )
}
