//! Two invalidators of one database: one works, the other waits, takes over, and loses nothing.
//!
//! `KILLS` is the number of rounds of each database (three without it), `SEED` repeats the choices.

use std::fs;
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::Invalidator;
use e2e::rows::{self, Shared};
use rustix::process::Signal;
use testkit::rng::seed_from_env;
use testkit::stale_reads::assert_consistent;
use testkit::staleness::judge;
use testkit::{FaultProxy, Mode, Rng, eventually};

use crate::database::{Database, sessions};
use crate::harness::{cache, fill, until_absent};
use crate::kills::{Clusters, rounds};

/// The constructors of each kind of database.
const DATABASES: [fn() -> Database; 3] = [Database::maria_db, Database::mysql, Database::postgres];

/// Two invalidators with the same configuration, except for the number that MariaDB and MySQL
/// require to differ; each knows the other's port if `are_peers`.
fn pair(
    database: &Database,
    clusters: &[std::net::SocketAddr],
    more: &str,
    are_peers: bool,
) -> [Invalidator; 2] {
    let keys = format!("[keys.tables]\n\"{}\" = \"item:{{id}}\"", database.table("items"));
    pair_of(database.source(), &keys, clusters, more, are_peers)
}

/// The same for other lines of the source and the keys.
pub(crate) fn pair_of(
    source: String,
    keys: &str,
    clusters: &[std::net::SocketAddr],
    more: &str,
    are_peers: bool,
) -> [Invalidator; 2] {
    let other = source.replace("server_id = 4001", "server_id = 4002");
    let both = [source, other].map(|source| Invalidator::new(&source, keys, clusters, more));
    for (own, other) in [(&both[0], &both[1]), (&both[1], &both[0])] {
        let peers = if are_peers { format!("\"{}\"", other.status) } else { String::new() };
        own.configure(&format!("[standby]\ngroup = \"shop\"\npeers = [{peers}]\n"));
    }
    both
}

/// The position in a checkpoint.
fn position(invalidator: &Invalidator) -> Option<String> {
    let text = fs::read_to_string(invalidator.checkpoint()).ok()?;
    text.lines().find_map(|line| line.strip_prefix("position ")).map(ToOwned::to_owned)
}

/// Starts the second one while the first works, and waits until it could take over.
pub(crate) fn wait_as_second(first: &Invalidator, second: &mut Invalidator) {
    second.spawn(&[]);
    second.until("working", |working| working == 0);
    let end = Instant::now() + Duration::from_secs(30);
    // It writes the position before it reports ready.
    let is_ready = |second: &Invalidator| second.page("/readyz").starts_with("HTTP/1.1 200");
    while position(second) != position(first) || !is_ready(second) {
        assert!(Instant::now() < end, "{:?}\n{}", position(second), second.log());
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_standby_takes_over_at_the_same_position() {
    for make in DATABASES {
        let database = make();
        database.make("items", 9);
        let server = cache();
        let [mut first, mut second] = pair(&database, &[server.addr()], "", true);
        let keys = ["item:1", "item:2", "item:3", "item:4", "item:5"];
        first.start(&[]);
        wait_as_second(&first, &mut second);
        assert_eq!((first.stat("working"), second.stat("source_connected")), (Some(1), Some(0)));
        let ready = second.page("/readyz");
        assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("standby"), "{ready}");
        assert!(second.page("/metrics").contains("\nholdall_invalidate_working 0\n"));
        fill(&server, &keys);
        database.sql("UPDATE items SET v = 0 WHERE id = 1");
        until_absent(&server, &keys, &keys[..1], &first);
        assert_eq!(second.stat("transactions"), Some(0), "it reads nothing");
        first.kill();
        let killed = Instant::now();
        database.sql("UPDATE items SET v = 0 WHERE id = 2");
        second.until("source_connected", |connected| connected == 1);
        println!("taken over {:?} after kill -9", killed.elapsed());
        until_absent(&server, &keys, &keys[..2], &second);
        assert_eq!(second.stat("working"), Some(1));
        // The first one takes over again.
        wait_as_second(&second, &mut first);
        database.sql("UPDATE items SET v = 0 WHERE id = 3");
        until_absent(&server, &keys, &keys[..3], &second);
        second.kill();
        database.sql("UPDATE items SET v = 0 WHERE id = 4");
        until_absent(&server, &keys, &keys[..4], &first);
    }
}

#[test]
fn a_stalled_invalidator_waits_after_a_takeover() {
    for make in [Database::maria_db, Database::postgres] {
        let database = make();
        database.make("items", 9);
        let server = cache();
        let [mut first, mut second] = pair(&database, &[server.addr()], "", true);
        let keys = ["item:1", "item:2", "item:3"];
        first.start(&[]);
        wait_as_second(&first, &mut second);
        fill(&server, &keys);
        first.signal(Signal::STOP);
        let stopped = Instant::now();
        database.sql("UPDATE items SET v = 0 WHERE id = 1");
        second.until("source_connected", |connected| connected == 1);
        println!("taken over {:?} after the first stood still", stopped.elapsed());
        until_absent(&server, &keys, &keys[..1], &second);
        first.signal(Signal::CONT);
        first.until("working", |working| working == 0);
        database.sql("UPDATE items SET v = 0 WHERE id = 2");
        until_absent(&server, &keys, &keys[..2], &second);
        assert!(first.log().contains("another invalidator of group shop"), "{}", first.log());
    }
}

#[test]
fn a_standby_without_the_position_reports_it() {
    for make in DATABASES {
        let database = make();
        database.make("items", 9);
        let server = cache();
        let [mut first, mut second] = pair(&database, &[server.addr()], "", false);
        first.start(&[]);
        second.spawn(&[]);
        second.until("working", |working| working == 0);
        let ready = second.page("/readyz");
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("not known"), "{ready}");
        eventually("it waits", || second.log().contains("this one waits"));
        first.kill();
        let said = second.ended();
        assert!(said.contains("how far it came is not known"), "{said}");
    }
}

