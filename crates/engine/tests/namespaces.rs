//! Limits of namespaces and users through the engine's commands: lifetimes, quotas, rates, counts.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::sync::Arc;

use common::{settings, store};
use engine::{
    Arithmetic, Condition, Counted, Delete, Deleted, Direction, Limits, MetaGet, Mode, NewValue,
    NoRoom, RateReached, Rule, SUBJECT_COUNTERS, Shared, Subject, Verdict, Vivify, Worker,
};
use store::DraftError;

const NOW: u32 = 1000;

fn shared() -> Arc<Shared> {
    Shared::new(store(), settings())
}

fn prefix(prefix: &str, limits: Limits) -> Rule {
    Rule { subject: Subject::Prefix(prefix.as_bytes().into()), limits }
}

fn user(name: &str, rate: u32) -> Rule {
    let limits = Limits { requests_per_second_max: Some(rate), ..Limits::default() };
    Rule { subject: Subject::User(name.as_bytes().into()), limits }
}

fn worker(shared: &Arc<Shared>) -> Worker {
    let worker = Worker::join(shared).unwrap();
    turn(&worker, 0);
    worker
}

fn turn(worker: &Worker, now_ms: u64) {
    worker.begin_turn(NOW);
    worker.begin_samples(now_ms);
}

fn value(worker: &Worker, key: &[u8], exptime: i64, len: usize) -> NewValue {
    let deadline = worker.deadline(key, exptime);
    NewValue { flags: 0, deadline, value_len: len, base64_key: false, has_cas: true }
}

fn set(worker: &Worker, key: &[u8], len: usize) -> Verdict {
    let new = value(worker, key, 0, len);
    let key = worker.key(key);
    let mut draft = worker.draft(key, &new).unwrap();
    draft.push(&vec![b'1'; len]).unwrap();
    worker.store(key, &new, &Condition::of(Mode::Set), draft).verdict
}

fn deadline(worker: &Worker, key: &[u8]) -> u32 {
    let key = worker.key(key);
    worker.section().find(key.hash, key.bytes).unwrap().deadline()
}

fn get(worker: &Worker, key: &[u8]) -> bool {
    worker.get(&worker.section(), &worker.key(key)).is_ok()
}

/// The counts of each subject by their names, without those that are zero.
fn counts(shared: &Shared) -> Vec<String> {
    let of = |counts: [u64; SUBJECT_COUNTERS.len()]| -> String {
        let named = SUBJECT_COUNTERS.iter().zip(counts).filter(|(_, count)| *count > 0);
        named.map(|((_, name), count)| format!("{name} {count};")).collect()
    };
    shared.subject_stats().unwrap().iter().map(|stats| of(stats.counts)).collect()
}

#[test]
fn lifetimes_are_bounded_in_every_command() {
    let shared = shared();
    let limits = Limits { default_ttl_secs: Some(30), ttl_secs_max: Some(60), ..Limits::default() };
    shared.set_rules(vec![prefix("n:", limits)]).unwrap();
    let me = worker(&shared);
    assert_eq!(me.deadline(b"n:1", 0), NOW + 30);
    assert_eq!(me.deadline(b"n:1", 50), NOW + 50);
    assert_eq!(me.deadline(b"n:1", 90), NOW + 60);
    assert_eq!(me.deadline(b"n:1", 1_800_000_000), NOW + 60, "an absolute one");
    assert_eq!(me.deadline(b"n:1", -1), engine::DEAD);
    assert_eq!(me.touch_deadline(b"n:1", 0), NOW + 60);
    assert_eq!(me.touch_deadline(b"n:1", 10), NOW + 10);
    assert_eq!((me.deadline(b"m:1", 0), me.touch_deadline(b"m:1", 0)), (0, 0));
    // An empty item in place of one that is deleted.
    assert_eq!(set(&me, b"n:1", 1), Verdict::Stored);
    let empty = Delete { empty_flags: Some(0), ..Delete::default() };
    assert!(matches!(me.delete(me.key(b"n:1"), &empty), Deleted::Done { .. }));
    assert_eq!(deadline(&me, b"n:1"), NOW + 30);
}

/// A delete needs no room: without room for the empty item that should remain, none does.
#[test]
fn a_quota_refuses_only_the_empty_item_of_a_delete() {
    let shared = shared();
    let limits = Limits { bytes_max: Some(100), ..Limits::default() };
    shared.set_rules(vec![prefix("n:", limits)]).unwrap();
    let me = worker(&shared);
    // Its client flags make the empty item larger than the deleted one.
    let empty = Delete { empty_flags: Some(7), cas: Some(9), ..Delete::default() };
    let [stale, held] =
        [Delete { invalidate: true, ..empty }, Delete { hold_off_secs: 5, ..empty }];
    for how in [empty, stale, held] {
        assert_eq!(set(&me, b"n:1", 0), Verdict::Stored);
        // The longest value that the quota allows.
        assert!((0..100).rev().any(|len| set(&me, b"n:2", len) == Verdict::Stored));
        let other = Delete { compare: Some(1 << 40), ..how };
        assert_eq!(me.delete(me.key(b"n:1"), &other), Deleted::Exists);
        assert_eq!(me.delete(me.key(b"n:1"), &how), Deleted::Only(NoRoom::EmptyItem));
        assert!(!get(&me, b"n:1"));
        assert_eq!(me.delete(me.key(b"n:1"), &how), Deleted::NotFound);
    }
    let totals = shared.totals();
    assert_eq!(totals.get(engine::Counter::DeleteMisses), 6);
}

