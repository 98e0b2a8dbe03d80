//! Gathered connections: they move between workers without losing any bytes.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Running, eventually};
use net::{Config, Consolidation, Placement};

const CLIENTS: usize = 8;

/// The number of changes between busy and nearly idle.
const ROUNDS: usize = 3;

/// Two workers, of which one is busy as soon as it uses a hundredth of a processor.
fn restless() -> Config {
    let placement = Placement::Consolidated(Consolidation::below(1));
    Config { workers: 2, placement, ..Config::default() }
}

/// Connections of the second worker.
fn second(server: &Running) -> usize {
    server.control.connections().iter().filter(|info| info.worker == 1).count()
}

#[test]
fn busy_connections_move_and_lose_nothing() {
    let server = Running::start(&restless());
    let (is_over, is_calm) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (server, is_over, is_calm) = (&server, &is_over, &is_calm);
            scope.spawn(move || {
                let mut client = server.client();
                for count in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let lines = format!("echo {number} {count}\necho again\n");
                    client.send(lines.as_bytes());
                    client.expect(lines.as_bytes());
                    if is_calm.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(200));
                    }
                }
            });
        }
        for _ in 0..ROUNDS {
            is_calm.store(false, Ordering::Relaxed);
            eventually("both serve", || (1..CLIENTS).contains(&second(&server)));
            is_calm.store(true, Ordering::Relaxed);
            eventually("the first serves all", || second(&server) == 0);
        }
        assert!(server.control.stats().moved >= 2 * ROUNDS as u64, "there and back");
        is_over.store(true, Ordering::Relaxed);
    });
    eventually("closed", || server.control.stats().curr_connections == 0);
    assert_eq!(server.control.stats().total_connections, CLIENTS as u64, "a move is none");
    let moved = server.seen.moved.load(Ordering::SeqCst);
    assert_eq!(server.control.stats().moved, moved as u64);
    assert_eq!(server.seen.closed.lock().unwrap().len(), CLIENTS);
    assert_eq!(server.seen.held.load(Ordering::SeqCst), 0);
}

#[test]
fn a_waiting_connection_is_not_moved() {
    let server = Running::start(&restless());
    let mut waiting = server.client();
    waiting.send(b"wait\n");
    eventually("waits", || !server.seen.wakers.lock().unwrap().is_empty());
    let mut client = server.client();
    for _ in 0..20_000 {
        client.send(b"echo\n");
        client.expect(b"echo\n");
    }
    server.seen.wakers.lock().unwrap()[0].wake();
    waiting.expect(b"woken\n");
}
