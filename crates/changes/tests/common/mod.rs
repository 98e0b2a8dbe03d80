//! Checks of arbitrary database input. The fuzz target uses them, as do tests that replay stored
//! inputs, including those of MySQL's packets in `crates/invalidator`.
#![allow(dead_code, reason = "each test file, and the fuzz target, uses its own part")]
#![allow(unreachable_pub, reason = "shared by path with the fuzz target")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::path::Path;

use bytes::Bytes;
use changes::assemble::{Assembler, Output};
use changes::change::Event;
use changes::key_file::KeyFiles;
use changes::keys::{ENCODED_KEY_BYTES_MAX, KEY_BYTES_MAX, Keyer, Outbox, Rules, is_plain};
use changes::pgoutput::Decoder;
use changes::position::Position;
use changes::template::Template;

/// Bytes of keys that a transaction may have.
const TRANSACTION_BYTES_MAX: usize = 1 << 16;

/// Rules for all parts of a log: rows of `a.t` and `a.o`, messages, comments.
pub fn rules() -> Rules {
    let template = |text| Template::parse(text).expect("a template");
    let tables = [("a.t".to_owned(), vec![template("t:{id}"), template("n:{name}:{id}")])];
    Rules {
        comments: true,
        messages: Some("mc".to_owned()),
        outbox: Some(Outbox { table: "a.o".to_owned(), column: "key".to_owned() }),
        tables: BTreeMap::from(tables),
        canary: None,
    }
}

/// The keys of the events after `start`. Asserts that servers accept them, and that a checkpoint
/// can hold the positions.
pub fn keys(start: Position, events: impl IntoIterator<Item = Event>) -> Vec<Bytes> {
    let mut all = Vec::new();
    let (keyer, files) = (Keyer::new(rules()), KeyFiles::default());
    let mut assembler = Assembler::new(keyer, start, TRANSACTION_BYTES_MAX, files);
    for output in events.into_iter().flat_map(|event| assembler.push(event)) {
        let Output::Commit { keys, position, .. } = output else { continue };
        let most = |key| if is_plain(key) { KEY_BYTES_MAX } else { ENCODED_KEY_BYTES_MAX };
        assert!(keys.iter().all(|key| (1..=most(key)).contains(&key.len())), "{keys:?}");
        let text = position.to_string();
        assert!(!text.contains('\n'), "{text:?}");
        assert_eq!(text.parse(), Ok(position));
        all.extend(keys);
    }
    all
}

/// The messages of a stored log, each after its length in two bytes.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    iter::from_fn(move || {
        let (len, after) = bytes.split_first_chunk()?;
        let len = usize::from(u16::from_le_bytes(*len)).min(after.len());
        let (message, rest) = after.split_at(len);
        bytes = rest;
        Some(message)
    })
}

/// The keys of a stored log of `pgoutput`.
pub fn keys_of_pgoutput(bytes: &[u8]) -> Vec<Bytes> {
    let mut decoder = Decoder::new(&rules(), 0);
    let mut events = Vec::new();
    for message in messages(bytes) {
        decoder.push(message);
        events.extend(iter::from_fn(|| decoder.pop()));
    }
    keys(Position::of_lsn(0), events)
}

/// The keys of each file in `folder`, by the file's name; the path is relative to the package.
pub fn replay(folder: &str, keys: impl Fn(&[u8]) -> Vec<Bytes>) -> BTreeMap<String, Vec<Bytes>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    files
        .map(|file| {
            let name = file.file_name().into_string().unwrap();
            (name, keys(&fs::read(file.path()).unwrap()))
        })
        .collect()
}
