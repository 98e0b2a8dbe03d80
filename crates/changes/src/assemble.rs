//! Assembles events into transactions: keys wait until their transaction commits, each key once.
//!
//! ```text
//!     change.. commit            -> keys, position
//!     change.. rollback          -> nothing
//!     change.. prepare .. finish -> keys, when the finish says committed
//! ```
//!
//! The keys of a transaction above the memory limit go to a file while it is read.
//!
//! While a prepared transaction waits for its end, returned positions stay before it, so that a
//! restart reads its changes again.

use std::collections::{HashMap, HashSet};
use std::io;

use bytes::Bytes;

use crate::change::{Change, Event, Mark};
use crate::key_file::{KeyFile, KeyFiles};
use crate::keys::{Keyer, is_sendable};
use crate::position::Position;

/// The output of the assembler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// These keys are stale (often there are none), and everything up to the position was returned.
    Commit {
        /// The first keys of a large transaction, in the order of the changes.
        file: Option<KeyFile>,
        /// The other keys, each once, in the order of the changes.
        keys: Vec<Bytes>,
        /// The position from which a restart may continue once they are delivered.
        position: Position,
        /// Commit time, in microseconds since 1970; 0 if nothing was committed.
        committed_us: u64,
        /// Identifies the commit, to query whether other sessions see it.
        mark: Mark,
    },
    /// The changes are unknown.
    Gap(String),
    /// Changes may be missing, and reading the log again does not show that.
    Lacking(String),
}

/// Holds the keys of transactions that are not committed yet.
#[derive(Debug)]
pub struct Assembler {
    keyer: Keyer,
    open: Keys,
    prepared: HashMap<String, Prepared>,
    /// The end of the last whole transaction read.
    last: Position,
    /// Bytes of keys that one transaction may hold in memory.
    bytes_max: usize,
    files: KeyFiles,
    /// Keys longer than any server takes, which no cache can hold.
    pub too_long: u64,
}

#[derive(Debug)]
struct Prepared {
    keys: Keys,
    /// The end of the last transaction before it.
    before: Position,
    /// The order of preparation.
    turn: u64,
}

#[derive(Debug, Default)]
struct Keys {
    /// The keys before those of `order`.
    file: Option<KeyFile>,
    order: Vec<Bytes>,
    seen: HashSet<Bytes>,
    bytes: usize,
    /// The reason why not all keys are known.
    gap: Option<String>,
    /// The reason of a gap in the log that was output when it was read.
    reported: Option<String>,
}

impl Assembler {
    /// Starts after `start`; a transaction may hold `bytes_max` bytes of keys in memory, and the
    /// others in `files`.
    #[must_use]
    pub fn new(keyer: Keyer, start: Position, bytes_max: usize, files: KeyFiles) -> Self {
        let (open, prepared) = (Keys::default(), HashMap::new());
        Self { keyer, open, prepared, last: start, bytes_max, files, too_long: 0 }
    }

    /// The number of prepared transactions, neither committed nor rolled back.
    #[must_use]
    pub fn prepared(&self) -> usize {
        self.prepared.len()
    }

    /// Takes an event; returns the resulting outputs.
    pub fn push(&mut self, event: Event) -> Vec<Output> {
        match event {
            Event::Change(change) => {
                self.change(&change);
                Vec::new()
            }
            Event::Commit { position, committed_us, mark } => {
                let keys = std::mem::take(&mut self.open);
                self.committed(keys, position, committed_us, mark)
            }
            Event::Rollback => {
                self.open = Keys::default();
                Vec::new()
            }
            Event::Prepare { xid, position } => {
                let turn = self.prepared.values().map(|one| one.turn + 1).max().unwrap_or(0);
                let mut keys = std::mem::take(&mut self.open);
                // Until the commit, caches can be filled with the old values again.
                if let Some(why) = keys.reported.take() {
                    keys.fail(why);
                }
                let before = self.last.clone();
                self.prepared.insert(xid, Prepared { keys, before, turn });
                self.last = position;
                Vec::new()
            }
            Event::Finish { xid, is_committed, position, committed_us, mark } => {
                self.open = Keys::default();
                let keys = match self.prepared.remove(&xid) {
                    Some(prepared) if is_committed => prepared.keys,
                    Some(_) => Keys::default(),
                    None if is_committed => Keys {
                        gap: Some(format!(
                            "the prepared transaction {xid} was committed, and what it changed lies before the place where reading began"
                        )),
                        ..Keys::default()
                    },
                    None => Keys::default(),
                };
                self.committed(keys, position, committed_us, mark)
            }
            Event::Alive => Vec::new(),
            Event::Idle { position } => self.committed(Keys::default(), position, 0, Mark::Unknown),
            Event::Lacking { why } => vec![Output::Lacking(why)],
            Event::Gap { why } => {
                self.open = Keys { reported: Some(why.clone()), ..Keys::default() };
                vec![Output::Gap(why)]
            }
        }
    }

