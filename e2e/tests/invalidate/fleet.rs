//! A realistic deployment: TLS to database and routers, two invalidators that take turns, two
//! routers with spools, and one of four servers dead all the time. One process after the other is
//! killed by `kill -9` under load. After each trouble no living server has an old value; and while
//! only the dead server fails, reads from the others are fresh.
//!
//! `KILLS` is the number of rounds of each database (each trouble once without it), `SEED` repeats
//! the choices. With `KILLS` an old value read a second after its change fails the test, too.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use e2e::certificates::{Certificates, Folder};
use e2e::invalidator::Invalidator;
use e2e::rows::{self, Shared};
use rustix::process::Signal;
use testkit::database::{Brand, Mysqld, Postgres};
use testkit::process::free_port;
use testkit::rng::seed_from_env;
use testkit::stale_reads::assert_consistent;
use testkit::staleness::judge;
use testkit::{Rng, Wire};

use crate::database::{Database, sessions};
use crate::harness::Process;
use crate::kills::rounds;
use crate::standby::{nothing_waits, pair_of, wait_as_second};

const SERVERS: usize = 4;

/// The troubles of a round; the first rounds cover each once.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// The working invalidator is killed.
    Worker,
    /// The waiting invalidator is killed.
    Standby,
    /// The working invalidator stalls.
    Still,
    Router(usize),
    /// A server other than the dead one is killed.
    Server,
    Database,
    Connection,
}

const TROUBLES: [Trouble; 8] = [
    Trouble::Worker,
    Trouble::Standby,
    Trouble::Still,
    Trouble::Router(0),
    Trouble::Router(1),
    Trouble::Server,
    Trouble::Database,
    Trouble::Connection,
];

/// Servers behind two routers, each with a spool and a port that requires TLS and a certificate.
struct Cluster {
    servers: Vec<Process>,
    routers: Vec<Process>,
    secured: Vec<SocketAddr>,
    /// The server that never answers, and the one that holds the key of [`rows::settle`]'s row.
    dead: usize,
    holder: usize,
    _files: Folder,
}