/// Waits until nobody reads the slot.
fn until_slot_is_free(database: &Database) {
    let is_free = "SELECT bool_and(NOT active) FROM pg_replication_slots";
    eventually("the slot is free", || database.sql(is_free).trim() == "t");
}

/// A new connection, or a new process, starts to read after deletes that wait in memory or on the
/// disk. Only the slot has their place in the log.
#[test]
fn a_new_connection_confirms_no_waiting_deletes() {
    for is_on_disk in [false, true] {
        let database = Database::postgres();
        database.make("items", 9);
        let server = cache();
        let way = FaultProxy::before(server.addr());
        let more = if is_on_disk { "[delivery]\nwindow_keys = 2\naway_after_ms = 20" } else { "" };
        let [mut first, mut second] = pair(&database, &[way.addr()], more, true);
        let keys = ["item:1", "item:2", "item:3", "item:4", "item:5", "item:6"];
        first.start(&[]);
        fill(&server, &keys);
        if !is_on_disk {
            wait_as_second(&first, &mut second);
        }
        way.set(Mode::Refuse);
        for id in 1..=6 {
            database.sql(&format!("UPDATE items SET v = 0 WHERE id = {id}"));
        }
        if is_on_disk {
            let before = position(&first);
            first.until("cluster:c0:spool_records", |count| count >= 4);
            eventually("the checkpoint passes them", || position(&first) != before);
            first.kill();
            until_slot_is_free(&database);
            first.start(&[]);
        } else {
            first.until("cluster:c0:waiting", |count| count == 6);
            database.kill_followers();
            first.until("source_connects", |count| count > 1);
        }
        let reported = "SELECT count(reply_time) FROM pg_stat_replication";
        eventually("a report to the server", || database.sql(reported).trim() == "1");
        first.kill();
        way.set(Mode::Open);
        if is_on_disk {
            second.spawn(&[]);
        }
        until_absent(&server, &keys, &keys, &second);
        assert_eq!(second.stat("gaps"), Some(0), "{}", second.log());
    }
}

#[test]
fn a_vanished_or_new_slot_is_a_gap_for_the_waiting_invalidator() {
    for (is_made, flushes) in [(false, false), (true, false), (true, true)] {
        let database = Database::postgres();
        database.make("items", 9);
        let server = cache();
        let more = if flushes { "[delivery]\non_gap = \"flush\"" } else { "" };
        let [mut first, mut second] = pair(&database, &[server.addr()], more, true);
        first.start(&[]);
        wait_as_second(&first, &mut second);
        second.signal(Signal::STOP);
        first.kill();
        until_slot_is_free(&database);
        let keys = ["item:1", "item:2"];
        fill(&server, &keys);
        database.sql("UPDATE items SET v = 0 WHERE id = 1");
        database.sql("SELECT pg_drop_replication_slot('holdall')");
        if is_made {
            database.sql("SELECT pg_create_logical_replication_slot('holdall', 'pgoutput')");
        }
        second.signal(Signal::CONT);
        if flushes {
            until_absent(&server, &keys, &keys, &second);
            assert_eq!(second.stat("gaps"), Some(1), "{}", second.log());
        } else {
            let said = second.ended();
            let why =
                if is_made { "slot holdall was created after" } else { "slot holdall is gone" };
            assert!(said.contains(why), "{said}");
        }
    }
}

