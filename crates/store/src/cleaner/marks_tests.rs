//! The rules of `lru::recency`, checked on a store against the real order of use, several times
//! around the circle of marks.

use super::Cleaner;
use crate::config::Config;
use crate::draft::NewItem;
use crate::handle::Handle;
use crate::lru::recency::{AGE_MAX, FIRST_TICK, Tick, UNUSED, mark_of, tick_of};
use crate::section::Change;
use crate::slabs::ClassId;
use crate::store::Store;
use arena::sync::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A store of which the test knows the tick of each key's last use.
struct World {
    store: Arc<Store>,
    me: Handle,
    cleaner: Cleaner,
    used: BTreeMap<u32, Tick>,
    random: u64,
}

impl World {
    fn new() -> Self {
        let config =
            Config { memory_bytes: 1 << 20, item_bytes_max: 64 << 10, ..Config::default() };
        let store = Store::new(config).unwrap();
        let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        Self { store, me, cleaner, used: BTreeMap::new(), random: 1 }
    }

    fn below(&mut self, end: u32) -> u32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        u32::try_from((self.random >> 33) % u64::from(end)).unwrap()
    }

    /// The only class that the test uses.
    fn class(&self) -> ClassId {
        self.store.slabs.class_for(24 + 4 + 2000)
    }

    fn tick(&self) -> Tick {
        self.store.tick(self.class())
    }

    fn put(&mut self, key: u32) {
        let name = key.to_le_bytes();
        let new = NewItem {
            key: &name,
            flags: 0,
            deadline: 0,
            value_len: 2000,
            base64_key: false,
            has_cas: false,
        };
        let mut draft = self.me.draft(new).unwrap();
        draft.push(&[b'v'; 2000]).unwrap();
        let hash = self.store.hash(&name);
        self.me.section().update(hash, &name, |_| Change::Put { draft, cas: None });
        self.used.insert(key, self.tick());
        self.me.quiesce();
    }

    fn get(&mut self, key: u32) {
        let name = key.to_le_bytes();
        if let Some(item) = self.me.section().find(self.store.hash(&name), &name) {
            item.touch();
            self.used.insert(key, self.store.tick(self.class()));
        }
    }

    fn clean(&mut self) {
        self.me.rest();
        self.cleaner.step(1, 500);
        self.me.begin_turn(1);
    }

    /// Each mark that is not zero names the tick of the last use. A zero says that the item was not
    /// used since the closing of its bag, or of the next one where that was the newest.
    fn check(&self) {
        let (list, now) = (self.store.list(self.class()), self.tick());
        let order = list.order.lock();
        let section = self.me.section();
        for (key, &used) in &self.used {
            let name = key.to_le_bytes();
            let Some(item) = section.find(self.store.hash(&name), &name) else { continue };
            let mark = mark_of(item.header.recency.load(Ordering::Relaxed));
            if mark != UNUSED {
                assert!(now - used <= AGE_MAX, "a mark of {used} at {now}");
                assert_eq!(tick_of(mark, now), Some(used), "a mark read at {now}");
                continue;
            }
            let (_, bag) = self.store.bag_at(item.header.pos.load(Ordering::Relaxed)).unwrap();
            let queue = &order.of(list.bag(bag).part()).bags;
            let place = queue.iter().position(|&other| other == bag).unwrap();
            // The bag that was opened after the next one was closed.
            if let Some(&later) = queue.get(place + 2) {
                let until = list.bag(later).opened_tick();
                assert!(used <= until, "used at {used}, and in a bag before {until}");
            }
        }
    }
}

#[test]
fn marks_show_the_last_use_across_wraparound() {
    let mut world = World::new();
    world.me.begin_turn(1);
    let mut steps = 0u32;
    while world.tick() < FIRST_TICK + 0x4_0000 {
        steps += 1;
        // Some keys are overwritten all the time, some are read occasionally, most never.
        let key = if steps.is_multiple_of(20) { world.below(2000) } else { world.below(8) };
        if steps.is_multiple_of(16) {
            let key = world.below(300);
            world.get(key);
        } else {
            world.put(key);
        }
        // Long stretches without a cleaner, in which the bags run out.
        if steps % 1_000_000 > 300_000 && steps.is_multiple_of(50) {
            world.clean();
        }
        if steps.is_multiple_of(997) {
            world.check();
        }
    }
    world.check();
}
