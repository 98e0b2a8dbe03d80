//! Whatever happens, no cache keeps an old value: under load, processes including the database are
//! killed by `kill -9`, or another of the `troubles` occurs. `testkit::staleness` judges the
//! history, and after every round each cache is compared with the database.
//!
//! `KILLS` is the number of rounds of each database (each trouble once without it), `SEED` repeats
//! the choices.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use e2e::invalidator::Invalidator;
use e2e::rows::{self, Shared};
use testkit::Rng;
use testkit::database::Brand;
use testkit::rng::seed_from_env;
use testkit::stale_reads::{assert_consistent, fresh_within};
use testkit::staleness::judge;

use crate::cut::{Faults, relay};
use crate::database::{Database, sessions};
use crate::harness::Process;
use crate::troubles::{self, Trouble};

pub(crate) fn rounds(default: u64) -> u64 {
    env::var("KILLS").map_or(default, |text| text.parse().expect("KILLS is a number"))
}

/// Two clusters: a server, and a proxy before two servers.
pub(crate) struct Clusters {
    servers: Vec<Process>,
    proxy: Process,
    config: std::path::PathBuf,
}

impl Clusters {
    pub(crate) fn start() -> Self {
        let serve = ["serve", "-U", "0", "-t", "1", "-m", "64", "-o", "lease_interval=0"];
        let servers: Vec<Process> = (0..3).map(|_| Process::start(&serve)).collect();
        // Campaigns of several databases run in parallel.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("invalidate-kills-{}-{turn}.json", std::process::id());
        let config = env::temp_dir().join(name);
        let pool = format!(r#"["{}", "{}"]"#, servers[1].address, servers[2].address);
        fs::write(
            &config,
            format!(r#"{{"pools": {{"A": {{"servers": {pool}}}}}, "route": "PoolRoute|A"}}"#),
        )
        .unwrap();
        let path = config.display().to_string();
        let proxy =
            Process::start(&["route", "--num-proxies", "1", "--enable-flush-cmd", "-f", &path]);
        Self { servers, proxy, config }
    }

    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        [self.servers[0].address, self.proxy.address]
    }
}

impl Drop for Clusters {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.config);
    }
}

#[test]
fn kills_leave_no_stale_value_of_mariadb() {
    println!("{}", campaign(Database::maria_db()));
}

#[test]
fn kills_leave_no_stale_value_of_mysql() {
    println!("{}", campaign(Database::mysql()));
}

#[test]
fn kills_leave_no_stale_value_of_postgresql() {
    println!("{}", campaign(Database::postgres()));
}

struct World {
    database: Arc<RwLock<Database>>,
    clusters: Clusters,
    invalidator: Invalidator,
    /// The invalidator's configuration: source, keys, delivery.
    lines: [String; 3],
    troubles: Vec<Trouble>,
    faults: Faults,
    shared: Arc<Shared>,
}

