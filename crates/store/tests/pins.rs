//! Values being sent cannot be evicted, and do not delay stores.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops where it fails; it uses a part of what is shared"
)]

mod common;

use common::{config, get, set};
use store::{Change, Cleaner, DraftError, Handle, NewItem, Pin, Store};

const LARGE: usize = 600_000;
const PART: usize = 10_000;

fn pin(me: &Handle, key: &[u8]) -> Option<Pin> {
    me.section().find(me.store().hash(key), key)?.pin()
}

#[test]
fn a_large_store_skips_pinned_values_once() {
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

/// Pages leave the class of pieces while the values are being sent. Their senders continue with the
/// pieces that they know, all others find the moved ones, and nothing is evicted.
#[test]
fn values_being_sent_survive_moves_of_their_pieces() {
    let store = Store::new(config()).unwrap();
    let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
    me.begin_turn(1);
    let key = |number: u8| vec![b'k', number];
    // All at once, so that each page has pieces of several values.
    let mut drafts: Vec<_> = (0..16u8)
        .map(|number| {
            let key = &key(number)[..];
            let new = NewItem {
                key,
                flags: 0,
                deadline: 0,
                value_len: LARGE,
                base64_key: false,
                has_cas: false,
            };
            me.draft(new).unwrap()
        })
        .collect();
    for _ in 0..LARGE / PART {
        for (number, draft) in (0..).zip(&mut drafts) {
            draft.push(&[number; PART]).unwrap();
        }
    }
    for (number, draft) in (0..).zip(drafts) {
        let key = key(number);
        me.section().update(store.hash(&key), &key, |_| Change::Put { draft, cas: None });
    }
    // Room for the pieces that move.
    for number in (0..16).step_by(2) {
        set(&me, &key(number), b"", 0, 0).unwrap();
    }
    let pins: Vec<_> =
        (1..16).step_by(2).map(|number| (number, pin(&me, &key(number)).unwrap())).collect();
    let of_pieces = |class: &store::ClassStats| class.chunk_bytes == 16 << 10;
    let class = store.class_stats(1).into_iter().find(of_pieces).unwrap();
    let mut step = |secs: u32| {
        me.rest();
        for _ in 0..20 {
            cleaner.step(secs, 2000);
        }
        me.begin_turn(secs);
    };
    let pages = class.pages / 3;
    for _ in 0..pages {
        store.reassign(i32::from(class.id), 0).unwrap();
        step(1);
    }
    let is_whole = |number: u8| get(&me, &key(number)).unwrap() == [number; LARGE];
    assert!((1..16).step_by(2).all(is_whole));
    for (number, pin) in &pins {
        let mut read = Vec::new();
        while read.len() < LARGE {
            read.extend_from_slice(pin.bytes_at(read.len()));
        }
        assert!(read == [*number; LARGE], "value {number}, sent while its pieces moved");
    }
    let moved_before = store.stats().slabs_moved;
    // The cleaner checks the pages again, and finds nothing to do.
    (2..8).for_each(&mut step);
    assert_eq!(store.stats().evictions, 0);
    drop(pins);
    step(8);
    let stats = store.stats();
    assert!(moved_before < pages, "pages that senders may read are kept: {moved_before}");
    assert_eq!((stats.slabs_moved, stats.evictions), (pages, 0));
    assert!((1..16).step_by(2).all(is_whole));
}
