//! Replays stored packets of binary logs. They are no fuzz target: `mysql_common` panics at
//! malformed events before this crate sees them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use changes::assemble::{Assembler, Output};
use changes::gtid::GtidSet;
use changes::key_file::KeyFiles;
use changes::keys::{KEY_BYTES_MAX, Keyer, Rules};
use changes::position::Position;
use changes::template::Template;
use mysql_common::binlog::EventStreamReader;
use mysql_common::binlog::consts::BinlogVersion;

use super::By;
use super::decode::Decoder;
use super::server::Flavour;

fn rules() -> Rules {
    let templates = ["t:{id}", "n:{name}:{id}"].map(|text| Template::parse(text).unwrap());
    let tables = BTreeMap::from([("a.t".to_owned(), templates.to_vec())]);
    Rules { comments: true, tables, ..Rules::default() }
}

/// The keys of a log: the first byte chooses the make of the server and the form of positions, then
/// come packets, each behind its length in two bytes. Asserts that servers take the keys, and that
/// a checkpoint can hold the positions.
fn keys(bytes: &[u8]) -> Vec<Bytes> {
    let Some((choice, mut rest)) = bytes.split_first() else { return Vec::new() };
    let (flavour, by, start) = match choice % 4 {
        0 => (Flavour::MariaDb, By::Gtid, Position::MariaGtid(BTreeMap::new())),
        1 => (Flavour::MySql, By::Gtid, Position::MysqlGtid(GtidSet::default())),
        kind => {
            let flavour = if kind == 2 { Flavour::MariaDb } else { Flavour::MySql };
            (flavour, By::File, Position::File { name: "log.000001".to_owned(), offset: 4 })
        }
    };
    let mut reader = EventStreamReader::new(BinlogVersion::Version4);
    let mut decoder = Decoder::new(flavour, by, &start, &rules());
    let mut assembler = Assembler::new(Keyer::new(rules()), start, 1 << 16, KeyFiles::default());
    let mut all = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len)).min(after.len());
        let (packet, next) = after.split_at(len);
        rest = next;
        let Ok(Some(event)) = reader.read(packet) else { break };
        if decoder.push(&event, |id| reader.get_tme(id)).is_err() {
            break;
        }
        for output in std::iter::from_fn(|| decoder.pop()).flat_map(|event| assembler.push(event)) {
            let Output::Commit { keys, position, .. } = output else { continue };
            assert!(keys.iter().all(|key| (1..=KEY_BYTES_MAX).contains(&key.len())), "{keys:?}");
            let text = position.to_string();
            assert!(!text.contains('\n'), "{text:?}");
            assert_eq!(text.parse(), Ok(position));
            all.extend(keys);
        }
    }
    all
}

#[test]
fn stored_binlog_packets_give_their_keys() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/binlog_packets");
    let logs: BTreeMap<String, Vec<Bytes>> = fs::read_dir(folder)
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            (name, keys(&fs::read(file.path()).unwrap()))
        })
        .collect();
    let rows = ["t:1", "n:one:1", "t:2", "n:two:2"];
    assert_eq!(logs["mysql-insert"], rows);
    assert_eq!(logs["mysql-statement"], ["k1", "k2"]);
    assert_eq!(logs["mysql-update-delete"], ["t:1", "t:2", "n:one:1", "n:two:2"]);
    assert_eq!(logs["mysql-xa"], ["t:1", "n:one:1"]);
    assert_eq!(logs["checksums"], ["t:1", "n:one:1"]);
    assert_eq!(logs["mariadb-insert"], ["t:1", "n:one:1"]);
    assert_eq!(logs["mariadb-compressed"], ["t:1", "n:one:1", "t:2", "n:x:2", "k"]);
}