    /// Moves the keys of the current transaction to its file if they exceed the memory limit.
    /// Called after each event.
    pub async fn bound(&mut self) {
        if self.open.bytes > self.bytes_max
            && let Err(error) = self.open.move_to_file(&self.files).await
        {
            let bytes_max = self.bytes_max;
            self.open.fail(if self.files.has_disk() {
                format!("the keys of a large transaction cannot be kept on the disk: {error}")
            } else {
                format!(
                    "one transaction has more than {bytes_max} bytes of keys \
                     (transaction_bytes_max), and there is no disk for them (spool_bytes_max = 0)"
                )
            });
        }
    }

    fn change(&mut self, change: &Change) {
        let (open, too_long) = (&mut self.open, &mut self.too_long);
        let found = |key: Bytes| {
            if !is_sendable(&key) {
                *too_long += 1;
            } else if open.gap.is_none() && !open.seen.contains(&key) {
                open.bytes += key.len() + 100;
                open.seen.insert(key.clone());
                open.order.push(key);
            }
        };
        let unknown = self.keyer.keys(change, found).err();
        if let Some(unknown) = unknown {
            self.open.fail(unknown.0);
        }
    }

    fn committed(
        &mut self,
        keys: Keys,
        position: Position,
        committed_us: u64,
        mark: Mark,
    ) -> Vec<Output> {
        self.last = position;
        let mut outputs: Vec<Output> = keys.gap.map(Output::Gap).into_iter().collect();
        let (file, keys, position) = (keys.file, keys.order, self.safe());
        outputs.push(Output::Commit { file, keys, position, committed_us, mark });
        outputs
    }

    /// The position from which a restart loses nothing.
    fn safe(&self) -> Position {
        let first = self.prepared.values().min_by_key(|one| one.turn);
        first.map_or(&self.last, |one| &one.before).clone()
    }
}

impl Keys {
    /// A key that recurs later is in the file twice.
    async fn move_to_file(&mut self, files: &KeyFiles) -> io::Result<()> {
        let keys = std::mem::take(&mut self.order);
        self.seen = HashSet::new();
        self.bytes = 0;
        let mut file = match self.file.take() {
            Some(file) => file,
            None => files.create().await?,
        };
        file.append(keys).await?;
        self.file = Some(file);
        Ok(())
    }

