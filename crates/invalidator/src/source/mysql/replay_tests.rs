//! Replays stored packets of a binary log, for a test. They are not a fuzz target, because
//! `mysql_common` panics at malformed events before this crate sees them.

#[path = "../../../../changes/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use changes::gtid::GtidSet;
use changes::keys::Rules;
use changes::position::Position;
use mysql_common::binlog::EventStreamReader;
use mysql_common::binlog::consts::BinlogVersion;

use super::By;
use super::decode::Decoder;
use super::server::Flavour;
use super::statement::Origin;

/// The keys of a log: the first byte selects the make of the server and the form of positions; then
/// come packets, each after its length in two bytes.
fn keys(bytes: &[u8], rules: &Rules) -> Vec<Bytes> {
    let Some((choice, packets)) = bytes.split_first() else { return Vec::new() };
    let (flavour, by, start) = match choice % 4 {
        0 => (Flavour::MariaDb, By::Gtid, Position::MariaGtid(BTreeMap::new())),
        1 => (Flavour::MySql, By::Gtid, Position::MysqlGtid(GtidSet::default())),
        kind => {
            let flavour = if kind == 2 { Flavour::MariaDb } else { Flavour::MySql };
            (flavour, By::File, Position::File { name: "log.000001".to_owned(), offset: 4 })
        }
    };
    let mut reader = EventStreamReader::new(BinlogVersion::Version4);
    let mut decoder =
        Decoder::new(Origin { flavour, has_unlogged_cascades: true }, by, &start, rules);
    let mut events = Vec::new();
    for packet in common::messages(packets) {
        let Ok(Some(event)) = reader.read(packet) else { break };
        if decoder.push(&event, |id| reader.get_tme(id)).is_err() {
            break;
        }
        events.extend(std::iter::from_fn(|| decoder.pop()));
    }
    common::keys(start, events)
}

#[test]
fn stored_binlog_packets_give_their_keys() {
    let rules = Rules { comments: false, ..common::rules() };
    let keys = common::replay("tests/data/binlog_packets", |bytes| keys(bytes, &rules));
    let rows = ["t:1", "n:one:1", "t:2", "n:two:2"];
    assert_eq!(keys["mysql-insert"], rows);
    assert_eq!(keys["mysql-update-delete"], ["t:1", "t:2", "n:one:1", "n:two:2"]);
    assert_eq!(keys["mysql-xa"], ["t:1", "n:one:1"]);
    assert_eq!(keys["checksums"], ["t:1", "n:one:1"]);
    assert_eq!(keys["mariadb-insert"], ["t:1", "n:one:1"]);
}

#[test]
fn stored_rows_without_the_text_of_their_statement_are_gaps_if_comments_count() {
    let rules = common::rules();
    let keys = common::replay("tests/data/binlog_packets", |bytes| keys(bytes, &rules));
    assert_eq!(keys["mysql-insert"], [""; 0]);
    assert_eq!(keys["mysql-xa"], [""; 0]);
    assert_eq!(keys["mysql-statement"], ["k1", "k2"]);
    // MariaDB never has the text.
    assert_eq!(keys["mariadb-insert"], ["t:1", "n:one:1"]);
    assert_eq!(keys["mariadb-compressed"], ["t:1", "n:one:1", "t:2", "n:x:2", "k"]);
}