impl Cluster {
    fn start(certificates: &Certificates) -> Self {
        let serve = ["serve", "-U", "0", "-t", "1", "-m", "64", "-o", "lease_interval=0"];
        let servers: Vec<Process> = (0..SERVERS).map(|_| Process::start(&serve)).collect();
        let files = Folder::new();
        let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
        let route = testkit::router::config(&addresses, r#""PoolRoute|all""#);
        let config = files.write("routes.json", &route);
        let path = |name: &str| certificates.path(name);
        let (cert, key, ca) = (path("server.crt"), path("server.key"), path("ca.crt"));
        let ports: Vec<u16> = (0..2).map(|_| free_port()).collect();
        let router = |port: &u16| {
            let spool = files.path(&format!("spool-{port}"));
            fs::create_dir(&spool).unwrap();
            let port = port.to_string();
            let route = ["route", "--num-proxies", "1", "--enable-flush-cmd", "-f", &config];
            let kept = ["-a", &spool, "-r", "50", "--probe-timeout-max", "100"];
            let secured = ["--ssl-require-peer-certs", "--ssl-port", &port];
            let pem = ["--pem-cert-path", &cert, "--pem-key-path", &key, "--pem-ca-path", &ca];
            Process::start(&[&route[..], &kept, &secured, &pem].concat())
        };
        let routers: Vec<Process> = ports.iter().map(router).collect();
        let secured = ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect();
        let mut cluster = Self { servers, routers, secured, dead: 0, holder: 0, _files: files };
        let mark = format!("set item:{} 0 0 1\r\n1\r\n", rows::KEYS);
        Wire::connect(cluster.routers[0].address).expect(mark.as_bytes(), b"STORED\r\n");
        let has_it = |at: &usize| cluster.value(*at, rows::KEYS).is_some();
        cluster.holder = (0..SERVERS).find(has_it).expect("one server has it");
        cluster.dead = (cluster.holder + 1) % SERVERS;
        cluster.servers[cluster.dead].kill();
        cluster
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        [self.routers[0].address, self.routers[1].address]
    }

    /// The value of a row at a server.
    fn value(&self, server: usize, row: u64) -> Option<u64> {
        let mut wire = Wire::connect(self.servers[server].address);
        wire.send(format!("mg item:{row} v\r\n").as_bytes());
        wire.line().starts_with("VA ").then(|| wire.line().parse().unwrap())
    }

    /// The cluster's lines of a configuration.
    fn lines(&self, certificates: &Certificates) -> String {
        let path = |name: &str| certificates.path(name);
        format!(
            "[routers]\nsslrootcert = \"{}\"\nsslcert = \"{}\"\nsslkey = \"{}\"\n\
             [delivery]\nwindow_keys = 30\naway_after_ms = 20\n\
             [[cluster]]\nname = \"c0\"\nrouters = [\"{}\", \"{}\"]\n",
            path("ca.crt"),
            path("client.crt"),
            path("client.key"),
            self.secured[0],
            self.secured[1]
        )
    }

    /// Compares every living server with the database.
    fn compare(&self, rows: &str) {
        let truth: Vec<u64> = rows.lines().map(|row| row.parse().unwrap()).collect();
        for server in (0..SERVERS).filter(|server| *server != self.dead) {
            for (row, newest) in (0..rows::KEYS).zip(&truth) {
                let value = self.value(server, row);
                assert!(
                    value.is_none_or(|value| value == *newest),
                    "item:{row} at server {server} is {value:?}, and in the database {newest}"
                );
            }
        }
    }
}

/// A database with TLS, and the lines of its source. The available MySQL 8.0.15 shares no cipher
/// with the invalidator, and is reached without TLS.
fn secured(brand: Option<Brand>, files: &Certificates) -> (Database, String) {
    let (cert, key) = (files.path("server.crt"), files.path("server.key"));
    let verified = format!("verify-full\"\nsslrootcert = \"{}", files.path("ca.crt"));
    let (database, mode) = match brand {
        Some(brand) if !brand.has_tls() => (Database::mysql(), "disable"),
        Some(brand) => {
            let own = [format!("--ssl-cert={cert}"), format!("--ssl-key={key}")];
            let fast = ["--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0"];
            let flags = [&fast[..], &[own[0].as_str(), own[1].as_str()]].concat();
            (Database::Mysqld(Mysqld::start(brand, 1, &flags)), verified.as_str())
        }
        None => {
            let database = Postgres::start_with_tls(cert.as_ref(), key.as_ref(), &[]);
            (Database::Postgres(database), verified.as_str())
        }
    };
    let source = format!("{}\nsslmode = \"{mode}\"", database.source());
    (database, source)
}

struct Fleet {
    database: Arc<RwLock<Database>>,
    cluster: Cluster,
    both: [Invalidator; 2],
    shared: Arc<Shared>,
    threads: usize,
}

impl Fleet {
    fn worker(&self) -> usize {
        usize::from(self.both[0].stat("working") != Some(1))
    }

    fn happen(&mut self, trouble: Trouble, rng: &mut Rng) {
        let pause = Duration::from_millis(rng.next_u64() % 150);
        let worker = self.worker();
        match trouble {
            Trouble::Worker | Trouble::Standby => {
                let at = if matches!(trouble, Trouble::Worker) { worker } else { 1 - worker };
                self.both[at].kill();
                thread::sleep(pause);
                self.both[at].spawn(&[]);
            }
            Trouble::Still => {
                self.both[worker].signal(Signal::STOP);
                thread::sleep(pause * 3);
                self.both[worker].signal(Signal::CONT);
            }
            Trouble::Router(at) => self.cluster.routers[at].kill_and_restart(pause),
            Trouble::Server => {
                let at = (self.cluster.dead + 1 + rng.below(SERVERS - 1)) % SERVERS;
                self.cluster.servers[at].kill_and_restart(pause);
            }
            Trouble::Database => self.database.write().unwrap().kill_and_restart(pause),
            Trouble::Connection => self.database.read().unwrap().kill_followers(),
        }
    }

    /// Waits until earlier changes have reached every living server.
    fn settle(&self, version: u64) {
        let end = Instant::now() + Duration::from_secs(120);
        let until = |what: &str, is_so: &dyn Fn() -> bool| {
            while !is_so() {
                let logs = || format!("{}\n{}", self.both[0].log(), self.both[1].log());
                assert!(Instant::now() < end, "{what}:\n{}", logs());
                thread::sleep(Duration::from_millis(10));
            }
        };
        let row = rows::KEYS;
        let mut wire = Wire::connect(self.cluster.servers[self.cluster.holder].address);
        wire.expect(format!("set item:{row} 0 0 1\r\n1\r\n").as_bytes(), b"STORED\r\n");
        let update = format!("UPDATE items SET v = {version} WHERE id = {row}");
        // The trouble may cut this connection.
        let changed = || self.database.read().unwrap().session().run(&update).is_some();
        until("the mark is not written", &changed);
        until("the mark stays", &|| self.cluster.value(self.cluster.holder, row).is_none());
        nothing_waits(&self.both, 1);
        until("nobody waits", &|| self.both.iter().any(|one| one.stat("working") == Some(0)));
    }