/// Returns a summary of the run.
fn campaign(database: Database) -> String {
    let seed = seed_from_env();
    let mut rng = Rng::new(seed);
    database.make("items", rows::KEYS + 1);
    let clusters = Clusters::start();
    let keys = format!("[keys.tables]\n\"{}\" = \"item:{{id}}\"", database.table("items"));
    // With so small a window, a cluster that is briefly down sends its deletes to the disk.
    let delivery = "[delivery]\nwindow_keys = 30\naway_after_ms = 20\non_gap = \"flush\"";
    let troubles = troubles::of(&database);
    let faults = Faults::default();
    let mut source = database.source();
    if database.brand() == Some(Brand::MariaDb) {
        let relayed = relay(database.addr(), &faults);
        source = source.replace(&database.addr().to_string(), &relayed.to_string());
    }
    let lines = [source, keys, delivery.to_owned()];
    let [source, keys, delivery] = &lines;
    let invalidator = Invalidator::new(source, keys, &clusters.addresses(), delivery);
    let database = Arc::new(RwLock::new(database));
    let shared = Shared::new();
    let mut world = World { database, clusters, invalidator, lines, troubles, faults, shared };
    world.invalidator.start(&[]);
    let session = sessions(&world.database);
    let threads =
        rows::start(&world.shared, &session, &world.clusters.addresses(), seed, Duration::ZERO);
    let mut last = None;
    let rounds = rounds(world.troubles.len() as u64);
    for round in 0..rounds {
        world.shared.go_on();
        thread::sleep(Duration::from_millis(50 + rng.next_u64() % 150));
        world.trouble(round, &mut rng);
        thread::sleep(Duration::from_millis(rng.next_u64() % 150));
        world.shared.pause(threads.len());
        world.settle(round);
        let delivered = world.shared.now();
        world.look_at_all();
        // Each round is judged separately: versions before it count as written.
        let (writes, reads) = (
            world.shared.writes.lock().unwrap().clone(),
            std::mem::take(&mut *world.shared.reads.lock().unwrap()),
        );
        let verdict = judge(&writes, &reads, delivered);
        assert_consistent(&verdict);
        last = Some((fresh_within(&verdict, 1_000_000_000), verdict.stale_ns.len()));
    }
    world.shared.end();
    for thread in threads {
        thread.join().unwrap();
    }
    let written = world.shared.written.load(Ordering::Relaxed);
    assert!(written > 100, "the load did nothing");
    let log = world.invalidator.log();
    let said = |words: &str| log.matches(words).count();
    println!(
        "the log's connection was lost {} times, and {} gaps were flushed",
        said("restarting from position"),
        said("every cluster is flushed")
    );
    format!(
        "{rounds} rounds, {written} writes, 0 stale; in the last round {last:?} (share of reads fresh within 1 s, reads)"
    )
}

impl World {
    fn trouble(&mut self, round: u64, rng: &mut Rng) {
        let pause = Duration::from_millis(rng.next_u64() % 150);
        // The first rounds cover each trouble once.
        let count = self.troubles.len() as u64;
        let turn = if round < count { round } else { rng.next_u64() % count };
        let trouble = self.troubles[usize::try_from(turn).unwrap()];
        let database = || self.database.read().unwrap();
        match trouble {
            Trouble::Invalidator => {
                self.invalidator.kill();
                thread::sleep(pause);
                self.invalidator.spawn(&[]);
            }
            Trouble::Server(number) => self.clusters.servers[number].kill_and_restart(pause),
            Trouble::Proxy => self.clusters.proxy.kill_and_restart(pause),
            Trouble::Connection => database().kill_followers(),
            Trouble::Database => self.database.write().unwrap().kill_and_restart(pause),
            Trouble::Slow(number) => self.clusters.servers[number].stand_still(pause * 3),
            Trouble::Statements(statements) => {
                // The load may make the statement fail, or the statement a request of the load.
                let _ = database().session().run(statements);
            }
            Trouble::Hole => troubles::leave_out(&database()),
            Trouble::Purged => {
                self.invalidator.kill();
                thread::sleep(pause);
                troubles::purge(&database());
                self.invalidator.spawn(&[]);
            }
            Trouble::Twin => {
                let [source, keys, delivery] = &self.lines;
                let mut twin = Invalidator::new(source, keys, &self.clusters.addresses(), delivery);
                twin.start(&[]);
                self.invalidator.ended();
                twin.kill();
                self.invalidator.spawn(&[]);
            }
            Trouble::Damage(kind, fault) => self.faults.lock().unwrap().push_back((kind, fault)),
        }
    }

    /// Waits until earlier changes have reached every cluster.
    fn settle(&self, round: u64) {
        let write = |statement: &str| drop(self.database.read().unwrap().sql(statement));
        rows::settle(&self.shared, &self.invalidator, &self.clusters.addresses(), round, &write);
    }

    /// Reads every key in every cluster, and compares it with the database.
    fn look_at_all(&self) {
        let rows = self.database.read().unwrap().sql(rows::ALL);
        self.shared.compare(&self.clusters.addresses(), &rows);
    }
}
