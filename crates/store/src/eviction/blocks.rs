//! Freeing bag blocks while few are free.
//!
//! An item that leaves its bag leaves a hole, so the bags of overwritten items have many more slots
//! than items. The cleaner compacts them while blocks are short. A storing thread that has taken a
//! block in that time frees others before its next store, outside of all locks: it compacts a bag
//! with holes, or else evicts. So stores use up the last blocks only while neither is possible.

use super::clean::{BLOCKS_PER_LOCK, compact, is_compactible, merge, next_of};
use super::evict::evict;
use crate::linked::ReadGuard;
use crate::lru::BagList;
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::thread::ThreadState;
use arena::blocks::SLOTS;
use std::cmp::Reverse;
use std::rc::Rc;

/// Attempts by one store. Each frees some blocks, unless other threads delay it.
const ROUNDS: usize = 32;
/// Items evicted together.
const BATCH: usize = 32;

/// A list, and the number of its bags' slots and of their holes.
#[derive(Clone, Copy, Debug)]
struct Slots {
    class: ClassId,
    slots: u64,
    holes: u64,
}

/// Frees bag blocks until they are no longer short. Does nothing inside a section: other threads
/// might wait for this one, which holds a lock there.
#[cold]
pub(crate) fn make_blocks(thread: &Rc<ThreadState>) {
    let store = &*thread.store;
    if thread.depth() > 0 {
        return;
    }
    for _ in 0..ROUNDS {
        if !store.blocks.is_short() {
            break;
        }
        // Bags that closed a short time ago may be settled.
        thread.settle();
        let lists = store.lists.iter().filter_map(|list| slots_of(thread, list));
        let mut lists: Vec<Slots> = lists.collect();
        lists.sort_unstable_by_key(|list| Reverse(list.holes));
        let mut sparse = lists.iter().filter(|list| list.holes * 4 > list.slots);
        if sparse.any(|list| compact_list(thread, list.class)) {
            continue;
        }
        if lists.len() < store.lists.len() {
            // Another thread may be freeing blocks of a list with holes.
            break;
        }
        lists.sort_unstable_by_key(|list| Reverse(list.slots));
        let mut largest = lists.iter().filter(|list| store.evict && list.slots > 0);
        if !largest.any(|list| evict(thread, list.class, BATCH) > 0) {
            break;
        }
    }
    // After an attempt in vain, the next is due with the next fresh block.
    thread.forget_owed_blocks();
}

/// `None` if another thread holds the list's order lock.
fn slots_of(thread: &ThreadState, list: &BagList) -> Option<Slots> {
    let store = &*thread.store;
    let order = list.order.try_lock()?;
    let slots = order.bags().map(|bag| u64::from(list.bag(bag).capacity())).sum::<u64>();
    drop(order);
    let items = store.counters.of_class(list.id(), Count::Items);
    Some(Slots { class: list.id(), slots, holes: slots.saturating_sub(items) })
}

