//! A server whose gets are held, in front of another that replaces it: stores, counts and deletes
//! go to the same server as gets.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use common::{Rig, Scripted, patient};
use routes::route::{FailoverErrors, FailoverRoute, MissFailoverRoute, Order, Route, RouteRef};
use routes::{Spooler, Target};
use spool::{Fsync, Spool};
use upstream::{Command, Failure, Outcome, Request};

/// A cache whose items the test sees. Without `takes_deletes`, it closes the connection after one.
struct Cache {
    items: Arc<Mutex<BTreeMap<String, String>>>,
    server: Scripted,
}

impl Cache {
    fn new(takes_deletes: bool) -> Self {
        let items: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
        let theirs = Arc::clone(&items);
        let server = Scripted::new(move |asked| {
            let (mut items, mut out) = (theirs.lock().unwrap(), String::new());
            let mut lines = asked.split_terminator("\r\n");
            while let Some(line) = lines.next() {
                let words: Vec<&str> = line.split(' ').collect();
                let key = words.get(1).copied().unwrap_or_default();
                let has = items.contains_key(key);
                match words[0] {
                    "get" => {
                        if let Some(value) = items.get(key) {
                            out += &format!("VALUE {key} 0 {}\r\n{value}\r\n", value.len());
                        }
                        out += "END\r\n";
                    }
                    "set" | "add" => {
                        let value = lines.next().unwrap_or_default().to_owned();
                        let is_stored = words[0] == "set" || !has;
                        if is_stored {
                            items.insert(key.to_owned(), value);
                        }
                        out += if is_stored { "STORED\r\n" } else { "NOT_STORED\r\n" };
                    }
                    "delete" if !takes_deletes => return None,
                    "delete" if items.remove(key).is_some() => out += "DELETED\r\n",
                    "touch" if has => out += "TOUCHED\r\n",
                    "incr" if has => {
                        let count = items[key].parse::<u64>().unwrap() + 1;
                        items.insert(key.to_owned(), count.to_string());
                        out += &format!("{count}\r\n");
                    }
                    "delete" | "incr" | "touch" => out += "NOT_FOUND\r\n",
                    _ => out += "VERSION 1\r\n",
                }
            }
            Some(out)
        });
        Self { items, server }
    }

    fn name(&self) -> String {
        self.server.address.to_string()
    }

    fn put(&self, key: &str, value: &str) {
        self.items.lock().unwrap().insert(key.to_owned(), value.to_owned());
    }

    fn has(&self, key: &str) -> Option<String> {
        self.items.lock().unwrap().get(key).cloned()
    }
}

/// A server with pending deletes, another, and the one that keeps the first one's mark.
struct Fleet {
    rig: Rig,
    owing: Cache,
    other: Cache,
    peer: Cache,
    folder: PathBuf,
    _spooler: Spooler,
}

impl Fleet {
    fn new(name: &str, takes_deletes: bool, route: impl FnOnce(Vec<RouteRef>) -> RouteRef) -> Self {
        let [owing, other, peer] = [takes_deletes, true, true].map(Cache::new);
        let rig = Rig::new(patient(), |servers| {
            route([&owing, &other].map(|cache| servers.at(cache.server.address)).to_vec())
        });
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let settings = spool::Settings { fsync: Fsync::Never, ..spool::Settings::default() };
        let spool = Spool::open(&folder, settings).unwrap();
        let target = |cache: &Cache, peers| Target {
            name: cache.name(),
            address: cache.server.address.into(),
            settings: patient(),
            peers,
        };
        let targets = vec![target(&owing, vec![peer.name()]), target(&peer, Vec::new())];
        let registry = rig.registry.clone();
        let spooler = Spooler::start(spool, None, registry, 1, true, targets, |_| {}).unwrap();
        rig.core.keep_deletes(spooler.deletes().clone()).unwrap();
        Self { rig, owing, other, peer, folder, _spooler: spooler }
    }

    /// Marks the server: a router of the fleet has deletes for it, and this router sees the mark.
    #[track_caller]
    fn mark(&mut self) {
        self.owing.put("seen", "old");
        self.peer.put(&format!("holdall-owed:{}", self.owing.name()), "1");
        let is_held = |rig: &mut Rig| rig.get("seen") != Ok(Some("old".to_owned()));
        self.rig.eventually("the mark is seen", is_held);
    }

