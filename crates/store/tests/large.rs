//! Large limits: they only reserve address space.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops where it fails; it uses a part of what is shared"
)]

mod common;

use common::{get, set};
use store::{Config, Store};

const TIB: u64 = 1 << 40;

/// Bytes of an item's header and of a key of four.
const HEADER_AND_KEY: usize = 20;

/// Resident memory of the process, in bytes.
fn resident() -> u64 {
    processes::usage::rss_bytes(std::process::id()).unwrap()
}

/// Bytes of the chunks in which items of `bytes` are, whose keys have four.
fn chunk_bytes(memory_bytes: u64, bytes: usize) -> usize {
    let store = Store::new(Config { memory_bytes, seed: 1, ..Config::default() }).unwrap();
    let me = store.join().unwrap();
    me.begin_turn(1);
    // Of an odd length, so that it has no cas unique.
    let value = vec![b'v'; bytes - HEADER_AND_KEY];
    set(&me, b"four", &value, 0, 0).unwrap();
    let used = store.class_stats(1).into_iter().find(|class| class.items > 0);
    used.unwrap().chunk_bytes.try_into().unwrap()
}

/// An item has no larger chunk than in a small store, unless more items of its size fit into the
/// limit than references can name.
#[test]
fn items_of_a_large_store_get_fitting_chunks() {
    const GIB: u64 = 1 << 30;
    let least = [(16, 72), (64, 72), (128, 72), (256, 136), (1 << 10, 520), (16 << 10, 8200)];
    for (gigabytes, least) in least {
        for bytes in [25, 65, 101, 131, 301, 1001, 5001, 16_001] {
            let found = chunk_bytes(gigabytes * GIB, bytes);
            let small = chunk_bytes(2 * GIB, bytes.max(least - 7));
            assert!(found <= small.max(least + 8), "{bytes} in {found} at {gigabytes} GB");
        }
    }
}

#[test]
fn a_store_of_any_size_uses_no_memory_before_it_is_filled() {
    for memory_bytes in [TIB / 2, TIB, 4 * TIB, 16 * TIB] {
        let before = resident();
        let store = Store::new(Config { memory_bytes, seed: 1, ..Config::default() }).unwrap();
        let me = store.join().unwrap();
        me.begin_turn(1);
        for number in 0..1000u32 {
            set(&me, &number.to_le_bytes(), &[b'v'; 100], 0, 0).unwrap();
        }
        assert_eq!(get(&me, &7u32.to_le_bytes()).unwrap(), [b'v'; 100]);
        let taken = resident().saturating_sub(before);
        assert!(taken < 64 << 20, "{taken} bytes for a limit of {memory_bytes}");
        drop(me);
    }
}
