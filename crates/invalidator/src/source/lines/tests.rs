//! Lines, and the resulting keys or gap.

use std::collections::BTreeMap;

use changes::assemble::{Assembler, Output};
use changes::key_file::KeyFiles;
use changes::keys::{Keyer, Rules};
use changes::template::Template;

use super::*;

/// The keys of each line's commit, or the start of its gap.
struct World {
    reader: Reader,
    assembler: Assembler,
}

impl World {
    fn new(debezium: Option<Debezium>) -> Self {
        let templates =
            ["user:{id}", "mail:{mail}"].map(|text| Template::parse(text).unwrap()).to_vec();
        let rules = Rules {
            messages: Some("mc".to_owned()),
            tables: BTreeMap::from([("shop.users".to_owned(), templates)]),
            ..Rules::default()
        };
        let start = Position::Stream(Places::new());
        let assembler = Assembler::new(Keyer::new(rules), start, 1 << 20, KeyFiles::default());
        let source = LinesSource::new(Settings { listen: None, debezium });
        Self { reader: source.reader, assembler }
    }

    /// Keys one after the other; `gap: ` and the reason for each gap.
    fn say(&mut self, line: &str) -> String {
        self.reader.line(line.as_bytes());
        let mut said = Vec::new();
        while let Some(event) = self.reader.pending.pop_front() {
            for output in self.assembler.push(event) {
                match output {
                    Output::Commit { keys, .. } => {
                        let text = |key: bytes::Bytes| String::from_utf8(key.to_vec()).unwrap();
                        said.extend(keys.into_iter().map(text));
                    }
                    Output::Gap(why) | Output::Lacking(why) => said.push(format!("gap: {why}")),
                }
            }
        }
        said.join(" ")
    }

    fn position(&self) -> String {
        Position::Stream(self.reader.places.clone()).to_string()
    }
}

const FULL: Debezium =
    Debezium { old_rows: OldRows::Full, schemas: Schemas::None, has_holes: false };

