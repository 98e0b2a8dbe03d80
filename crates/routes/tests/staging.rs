//! Conditional changes in the old cluster, and their copies in the new one.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::Rig;
use common::cluster::{Cluster, config};
use proto::answer::MetaCode;
use testkit::Server;
use upstream::{Command, Outcome, Request};

const ROUTE: &str = r#"{"type": "StagingRoute", "warm": "PoolRoute|A", "staging": "PoolRoute|B"}"#;

const DONE: Outcome = Outcome::Meta(MetaCode::Hd);

/// Both have `k` with this value, the old one under this cas unique.
fn both(cluster: &mut Cluster, value: &str) -> u64 {
    // Two servers with the same number of stores would give it the same unique.
    assert_eq!(cluster.direct[0].store(Command::Set, "k", "other"), Outcome::Stored);
    cluster.set("k", value);
    cluster.comes_to(1, "k", value);
    let uniques =
        [0, 1].map(|place| cluster.direct[place].ask(&Request::new(Command::Gets, b"k")).number);
    assert_ne!(uniques[0], uniques[1]);
    uniques[0]
}

fn meta(rig: &mut Rig, op: Command, words: &str, value: &str) -> Outcome {
    let (words, value) = (words.as_bytes(), value.as_bytes());
    rig.ask(&Request { words, value, ..Request::new(op, b"k") }).outcome
}

#[test]
fn conditional_stores_reach_the_new_cluster() {
    let mut cluster = Cluster::new(2, ROUTE);
    for mode in ["", " MS", " ME", " MR", " MA", " MP"] {
        let unique = both(&mut cluster, "1");
        let words = format!("c C{unique} T0{mode}");
        let outcome = meta(&mut cluster.rig, Command::MetaSet, &words, "2");
        // add refuses existing items.
        let is_done = mode != " ME";
        assert_eq!(outcome == DONE, is_done, "{mode}: {outcome:?}");
        let expected = match mode {
            " MA" => "12",
            " MP" => "21",
            " ME" => "1",
            _ => "2",
        };
        assert_eq!(cluster.on(0, "k").as_deref(), Some(expected), "{mode}");
        cluster.comes_to(1, "k", expected);
        let refused = meta(&mut cluster.rig, Command::MetaSet, &format!("C1{mode}"), "3");
        assert_ne!(refused, DONE, "{mode}");
        assert_eq!(cluster.on(1, "k").as_deref(), Some(expected), "{mode}");
    }
}

/// The old cluster lacks the item, or has it, and the new one differs.
#[test]
fn only_the_results_of_classic_conditional_stores_reach_the_new_cluster() {
    let mut cluster = Cluster::new(2, ROUTE);
    let place = |cluster: &mut Cluster, server: usize, value: Option<&str>| match value {
        Some(value) => {
            assert_eq!(cluster.direct[server].store(Command::Set, "k", value), Outcome::Stored);
        }
        None => drop(cluster.direct[server].simple(Command::Delete, "k")),
    };
    for (op, old, new, result) in [
        (Command::Add, Some("1"), None, None),
        (Command::Replace, None, Some("2"), Some("2")),
        (Command::Append, None, Some("2"), Some("2")),
        (Command::Prepend, None, Some("2"), Some("2")),
        (Command::Incr, None, Some("2"), Some("2")),
        (Command::Add, None, Some("2"), Some("3")),
        (Command::Replace, Some("1"), None, Some("3")),
        (Command::Append, Some("1"), Some("1"), Some("13")),
        (Command::Append, Some("1"), None, None),
    ] {
        place(&mut cluster, 0, old);
        place(&mut cluster, 1, new);
        let request = Request { value: b"3", number: 1, ..Request::new(op, b"k") };
        cluster.rig.ask(&request);
        // The same connection answers it after the copy.
        let name = format!("{op:?} {old:?} {new:?}");
        cluster.set("last", &name);
        cluster.comes_to(1, "last", &name);
        assert_eq!(cluster.on(1, "k").as_deref(), result, "{name}");
    }
}

/// An older unique with `I` may store a stale value, and the reply does not show it.
#[test]
fn possibly_stale_stores_are_deleted_in_the_new_cluster() {
    let mut cluster = Cluster::new(2, ROUTE);
    let unique = both(&mut cluster, "1");
    assert_eq!(meta(&mut cluster.rig, Command::MetaSet, &format!("C{} I", unique - 1), "2"), DONE);
    cluster.rig.eventually("it is deleted", |_| cluster.direct[1].get("k") == Ok(None));
}

#[test]
fn a_store_with_a_lease_token_reaches_the_new_cluster() {
    let servers = vec![Server::holdall(&[]), Server::holdall(&[])];
    let text = config(&servers, ROUTE);
    let mut cluster = Cluster::with(servers, &text, "{}");
    let lease = cluster.rig.ask(&Request::new(Command::LeaseGet, b"k"));
    assert_eq!(lease.outcome, Outcome::Lease);
    let token = lease.number;
    assert_eq!(meta(&mut cluster.rig, Command::MetaSet, &format!("G{token}"), "2"), DONE);
    cluster.comes_to(1, "k", "2");
}

