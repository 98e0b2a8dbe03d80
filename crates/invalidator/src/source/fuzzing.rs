//! Checks of whatever a database may send, for the fuzz targets and the replay of stored inputs.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::assemble::{Assembler, Output};
use crate::change::Event;
use crate::key_file::KeyFiles;
use crate::keys::{KEY_BYTES_MAX, Keyer, Outbox, Rules};
use crate::position::Position;
use crate::template::Template;

/// Bytes of keys that a transaction may have.
const TRANSACTION_BYTES_MAX: usize = 1 << 16;

/// Rules for all that a log can have: rows of `a.t` and `a.o`, messages, comments.
#[allow(clippy::expect_used, reason = "a target stops where it fails")]
pub(super) fn rules() -> Rules {
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

/// The keys of the events after `start`. Asserts that servers take them, and that a checkpoint can
/// hold the positions.
pub(super) fn keys(start: Position, events: impl IntoIterator<Item = Event>) -> Vec<Bytes> {
    let mut all = Vec::new();
    let (keyer, files) = (Keyer::new(rules()), KeyFiles::default());
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::source::{mysql, postgres};

    /// The keys of each file in `folder`, which is named from the package's, by the file's name.
    fn replay(folder: &str, keys: impl Fn(&[u8]) -> Vec<Bytes>) -> BTreeMap<String, Vec<Bytes>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
        files
            .map(|file| {
                let name = file.file_name().into_string().unwrap();
                (name, keys(&fs::read(file.path()).unwrap()))
            })
            .collect()
    }

    #[test]
    fn stored_binlog_packets_give_their_keys() {
        let keys = replay("tests/data/binlog_packets", mysql::replay::keys);
        let rows = ["t:1", "n:one:1", "t:2", "n:two:2"];
        assert_eq!(keys["mysql-insert"], rows);
        assert_eq!(keys["mysql-statement"], ["k1", "k2"]);
        assert_eq!(keys["mysql-update-delete"], ["t:1", "t:2", "n:one:1", "n:two:2"]);
        assert_eq!(keys["mysql-xa"], ["t:1", "n:one:1"]);
        assert_eq!(keys["checksums"], ["t:1", "n:one:1"]);
        assert_eq!(keys["mariadb-insert"], ["t:1", "n:one:1"]);
        assert_eq!(keys["mariadb-compressed"], ["t:1", "n:one:1", "t:2", "n:x:2", "k"]);
    }

    #[test]
    fn seeds_of_pgoutput_messages_hold() {
        let keys = replay("../../fuzz/seeds/pgoutput_messages", postgres::fuzzing::keys);
        assert_eq!(keys["outbox-and-messages"], ["k1", "k2", "k3"]);
        assert_eq!(keys["insert"], ["t:1", "n:a:1"]);
    }
}
