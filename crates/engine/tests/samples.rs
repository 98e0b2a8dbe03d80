//! The samples of a worker's commands: what a flush does to the estimates.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::sync::Arc;

use common::{settings, store};
use engine::{Condition, Mode, NewValue, Sampling, Shared, Worker};

const KEYS: u32 = 100;

fn shared() -> Arc<Shared> {
    let sampling = Sampling { delimiter: b':', workers: 1 };
    Shared::with_samples(store(), settings(), Some(sampling))
}

fn set(worker: &Worker, key: &[u8]) {
    let new = NewValue { flags: 0, deadline: 0, value_len: 1, base64_key: false, has_cas: true };
    let key = worker.key(key);
    let mut draft = worker.draft(key, &new).unwrap();
    draft.push(b"1").unwrap();
    worker.store(key, &new, &Condition::of(Mode::Set), draft);
}

/// The hit ratio of every order of eviction that was tried, where `flush` is called between the
/// sets and the gets.
fn tried(flush: impl FnOnce(&Worker)) -> Vec<f64> {
    let shared = shared();
    let worker = Worker::join(&shared).unwrap();
    worker.begin_turn(10);
    worker.begin_samples(1);
    let keys: Vec<Vec<u8>> = (0..KEYS).map(|key| format!("n:{key}").into_bytes()).collect();
    keys.iter().for_each(|key| set(&worker, key));
    flush(&worker);
    for key in &keys {
        let _ = worker.get(&worker.section(), &worker.key(key));
    }
    shared.collect_samples(100, 10);
    let ratios = |collector: &sampling::Collector| {
        collector.trials.hit_ratios().map(|(_, ratio)| ratio).collect::<Vec<_>>()
    };
    let ratios = shared.show_samples(|collector, _| ratios(collector)).unwrap();
    assert!(!ratios.is_empty());
    ratios
}

#[test]
fn no_order_of_eviction_hits_a_flushed_item() {
    assert!(tried(|_| ()).iter().all(|ratio| *ratio == 1.0));
    assert!(tried(|worker| worker.flush_all(0).unwrap()).iter().all(|ratio| *ratio == 0.0));
    assert!(tried(|worker| worker.flush_prefix(b"n").unwrap()).iter().all(|ratio| *ratio == 0.0));
    assert!(tried(|worker| worker.flush_prefix(b"m").unwrap()).iter().all(|ratio| *ratio == 1.0));
}
