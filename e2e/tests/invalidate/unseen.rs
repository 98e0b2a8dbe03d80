//! A log that shows commits before other sessions see them: no key is deleted before readers can
//! see the change, and old values that they cache in the meantime are deleted after it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::Invalidator;
use testkit::Server;

use crate::database::Database;
use crate::harness::{absent, cache, fill, until_absent};

/// The time that a commit is only in the log: many times the delay after which deletes not seen to
/// be visible are repeated.
const HELD: Duration = Duration::from_millis(500);

const NAMES: [&str; 2] = ["item:0", "item:1"];

fn follow(database: &Database, server: &Server) -> Invalidator {
    database.make("items", 2);
    let keys = format!("[keys.tables]\n\"{}\" = \"item:{{id}}\"", database.table("items"));
    let mut invalidator = Invalidator::new(&database.source(), &keys, &[server.addr()], "");
    invalidator.start(&[]);
    invalidator
}

fn value(database: &Database, id: u32) -> String {
    database.sql(&format!("SELECT v FROM items WHERE id = {id}")).trim().to_owned()
}

/// Commits that wait for an unresponsive replica; no other session sees them until the wait ends.
#[test]
fn deletes_wait_until_the_change_is_visible() {
    for (name, make) in Database::BOTH {
        let database = make();
        let server = cache();
        let mut invalidator = follow(&database, &server);
        database.hold_commits();
        fill(&server, &NAMES);
        let mut session = database.session();
        let writer = thread::spawn(move || session.run("UPDATE items SET v = 100 WHERE id = 0"));
        invalidator.until("unseen_transactions", |count| count >= 1);
        thread::sleep(HELD);
        assert_eq!(value(&database, 0), "1", "{name}");
        assert_eq!(absent(&server, &NAMES), [""; 0], "{name}: what is cached is what readers see");
        if name == "postgresql" {
            // A commit that waits for no replica overtakes it.
            database.sql("SET synchronous_commit = local; UPDATE items SET v = 7 WHERE id = 1");
            until_absent(&server, &NAMES, &["item:1"], &invalidator);
        }
        // The position of a waiting commit is not saved.
        invalidator.kill();
        invalidator.start(&[]);
        invalidator.until("unseen_transactions", |count| count >= 1);
        fill(&server, &NAMES[..1]);
        database.release_commits();
        assert!(writer.join().unwrap().is_some(), "{name}: the commit was refused");
        let gone: &[&str] = if name == "postgresql" { &NAMES } else { &NAMES[..1] };
        until_absent(&server, &NAMES, gone, &invalidator);
        invalidator.until("unseen_transactions", |count| count == 0);
        assert_eq!(value(&database, 0), "100", "{name}");
    }
}

#[test]
fn deletes_of_prepared_transactions_wait_until_visible() {
    let database = Database::maria_db();
    let server = cache();
    let invalidator = follow(&database, &server);
    database.sql("XA START 'x'; UPDATE items SET v = 100 WHERE id = 0; XA END 'x'; XA PREPARE 'x'");
    database.hold_commits();
    fill(&server, &NAMES);
    let mut session = database.session();
    let writer = thread::spawn(move || session.run("XA COMMIT 'x'"));
    invalidator.until("unseen_transactions", |count| count >= 1);
    thread::sleep(HELD);
    assert_eq!(value(&database, 0), "1");
    assert_eq!(absent(&server, &NAMES), [""; 0]);
    database.release_commits();
    assert!(writer.join().unwrap().is_some(), "the commit was refused");
    until_absent(&server, &NAMES, &NAMES[..1], &invalidator);
}

/// A look-aside reader: a miss gives a lease, with which the database's value is stored. Without
/// leases, a reader delayed between the two could store a value that a delete has already passed.
fn read(database: &Database, server: &Server, stop: &AtomicBool) {
    let mut session = database.session();
    let mut wire = server.connect();
    while !stop.load(Ordering::Acquire) {
        wire.send(b"lease-get item:0\r\n");
        let line = wire.line();
        // The line of the hit, the block of the miss, and the end.
        wire.line();
        wire.line();
        let words: Vec<_> = line.split(' ').collect();
        if words[0] == "VALUE" || words[2] == "1" {
            continue;
        }
        let token = words[2];
        let row = session.run("SELECT v FROM items WHERE id = 0").unwrap().remove(0);
        let set = format!("lease-set item:0 {token} 0 0 {}\r\n{row}\r\n", row.len());
        wire.send(set.as_bytes());
        wire.line();
    }
}

/// Every commit is in MySQL's log for up to a second before others see it, while readers fill the
/// cache.
#[test]
fn values_cached_before_a_mysql_change_is_visible_are_deleted() {
    let database = Database::mysql();
    let server = cache();
    let invalidator = follow(&database, &server);
    database.sql("SET GLOBAL sync_binlog = 0; SET GLOBAL binlog_group_commit_sync_delay = 400000");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| read(&database, &server, &stop));
        for version in 100..105 {
            database.sql(&format!("UPDATE items SET v = {version} WHERE id = 0"));
        }
        stop.store(true, Ordering::Release);
    });
    let end = Instant::now() + Duration::from_secs(30);
    let cached = || {
        let mut wire = server.connect();
        wire.send(b"mg item:0 v\r\n");
        let line = wire.line();
        if line == "EN" { None } else { Some(wire.line()) }
    };
    while cached().is_some_and(|value| value != "104") {
        assert!(Instant::now() < end, "{:?} stays:\n{}", cached(), invalidator.log());
        thread::sleep(Duration::from_millis(20));
    }
}