#[test]
fn native_lines_contain_keys_rows_and_positions() {
    let mut world = World::new(None);
    for (line, said) in [
        (r#"{"keys":["a","b c"],"position":"41"}"#, "a b c"),
        (
            r#"{"table":"shop.users","before":{"id":7,"mail":"a"},"after":{"id":7,"mail":"b"}}"#,
            "user:7 mail:a mail:b",
        ),
        (
            r#"{"table":"shop.users","before":null,"after":{"mail":null,"id":18446744073709551615}}"#,
            "user:18446744073709551615",
        ),
        (r#"{"table":"shop.other","before":null,"after":{"id":1.5}}"#, ""),
        ("", ""),
        (r#"{"position":"43"}"#, ""),
    ] {
        assert_eq!(world.say(line), said, "{line}");
    }
    assert_eq!(world.position(), "stream:=43");
}

#[test]
fn a_native_line_without_usable_keys_is_a_gap() {
    let row = |before: &str, after: &str| {
        format!(r#"{{"table":"shop.users","before":{before},"after":{after}}}"#)
    };
    for (line, why) in [
        ("{\"keys\":[\"a\"]".to_owned(), "cannot be read"),
        ("[]".to_owned(), "cannot be read"),
        ("\u{1}".to_owned(), "cannot be read"),
        (r#"{"keyz":["a"]}"#.to_owned(), "unknown field `keyz`"),
        (r#"{"table":"shop.users","after":{"id":1,"mail":"a"}}"#.to_owned(), "must both be there"),
        (r#"{"before":null,"after":{"id":1}}"#.to_owned(), "without its table"),
        (row("null", "null"), "without before and after"),
        (row("null", r#"{"id":1}"#), "no column 'mail'"),
        (row(r#"{"id":1}"#, r#"{"id":1,"mail":"a"}"#), "does not carry column 'mail'"),
        (row("null", r#"{"id":1.5,"mail":"a"}"#), "does not carry column 'id'"),
        (row("null", r#"{"id":true,"mail":"a"}"#), "does not carry column 'id'"),
        (row("null", r#"{"id":36893488147419103232,"mail":"a"}"#), "does not carry column 'id'"),
        (r#"{"emptied":"shop.users"}"#.to_owned(), "was emptied"),
        (r#"{"gap":"it restarted"}"#.to_owned(), "the sender said: it restarted"),
    ] {
        let said = World::new(None).say(&line);
        assert!(said.starts_with("gap: ") && said.contains(why), "{line}: {said}");
    }
}

/// An event of Debezium about `shop.users`.
fn event(op: &str, before: &str, after: &str) -> String {
    format!(
        r#"{{"before":{before},"after":{after},"op":"{op}","source":{{"connector":"mysql","db":"shop","table":"users","file":"bin.1","pos":7,"ts_ms":5}}}}"#
    )
}

#[test]
fn debezium_events_become_keys_and_a_position() {
    let mut world = World::new(Some(FULL));
    let (old, new) = (r#"{"id":1,"mail":"a"}"#, r#"{"id":1,"mail":"b"}"#);
    let bare = event("u", old, new);
    let quoted = serde_json::to_string(&bare).unwrap();
    for (line, said) in [
        (event("c", "null", new), "user:1 mail:b"),
        (event("r", "null", new), "user:1 mail:b"),
        (event("d", old, "null"), "user:1 mail:a"),
        (bare.clone(), "user:1 mail:a mail:b"),
        (format!(r#"{{"schema":null,"payload":{bare}}}"#), "user:1 mail:a mail:b"),
        (
            format!(r#"{{"topic":"t","partition":0,"offset":41,"key":null,"payload":{quoted}}}"#),
            "user:1 mail:a mail:b",
        ),
        // A tombstone.
        (r#"{"topic":"t","partition":0,"offset":42,"key":"{}","payload":null}"#.to_owned(), ""),
        // A heartbeat, and the end of a transaction.
        (r#"{"ts_ms":5}"#.to_owned(), ""),
        (r#"{"status":"END","id":"7","event_count":1}"#.to_owned(), ""),
        (r#"{"op":"m","message":{"prefix":"mc","content":"YSBi"},"source":{}}"#.to_owned(), "a b"),
    ] {
        assert_eq!(world.say(&line), said, "{line}");
    }
    assert_eq!(world.position(), "stream:=bin.1:7,t/0=42");
}

#[test]
fn a_debezium_event_without_usable_keys_is_a_gap() {
    let ddl = |connector: &str, more: &str| {
        format!(r#"{{"source":{{"connector":"{connector}"}},"databaseName":"shop",{more}}}"#)
    };
    for (line, why) in [
        (event("u", "null", r#"{"id":1,"mail":"b"}"#), "no old row"),
        (event("d", "null", "null"), "no old row"),
        (event("c", "null", "null"), "without its row"),
        (event("x", "null", "null"), "kind 'x'"),
        (event("t", "null", "null"), "was emptied"),
        (r#"{"after":{"id":1}}"#.to_owned(), "no event of Debezium"),
        (r#"{"op":"c","after":{"id":1},"source":{}}"#.to_owned(), "names no table"),
        (r#"{"topic":"t","payload":null}"#.to_owned(), "without partition and offset"),
        (r#"{"topic":"t","partition":0,"offset":1}"#.to_owned(), "without payload"),
        (ddl("mysql", r#""ddl":"TRUNCATE TABLE users""#), "was emptied"),
        (ddl("mysql", r#""ddl":"RENAME TABLE new TO users""#), "was emptied, swapped"),
        (ddl("mysql", r#""ddl":"ABRACADABRA""#), "is not known"),
        (
            ddl(
                "oracle",
                r#""ddl":"x","tableChanges":[{"type":"ALTER","id":"\"DB\".\"shop\".\"users\""}]"#,
            ),
            "was emptied",
        ),
        (ddl("oracle", r#""ddl":"x""#), "without its tables"),
    ] {
        let said = World::new(Some(FULL)).say(&line);
        assert!(said.starts_with("gap: ") && said.contains(why), "{line}: {said}");
    }
    let made = ddl("oracle", r#""tableChanges":[{"type":"CREATE","id":"shop.users"}]"#);
    assert_eq!(World::new(Some(FULL)).say(&made), "");
    let made = ddl("mariadb", r#""ddl":"CREATE TABLE users (id INT)""#);
    assert_eq!(World::new(Some(FULL)).say(&made), "");
}

#[test]
fn partial_old_rows_count_only_their_key_columns() {
    let settings = Debezium { old_rows: OldRows::Key, ..FULL };
    let message = |key: &str, event: &str| {
        let [key, event] = [key, event].map(|text| serde_json::to_string(text).unwrap());
        format!(r#"{{"topic":"t","partition":0,"offset":1,"key":{key},"payload":{event}}}"#)
    };
    let update = event("u", "null", r#"{"id":1,"mail":"b"}"#);
    // PostgreSQL's default identity: the mail of the old row is a filler.
    let filled = event("d", r#"{"id":1,"mail":""}"#, "null");
    for event in [&update, &filled] {
        let said = World::new(Some(settings)).say(&message(r#"{"id":1}"#, event));
        assert!(said.contains("does not carry column 'mail'"), "{said}");
        let both = message(r#"{"schema":null,"payload":{"id":1,"mail":"b"}}"#, event);
        let said = World::new(Some(settings)).say(&both);
        assert!(said.starts_with("user:1"), "{said}");
    }
}

#[test]
fn a_missing_schema_or_unsupported_type_is_a_gap() {
    let settings = Debezium { schemas: Schemas::Required, ..FULL };
    let event = event("c", "null", r#"{"id":1,"mail":"b"}"#);
    let with = |mail: &str| {
        let columns = format!(r#"[{{"field":"id","type":"int64"}},{{"field":"mail",{mail}}}]"#);
        format!(
            r#"{{"schema":{{"fields":[{{"field":"after","fields":{columns}}}]}},"payload":{event}}}"#
        )
    };
    let said = World::new(Some(settings)).say(&event);
    assert!(said.contains("the event has no schema"), "{said}");
    for (mail, said) in [
        (r#""type":"string""#, "user:1 mail:b"),
        (r#""type":"string","name":"io.debezium.data.Uuid""#, "user:1 mail:b"),
    ] {
        assert_eq!(World::new(Some(settings)).say(&with(mail)), said, "{mail}");
    }
    for mail in [
        r#""type":"int32","name":"io.debezium.time.Date""#,
        r#""type":"bytes","name":"org.apache.kafka.connect.data.Decimal""#,
        r#""type":"string","name":"io.debezium.time.ZonedTimestamp""#,
        r#""type":"boolean""#,
        r#""type":"double""#,
    ] {
        let said = World::new(Some(settings)).say(&with(mail));
        assert!(said.contains("does not carry column 'mail'"), "{mail}: {said}");
    }
}

#[test]
fn missing_messages_of_a_topic_are_a_gap() {
    let message = |offset: u64| {
        format!(r#"{{"topic":"t","partition":0,"offset":{offset},"key":null,"payload":null}}"#)
    };
    let mut world = World::new(Some(FULL));
    world.reader.places.insert("t/0".to_owned(), "41".to_owned());
    assert_eq!(world.say(&message(42)), "");
    assert_eq!(world.say(&message(41)), "", "again");
    world.reader.places.insert("t/0".to_owned(), "42".to_owned());
    let said = world.say(&message(45));
    assert!(said.contains("messages 43 to 44 of t/0 are missing"), "{said}");
    assert_eq!(world.say(&message(46)), "");
    let mut world = World::new(Some(Debezium { has_holes: true, ..FULL }));
    world.reader.places.insert("t/0".to_owned(), "41".to_owned());
    assert_eq!(world.say(&message(45)), "");
}
