//! Next victims: the item that a class would evict next, found without evicting it.

use super::scan::next_item;
use crate::linked::ReadGuard;
use crate::lru::recency;
use crate::lru::{BagList, Cursor, Order, PARTS, Part};
use crate::slabs::ClassId;
use crate::store::Store;
use crate::thread::ThreadState;
use arena::ChunkRef;
use arena::sync::Ordering;
use std::rc::Rc;

/// Items examined to find the one that would be evicted next.
const LOOKS: usize = 48;
/// Pinned items passed over before that.
const PINNED: usize = 1024;

/// The item that a list of bags would evict next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    /// The class whose list it is in.
    pub class: ClassId,
    /// The turnover since the opening of the bag that was newest when it was used, in bytes.
    pub age: u64,
    pub chunk: ChunkRef,
}

/// The bag lists whose items hold chunks of this class. The largest class holds its own items and
/// the pieces of chained ones, whose heads are in a separate list.
pub(crate) fn lists_of(store: &Store, class: ClassId) -> impl Iterator<Item = ClassId> {
    let pieces = (class == store.slabs.largest()).then_some(store.slabs.heads());
    [Some(class), pieces].into_iter().flatten()
}

/// The oldest of the next victims of the [lists](lists_of) whose items hold chunks of this class.
pub(crate) fn next_victim(thread: &Rc<ThreadState>, class: ClassId) -> Option<Victim> {
    let victims = lists_of(&thread.store, class).filter_map(|list| next_in_list(thread, list));
    victims.max_by_key(|victim| victim.age)
}

/// Of the two queues' next victims, the one that counts as older.
fn next_in_list(thread: &Rc<ThreadState>, list_id: ClassId) -> Option<Victim> {
    let store = &*thread.store;
    let list = store.list(list_id);
    let order = list.order.lock();
    let _guard = ReadGuard::open(thread);
    let of = |part| {
        let victim = next_of(thread, list, &order, part)?;
        Some(Victim { age: store.tuning.age_of(part, victim.age), ..victim })
    };
    PARTS.into_iter().filter_map(of).max_by_key(|victim| victim.age)
}

/// The first item of a queue that was not used since its bag closed. If all are touched, the one
/// unused longest. Pinned items do not count, because their eviction frees no memory.
fn next_of(thread: &ThreadState, list: &BagList, order: &Order, part: Part) -> Option<Victim> {
    let store = &*thread.store;
    let (now, tick) = (store.turnover(), store.tick(list.id()));
    let (mut looks, mut pinned, mut oldest) = (0, 0, None::<Victim>);
    let queue = order.of(part);
    let mut from = queue.evict;
    for &index in &queue.bags {
        let bag = list.bag(index);
        while let Some((chunk, after)) = next_item(thread, bag, from) {
            from = after;
            if store.arena.is_pinned(chunk) {
                pinned += 1;
                if pinned > PINNED {
                    return oldest;
                }
                continue;
            }
            looks += 1;
            // Relaxed: a mark guards nothing.
            let word = store.arena.header(chunk).recency.load(Ordering::Relaxed);
            let touched = bag.touched_tick(recency::mark_of(word), tick);
            let age = now.saturating_sub(list.used_at(order, bag, touched));
            let victim = Victim { class: list.id(), age, chunk };
            if touched.is_none() && index != list.newest(part) {
                return Some(victim);
            }
            oldest = oldest.filter(|oldest| oldest.age >= victim.age).or(Some(victim));
            if looks == LOOKS {
                return oldest;
            }
        }
        from = Cursor::default();
    }
    oldest
}
