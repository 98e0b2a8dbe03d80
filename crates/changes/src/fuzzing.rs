//! The check of the fuzz target `pgoutput_messages`.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::assemble::{Assembler, Output};
use crate::key_file::KeyFiles;
use crate::keys::{KEY_BYTES_MAX, Keyer, Outbox, Rules};
use crate::pgoutput::Decoder;
use crate::position::Position;
use crate::template::Template;

/// Bytes of keys that a transaction may have.
const TRANSACTION_BYTES_MAX: usize = 1 << 16;

/// Follows a log: messages, each behind its length in two bytes.
///
/// # Panics
///
/// When a key or a position is one that nobody can use.
pub fn check(bytes: &[u8]) {
    keys(bytes);
}

/// The keys of a log. Asserts that servers take them, and that a checkpoint can hold the positions.
fn keys(bytes: &[u8]) -> Vec<Bytes> {
    let mut decoder = Decoder::new(&rules(), 0);
    let (mut events, mut rest) = (Vec::new(), bytes);
    while let Some((len, after)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len)).min(after.len());
        let (message, next) = after.split_at(len);
        rest = next;
        decoder.push(message);
        events.extend(std::iter::from_fn(|| decoder.pop()));
    }
    let mut all = Vec::new();
    let (keyer, start, files) = (Keyer::new(rules()), Position::of_lsn(0), KeyFiles::default());
    let mut assembler = Assembler::new(keyer, start, TRANSACTION_BYTES_MAX, files);
    for output in events.into_iter().flat_map(|event| assembler.push(event)) {
        let Output::Commit { keys, position, .. } = output else { continue };
        assert!(keys.iter().all(|key| (1..=KEY_BYTES_MAX).contains(&key.len())), "{keys:?}");
        let text = position.to_string();
        assert!(!text.contains('\n'), "{text:?}");
        assert_eq!(text.parse(), Ok(position));
        all.extend(keys);
    }
    all
}

/// Rules for all that a log can have: rows of `a.t` and `a.o`, messages, comments.
#[allow(clippy::expect_used, reason = "a target stops where it fails")]
fn rules() -> Rules {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn seeds_of_pgoutput_messages_hold() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/pgoutput_messages");
        let seeds: BTreeMap<String, Vec<Bytes>> = fs::read_dir(folder)
            .unwrap()
            .map(|file| {
                let file = file.unwrap();
                let name = file.file_name().into_string().unwrap();
                (name, keys(&fs::read(file.path()).unwrap()))
            })
            .collect();
        assert_eq!(seeds["outbox-and-messages"], ["k1", "k2", "k3"]);
        assert_eq!(seeds["insert"], ["t:1", "n:a:1"]);
    }
}
