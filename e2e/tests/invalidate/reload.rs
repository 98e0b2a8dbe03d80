//! SIGHUP with configurations that a new process could not use, or that would lose changes: the
//! invalidator reports them and continues as it was.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use e2e::invalidator::Invalidator;
use rustix::process::Signal;
use testkit::{FaultProxy, Mode, Server, eventually};

use crate::database::Database;
use crate::harness::{cache, fill, until_absent};

const STAYS: &str = "SIGHUP: the configuration stays as it was: ";

/// Sends SIGHUP with this edit of the configuration, which must be refused for a reason that
/// contains `why`, and undoes the edit.
#[track_caller]
fn refused(invalidator: &mut Invalidator, edit: impl Fn(&str) -> String, why: &str) {
    let good = invalidator.configuration();
    let wrong = edit(&good);
    assert_ne!(good, wrong, "{why}");
    let (before, pid) = (invalidator.log().len(), invalidator.pid());
    invalidator.set_configuration(&wrong);
    invalidator.signal(Signal::HUP);
    eventually(why, || invalidator.log()[before..].contains("SIGHUP: "));
    // A process that replaces itself would end by now.
    thread::sleep(Duration::from_millis(300));
    assert!(invalidator.is_running(), "{why}: it ended:\n{}", invalidator.log());
    let said = invalidator.log()[before..].to_owned();
    assert!(said.contains(STAYS) && said.contains(why), "{why}: {said}");
    assert_eq!(invalidator.pid(), pid);
    invalidator.set_configuration(&good);
}

/// A change is deleted, and SIGHUP with a usable configuration is obeyed.
fn works(invalidator: &Invalidator, database: &Database, server: &Server) {
    let all = ["item:0", "item:1"];
    fill(server, &all);
    database.sql("UPDATE items SET v = v + 1 WHERE id = 0");
    until_absent(server, &all, &all[..1], invalidator);
    let before = invalidator.log().len();
    invalidator.signal(Signal::HUP);
    let log = || invalidator.log()[before..].to_owned();
    eventually("a new process", || log().contains("reading from"));
    assert!(log().contains("restarting with the new configuration"), "{}", log());
    invalidator.until("source_connected", |value| value == 1);
    database.sql("UPDATE items SET v = v + 1 WHERE id = 1");
    until_absent(server, &all, &all, invalidator);
}

fn keys(database: &Database) -> String {
    format!("[keys.tables]\n\"{}\" = \"item:{{id}}\"", database.table("items"))
}

fn replace(from: &str, to: &str) -> impl Fn(&str) -> String {
    move |text| text.replacen(from, to, 1)
}

#[test]
fn what_a_new_process_would_refuse_changes_nothing() {
    let database = Database::maria_db();
    database.make("items", 2);
    let server = cache();
    let mut invalidator =
        Invalidator::new(&database.source(), &keys(&database), &[server.addr()], "");
    invalidator.start(&[]);
    invalidator.until("checkpoints", |value| value > 0);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_at = taken.local_addr().unwrap().to_string();
    let status = invalidator.status.to_string();
    let tls = "server_id = 4001\nsslmode = \"verify-full\"\nsslrootcert = \"/nonexistent.pem\"";
    let top = |line: &str| format!("{line}\n[source]");
    for (from, to, why) in [
        ("shop.items", "shop.nosuch", "shop.nosuch"),
        ("{id}", "{nope}", "'nope'"),
        ("\"secret\"", "\"other\"", "Access denied"),
        ("server_id = 4001", tls, "/nonexistent.pem"),
        ("server_id = 4001", "server_id = 4001\nname = \"x\"", "not of 'x'"),
        ("kind = \"mariadb\"", "kind = \"mysql\"", "source.kind"),
        ("/checkpoint\"", "/other\"", "other does not exist"),
        ("[source]", &top("otlp = \"nonsense\""), "nonsense"),
        ("[source]", &top("spool = \"/proc/x\""), "/proc/x"),
        (&status, &taken_at, "cannot listen on"),
    ] {
        refused(&mut invalidator, replace(from, to), why);
    }
    works(&invalidator, &database, &server);
}

#[test]
fn what_postgresql_would_refuse_changes_nothing() {
    let database = Database::postgres();
    database.make("items", 2);
    let server = cache();
    let mut invalidator =
        Invalidator::new(&database.source(), &keys(&database), &[server.addr()], "");
    invalidator.start(&[]);
    invalidator.until("checkpoints", |value| value > 0);
    for (from, to, why) in [
        ("public.items", "public.nosuch", "public.nosuch"),
        ("\"secret\"", "\"other\"", "password authentication failed"),
        ("database = \"shop\"", "database = \"nosuch\"", "nosuch"),
        ("publication = \"cached\"", "publication = \"nosuch\"", "publication nosuch"),
        ("slot = \"holdall\"", "slot = \"nosuch\"", "slot nosuch is gone"),
    ] {
        refused(&mut invalidator, replace(from, to), why);
    }
    works(&invalidator, &database, &server);
}

/// Deletes for an unavailable cluster are on the disk or, without a disk, still in memory.
fn nothing_is_left_behind(delivery: &str, edits: &[(&str, &str, &str)]) {
    let database = Database::maria_db();
    database.make("items", 2);
    let server = cache();
    let path = FaultProxy::before(server.addr());
    let all = ["item:0", "item:1"];
    fill(&server, &all);
    path.set(Mode::Refuse);
    let delivery = format!("[delivery]\naway_after_ms = 100\n{delivery}");
    let mut invalidator =
        Invalidator::new(&database.source(), &keys(&database), &[path.addr()], &delivery);
    invalidator.start(&[]);
    invalidator.until("checkpoints", |value| value > 0);
    // Memory moves to the disk when it is full.
    database.sql(&"UPDATE items SET v = v + 1;".repeat(5));
    let waits = if delivery.contains("spool_bytes_max") { "waiting" } else { "spool_records" };
    invalidator.until(&format!("cluster:c0:{waits}"), |value| value > 0);
    for (from, to, why) in edits {
        refused(&mut invalidator, replace(from, to), why);
    }
    path.set(Mode::Open);
    until_absent(&server, &all, &all, &invalidator);
}

#[test]
fn deletes_on_the_disk_are_not_left_behind() {
    nothing_is_left_behind(
        "window_keys = 3",
        &[
            ("name = \"c0\"", "name = \"d\"", "no cluster has the name 'c0'"),
            ("[source]", "spool = \"/tmp/holdall-moved\"\n[source]", "move the folder there"),
            ("/checkpoint\"", "/other\"", "other does not exist"),
            ("away_after_ms = 100", "spool_bytes_max = 0", "spool_bytes_max is 0"),
        ],
    );
}

#[test]
fn deletes_in_memory_are_not_left_behind() {
    nothing_is_left_behind(
        "spool_bytes_max = 0",
        &[("/checkpoint\"", "/other\"", "other does not exist")],
    );
}
