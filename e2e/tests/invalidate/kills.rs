//! Whatever is killed, no cache keeps an old value: writers, look-aside readers with leases, and one process after the other
//! ended by `kill -9` under load, with the history judged by `testkit::staleness`.
//!
//! `KILLS` is the number of rounds, `SEED` repeats the choices.

use std::env;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testkit::Rng;
use testkit::database::{MariaDb, Session};
use testkit::rng::seed_from_env;
use testkit::server::{free_port, holdall_path};
use testkit::staleness::{Fate, Read, Write, judge};

use crate::harness::Invalidator;
use crate::mariadb::source;

const KEYS: u64 = 200;
const WRITERS: u64 = 2;

/// A process on a port that can be killed and started again.
struct Process {
    args: Vec<String>,
    address: SocketAddr,
    child: Child,
}

impl Process {
    fn start(args: &[&str]) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut all: Vec<String> = args.iter().map(ToString::to_string).collect();
        all.extend(["-p".to_owned(), address.port().to_string()]);
        let child = spawn(&all);
        let process = Self { args: all, address, child };
        process.wait();
        process
    }

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(self.address).is_err() {
            assert!(Instant::now() < end, "{:?} does not accept", self.args);
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn restart(&mut self) {
        self.child = spawn(&self.args);
        self.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(args: &[String]) -> Child {
    Command::new(holdall_path())
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What writers and readers share.
struct Shared {
    begin: Instant,
    stop: AtomicBool,
    /// While set, writers and readers rest.
    pause: AtomicBool,
    writes: Mutex<Vec<Write>>,
    reads: Mutex<Vec<Read>>,
    written: AtomicU64,
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap()
    }

    fn rest(&self) {
        while self.pause.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Writes its share of the keys, one version after the other; every eighth is undone.
fn writer(shared: &Shared, mut session: Session, share: u64, seed: u64) {
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
        let fate = match done {
            Some(_) if is_undone => Fate::Undone,
            Some(_) => Fate::Committed(shared.now()),
            None => panic!("the writer's connection was lost, and nothing kills it"),
        };
        shared.writes.lock().unwrap().push(Write { key, version, called, fate });
        shared.written.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_micros(rng.next_u64() % 2000));
    }
}

/// A connection to a cache or proxy.
struct Cache {
    stream: BufReader<TcpStream>,
}

/// What a lease-get answered.
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
fn reader(shared: &Shared, cluster: u16, address: SocketAddr, mut session: Session, seed: u64) {
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
                let rows = session
                    .run(&format!("SELECT v FROM items WHERE id = {key}"))
                    .expect("nothing kills readers' connections");
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

fn rounds(default: u64) -> u64 {
    env::var("KILLS").map_or(default, |text| text.parse().expect("KILLS is a number"))
}

/// Two clusters: a server, and a proxy before two servers.
struct Clusters {
    servers: Vec<Process>,
    proxy: Process,
    config: std::path::PathBuf,
}

impl Clusters {
    fn start() -> Self {
        let serve = ["serve", "-U", "0", "-t", "1", "-m", "64", "-o", "lease_interval=0"];
        let servers: Vec<Process> = (0..3).map(|_| Process::start(&serve)).collect();
        let config = env::temp_dir().join(format!("invalidate-kills-{}.json", std::process::id()));
        let pool = format!(r#"["{}", "{}"]"#, servers[1].address, servers[2].address);
        fs::write(
            &config,
            format!(r#"{{"pools": {{"A": {{"servers": {pool}}}}}, "route": "PoolRoute|A"}}"#),
        )
        .unwrap();
        let path = config.display().to_string();
        let proxy = Process::start(&["route", "--num-proxies", "1", "-f", &path]);
        Self { servers, proxy, config }
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        [self.servers[0].address, self.proxy.address]
    }
}

impl Drop for Clusters {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.config);
    }
}

#[test]
fn whatever_is_killed_no_cache_keeps_an_old_value() {
    let seed = seed_from_env();
    let mut rng = Rng::new(seed);
    let database = MariaDb::start(1, &["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"]);
    database.sql("CREATE TABLE items (id BIGINT PRIMARY KEY, v BIGINT)");
    let rows: Vec<String> = (0..=KEYS).map(|id| format!("({id}, {})", id + 1)).collect();
    database.sql(&format!("INSERT INTO items VALUES {}", rows.join(", ")));
    let mut clusters = Clusters::start();
    let keys = "[keys.tables]\n\"shop.items\" = \"item:{id}\"";
    let mut invalidator =
        Invalidator::new(&source(&[&database], ""), keys, &clusters.addresses(), "");
    invalidator.start(&[]);
    let first = |key| Write { key, version: key + 1, called: 0, fate: Fate::Committed(0) };
    let shared = Arc::new(Shared {
        begin: Instant::now(),
        stop: AtomicBool::new(false),
        pause: AtomicBool::new(false),
        writes: Mutex::new((0..=KEYS).map(first).collect()),
        reads: Mutex::new(Vec::new()),
        written: AtomicU64::new(0),
    });
    let threads = load(&shared, &database, &clusters, seed);
    let mut last = None;
    for round in 0..rounds(8) {
        shared.pause.store(false, Ordering::Release);
        thread::sleep(Duration::from_millis(100 + rng.next_u64() % 200));
        kill_one(round, &mut rng, &database, &mut clusters, &mut invalidator);
        thread::sleep(Duration::from_millis(rng.next_u64() % 200));
        shared.pause.store(true, Ordering::Release);
        settle(&shared, &database, &clusters, &invalidator, round);
        let delivered = shared.now();
        look_at_all(&shared, &clusters);
        // Each round is judged by itself: versions before it count as written.
        let (writes, reads) = (
            shared.writes.lock().unwrap().clone(),
            std::mem::take(&mut *shared.reads.lock().unwrap()),
        );
        let verdict = judge(&writes, &reads, delivered);
        verdict.assert_consistent();
        last = Some((verdict.fresh_within(1_000_000_000), verdict.stale_ns.len()));
    }
    shared.stop.store(true, Ordering::Release);
    for thread in threads {
        thread.join().unwrap();
    }
    let written = shared.written.load(Ordering::Relaxed);
    println!(
        "{} rounds, {written} writes; in the last round {last:?} (share of reads fresh within 1 s, reads)",
        rounds(8)
    );
    assert!(written > 100, "the load did nothing");
}

fn load(
    shared: &Arc<Shared>,
    database: &MariaDb,
    clusters: &Clusters,
    seed: u64,
) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    for share in 0..WRITERS {
        let (shared, session) = (Arc::clone(shared), database.session());
        threads.push(thread::spawn(move || writer(&shared, session, share, seed ^ share)));
    }
    for (cluster, address) in (0..).zip(clusters.addresses()) {
        let (shared, session) = (Arc::clone(shared), database.session());
        threads.push(thread::spawn(move || {
            reader(&shared, cluster, address, session, seed ^ u64::from(cluster) << 8)
        }));
    }
    threads
}

fn kill_one(
    round: u64,
    rng: &mut Rng,
    database: &MariaDb,
    clusters: &mut Clusters,
    invalidator: &mut Invalidator,
) {
    let pause = Duration::from_millis(rng.next_u64() % 150);
    // The first rounds take each victim once.
    match if round < 5 { round } else { rng.next_u64() % 5 } {
        0 => {
            invalidator.kill();
            thread::sleep(pause);
            invalidator.spawn(&[]);
        }
        1 => {
            clusters.servers[0].kill();
            thread::sleep(pause);
            clusters.servers[0].restart();
        }
        2 => {
            clusters.servers[1].kill();
            thread::sleep(pause);
            clusters.servers[1].restart();
        }
        3 => {
            clusters.proxy.kill();
            thread::sleep(pause);
            clusters.proxy.restart();
        }
        _ => {
            let ids = database.sql(
                "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'",
            );
            for id in ids.split_whitespace() {
                database.sql(&format!("KILL {id}"));
            }
        }
    }
}

/// Waits until what was written before has come to every cluster: the mark's key, which is filled first, is gone.
fn settle(
    shared: &Shared,
    database: &MariaDb,
    clusters: &Clusters,
    invalidator: &Invalidator,
    round: u64,
) {
    thread::sleep(Duration::from_millis(20));
    let end = Instant::now() + Duration::from_secs(60);
    let mark = |command: &str, address| -> io::Result<String> {
        let mut cache = Cache::connect(address)?;
        cache.stream.get_mut().write_all(command.as_bytes())?;
        cache.line()
    };
    let until = |what: &str, done: &dyn Fn(SocketAddr) -> bool| {
        for address in clusters.addresses() {
            while !done(address) {
                assert!(Instant::now() < end, "{what} in round {round}:\n{}", invalidator.log());
                thread::sleep(Duration::from_millis(10));
            }
        }
    };
    until("no mark", &|address| {
        mark(&format!("set item:{KEYS} 0 0 1\r\n1\r\n"), address).is_ok_and(|line| line == "STORED")
    });
    let version = 10_000_000 + round;
    let called = shared.now();
    database.sql(&format!("UPDATE items SET v = {version} WHERE id = {KEYS}"));
    shared.writes.lock().unwrap().push(Write {
        key: KEYS,
        version,
        called,
        fate: Fate::Committed(shared.now()),
    });
    until("the mark stays", &|address| {
        mark(&format!("mg item:{KEYS}\r\n"), address).is_ok_and(|line| line == "EN")
    });
    // Every delete comes twice, the second time 100 ms later.
    invalidator.until("cluster:c0:waiting", |count| count == 0);
    thread::sleep(Duration::from_millis(300));
}

/// Reads every key in every cluster; the proxy may take a moment to see that a server is back.
fn look_at_all(shared: &Shared, clusters: &Clusters) {
    let end = Instant::now() + Duration::from_secs(30);
    for (cluster, address) in (0..).zip(clusters.addresses()) {
        let mut cache = Cache::connect(address).unwrap();
        for key in 0..KEYS {
            let (called, found) = loop {
                let called = shared.now();
                match cache.lease_get(key) {
                    Ok(found) => break (called, found),
                    Err(error) => {
                        assert!(Instant::now() < end, "item:{key} in cluster {cluster}: {error}")
                    }
                }
                thread::sleep(Duration::from_millis(50));
                cache = Cache::connect(address).unwrap();
            };
            let version = if let Found::Version(version) = found { Some(version) } else { None };
            let read = Read { cluster, key, called, returned: shared.now(), version };
            shared.reads.lock().unwrap().push(read);
        }
    }
}