    /// The deletes are executed.
    #[track_caller]
    fn settle(&mut self) {
        self.peer.items.lock().unwrap().clear();
        let is_asked = |rig: &mut Rig| rig.get("seen") == Ok(Some("old".to_owned()));
        self.rig.eventually("it is asked again", is_asked);
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn failover(children: Vec<RouteRef>) -> RouteRef {
    let (order, errors) = (Order::InOrder, FailoverErrors::default());
    let route: Arc<dyn Route> =
        Arc::new(FailoverRoute { children, order, errors, limit: None, tag: None, pairs: None });
    route
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

#[test]
fn stores_are_readable_during_and_after_a_hold_on_gets() {
    let mut fleet = Fleet::new("stored", true, failover);
    for key in ["k", "l", "n", "t"] {
        fleet.owing.put(key, "5");
    }
    fleet.mark();
    // It was stored while the server was down, and is short-lived.
    fleet.other.put("k", "older");
    assert_eq!(fleet.rig.store(Command::Set, "k", "new"), Outcome::Stored);
    assert_eq!(fleet.rig.get("k"), Ok(text("new")));
    // A lock that its owner has released can be taken.
    assert_eq!(fleet.rig.store(Command::Add, "l", "mine"), Outcome::Stored);
    assert_eq!(fleet.rig.store(Command::Add, "l", "mine"), Outcome::NotStored);
    // Counts and touches do not find an item that may be deleted. Nothing changed, so it stays.
    assert_eq!(fleet.rig.simple(Command::Touch, "t"), Outcome::NotFound);
    let count = Request { number: 1, ..Request::new(Command::Incr, b"n") };
    assert_eq!(fleet.rig.ask(&count).outcome, Outcome::NotFound);
    fleet.other.put("n", "7");
    assert_eq!(fleet.owing.has("n"), text("5"));
    assert_eq!(fleet.rig.ask(&count).number, 8);
    let left = ["k", "l", "n", "t"].map(|key| fleet.owing.has(key));
    assert_eq!(left, [None, None, None, text("5")]);
    fleet.settle();
    assert_eq!(fleet.rig.get("k"), Ok(None));
    assert_eq!(fleet.rig.store(Command::Set, "k", "newer"), Outcome::Stored);
    assert_eq!(fleet.owing.has("k"), text("newer"));
}

#[test]
fn deletes_apply_during_a_hold_on_gets() {
    let mut fleet = Fleet::new("deleted", true, failover);
    fleet.mark();
    for cache in [&fleet.owing, &fleet.other] {
        cache.put("k", "old");
    }
    assert_eq!(fleet.rig.simple(Command::Delete, "k"), Outcome::Deleted);
    assert_eq!((fleet.rig.get("k"), fleet.owing.has("k")), (Ok(None), None));
    // Once the server gets its gets again, deletes leave the gutter alone.
    fleet.settle();
    fleet.other.put("k", "old");
    assert_eq!(fleet.rig.simple(Command::Delete, "k"), Outcome::NotFound);
    assert_eq!(fleet.other.has("k"), text("old"));
}

/// The router that keeps the delete sends gets to the gutter.
#[test]
fn a_kept_delete_is_executed_where_gets_are_sent() {
    let mut fleet = Fleet::new("kept", false, failover);
    fleet.other.put("k", "old");
    let tells = Request { tells_kept: true, ..Request::new(Command::Delete, b"k") };
    assert_eq!(fleet.rig.simple(Command::Delete, "k"), Outcome::Deleted);
    assert_eq!(fleet.rig.get("k"), Ok(None));
    assert_eq!(fleet.rig.ask(&tells).outcome, Outcome::Failed(Failure::TryAgain));
}

#[test]
fn a_single_held_server_accepts_stores_but_not_arithmetic() {
    let mut fleet = Fleet::new("alone", true, |mut children| children.remove(0));
    fleet.owing.put("n", "5");
    fleet.mark();
    assert_eq!(fleet.rig.store(Command::Set, "k", "new"), Outcome::Stored);
    assert_eq!(fleet.owing.has("k"), text("new"));
    assert_eq!(fleet.rig.get("k"), Err(Failure::TryAgain));
    let count = Request { number: 1, ..Request::new(Command::Incr, b"n") };
    assert_eq!(fleet.rig.ask(&count).outcome, Outcome::Failed(Failure::TryAgain));
    assert_eq!(fleet.owing.has("n"), text("5"));
}

/// A `MissFailoverRoute` reads from its second child, and stores nothing there.
#[test]
fn a_store_that_gets_would_not_read_is_refused() {
    let mut fleet = Fleet::new("missed", true, |children| {
        Arc::new(MissFailoverRoute { children, returns_best: false })
    });
    fleet.mark();
    fleet.other.put("k", "old");
    let refused = Outcome::Failed(Failure::TryAgain);
    assert_eq!(fleet.rig.store(Command::Set, "k", "new"), refused);
    assert_eq!(fleet.rig.get("k"), Ok(text("old")));
}