#[test]
fn every_command_reports_an_exceeded_quota() {
    let shared = shared();
    let limits = Limits { bytes_max: Some(100), ..Limits::default() };
    shared.set_rules(vec![prefix("n:", limits)]).unwrap();
    let me = worker(&shared);
    assert_eq!(set(&me, b"n:1", 100 - 24 - 3), Verdict::Stored);
    assert_eq!(set(&me, b"n:2", 0), Verdict::OverQuota);
    let new = value(&me, b"n:1", 0, 1);
    let appended = me.concat(me.key(b"n:1"), &new, &Condition::of(Mode::Append), b"x");
    assert_eq!(appended.verdict, Verdict::OverQuota);
    let over = DraftError::OverQuota;
    let vivify = Some(Vivify { initial: 1, deadline: 0, base64_key: false });
    let incr = Arithmetic {
        direction: Direction::Incr,
        delta: 1,
        compare: None,
        cas: None,
        shows_cas: false,
        deadline: None,
        vivify,
    };
    assert_eq!(me.arithmetic(me.key(b"n:2"), &incr), Counted::Refused(over));
    let create = MetaGet { vivify_deadline: Some(0), ..MetaGet::default() };
    assert_eq!(me.meta_get_or_create(me.key(b"n:2"), &create, |_| ()), Err(over));
    assert_eq!(shared.totals().get(engine::Counter::StoreOverQuota), 4);
    assert_eq!(shared.subject_stats().unwrap()[0].items.refused, 4);
    // As large as before.
    assert!(matches!(me.delete(me.key(b"n:1"), &Delete::default()), Deleted::Done { .. }));
    assert!(matches!(me.arithmetic(me.key(b"n:1"), &incr), Counted::Done { .. }));
    assert!(matches!(me.arithmetic(me.key(b"n:1"), &incr), Counted::Done { .. }));
}

#[test]
fn requests_are_limited_by_namespace_and_user() {
    let shared = shared();
    let limits = Limits { requests_per_second_max: Some(2), ..Limits::default() };
    shared.set_rules(vec![prefix("n:", limits), user("app", 3), user("", 1)]).unwrap();
    let (me, other) = (worker(&shared), worker(&shared));
    let ask = |worker: &Worker, name: &str, key: &[u8]| {
        worker.admit(Some(name.as_bytes()).filter(|name| !name.is_empty()), key, false)
    };
    // All workers share the tokens.
    assert_eq!(ask(&me, "", b"n:1"), Ok(()));
    assert_eq!(ask(&other, "", b"n:2"), Ok(()));
    assert_eq!(ask(&other, "", b"n:2"), Err(RateReached::Namespace));
    assert_eq!(me.admit(None, b"n:1", true), Ok(()), "a delete");
    assert_eq!(ask(&me, "", b"m:1"), Ok(()), "no namespace");
    // A request that the namespace refuses has used a token of its user.
    assert_eq!(ask(&me, "app", b"n:1"), Err(RateReached::Namespace));
    assert_eq!([ask(&me, "app", b"m:1"), ask(&me, "app", b"m:1")], [Ok(()), Ok(())]);
    assert_eq!(ask(&me, "app", b"m:1"), Err(RateReached::User));
    // Users without a rule share one.
    assert_eq!(ask(&me, "one", b"m:1"), Ok(()));
    assert_eq!(ask(&me, "two", b"m:1"), Err(RateReached::User));
    turn(&me, 500);
    assert_eq!(
        [ask(&me, "", b"n:1"), ask(&me, "", b"n:1").map_err(|_| RateReached::Namespace)],
        [Ok(()), Err(RateReached::Namespace)]
    );
    assert_eq!(
        counts(&shared),
        ["requests 7;refused_rate 3;", "requests 4;refused_rate 1;", "requests 2;refused_rate 1;"]
    );
    assert_eq!(shared.totals().get(engine::Counter::RateRefused), 5);
}

#[test]
fn counts_outlive_a_change_of_the_rules() {
    let shared = shared();
    assert!(shared.subject_stats().is_none());
    let me = worker(&shared);
    assert!(!me.has_namespaces());
    set(&me, b"b:1", 10);
    shared.set_rules(vec![prefix("a:", Limits::default())]).unwrap();
    turn(&me, 0);
    assert!(me.has_namespaces());
    set(&me, b"a:1", 10);
    set(&me, b"a:2", 10);
    assert!(get(&me, b"a:1") && !get(&me, b"a:3"));
    me.delete(me.key(b"a:2"), &Delete::default());
    me.delete(me.key(b"a:2"), &Delete::default());
    assert!(me.lease_get(&me.section(), me.key(b"a:4")).is_err());
    let want = "gets 3;hits 1;sets 2;deletes 2;";
    assert_eq!(counts(&shared), [want]);
    shared.set_rules(vec![prefix("", Limits::default()), prefix("a:", Limits::default())]).unwrap();
    turn(&me, 0);
    assert_eq!(counts(&shared), ["", want]);
    let items: Vec<_> =
        shared.subject_stats().unwrap().iter().map(|stats| stats.items.items).collect();
    assert_eq!(items, [1, 1], "what was there before any rule");
    get(&me, b"c:1");
    shared.reset_stats();
    get(&me, b"a:1");
    assert_eq!(counts(&shared), ["", "gets 1;hits 1;"]);
}
