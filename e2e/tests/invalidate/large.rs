//! Transactions larger than the memory limit: every key is deleted, in order and in bounded memory,
//! even if the process ends half-way.
//!
//! `LARGE` is the number of keys of such a transaction.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::Invalidator;
use processes::usage;
use testkit::{FaultProxy, Mode, Server};

use crate::database::Database;
use crate::harness::{absent, cache, fill};

/// Memory for about 80 keys, and a window of a few parts of a file.
const DELIVERY: &str = "[delivery]\ntransaction_bytes_max = 10000\nwindow_keys = 40000";

fn rows() -> u64 {
    env::var("LARGE").map_or(150_000, |text| text.parse().expect("LARGE is a number"))
}

/// Commits one transaction that inserts rows 0 to `rows`, whose last row is its last change.
fn insert(database: &Database, rows: u64) {
    let mut statements = "BEGIN; INSERT INTO items VALUES (0, 0)".to_owned();
    let mut done = 1;
    while done < rows {
        let more = done.min(rows - done);
        statements += &format!(
            "; INSERT INTO items SELECT id + {done}, 0 FROM items WHERE id < {more} ORDER BY id"
        );
        done += more;
    }
    database.sql(&(statements + "; COMMIT"));
}

/// One key in a thousand, and the last one.
fn sampled(rows: u64) -> Vec<String> {
    let last = rows - 1;
    (0..last).step_by(1000).chain([last]).map(|id| format!("item:{id}")).collect()
}

struct World {
    database: Database,
    server: Server,
    /// The connection between the invalidator and the server.
    link: FaultProxy,
    invalidator: Invalidator,
    names: Vec<String>,
}

impl World {
    fn start(database: Database, delivery: &str) -> Self {
        database.make("items", 0);
        let server = cache();
        let link = FaultProxy::before(server.addr());
        let keys = format!("[keys.tables]\n\"{}\" = \"item:{{id}}\"", database.table("items"));
        let delivery = format!("{DELIVERY}\n{delivery}");
        let mut invalidator =
            Invalidator::new(&database.source(), &keys, &[link.addr()], &delivery);
        invalidator.start(&[]);
        let names = sampled(rows());
        let world = Self { database, server, link, invalidator, names };
        fill(&world.server, &world.names());
        world
    }

    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    fn gone(&self) -> usize {
        absent(&self.server, &self.names()).len()
    }

    fn until_all_gone(&self) {
        let end = Instant::now() + Duration::from_secs(300);
        while self.gone() < self.names.len() {
            assert!(Instant::now() < end, "{} gone:\n{}", self.gone(), self.invalidator.log());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The process is killed after the first deletes: a restart repeats them, and sends all others.
fn survives_a_kill(name: &str, database: Database) {
    let mut world = World::start(database, "away_after_ms = 600000");
    world.link.set(Mode::Refuse);
    insert(&world.database, rows());
    world.invalidator.until("transactions_on_disk", |count| count == 1);
    world.link.set(Mode::Slow(Duration::from_millis(50)));
    let end = Instant::now() + Duration::from_secs(60);
    while world.gone() == 0 {
        assert!(Instant::now() < end, "{name}: nothing is deleted:\n{}", world.invalidator.log());
        thread::sleep(Duration::from_millis(2));
    }
    world.invalidator.kill();
    let gone = absent(&world.server, &world.names());
    assert!(gone.len() < world.names.len(), "{name}: nothing was left to do");
    assert_eq!(gone, world.names[..gone.len()], "{name}: not in order");
    world.link.set(Mode::Open);
    fill(&world.server, &world.names()[..1]);
    world.invalidator.start(&[]);
    world.until_all_gone();
    world.invalidator.until("checkpoints", |count| count > 0);
    assert_eq!(world.invalidator.stat("gaps"), Some(0), "{name}");
    assert!(world.invalidator.stat("keys") >= Some(rows()), "{name}");
}

/// The keys go to the disk queue of an unavailable cluster, and a restart finds them there.
fn waits_for_a_cluster(name: &str, database: Database) {
    let mut world = World::start(database, "away_after_ms = 20");
    let before = usage::peak_rss_bytes(world.invalidator.pid().unwrap()).unwrap();
    world.link.set(Mode::Refuse);
    insert(&world.database, rows());
    world.invalidator.until("cluster:c0:spooled", |keys| keys >= rows());
    let after = usage::peak_rss_bytes(world.invalidator.pid().unwrap()).unwrap();
    let more = after - before;
    println!("{name}: {} keys, {} KiB more", rows(), more >> 10);
    assert!(more < 16 << 20, "{name}: {more} bytes more are held than before");
    assert_eq!(world.gone(), 0, "{name}");
    world.invalidator.kill();
    world.link.set(Mode::Open);
    world.invalidator.start(&[]);
    world.until_all_gone();
    // Later changes are read in order.
    fill(&world.server, &["item:7"]);
    world.database.sql("UPDATE items SET v = 1 WHERE id = 7");
    world.names = vec!["item:7".to_owned()];
    world.until_all_gone();
    assert_eq!(world.invalidator.stat("gaps"), Some(0), "{name}");
}

#[test]
fn a_large_mariadb_transaction_survives_a_kill() {
    survives_a_kill("mariadb", Database::maria_db());
}

#[test]
fn a_large_mysql_transaction_survives_a_kill() {
    survives_a_kill("mysql", Database::mysql());
}

#[test]
fn a_large_postgresql_transaction_survives_a_kill() {
    survives_a_kill("postgresql", Database::postgres());
}

#[test]
fn a_large_transaction_is_queued_on_disk_for_an_unavailable_cluster() {
    for (name, make) in Database::BOTH {
        waits_for_a_cluster(name, make());
    }
}

#[test]
fn a_large_transaction_without_a_disk_queue_is_a_gap() {
    let database = Database::maria_db();
    let mut world = World::start(database, "spool_bytes_max = 0");
    insert(&world.database, 1000);
    let said = world.invalidator.ended();
    assert!(said.contains("there is no disk for them (spool_bytes_max = 0)"), "{said}");
}
