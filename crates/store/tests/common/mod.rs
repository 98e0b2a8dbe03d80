//! Helpers for the tests of memory files: a file that is removed, items that identify themselves,
//! damage.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    dead_code,
    reason = "a test stops where it fails; each uses a part"
)]

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use store::{
    Applied, BagStats, BagStep, BagWalk, Change, Config, DraftError, Handle, Liveness, MemoryFile,
    NewItem, Opened, Store, TimeNote,
};

/// A path in memory, removed at the end.
pub(crate) struct TempFile(PathBuf);

impl TempFile {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("holdall-store-test-{}-{number}", std::process::id());
        Self(Path::new("/dev/shm").join(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Number of cases of a test: `CASES`, or this.
pub(crate) fn cases(default: usize) -> usize {
    std::env::var("CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

pub(crate) fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

pub(crate) fn config() -> Config {
    Config { memory_bytes: 16 << 20, seed: 1, ..Config::default() }
}

pub(crate) fn at(secs: u32) -> TimeNote {
    TimeNote { secs, ..TimeNote::default() }
}

pub(crate) fn open(path: &TempFile, secs: u32) -> (Arc<Store>, Opened) {
    open_as(&config(), path, secs)
}

pub(crate) fn open_as(config: &Config, path: &TempFile, secs: u32) -> (Arc<Store>, Opened) {
    let file = MemoryFile::open(path.path(), config).unwrap();
    Store::open(config, file, at(secs)).unwrap()
}

pub(crate) fn end(store: Arc<Store>, secs: u32) {
    store.close(at(secs), 0).unwrap();
}

/// The item stored last under each key: value, flags, cas unique. Items may have been evicted.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) items: BTreeMap<Vec<u8>, (Vec<u8>, u32, u64)>,
    pub(crate) deleted: Vec<Vec<u8>>,
    pub(crate) greatest_cas: u64,
    pub(crate) least_cas: u64,
}

/// Stores and deletes, with values of every kind: empty, inline, chained.
pub(crate) fn fill(store: &Arc<Store>, model: &mut Model, seed: u64, ops: usize) {
    let me = store.join().unwrap();
    let mut rng = rng(seed);
    model.least_cas = u64::MAX;
    for op in 0..ops {
        me.begin_turn(2);
        let key = format!("key-{}", rng.random_range(0..20_000u32)).into_bytes();
        if rng.random_ratio(1, 8) {
            delete(&me, &key);
            model.items.remove(&key);
            model.deleted.push(key);
            continue;
        }
        if rng.random_ratio(1, 4) {
            get(&me, &key);
            continue;
        }
        let len = match rng.random_range(0..100u32) {
            0 => rng.random_range(16_000..80_000),
            1..10 => 0,
            _ => rng.random_range(1..400),
        };
        let flags = if op % 3 == 0 { 0 } else { rng.random() };
        let value: Vec<u8> = (0..len).map(|at: usize| (at as u64 ^ op as u64) as u8).collect();
        let cas = set(&me, &key, &value, 0, flags).unwrap();
        if cas > 0 {
            model.greatest_cas = model.greatest_cas.max(cas);
            model.least_cas = model.least_cas.min(cas);
        }
        model.items.insert(key, (value, flags, cas));
    }
}

/// Every bag of every class that has items, oldest first within its class.
pub(crate) fn bag_stats(store: &Store) -> Vec<BagStats> {
    let (mut walk, mut all) = (BagWalk::default(), Vec::new());
    loop {
        match store.walk_bags(&mut walk) {
            BagStep::More => {}
            BagStep::Bag(bag) => all.push(bag),
            BagStep::Ended => return all,
        }
    }
}

/// Every item of the model that exists is whole; deleted items do not exist. Returns the number of
/// existing items.
pub(crate) fn probe(store: &Arc<Store>, model: &Model) -> usize {
    let me = store.join().unwrap();
    me.begin_turn(2);
    let mut found = 0;
    for (key, (value, flags, cas)) in &model.items {
        let section = me.section();
        let Some(item) = section.find(store.hash(key), key) else { continue };
        let mut is = Vec::new();
        item.for_each_piece(|piece| is.extend_from_slice(piece));
        assert!(is == *value, "the value of {}", key.escape_ascii());
        assert_eq!((item.flags(), item.cas()), (*flags, *cas), "{}", key.escape_ascii());
        found += 1;
    }
    for key in model.deleted.iter().filter(|&key| !model.items.contains_key(key)) {
        assert!(me.section().find(store.hash(key), key).is_none(), "{}", key.escape_ascii());
    }
    assert_eq!(store.index().items, store.stats().items);
    found
}

pub(crate) fn set(
    me: &Handle,
    key: &[u8],
    value: &[u8],
    deadline: u32,
    flags: u32,
) -> Result<u64, DraftError> {
    // Both kinds of items.
    let has_cas = value.len().is_multiple_of(2);
    let new = NewItem { key, flags, deadline, value_len: value.len(), base64_key: false, has_cas };
    let mut draft = me.draft(new)?;
    draft.push(value)?;
    let hash = me.store().hash(key);
    match me.section().update(hash, key, |_| Change::Put { draft, cas: None }) {
        Applied::Stored { cas } => Ok(cas),
        Applied::Refused(reason) => Err(reason),
        other => panic!("not stored: {other:?}"),
    }
}

pub(crate) fn get(me: &Handle, key: &[u8]) -> Option<Vec<u8>> {
    let section = me.section();
    let item = section.find(me.store().hash(key), key)?;
    if item.liveness() != Liveness::Live {
        return None;
    }
    item.touch();
    let mut value = Vec::new();
    item.for_each_piece(|piece| value.extend_from_slice(piece));
    Some(value)
}

pub(crate) fn delete(me: &Handle, key: &[u8]) -> bool {
    me.section().update(me.store().hash(key), key, |_| Change::Remove) == Applied::Removed
}

/// A sparse file's content: the blocks that are not all zero.
pub(crate) struct Sparse {
    len: u64,
    pub(crate) blocks: Vec<(u64, Vec<u8>)>,
}

const BLOCK: usize = 4096;

impl Sparse {
    pub(crate) fn read(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let len = file.metadata().unwrap().len();
        let mut blocks = Vec::new();
        for start in (0..len).step_by(BLOCK) {
            let mut block = vec![0; BLOCK.min((len - start) as usize)];
            file.read_exact_at(&mut block, start).unwrap();
            if block.iter().any(|&byte| byte != 0) {
                blocks.push((start, block));
            }
        }
        Self { len, blocks }
    }

    pub(crate) fn write(&self, path: &Path) {
        let file = writable(path);
        file.set_len(0).unwrap();
        file.set_len(self.len).unwrap();
        for (start, block) in &self.blocks {
            file.write_all_at(block, *start).unwrap();
        }
    }
}

fn writable(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Damages the file in one of the ways of disks and people; returns which.
pub(crate) fn damage(path: &Path, whole: &Sparse, rng: &mut StdRng) -> String {
    let file = writable(path);
    let (start, block) = &whole.blocks[rng.random_range(0..whole.blocks.len())];
    let at = rng.random_range(0..block.len());
    match rng.random_range(0..4) {
        0 => {
            let byte = block[at] ^ 1 << rng.random_range(0..8);
            file.write_all_at(&[byte], start + at as u64).unwrap();
            format!("a bit flipped at {}", start + at as u64)
        }
        1 => {
            let len = rng.random_range(1..whole.len);
            file.set_len(len).unwrap();
            format!("cut to {len}")
        }
        2 => {
            file.write_all_at(&vec![0; block.len()], *start).unwrap();
            format!("zeroed at {start}")
        }
        _ => {
            let (_, other) = &whole.blocks[rng.random_range(0..whole.blocks.len())];
            let changed = if other == block { vec![0xa5; block.len()] } else { other.clone() };
            file.write_all_at(&changed[..block.len().min(changed.len())], *start).unwrap();
            format!("overwritten at {start}")
        }
    }
}