    fn fail(&mut self, why: String) {
        *self = Self { gap: Some(self.gap.take().unwrap_or(why)), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::change::{Cell, Table};
    use crate::keys::{Outbox, Rules};

    fn assembler() -> Assembler {
        let rules = Rules { messages: Some("mc".to_owned()), ..Rules::default() };
        Assembler::new(Keyer::new(rules), Position::of_lsn(0), 10_000, KeyFiles::default())
    }

    fn message(keys: &str) -> Event {
        let content = Bytes::copy_from_slice(keys.as_bytes());
        Event::Change(Change::Message { prefix: "mc".to_owned(), content })
    }

    fn commit(at: u64) -> Event {
        Event::Commit { position: Position::of_lsn(at), committed_us: at, mark: Mark::Unknown }
    }

    fn said(keys: &[&'static str], at: u64, committed_us: u64) -> Vec<Output> {
        let keys = keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
        let (position, mark) = (Position::of_lsn(at), Mark::Unknown);
        vec![Output::Commit { file: None, keys, position, committed_us, mark }]
    }

    fn finish(xid: &str, is_committed: bool, at: u64) -> Event {
        Event::Finish {
            xid: xid.to_owned(),
            is_committed,
            position: Position::of_lsn(at),
            committed_us: at,
            mark: Mark::Unknown,
        }
    }

    #[test]
    fn keys_too_long_for_commands_are_counted() {
        let (plain, other) = ("k".repeat(249), "ü".repeat(92));
        let keys = [
            (format!("{plain}k"), 0),
            (format!("{plain}kk"), 1),
            (format!("{other}\u{1}a"), 0),
            (format!("{other}\u{1}ab"), 1),
        ];
        let rules = Rules {
            outbox: Some(Outbox { table: "s.o".to_owned(), column: "k".to_owned() }),
            ..Rules::default()
        };
        for (key, too_long) in keys {
            let keyer = Keyer::new(rules.clone());
            let (start, files) = (Position::of_lsn(0), KeyFiles::default());
            let mut assembler = Assembler::new(keyer, start, 10_000, files);
            let table = Table { name: "s.o".to_owned(), columns: vec!["k".to_owned()] };
            let after = Some(vec![Cell::Text(Bytes::from(key.clone()))]);
            assembler.push(Event::Change(Change::Row {
                table: Arc::new(table),
                before: None,
                after,
            }));
            let Some(Output::Commit { keys, .. }) = assembler.push(commit(5)).pop() else {
                panic!()
            };
            let bytes = key.len();
            assert_eq!(
                (keys.len() as u64, assembler.too_long),
                (1 - too_long, too_long),
                "{bytes}"
            );
        }
    }

    #[test]
    fn keys_are_emitted_once_at_the_commit() {
        let mut assembler = assembler();
        assert_eq!(assembler.push(message("b a")), []);
        assert_eq!(assembler.push(message("a c")), []);
        assert_eq!(assembler.push(commit(5)), said(&["b", "a", "c"], 5, 5));
        assert_eq!(assembler.push(commit(6)), said(&[], 6, 6));
    }

    #[test]
    fn a_rollback_deletes_nothing() {
        let mut assembler = assembler();
        assembler.push(message("a"));
        assert_eq!(assembler.push(Event::Rollback), []);
        assert_eq!(assembler.push(commit(5)), said(&[], 5, 5));
    }

    #[test]
    fn a_prepared_transaction_holds_back_the_position() {
        let mut assembler = assembler();
        assembler.push(commit(1));
        assembler.push(message("x"));
        assert_eq!(
            assembler.push(Event::Prepare { xid: "t".to_owned(), position: Position::of_lsn(2) }),
            []
        );
        assembler.push(message("a"));
        assert_eq!(assembler.push(commit(3)), said(&["a"], 1, 3));
        assert_eq!(assembler.prepared(), 1);
        assert_eq!(assembler.push(finish("t", true, 4)), said(&["x"], 4, 4));
    }

    #[test]
    fn a_rolled_back_prepared_transaction_deletes_nothing() {
        let mut assembler = assembler();
        assembler.push(message("x"));
        assembler.push(Event::Prepare { xid: "t".to_owned(), position: Position::of_lsn(2) });
        assert_eq!(assembler.push(finish("t", false, 4)), said(&[], 4, 4));
    }

    #[test]
    fn a_commit_of_an_unknown_prepared_transaction_is_a_gap() {
        let outputs = assembler().push(finish("t", true, 4));
        assert!(matches!(&outputs[..], [Output::Gap(_), Output::Commit { .. }]), "{outputs:?}");
    }

    #[test]
    fn a_gap_inside_a_prepared_transaction_is_one_again_at_its_commit() {
        let gap = || vec![Output::Gap("torn".to_owned())];
        for (is_committed, at_the_end) in [(true, gap()), (false, Vec::new())] {
            let mut assembler = assembler();
            assembler.push(message("x"));
            assert_eq!(assembler.push(Event::Gap { why: "torn".to_owned() }), gap());
            assembler.push(message("y"));
            let position = Position::of_lsn(2);
            assembler.push(Event::Prepare { xid: "t".to_owned(), position });
            assembler.push(message("a"));
            assert_eq!(assembler.push(commit(3)), said(&["a"], 0, 3));
            let outputs = assembler.push(finish("t", is_committed, 4));
            assert_eq!(outputs, [at_the_end, said(&[], 4, 4)].concat());
        }
        // The end of any other transaction follows at once, and nothing is output again.
        let mut assembler = assembler();
        assembler.push(Event::Gap { why: "torn".to_owned() });
        assert_eq!(assembler.push(commit(3)), said(&[], 3, 3));
        assembler.push(Event::Prepare { xid: "t".to_owned(), position: Position::of_lsn(4) });
        assert_eq!(assembler.push(finish("t", true, 5)), said(&[], 5, 5));
    }

    /// Reads a transaction of 200 keys, all but the last of which are in the file.
    async fn large(assembler: &mut Assembler) -> Vec<Output> {
        for number in 0..200 {
            assembler.push(message(&format!("key-{number}")));
            assembler.bound().await;
            assert!(assembler.open.bytes <= 10_000);
        }
        assembler.push(commit(5))
    }

    #[tokio::test]
    async fn a_large_transaction_stores_its_keys_in_order_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut assembler = assembler();
        assembler.files = KeyFiles::new(Some(folder.path().to_owned()));
        let mut outputs = large(&mut assembler).await;
        let Some(Output::Commit { file: Some(file), keys, .. }) = outputs.pop() else {
            panic!("no file: {outputs:?}")
        };
        assert_eq!(outputs, []);
        let (mut parts, mut found) = (file.read(), Vec::new());
        while let Some(part) = parts.next().await.unwrap() {
            found.extend(part);
        }
        assert!(!keys.is_empty() && !found.is_empty());
        found.extend(keys);
        assert_eq!(found, (0..200).map(|at| format!("key-{at}")).collect::<Vec<_>>());
        // The next transaction is independent.
        assembler.push(message("a"));
        assert_eq!(assembler.push(commit(6)), said(&["a"], 6, 6));
    }

    #[tokio::test]
    async fn a_large_transaction_without_a_disk_is_a_gap_at_its_commit() {
        let mut assembler = assembler();
        let outputs = large(&mut assembler).await;
        assert!(matches!(&outputs[..], [Output::Gap(why), Output::Commit { keys, file: None, .. }]
                if keys.is_empty() && why.contains("no disk")));
        assembler.push(message("a"));
        assert_eq!(assembler.push(commit(6)), said(&["a"], 6, 6));
    }

    #[test]
    fn oversized_keys_are_counted() {
        let mut assembler = assembler();
        assembler.push(message(&"k".repeat(251)));
        assert_eq!(assembler.push(commit(1)), said(&[], 1, 1));
        assert_eq!(assembler.too_long, 1);
    }
}