#[test]
fn a_delete_with_a_cas_unique_is_decided_by_the_old_cluster() {
    let mut cluster = Cluster::new(2, ROUTE);
    let unique = both(&mut cluster, "1");
    let exists = Outcome::Meta(MetaCode::Ex);
    assert_eq!(meta(&mut cluster.rig, Command::MetaDelete, "C1", ""), exists);
    assert_eq!(cluster.on(1, "k").as_deref(), Some("1"));
    assert_eq!(meta(&mut cluster.rig, Command::MetaDelete, &format!("C{unique}"), ""), DONE);
    assert_eq!((cluster.on(0, "k"), cluster.on(1, "k")), (None, None));
}

/// The packets of a binary client have `N` and `J` with each count.
#[test]
fn arithmetic_creates_no_item_in_the_new_cluster() {
    let mut cluster = Cluster::new(2, ROUTE);
    let unique = both(&mut cluster, "5");
    let words = format!("D1 N0 J0 C{unique}");
    assert_eq!(meta(&mut cluster.rig, Command::MetaArithmetic, &words, ""), DONE);
    cluster.comes_to(1, "k", "6");
    assert_eq!(cluster.direct[1].simple(Command::Delete, "k"), Outcome::Deleted);
    assert_eq!(meta(&mut cluster.rig, Command::MetaArithmetic, "D1 N0 J0", ""), DONE);
    assert_eq!(meta(&mut cluster.rig, Command::MetaSet, "MA N0", "1"), DONE);
    assert_eq!(cluster.on(0, "k").as_deref(), Some("71"));
    // The same connection answers it after both.
    cluster.set("last", "x");
    cluster.comes_to(1, "last", "x");
    assert_eq!(cluster.on(1, "k"), None);
}

#[test]
fn a_lifetime_set_by_a_get_reaches_the_new_cluster() {
    let mut cluster = Cluster::new(2, ROUTE);
    let gat = |exptime| Request { exptime, ..Request::new(Command::Gat, b"k") };
    let gats = |exptime| Request { exptime, ..Request::new(Command::Gats, b"k") };
    let mg = Request { words: b"v T5000", ..Request::new(Command::MetaGet, b"k") };
    for (request, set) in [(gat(3000), 3000), (gats(4000), 4000), (mg, 5000)] {
        both(&mut cluster, "1");
        assert!(cluster.rig.ask(&request).outcome.is_hit());
        cluster.rig.eventually("it lives as long", |_| {
            let get = Request { words: b"t", ..Request::new(Command::MetaGet, b"k") };
            let reply = cluster.direct[1].ask(&get);
            let left = String::from_utf8(reply.words).unwrap();
            let left = left.trim().strip_prefix('t').unwrap().parse::<i64>().unwrap();
            (set - 900..=set).contains(&left)
        });
    }
}

/// The requests are sent without waiting for replies.
#[test]
fn a_delete_does_not_overtake_the_copies_of_earlier_changes() {
    let mut cluster = Cluster::new(2, ROUTE);
    let set = Request { value: b"1", ..Request::new(Command::Set, b"k") };
    let add = Request { op: Command::Add, ..set };
    let append = Request { op: Command::Append, ..set };
    let count = Request { number: 1, ..Request::new(Command::Incr, b"k") };
    let gat = Request::new(Command::Gat, b"k");
    let get = Request::new(Command::Get, b"k");
    let delete = Request::new(Command::Delete, b"k");
    let words = Request { words: b"I", ..Request::new(Command::MetaDelete, b"k") };
    for (changes, delete) in [
        (&[set][..], delete),
        (&[add], delete),
        (&[set, append], delete),
        (&[set, count], delete),
        (&[set, gat], delete),
        (&[set, get], delete),
        (&[set, append], words),
    ] {
        let before = changes.iter().map(|change| cluster.rig.submit(change)).collect::<Vec<_>>();
        let last = cluster.rig.submit(&delete);
        for ticket in before.into_iter().chain([last]) {
            drop(cluster.rig.reply(ticket));
        }
        cluster.rig.eventually("all is done", |rig| !rig.core.has_tasks());
        let found = cluster.direct[1].get("k").unwrap();
        assert_eq!(found.is_some(), !delete.words.is_empty(), "{changes:?}: {found:?}");
        cluster.direct[0].simple(Command::Delete, "k");
        cluster.direct[1].simple(Command::Delete, "k");
    }
}

#[test]
fn gets_of_all_kinds_fill_the_new_cluster() {
    let mut cluster = Cluster::new(2, ROUTE);
    for op in [Command::Get, Command::Gets, Command::Gat, Command::Gats] {
        let key = op.name();
        assert_eq!(cluster.direct[0].store(Command::Set, key, "v"), Outcome::Stored);
        assert_eq!(cluster.rig.simple(op, key), Outcome::Found);
        cluster.comes_to(1, key, "v");
    }
}
