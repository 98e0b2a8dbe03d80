//! A short comparison on real servers: every workload runs, and the check detects a faulty server.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::time::Duration;

use bench::process::{Launch, Server};
use lab::compare::{Plan, run};
use lab::load::{check, fill};
use lab::memory;
use lab::report;
use lab::servers::{DO_NOTHING, MEMCACHED};
use lab::workload::{Batches, KINDS, Kind, Workload};

fn nothing() -> Server {
    let words = vec![env!("CARGO_BIN_EXE_do-nothing").to_owned(), "{port}".to_owned()];
    Server { name: DO_NOTHING.to_owned(), launch: Launch::Command(words) }
}

fn memcached() -> Server {
    format!("{MEMCACHED}=memcached -U 0 -l 127.0.0.1 -p {{port}} -m {{memory}} -t 1 -u root")
        .parse()
        .unwrap()
}

#[test]
fn every_workload_runs_on_both_servers() {
    let plan = Plan {
        servers: vec![memcached(), nothing()],
        only: Vec::new(),
        value_bytes: vec![1000],
        rounds: 2,
        round: Duration::from_millis(20),
        connections: 3,
        keys: 1000,
        server_core: None,
        polls: false,
    };
    let outcomes = run(&plan, |_| {}).unwrap();
    let kinds: Vec<Kind> = outcomes.iter().map(|outcome| outcome.workload.kind).collect();
    assert_eq!(kinds, KINDS);
    for outcome in &outcomes {
        for (name, rounds) in &outcome.servers {
            assert_eq!(rounds.len(), 2);
            for round in rounds {
                assert!(round.rate > 0.0 && round.cpu_us.unwrap() > 0.0, "{name}: {round:?}");
                assert!(!round.latency.is_empty() && round.refused == 0, "{name}: {round:?}");
            }
        }
    }
    assert_eq!(report::markdown(&outcomes).lines().count(), 2 + 2 * KINDS.len());
}

#[test]
fn a_faulty_server_is_detected() {
    let workload = Workload { kind: Kind::Mixed, value_bytes: 100 };
    let batches = Batches::new(workload, 500, 0);
    let (honest, empty) =
        (memcached().start(64, None).unwrap(), nothing().start(64, None).unwrap());
    for server in [&honest, &empty] {
        assert_eq!(fill(server.address, &batches, 0..500).unwrap(), 0);
    }
    check(honest.address, workload, 500).unwrap();
    assert!(check(empty.address, workload, 500).unwrap_err().to_string().contains("differs"));
}

#[test]
fn a_refused_store_is_counted() {
    // Larger than the maximum item.
    let workload = Workload { kind: Kind::Mixed, value_bytes: 2 << 20 };
    let batches = Batches::new(workload, 10, 0);
    let server = memcached().start(64, None).unwrap();
    assert_eq!(fill(server.address, &batches, 0..3).unwrap(), 3);
}

#[test]
fn memcached_keeps_less_than_it_was_offered() {
    let kept = memory::measure(&memcached(), 64, 1024).unwrap();
    assert_eq!((kept.offered, kept.refused), (93_205, 0));
    assert!((40_000..64_000).contains(&kept.alive), "{kept:?}");
    assert!((60..100).contains(&(kept.resident_bytes.unwrap() >> 20)), "{kept:?}");
}
