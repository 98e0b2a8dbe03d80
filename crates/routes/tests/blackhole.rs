//! BlackholeRoute: matching requests go nowhere, in every protocol.

mod common;

use common::cluster::Cluster;
use proto::answer::MetaCode;
use upstream::{Command, Outcome, Request};

#[test]
fn matching_requests_are_discarded() {
    let route = r#"{"type": "BlackholeRoute", "default": "PoolRoute|A", "policies":
        {"key": [{"op": "equals", "value": "k"}], "flags": [{"op": "not_equals", "value": 5}]}}"#;
    let mut cluster = Cluster::new(1, route);
    assert_eq!(cluster.rig.store(Command::Set, "k", "v"), Outcome::NotStored);
    let flagged = Request { flags: 5, value: b"v", ..Request::new(Command::Set, b"k") };
    assert_eq!(cluster.rig.ask(&flagged).outcome, Outcome::Stored);
    cluster.set("other", "v");
}

#[test]
fn policies_match_the_numbers_of_meta_commands() {
    let none = Outcome::Meta(MetaCode::Ns);
    let done = Outcome::Meta(MetaCode::Hd);
    let rows = [
        ("flags", 5, "F5", "F6"),
        ("flags", 0, "", "F6"),
        ("exptime", 60, "T60 MS", "T61"),
        ("leaseToken", 7, "G7", ""),
        ("casToken", 7, "C7", ""),
    ];
    for (field, value, falls, passes) in rows {
        let route = format!(
            r#"{{"type": "BlackholeRoute", "default": "PoolRoute|A", "policies":
            {{"{field}": [{{"op": "equals", "value": {value}}}]}}}}"#
        );
        let mut cluster = Cluster::new(1, &route);
        for (words, outcome) in [(falls, none), (passes, done)] {
            let set = Request { value: b"v", ..Request::new(Command::MetaSet, b"k") };
            let reply = cluster.rig.ask(&Request { words: words.as_bytes(), ..set });
            assert_eq!(reply.outcome, outcome, "{field} {words}");
        }
    }
    let count = r#"{"type": "BlackholeRoute", "default": "PoolRoute|A", "policies":
        {"delta": [{"op": "equals", "value": 3}]}}"#;
    let mut cluster = Cluster::new(1, count);
    cluster.set("k", "1");
    for (words, outcome) in [("D3", Outcome::Meta(MetaCode::Nf)), ("", done), ("D4", done)] {
        let words = words.as_bytes();
        let reply =
            cluster.rig.ask(&Request { words, ..Request::new(Command::MetaArithmetic, b"k") });
        assert_eq!(reply.outcome, outcome);
    }
}