/// Compacts the first blocks of a bag, or merges a bag of one block into the next. Begins with the
/// bag that was compacted last, since those before it were not worth compacting. `true` if a block
/// became free.
fn compact_list(thread: &Rc<ThreadState>, class: ClassId) -> bool {
    let store = &*thread.store;
    let (list, blocks) = (store.list(class), &store.blocks);
    let mut order = list.order.lock();
    let mut bags: Vec<u8> = order.bags().collect();
    let last = bags.iter().position(|&bag| Some(bag) == order.compacted);
    bags.rotate_left(last.unwrap_or(0));
    for bag in bags {
        let is_closed = |bag| !list.is_newest(bag) && list.bag(bag).is_settled(&store.qsbr);
        if !is_closed(bag) {
            continue;
        }
        let _guard = ReadGuard::open(thread);
        if is_compactible(thread, list, bag, BLOCKS_PER_LOCK) {
            order.compacted = Some(bag);
            return compact(thread, list, &mut order, bag, BLOCKS_PER_LOCK).1 > 0;
        }
        if list.bag(bag).capacity() > SLOTS {
            continue;
        }
        let items = list.bag(bag).items(blocks);
        let next = next_of(list, &order, bag).filter(|&next| is_closed(next));
        let has_room = |next| items + blocks.claimed(list.bag(next).end_blocks().1) <= SLOTS;
        if items == 0 {
            let is_freed = list.bag(bag).capacity() > 0;
            list.free(&mut order, blocks, bag);
            if is_freed {
                return true;
            }
        } else if let Some(next) = next.filter(|&next| has_room(next)) {
            merge(thread, list, &mut order, bag, next);
            return list.bag(bag).capacity() == 0;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS_PER_LOCK, SLOTS, make_blocks, slots_of};
    use crate::config::regions::Memory;
    use crate::config::{Config, Layout};
    use crate::eviction::clean::clean;

    use crate::{Applied, BagStep, BagWalk, Change, Cleaner, DraftError, Handle, NewItem, Store};
    use std::sync::Arc;

    /// A store with few blocks, for fewer items than its memory.
    fn store_of(blocks: usize, evict: bool) -> Arc<Store> {
        let config = Config { memory_bytes: 16 << 20, evict, ..Config::default() };
        let config = Config { item_bytes_max: 64 << 10, ..config };
        let mut layout = Layout::new(&config).unwrap();
        layout.block_words = blocks * 64;
        let memory = Memory::anonymous(&layout).unwrap();
        Arc::new(Store::over(&config, &layout, memory, 1).unwrap())
    }

    fn put(me: &Handle, number: u32, value: &[u8]) -> Applied {
        let key = number.to_le_bytes();
        let new = NewItem {
            key: &key,
            flags: 0,
            deadline: 0,
            value_len: value.len(),
            base64_key: false,
            has_cas: false,
        };
        let mut draft = me.draft(new).unwrap();
        draft.push(value).unwrap();
        let hash = me.thread.store.hash(&key);
        let applied = me.section().update(hash, &key, |_| Change::Put { draft, cas: None });
        me.quiesce();
        applied
    }

    fn delete(me: &Handle, number: u32) {
        let key = number.to_le_bytes();
        me.section().update(me.thread.store.hash(&key), &key, |_| Change::Remove);
    }

    fn has(me: &Handle, number: u32) -> bool {
        let key = number.to_le_bytes();
        me.section().find(me.thread.store.hash(&key), &key).is_some()
    }

    #[test]
    fn items_are_evicted_where_blocks_are_full() {
        let store = store_of(64, true);
        let me = store.join().unwrap();
        me.begin_turn(1);
        for number in 0..20_000 {
            assert_eq!(put(&me, number, b"v"), Applied::Stored { cas: 0 }, "{number}");
            assert!(has(&me, number));
        }
        // A list that another thread holds may have holes. It delays no store, and until it is free
        // nothing is evicted for blocks.
        let other = store.list(store.slabs.class_for(24 + 4 + 3000)).order.lock();
        while !store.blocks.is_short() {
            put(&me, 19_999, b"v");
        }
        let evictions = store.stats().evictions;
        make_blocks(&me.thread);
        assert_eq!(store.stats().evictions, evictions);
        drop(other);
        make_blocks(&me.thread);
        assert!(!store.blocks.is_short());
        // Any class may store.
        assert_eq!(put(&me, 20_000, &[b'v'; 3000]), Applied::Stored { cas: 0 });
        let kept = (0..20_000).filter(|&number| has(&me, number)).count();
        assert!((1500..3780).contains(&kept), "{kept}");
        assert_eq!(store.stats().evictions, 20_001 - store.stats().items);
    }

    #[test]
    fn a_store_without_eviction_compacts_bags_and_then_refuses() {
        let store = store_of(64, false);
        let me = store.join().unwrap();
        me.begin_turn(1);
        for number in 0..20_000 {
            let stored = put(&me, number % 1000, b"v");
            assert!(matches!(stored, Applied::Stored { .. }), "{number}: {stored:?}");
        }
        let refused = (1000..5000)
            .find(|&number| put(&me, number, b"v") == Applied::Refused(DraftError::OutOfMemory));
        assert!(refused.is_some_and(|number| number > 1500), "{refused:?}");
        assert!((0..refused.unwrap()).all(|number| has(&me, number)));
        // The next stores do not search in vain again.
        make_blocks(&me.thread);
        assert!(store.blocks.is_short() && !me.thread.owes_blocks());
    }

    /// The cleaner comes too seldom to merge each bag before blocks are short.
    #[test]
    fn a_store_is_never_refused_while_the_cleaner_compacts_bags() {
        let store = store_of(256, false);
        let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        me.begin_turn(1);
        let (mut random, mut short) = (1_u32, 0);
        for number in 0..100_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = if number < 6000 { number } else { (random >> 8) % 6000 };
            let stored = put(&me, key, b"v");
            assert!(matches!(stored, Applied::Stored { .. }), "{number}: {stored:?}");
            short += u32::from(store.blocks.is_short());
            if number % 100 == 0 {
                me.rest();
                (0..4).for_each(|_| _ = cleaner.step(1, 200));
                me.begin_turn(1);
            }
        }
        assert!(short > 0);
        assert!((0..6000).all(|number| has(&me, number)));
    }

    /// Without help from the storing thread. A walk over the bags goes on meanwhile.
    #[test]
    fn the_cleaner_compacts_large_bags_in_parts() {
        let store = store_of(4096, false);
        let me = store.join().unwrap();
        me.begin_turn(1);
        // Small bags would only be merged: none of the first ones are left.
        let items = 100_000..260_000;
        (0..160_000).for_each(|number| _ = put(&me, number, b"v"));
        (0..items.start).for_each(|number| delete(&me, number));
        (160_000..items.end).for_each(|number| _ = put(&me, number, b"v"));
        let thread = &me.thread;
        let class = store.slabs.class_for(24 + 4 + 1);
        thread.settle();
        while !clean(thread, class, 100_000).has_ended {}
        let (mut overwritten, mut short) = (items.start, 0);
        while short < 3000 {
            me.thread.forget_owed_blocks();
            put(&me, overwritten, b"v");
            overwritten += 2;
            short += u32::from(store.blocks.is_short());
        }
        let slots = || slots_of(thread, store.list(class)).unwrap().slots;
        let before = slots();
        let mut walk = BagWalk::default();
        // As many items may be merged, or some blocks compacted.
        let merged = usize::try_from(store.slabs.class(class).used() / 128).unwrap();
        let most = merged.max(BLOCKS_PER_LOCK * SLOTS as usize) + 1;
        loop {
            thread.settle();
            let done = clean(thread, class, 1);
            assert!(done.checked <= most, "{} items under one lock", done.checked);
            if let BagStep::Bag(bag) = store.walk_bags(&mut walk) {
                assert!(bag.items <= bag.slots, "{bag:?}");
            }
            if done.has_ended {
                break;
            }
        }
        let after = slots();
        assert!(!store.blocks.is_short() && after < before, "{before} slots, then {after}");
        assert!(items.clone().all(|number| has(&me, number)));
        let (mut walk, mut counted) = (BagWalk::default(), 0);
        loop {
            match store.walk_bags(&mut walk) {
                BagStep::More => {}
                BagStep::Bag(bag) => counted += bag.items,
                BagStep::Ended => break,
            }
        }
        assert_eq!(counted as usize, items.len());
    }
}
