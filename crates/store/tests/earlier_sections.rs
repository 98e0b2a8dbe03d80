//! Knowledge from an earlier section: a hint, and touched items. Their pages have been recut since,
//! near the end of a store whose references name places.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::sync::Arc;

use store::{Change, Cleaner, Config, Handle, NewItem, Policy, Store};

fn set(me: &Handle, key: &[u8], value: &[u8]) -> bool {
    let new = NewItem {
        key,
        flags: 0,
        deadline: 0,
        value_len: value.len(),
        base64_key: false,
        has_cas: false,
    };
    let Ok(mut draft) = me.draft(new) else { return false };
    let is_whole = draft.push(value).is_ok();
    if is_whole {
        let change = Change::Put { draft, cas: None };
        me.section().update(me.store().hash(key), key, |_| change);
    }
    is_whole
}

/// A store that uses all the memory that it has reserved, the last pages for small items.
struct Full {
    store: Arc<Store>,
    me: Handle,
    cleaner: Cleaner,
    small: Vec<Vec<u8>>,
}

impl Full {
    fn new(policy: Policy) -> Self {
        let store = Store::new(Config {
            memory_bytes: 9 << 20,
            item_bytes_max: 1 << 20,
            seed: 1,
            by_place: true,
            policy,
            ..Config::default()
        })
        .unwrap();
        store.set_memory_limit(36 << 20).unwrap();
        let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        me.begin_turn(5);
        let mut number = 0;
        while room(&store) > 1 << 20 {
            assert!(set(&me, format!("large-{number}").as_bytes(), &[1; 15_000]));
            number += 1;
            me.quiesce();
        }
        let mut small = Vec::new();
        while store.stats().evictions == 0 {
            let key = format!("small-{}", small.len()).into_bytes();
            assert!(set(&me, &key, b"v"));
            small.push(key);
            me.quiesce();
        }
        Self { store, me, cleaner, small }
    }

    /// Deletes the small items, and gives their pages to large ones.
    fn repurpose_pages(&mut self) {
        let Self { store, me, cleaner, small } = self;
        for key in small {
            me.section().update(store.hash(key), key, |_| Change::Remove);
            me.quiesce();
        }
        for number in 0..3000 {
            let now = 20 + number / 10;
            me.begin_turn(now);
            set(me, format!("later-{number}").as_bytes(), &[2; 15_000]);
            me.rest();
            let _ = cleaner.step(now, 2000);
        }
        assert!(store.stats().slabs_moved > 0);
        me.begin_turn(1000);
    }
}

fn room(store: &Store) -> u64 {
    let memory = store.memory();
    memory.limit - memory.arena - memory.index - memory.bags
}

#[test]
fn a_hint_from_an_earlier_section_is_ignored() {
    let mut full = Full::new(Policy::Auto);
    let section = full.me.section();
    let hint = |key: &Vec<u8>| {
        let hash = full.store.hash(key);
        section.prefetch_item(hash, section.prefetch_bucket(hash))
    };
    let hints: Vec<_> = full.small.iter().map(hint).collect();
    drop(section);
    full.me.rest();
    full.repurpose_pages();
    for hint in hints {
        full.me.section().prefetch_value(hint);
    }
}

#[test]
fn touches_before_a_change_of_the_eviction_order_are_dropped() {
    let mut full = Full::new(Policy::Lru);
    let section = full.me.section();
    for key in &full.small {
        if let Some(item) = section.find(full.store.hash(key), key) {
            item.touch();
        }
    }
    full.store.set_policy(Policy::Auto);
    drop(section);
    full.me.rest();
    full.repurpose_pages();
    full.store.set_policy(Policy::Lru);
    drop(full.me.section());
}
