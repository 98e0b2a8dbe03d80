//! Stored logs of PostgreSQL's plugin `pgoutput`, which are the seeds of a fuzz target, and
//! relations with names that rules do not have.

mod common;

use std::collections::BTreeMap;
use std::iter;

use changes::change::{Change, Event};
use changes::pgoutput::Decoder;

#[test]
fn fuzzing_seeds_of_pgoutput_messages_pass() {
    let keys = common::replay("../../fuzz/seeds/pgoutput_messages", common::keys_of_pgoutput);
    assert_eq!(keys["outbox-and-messages"], ["k1", "k2", "k3"]);
    assert_eq!(keys["insert"], ["t:1", "n:a:1"]);
}

/// The description of relation 7 with one column.
fn relation(name: &str) -> Vec<u8> {
    let (id, columns) = (7_u32.to_be_bytes(), 1_u16.to_be_bytes());
    let name = format!("a\0{name}\0");
    [b"R", &id[..], name.as_bytes(), b"d", &columns, b"\x01id\0", &[0; 8]].concat()
}

/// A new row of relation 7.
fn insert() -> Vec<u8> {
    [b"I", &7_u32.to_be_bytes()[..], b"N\0\x01t", &1_u32.to_be_bytes(), b"1"].concat()
}

/// The tables of the rows, and the gaps, that follow from messages.
fn tables(decoder: &mut Decoder, messages: &[Vec<u8>]) -> Vec<String> {
    messages.iter().for_each(|message| decoder.push(message));
    let name = |event| match event {
        Event::Change(Change::Row { table, .. }) => table.name.clone(),
        Event::Gap { why } => why,
        other => format!("{other:?}"),
    };
    iter::from_fn(|| decoder.pop()).map(name).collect()
}

#[test]
fn rows_count_for_every_wanted_table_of_their_relation() {
    let mut decoder = Decoder::new(&common::rules(), 0);
    assert_eq!(tables(&mut decoder, &[relation("p"), insert()]), [""; 0]);
    assert!(decoder.unknown(&relation("p")).is_some());
    let both = ["a.t".to_owned(), "a.o".to_owned()];
    decoder.set_relations(BTreeMap::from([(7, both.to_vec())]));
    assert!(decoder.unknown(&relation("p")).is_none());
    assert_eq!(tables(&mut decoder, &[relation("p"), insert()]), both);
    decoder.set_relations(BTreeMap::from([(7, vec!["a.t".to_owned()])]));
    assert_eq!(tables(&mut decoder, &[relation("o"), insert()]), both);
    decoder.set_relations(BTreeMap::new());
    decoder.set_gone(7);
    assert_eq!(tables(&mut decoder, &[relation("t"), insert()]), ["a.t"]);
}

#[test]
fn rows_of_a_dropped_relation_are_one_gap() {
    let mut decoder = Decoder::new(&common::rules(), 0);
    decoder.set_gone(7);
    assert_eq!(tables(&mut decoder, &[relation("p")]), [""; 0]);
    let gaps = tables(&mut decoder, &[insert(), insert()]);
    assert!(gaps.len() == 1 && gaps[0].starts_with("rows of a.p, which may have been"), "{gaps:?}");
    assert_eq!(tables(&mut decoder, &[relation("p"), insert()]), [""; 0]);
}