    /// The number of times that either invalidator started to work.
    fn turns(&self) -> usize {
        let turns = |one: &Invalidator| one.log().matches("this invalidator works for").count();
        self.both.iter().map(turns).sum()
    }

    /// Pauses the load, and judges its history. Returns the number of reads, and the age in
    /// milliseconds of values that had been replaced more than a second before.
    fn judged(&self, version: u64) -> (usize, Vec<u64>) {
        self.shared.pause(self.threads);
        self.settle(version);
        let delivered = self.shared.now();
        self.cluster.compare(&self.database.read().unwrap().sql(rows::ALL));
        let writes = self.shared.writes.lock().unwrap().clone();
        let reads = std::mem::take(&mut *self.shared.reads.lock().unwrap());
        let verdict = judge(&writes, &reads, delivered);
        assert_consistent(&verdict);
        let late: Vec<_> =
            verdict.stale_ns.iter().map(|age| age / 1_000_000).filter(|ms| *ms > 1000).collect();
        (verdict.stale_ns.len(), late)
    }
}

fn campaign(brand: Option<Brand>) {
    let seed = seed_from_env();
    let mut rng = Rng::new(seed);
    let files = Certificates::new();
    let (database, source) = secured(brand, &files);
    let name = brand.map_or("postgresql", Brand::name);
    database.make("items", rows::KEYS + 1);
    let keys = format!("[keys.tables]\n\"{}\" = \"item:{{id}}\"", database.table("items"));
    let cluster = Cluster::start(&files);
    let mut both = pair_of(source, &keys, &[], &cluster.lines(&files), true);
    let [first, second] = &mut both;
    first.start(&[]);
    wait_as_second(first, second);
    let database = Arc::new(RwLock::new(database));
    let shared = Shared::new();
    let session = sessions(&database);
    let threads = rows::start(&shared, &session, &cluster.addresses(), seed, Duration::ZERO);
    let mut fleet = Fleet { database, cluster, both, shared, threads: threads.len() };
    let (mut read, mut late, mut takeovers) = (0, 0, 0);
    let rounds = rounds(TROUBLES.len() as u64);
    for round in 0..rounds {
        fleet.shared.go_on();
        thread::sleep(Duration::from_millis(50 + rng.next_u64() % 150));
        let turn = usize::try_from(round).unwrap();
        let trouble = TROUBLES.get(turn).unwrap_or_else(|| rng.pick(&TROUBLES));
        fleet.happen(*trouble, &mut rng);
        thread::sleep(Duration::from_millis(rng.next_u64() % 150));
        fleet.judged(10_000_000 + round * 2);
        // From here, only the dead server fails.
        let turns = fleet.turns();
        fleet.shared.go_on();
        thread::sleep(Duration::from_millis(1200));
        let (reads, stale) = fleet.judged(10_000_001 + round * 2);
        // An invalidator that lost the lock may notice it only now, and none works while the other
        // starts.
        let changed = fleet.turns() != turns;
        if !stale.is_empty() {
            let turn = if changed { ", in a takeover" } else { "" };
            println!("{name}: in round {round}, after {trouble:?}{turn}: ages of {stale:?} ms");
        }
        takeovers += usize::from(changed);
        (read, late) = (read + reads, late + stale.len());
        if round % 10 == 9 {
            println!("{name}, SEED={seed}: {} rounds, 0 stale; {late} of {read} late", round + 1);
        }
    }
    fleet.shared.end();
    for thread in threads {
        thread.join().unwrap();
    }
    let written = fleet.shared.written.load(Ordering::Relaxed);
    println!(
        "{name}, SEED={seed}: {rounds} rounds, {written} writes, 0 stale; beside the dead server {late} of \
         {read} reads of a value replaced more than a second before, and {takeovers} rounds with a takeover"
    );
    assert!(written > 100 && read > 100, "the load did nothing");
    assert!(env::var_os("KILLS").is_none() || late == 0, "old values were read");
}

#[test]
fn kills_next_to_a_dead_server_leave_no_stale_value_of_mariadb() {
    campaign(Some(Brand::MariaDb));
}

#[test]
fn kills_next_to_a_dead_server_leave_no_stale_value_of_mysql() {
    campaign(Some(Brand::MySql));
}

#[test]
fn kills_next_to_a_dead_server_leave_no_stale_value_of_postgresql() {
    campaign(None);
}
