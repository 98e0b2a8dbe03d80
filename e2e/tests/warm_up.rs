//! A cold cluster that is filled from a warm one (`WarmUpRoute` with leases) keeps no deleted
//! value, however late any message is: each test uses fault proxies, which delay replies or close
//! connections, to force the order of events that would leave an old value.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use testkit::{FaultProxy, Kind, Launch, Mode, Router, Server, Wire, eventually};

/// An unavailable server is detected and probed quickly.
const QUICK: [&str; 4] = ["-r", "10", "--probe-timeout-max", "20"];

/// Two servers behind fault proxies, and the proxy that fills one from the other.
struct Rig {
    warm: Server,
    cold: Server,
    warm_fault_proxy: FaultProxy,
    cold_fault_proxy: FaultProxy,
    proxy: Router,
    spool: PathBuf,
}

impl Rig {
    fn new(args: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let spool = env::temp_dir().join(format!("warm-up-{}-{turn}", std::process::id()));
        let [warm, cold] = [0, 1].map(|_| Launch::new(Kind::Holdall).start());
        let [warm_fault_proxy, cold_fault_proxy] =
            [&warm, &cold].map(|server| FaultProxy::before(server.addr()));
        let config = format!(
            r#"{{"pools": {{"cold": {{"servers": ["{}"]}}, "warm": {{"servers": ["{}"]}}}},
                "route": {{"type": "WarmUpRoute", "cold": "PoolRoute|cold", "warm": "PoolRoute|warm", "leases": true}}}}"#,
            cold_fault_proxy.addr(),
            warm_fault_proxy.addr()
        );
        let kept = ["-a", spool.to_str().unwrap()];
        let args: Vec<&str> = QUICK.iter().chain(&kept).chain(args).copied().collect();
        let proxy = Router::start(&config, &args);
        Self { warm, cold, warm_fault_proxy, cold_fault_proxy, proxy, spool }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // The proxy may write until it has exited; then little is left, in the folder for temporary
        // files.
        let _ = fs::remove_dir_all(&self.spool);
    }
}

fn set(server: &Server, key: &str, value: &str) {
    let text = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
    server.connect().expect(text.as_bytes(), b"STORED\r\n");
}

fn has(server: &Server, key: &str) -> bool {
    let mut wire = server.connect();
    wire.send(format!("mg {key}\r\n").as_bytes());
    wire.line() == "HD"
}

/// Gets of every kind, and the start of their replies: with a value, and without.
const GETS: [(&str, &str, &str); 5] = [
    ("get", "VALUE k", "END"),
    ("gets", "VALUE k", "END"),
    ("mg v", "VA 3", "EN"),
    ("mg v G", "VA 3", "VA 0"),
    ("lease-get", "VALUE k", "LVALUE k"),
];

/// For `mg v`, sends `mg KEY v`.
fn ask(wire: &mut Wire, get: &str, key: &str) {
    let (word, flags) = get.split_once(' ').unwrap_or((get, ""));
    wire.send(format!("{word} {key} {flags}\r\n").replace(" \r\n", "\r\n").as_bytes());
}

#[test]
fn every_kind_of_get_copies_a_missing_item() {
    let rig = Rig::new(&[]);
    for (number, (get, found, missed)) in GETS.into_iter().enumerate() {
        let (key, absent) = (format!("k{number}"), format!("k-absent{number}"));
        set(&rig.warm, &key, "old");
        let mut wire = rig.proxy.connect();
        ask(&mut wire, get, &key);
        let line = wire.line();
        assert!(line.starts_with(found), "{get}: {line}");
        assert!(has(&rig.cold, &key), "{get}: it is copied");
        let mut wire = rig.proxy.connect();
        ask(&mut wire, get, &absent);
        let line = wire.line();
        assert!(line.starts_with(missed), "{get}: {line}");
    }
}

/// A client that cannot wait for a lease gets the warm cluster's value, and does not store it.
#[test]
fn another_clients_lease_makes_no_plain_get_miss() {
    let rig = Rig::new(&[]);
    set(&rig.warm, "k", "old");
    let mut other = rig.cold.connect();
    other.send(b"lease-get k\r\n");
    assert!(other.line().starts_with("LVALUE k "));
    rig.proxy.connect().expect(b"get k\r\n", b"VALUE k 0 3\r\nold\r\nEND\r\n");
    assert!(!has(&rig.cold, "k"));
}

