//! Memory files with changed bytes, after a clean end and after a crash: a store opens them or
//! reports the reason why not, and works afterwards, whatever they contain. After a clean end it
//! trusts no changed byte, so no value is wrong.
//!
//! An input is a byte that chooses the file (and whether it is cut), then changes of five bytes
//! each: a page that is not all zero, a place in it, and the bits to flip there.
#![no_main]
#![allow(clippy::unwrap_used, reason = "a target stops where it fails")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use store::{
    Applied, Change, Cleaner, Config, Handle, MemoryFile, NewItem, Opened, Store, TimeNote,
};

const PAGE: usize = 4096;
const KEYS: u32 = 120;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let is_clean = first & 1 == 0;
    let image = &images()[usize::from(is_clean)];
    let (changes, is_changed) = image.write(rest, first & 2 != 0);
    let opened = MemoryFile::open(&path(), &config());
    let Ok(file) = opened else {
        assert!(changes > 0, "a file that nobody changed is opened");
        return;
    };
    let (store, opened) = Store::open(&config(), file, TimeNote::default()).unwrap();
    assert!(is_changed || !matches!(opened, Opened::Cold(_)), "nothing was changed: {opened:?}");
    // Damage after a crash is not detectable; it must only do no harm. A store that starts empty is
    // like any other.
    let turns = if matches!(opened, Opened::Cold(_)) { 1 } else { 12 };
    use_it(&store, turns, is_clean || !is_changed);
});

/// Reads everything and continues like a server: values stored from now on are always right.
fn use_it(store: &Arc<Store>, turns: u32, is_believed: bool) {
    let me = store.join().unwrap();
    let mut cleaner = Cleaner::new(store).unwrap();
    me.begin_turn(5);
    for key in 0..KEYS {
        let found = value(&me, &name(key));
        assert!(!is_believed || found.is_none_or(|found| found == content(key)), "key {key}");
    }
    for turn in 0..turns {
        for key in (0..KEYS).step_by(5) {
            assert!(put(&me, &name(key), &content(key + 1)));
        }
        for key in (0..KEYS).step_by(5) {
            let found = value(&me, &name(key));
            assert!(found.is_none_or(|found| found == content(key + 1)), "key {key} stored anew");
        }
        me.rest();
        cleaner.step(6 + turn, 2000);
        me.begin_turn(6 + turn);
    }
}

/// The content of a file after its store has ended.
struct Image {
    len: u64,
    /// The offsets of the pages that are not all zero.
    places: Vec<u64>,
    /// These pages, one after the other.
    bytes: Vec<u8>,
}

impl Image {
    fn of(file: &File) -> Self {
        let len = file.metadata().unwrap().len();
        let (mut places, mut all) = (Vec::new(), Vec::new());
        let mut page = vec![0; PAGE];
        for at in (0..len).step_by(PAGE) {
            let bytes = PAGE.min(usize::try_from(len - at).unwrap());
            file.read_exact_at(&mut page[..bytes], at).unwrap();
            if page[..bytes].iter().any(|&byte| byte != 0) {
                places.push(at);
                all.extend_from_slice(&page[..bytes]);
            }
        }
        Self { len, places, bytes: all }
    }

    /// Writes the file with these changes. Returns their number, and whether the file differs from
    /// the image.
    fn write(&self, changes: &[u8], is_cut: bool) -> (usize, bool) {
        let _ = fs::remove_file(path());
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path()).unwrap();
        file.set_len(self.len).unwrap();
        let (mut bytes, mut count) = (self.bytes.clone(), 0);
        for change in changes.chunks_exact(5) {
            let [page, page_high, at, at_high, flip] = *change else { continue };
            let page = usize::from(u16::from_le_bytes([page, page_high])) % self.places.len();
            let at = usize::from(u16::from_le_bytes([at, at_high])) % PAGE;
            // The last page may be short.
            let at = (page * PAGE + at) % bytes.len();
            bytes[at] ^= flip;
            count += 1;
        }
        let mut is_changed = bytes != self.bytes;
        let mut left = &bytes[..];
        // Adjacent pages of the file are one write.
        for run in self.places.chunk_by(|&one, &next| one + PAGE as u64 == next) {
            let (now, later) = left.split_at(left.len().min(run.len() * PAGE));
            file.write_all_at(now, run[0]).unwrap();
            left = later;
        }
        if let Some(&part) = changes.first().filter(|_| is_cut) {
            file.set_len(self.len / 256 * u64::from(part)).unwrap();
            (count, is_changed) = (count + 1, true);
        }
        (count, is_changed)
    }
}

/// The images after a crash and after a clean end.
fn images() -> &'static [Image; 2] {
    static IMAGES: OnceLock<[Image; 2]> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let _ = fs::remove_file(path());
        let file = MemoryFile::open(&path(), &config()).unwrap();
        let (store, _) = Store::open(&config(), file, TimeNote::default()).unwrap();
        let me = store.join().unwrap();
        me.begin_turn(2);
        for key in 0..KEYS {
            assert!(put(&me, &name(key), &content(key)));
        }
        me.flush_prefix(b"nobody").unwrap();
        drop(me);
        let crashed = Image::of(&File::open(path()).unwrap());
        store.close(TimeNote::default(), 0).unwrap();
        drop(store);
        [crashed, Image::of(&File::open(path()).unwrap())]
    })
}

fn path() -> PathBuf {
    PathBuf::from(format!("/dev/shm/holdall-fuzz-{}", std::process::id()))
}

fn config() -> Config {
    Config {
        memory_bytes: 8 << 20,
        growth_factor: 2.0,
        stripes: 32,
        threads_max: 3,
        seed: 7,
        ..Config::default()
    }
}

fn name(key: u32) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

/// Some values in one chunk, some in pieces, and some empty.
fn content(key: u32) -> Vec<u8> {
    let len = if key % 20 == 0 { 20_000 + 100 * key } else { key % 7 * 90 };
    (0..len).map(|at| (at ^ key).to_le_bytes()[0]).collect()
}

fn put(me: &Handle, key: &[u8], value: &[u8]) -> bool {
    let new = NewItem {
        key,
        flags: 0,
        deadline: 0,
        value_len: value.len(),
        base64_key: false,
        has_cas: value.len() % 2 == 0,
    };
    let Ok(mut draft) = me.draft(new) else { return false };
    draft.push(value).unwrap();
    let hash = me.store().hash(key);
    let applied = me.section().update(hash, key, |_| Change::Put { draft, cas: None });
    matches!(applied, Applied::Stored { .. })
}

fn value(me: &Handle, key: &[u8]) -> Option<Vec<u8>> {
    let section = me.section();
    let item = section.find(me.store().hash(key), key)?;
    let mut value = Vec::new();
    item.for_each_piece(|piece| value.extend_from_slice(piece));
    Some(value)
}
