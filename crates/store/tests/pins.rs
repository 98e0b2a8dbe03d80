//! Values that are being sent cannot be evicted, and stores lose no time with them.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops where it fails; it uses a part of what is shared"
)]

mod common;

use common::{config, get, set};
use store::{DraftError, Handle, Pin, Store};

const LARGE: usize = 600_000;

fn pin(me: &Handle, key: &[u8]) -> Option<Pin> {
    me.section().find(me.store().hash(key), key)?.pin()
}

#[test]
fn a_large_store_passes_over_pinned_values_once() {
    let store = Store::new(config()).unwrap();
    let me = store.join().unwrap();
    me.begin_turn(1);
    let large: Vec<_> = (0..3).map(|number| format!("large-{number}").into_bytes()).collect();
    for key in &large {
        set(&me, key, &[b'l'; LARGE], 0, 0).unwrap();
    }
    for number in 0..200_000u32 {
        set(&me, format!("small-{number}").as_bytes(), &[b's'; 64], 0, 0).unwrap();
        if number % 1000 == 0 {
            assert!(large.iter().all(|key| get(&me, key).is_some()));
        }
    }
    let before = store.stats();
    assert!(before.evictions > 0);
    let pins: Vec<_> = large.iter().map(|key| pin(&me, key).unwrap()).collect();
    set(&me, b"new", &[b'n'; LARGE], 0, 0).unwrap();
    let after = store.stats();
    let moved = after.items_reordered - before.items_reordered;
    let opened = after.bags_opened - before.bags_opened;
    assert!(moved <= 30 && opened <= 30, "{moved} items moved, {opened} bags opened");
    assert!(pins.iter().all(|pin| pin.bytes_at(LARGE - 1) == b"l"));
}

#[test]
fn a_store_is_refused_only_while_everything_is_pinned() {
    let store = Store::new(config()).unwrap();
    let me = store.join().unwrap();
    me.begin_turn(1);
    let key = |number: u32| format!("large-{number}").into_bytes();
    for number in 0..60 {
        set(&me, &key(number), &[b'l'; LARGE], 0, 0).unwrap();
    }
    let mut pins: Vec<_> = (0..60).filter_map(|number| pin(&me, &key(number))).collect();
    assert!(pins.len() > 15, "{}", pins.len());
    assert_eq!(set(&me, b"new", &[b'n'; LARGE], 0, 0), Err(DraftError::OutOfMemory));
    drop(pins.pop());
    set(&me, b"new", &[b'n'; LARGE], 0, 0).unwrap();
    assert_eq!(get(&me, b"new").unwrap(), [b'n'; LARGE]);
    assert!(pins.iter().all(|pin| pin.bytes_at(LARGE - 1) == b"l"));
}