/// The warm server's reply may be in flight for any time, longer than any hold-off: the copy is
/// refused, and no client gets it.
#[test]
fn a_copy_requested_before_a_delete_is_refused() {
    let rig = Rig::new(&[]);
    for (number, (get, _, missed)) in GETS.into_iter().enumerate() {
        let key = format!("k{number}");
        set(&rig.warm, &key, "old");
        let (hits, deletes) = (rig.warm.stat("get_hits"), rig.cold.stat("delete_misses"));
        rig.warm_fault_proxy.set(Mode::Held);
        let (mut reader, mut writer) = (rig.proxy.connect(), rig.proxy.connect());
        ask(&mut reader, get, &key);
        eventually("the warm server has answered", || rig.warm.stat("get_hits") > hits);
        writer.send(format!("delete {key}\r\n").as_bytes());
        eventually("the cold server has deleted", || rig.cold.stat("delete_misses") > deletes);
        rig.warm_fault_proxy.set(Mode::Open);
        assert_eq!(writer.line(), "NOT_FOUND");
        let line = reader.line();
        assert!(line.starts_with(missed), "{get}: {line}");
        assert!(!has(&rig.cold, &key) && !has(&rig.warm, &key), "{get}");
    }
}

/// A warm server with an old value is down, and returns: a copy may be made before the pending
/// delete arrives. The copy does not outlive that delete, which goes to the cold server afterwards,
/// even if either is down in between.
#[test]
fn a_missed_delete_reaches_the_warm_and_then_the_cold_server() {
    let rig = Rig::new(&[]);
    for (delete, answer) in [("delete k", "NOT_FOUND"), ("md k", "NF"), ("md aw== b", "NF")] {
        set(&rig.warm, "k", "old");
        rig.warm_fault_proxy.set(Mode::Refuse);
        let mut writer = rig.proxy.connect();
        writer.expect(format!("{delete}\r\n").as_bytes(), format!("{answer}\r\n").as_bytes());
        rig.proxy.wait_for("asynclog_pending", 1);
        // The copy, made by another proxy: this one makes none.
        set(&rig.cold, "k", "old");
        rig.cold_fault_proxy.set(Mode::Refuse);
        rig.warm_fault_proxy.set(Mode::Open);
        eventually("the warm server has deleted", || !has(&rig.warm, "k"));
        assert!(has(&rig.cold, "k"), "{delete}: nobody was there");
        assert_eq!(rig.proxy.stat("asynclog_pending"), 1, "{delete}");
        set(&rig.warm, "other", "old");
        rig.cold_fault_proxy.set(Mode::Open);
        rig.proxy.wait_for("asynclog_pending", 0);
        assert!(!has(&rig.cold, "k"), "{delete}");
        eventually("copies are made again", || {
            let mut wire = rig.proxy.connect();
            wire.send(b"get other\r\n");
            wire.line().starts_with("VALUE other")
        });
    }
}

/// A delete fails if the warm server is down and no spool keeps the delete for it.
#[test]
fn a_delete_missed_by_the_warm_server_fails_without_a_spool() {
    let rig = Rig::new(&["--asynclog-disable"]);
    set(&rig.warm, "k", "old");
    set(&rig.cold, "k", "old");
    rig.warm_fault_proxy.set(Mode::Refuse);
    let mut writer = rig.proxy.connect();
    writer.send(b"delete k\r\n");
    let line = writer.line();
    assert!(line.starts_with("SERVER_ERROR "), "{line}");
    assert!(!has(&rig.cold, "k"), "the cold server is asked all the same");
    rig.warm_fault_proxy.set(Mode::Open);
    eventually("it is back", || {
        let mut writer = rig.proxy.connect();
        writer.send(b"delete k\r\n");
        writer.line() == "NOT_FOUND"
    });
    assert!(!has(&rig.warm, "k"));
}
