//! The memory of routes' work behind a reply is bounded: copies for shadows are dropped, everything
//! else waits, and no delete is lost.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::cluster::plan_with;
use common::{Rig, Scripted, patient};
use routes::{AsideBudget, Tree, TreeFlags};
use testkit::Server;
use upstream::{Command, Event, Outcome};

const VALUE_BYTES: usize = 100_000;

/// A server that answers nothing until it is released.
struct Slow {
    server: Scripted,
    is_free: Arc<AtomicBool>,
    sets: Arc<AtomicUsize>,
    deletes: Arc<AtomicUsize>,
}

impl Slow {
    fn new() -> Self {
        let is_free = Arc::new(AtomicBool::new(false));
        let (sets, deletes) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let (may_answer, seen, deleted) =
            (Arc::clone(&is_free), Arc::clone(&sets), Arc::clone(&deletes));
        let rest = Mutex::new(String::new());
        let server = Scripted::new(move |text| {
            let mut rest = rest.lock().unwrap();
            rest.push_str(text);
            // Only whole lines count: values have none.
            let end = rest.rfind("\r\n").map_or(0, |end| end + 2);
            let lines: String = rest.drain(..end).collect();
            let mut replies = String::new();
            for line in lines.lines() {
                if line.starts_with("delete ") {
                    deleted.fetch_add(1, Ordering::SeqCst);
                    replies.push_str("NOT_FOUND\r\n");
                } else if line.starts_with('v') {
                    seen.fetch_add(1, Ordering::SeqCst);
                    replies.push_str("STORED\r\n");
                }
            }
            while !may_answer.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            Some(replies)
        });
        Self { server, is_free, sets, deletes }
    }

    fn let_go(&self) {
        self.is_free.store(true, Ordering::SeqCst);
    }

    fn sets(&self) -> usize {
        self.sets.load(Ordering::SeqCst)
    }

    fn deletes(&self) -> usize {
        self.deletes.load(Ordering::SeqCst)
    }
}

/// A worker over the pools `A` and `B`, with `bytes` for work behind replies.
fn rig(a: SocketAddr, b: SocketAddr, route: &str, bytes: usize) -> (Rig, Arc<AsideBudget>) {
    let text = format!(
        r#"{{"pools": {{"A": {{"servers": ["{a}"]}}, "B": {{"servers": ["{b}"]}}}},
            "route": {route}}}"#
    );
    let flags = TreeFlags { target_max_shadows: 20, ..TreeFlags::default() };
    let plan = plan_with(&text, flags).unwrap();
    let rig = Rig::over(|upstream| -> Tree { plan.tree(upstream) });
    let budget = Arc::new(AsideBudget::new(bytes));
    rig.core.share_asides(Arc::clone(&budget));
    (rig, budget)
}

fn shadow(of: &str) -> String {
    format!(
        r#"{{"type": "PoolRoute", "pool": "A",
            "shadows": [{{"target": {of}, "key_fraction_range": [0, 1]}}]}}"#
    )
}

fn dropped(rig: &Rig) -> u64 {
    rig.registry.traffic().event(Event::CopyDropped)
}

#[test]
fn a_slow_shadow_loses_stores_without_room_but_no_delete() {
    const BUDGET: usize = 1_000_000;
    let (server, slow) = (Server::memcached(&[]), Slow::new());
    let target = r#"{"type": "PoolRoute", "pool": "B", "max_outstanding": 1}"#;
    let (mut rig, budget) = rig(server.addr(), slow.server.address, &shadow(target), BUDGET);
    let value = "v".repeat(VALUE_BYTES);
    for number in 0..50 {
        assert_eq!(rig.store(Command::Set, &format!("k{number}"), &value), Outcome::Stored);
        assert!(budget.held() <= BUDGET, "{} bytes", budget.held());
    }
    let missed = dropped(&rig);
    assert!(missed >= 40, "{missed} were dropped");
    for number in 0..50 {
        assert_eq!(rig.simple(Command::Delete, &format!("k{number}")), Outcome::Deleted);
    }
    assert_eq!(dropped(&rig), missed);
    slow.let_go();
    rig.eventually("every delete comes", |_| slow.deletes() == 50);
    assert_eq!(slow.sets() as u64 + missed, 50);
    rig.eventually("all is given back", |rig| !rig.core.has_tasks());
    assert_eq!(budget.held(), 0);
}

#[test]
fn clients_wait_for_mandatory_copies_without_room() {
    let (server, slow) = (Server::memcached(&[]), Slow::new());
    let both = r#"{"type": "AllInitialRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#;
    let (mut rig, budget) = rig(server.addr(), slow.server.address, both, 250_000);
    let value = "v".repeat(VALUE_BYTES);
    for key in ["a", "b"] {
        assert_eq!(rig.store(Command::Set, key, &value), Outcome::Stored);
    }
    let request =
        upstream::Request { value: value.as_bytes(), ..upstream::Request::new(Command::Set, b"c") };
    let late = rig.submit(&request);
    let address = server.addr();
    let mut direct = Rig::new(patient(), move |servers| servers.at(address));
    rig.eventually("the first child has it", |_| direct.get("c") == Ok(Some(value.clone())));
    assert!(!rig.has_reply(late));
    slow.let_go();
    assert_eq!(rig.reply(late).outcome, Outcome::Stored);
    rig.eventually("the others come", |_| slow.sets() == 3);
    rig.eventually("all is given back", |rig| !rig.core.has_tasks());
    assert_eq!((budget.held(), dropped(&rig)), (0, 0));
}

#[test]
fn shadow_requests_per_server_are_bounded() {
    let (server, slow) = (Server::memcached(&[]), Slow::new());
    let route = shadow(r#""PoolRoute|B""#);
    let (mut rig, _) = rig(server.addr(), slow.server.address, &route, 64 << 20);
    for number in 0..30 {
        assert_eq!(rig.store(Command::Set, &format!("k{number}"), "v"), Outcome::Stored);
        assert_eq!(rig.simple(Command::Delete, &format!("k{number}")), Outcome::Deleted);
    }
    assert_eq!(dropped(&rig), 10);
    slow.let_go();
    rig.eventually("the others come", |_| (slow.sets(), slow.deletes()) == (20, 30));
    rig.eventually("there is room again", |rig| !rig.core.has_tasks());
    assert_eq!(rig.store(Command::Set, "k", "v"), Outcome::Stored);
    rig.eventually("it comes", |_| slow.sets() == 21);
}