/// The standby does not know how far the worker came, but the slot is the same.
#[test]
fn a_slot_that_the_worker_moved_is_no_gap() {
    let database = Database::postgres();
    database.make("items", 9);
    let server = cache();
    let [mut first, mut second] = pair(&database, &[server.addr()], "", true);
    let keys = ["item:1", "item:2", "item:3"];
    first.start(&[]);
    // The slot cannot pass its begin, at which it is still known to the standby.
    let mut open = database.session();
    open.run("BEGIN; INSERT INTO items VALUES (100, 0)").unwrap();
    wait_as_second(&first, &mut second);
    fill(&server, &keys);
    second.signal(Signal::STOP);
    database.sql("UPDATE items SET v = 0 WHERE id = 1");
    until_absent(&server, &keys, &keys[..1], &first);
    let known = position(&second).unwrap();
    let known = known.rsplit_once(':').unwrap().1.split('@').next().unwrap();
    let moved = format!("SELECT confirmed_flush_lsn > '{known}' FROM pg_replication_slots");
    eventually("the slot moves", || database.sql(&moved).trim() == "t");
    first.kill();
    second.signal(Signal::CONT);
    database.sql("UPDATE items SET v = 0 WHERE id = 2");
    until_absent(&server, &keys, &keys[..2], &second);
    assert_eq!(second.stat("gaps"), Some(0), "{}", second.log());
}

#[test]
fn kills_of_either_invalidator_leave_no_stale_value() {
    thread::scope(|scope| {
        for make in DATABASES {
            scope.spawn(move || campaign(make()));
        }
    });
}

/// Waits until the working invalidator has sent the deletes on its disk.
pub(crate) fn nothing_waits(both: &[Invalidator; 2], clusters: usize) {
    let end = Instant::now() + Duration::from_secs(60);
    let is_sent = |one: &Invalidator| {
        (0..clusters).all(|cluster| {
            ["waiting", "spool_records"]
                .iter()
                .all(|name| one.stat(&format!("cluster:c{cluster}:{name}")) == Some(0))
        })
    };
    while !both.iter().any(|one| one.stat("working") == Some(1) && is_sent(one)) {
        assert!(Instant::now() < end, "deletes wait:\n{}\n{}", both[0].log(), both[1].log());
        thread::sleep(Duration::from_millis(20));
    }
}

/// The working invalidator is killed or stalls, round after round, under load.
fn campaign(database: Database) {
    let seed = seed_from_env();
    let mut rng = Rng::new(seed);
    database.make("items", rows::KEYS + 1);
    let clusters = Clusters::start();
    // Each has its own disk queue.
    let more = "[delivery]\nwindow_keys = 30\naway_after_ms = 20";
    let mut both = pair(&database, &clusters.addresses(), more, true);
    let [first, second] = &mut both;
    first.start(&[]);
    wait_as_second(first, second);
    let database = Arc::new(RwLock::new(database));
    let shared = Shared::new();
    let session = sessions(&database);
    let threads = rows::start(&shared, &session, &clusters.addresses(), seed, Duration::ZERO);
    let rounds = rounds(3);
    for round in 0..rounds {
        shared.go_on();
        thread::sleep(Duration::from_millis(50 + rng.next_u64() % 300));
        let at = usize::from(both[0].stat("working") != Some(1));
        if rng.one_in(4) {
            both[at].signal(Signal::STOP);
            thread::sleep(Duration::from_millis(rng.next_u64() % 200));
            both[at].signal(Signal::CONT);
        } else {
            both[at].kill();
            thread::sleep(Duration::from_millis(rng.next_u64() % 200));
            both[at].spawn(&[]);
        }
        thread::sleep(Duration::from_millis(rng.next_u64() % 300));
        shared.pause(threads.len());
        let write = |statement: &str| drop(database.read().unwrap().sql(statement));
        rows::settle(&shared, &both[1 - at], &clusters.addresses(), round, &write);
        // The killed invalidator may work again and have deleted the mark, with older deletes still
        // on its disk.
        nothing_waits(&both, clusters.addresses().len());
        let delivered = shared.now();
        let truth = database.read().unwrap().sql(rows::ALL);
        shared.compare(&clusters.addresses(), &truth);
        let writes = shared.writes.lock().unwrap().clone();
        let reads = std::mem::take(&mut *shared.reads.lock().unwrap());
        assert_consistent(&judge(&writes, &reads, delivered));
        // The victim of the next round has a standby.
        let waits = |one: &Invalidator| one.stat("working") == Some(0);
        let end = Instant::now() + Duration::from_secs(30);
        while !both.iter().any(waits) {
            assert!(Instant::now() < end, "nobody waits:\n{}\n{}", both[0].log(), both[1].log());
            thread::sleep(Duration::from_millis(20));
        }
    }
    shared.end();
    for thread in threads {
        thread.join().unwrap();
    }
    println!("{rounds} rounds, 0 stale");
}
