//! The age that a class's next victim would have after a page had gone from it.
//!
//! A page takes a page's worth of the class's coldest items with it. If that is a small part of the
//! class, these items are about as old as the next victim. A class of few pages may have a few old
//! items followed by only hot ones, so a sample of its items is examined.

use crate::linked::ReadGuard;
use crate::lru::{BagList, Order, recency};
use crate::slabs::ClassId;
use crate::store::Store;
use crate::thread::ThreadState;
use arena::ChunkRef;
use arena::chunks::Shape;
use arena::sync::Ordering;
use std::cmp::Reverse;
use std::rc::Rc;

/// A class with more pages: one page is a small part of it.
const FEW_PAGES: usize = 8;
/// Approximate number of sampled chunks.
const SAMPLED: usize = 128;

/// The age of the next victim after a page has left, by the ages of some of the items. `None` for a
/// class of many pages. A class's last page would take all items: then the youngest eighth counts
/// as left.
pub(super) fn age_after_page(
    thread: &Rc<ThreadState>,
    class: ClassId,
    pages: usize,
) -> Option<u64> {
    let store = &*thread.store;
    // Pieces have their head's age, which is in another class.
    if pages > FEW_PAGES || class == store.slabs.largest() {
        return None;
    }
    let mut ages = ages_of_some(thread, class, pages);
    ages.sort_unstable_by_key(|&age| Reverse(age));
    let gone = if pages > 1 { ages.len() / pages } else { ages.len() * 7 / 8 };
    // The number of departing items in a sample varies by about its square root.
    let depth = gone + gone.isqrt();
    ages.get(depth).or_else(|| ages.last()).copied()
}

/// Ages of the items in some chunks of all pages of the class.
fn ages_of_some(thread: &Rc<ThreadState>, class: ClassId, pages: usize) -> Vec<u64> {
    let store = &*thread.store;
    let slabs = &store.slabs;
    let start = thread.next_sample(7);
    let sampled = slabs.sample_pages(class, pages, start);
    let list = store.list(class);
    let order = list.order.lock();
    let _guard = ReadGuard::open(thread);
    let sampled_pages = sampled.len();
    let in_page = |page| {
        // Read after the page was seen in the class: before that, the class may be refitted, and
        // the page be recut.
        let (per_page, chunk_bytes) =
            (slabs.class(class).per_page(), slabs.class(class).chunk_bytes());
        let step = (per_page * sampled_pages / SAMPLED).max(1);
        let cut = slabs.cut_chunks(page);
        (start % step..per_page)
            .step_by(step)
            .map(move |index| (index < cut).then(|| store.arena.chunk(page, index, chunk_bytes)))
    };
    sampled
        .into_iter()
        .filter(|&page| slabs.page_class(page) == class)
        .flat_map(in_page)
        .map(|chunk| chunk.map_or(u64::MAX, |chunk| age_in(store, list, &order, chunk)))
        .collect()
}

/// The age of a chunk's item. A free chunk need not be evicted, so it is older than all; a draft
/// cannot be evicted.
fn age_in(store: &Store, list: &BagList, order: &Order, chunk: ChunkRef) -> u64 {
    let header = store.arena.header(chunk);
    match header.shape() {
        Shape(Shape::FREE | Shape::KEPT) => return u64::MAX,
        Shape(Shape::DRAFT) => return 0,
        _ => {}
    }
    // Relaxed: the age is an estimate, and a chunk may change while it is made.
    let place = store.bag_at(header.pos.load(Ordering::Relaxed));
    let Some((_, bag)) = place.filter(|(of, _)| of.id() == list.id()) else { return u64::MAX };
    let bag = list.bag(bag);
    let mark = recency::mark_of(header.recency.load(Ordering::Relaxed));
    let used_at = list.used_at(order, bag, bag.touched_tick(mark, store.tick(list.id())));
    store.tuning.age_of(bag.part(), store.turnover().saturating_sub(used_at))
}
