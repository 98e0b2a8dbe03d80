//! The cleaner's check of sizes: which classes deserve chunks that fit them (see `slabs::fitted`).

use crate::linked::ReadGuard;
use crate::slabs::ClassId;
use crate::thread::ThreadState;
use arena::chunks::{PIECE_AT, Shape};
use std::rc::Rc;

/// A class is first examined when this part of the limit was stored in it.
const FIRST_SHARE: u64 = 64;
/// It is examined again after this part was stored.
const NEXT_SHARE: u64 = 16;
/// Minimum pages' worth stored between two looks. A small store is not cut into many classes.
const PAGES: u64 = 8;
/// Pages of a class that are sampled, and chunks of each.
const SAMPLE: (usize, usize) = (16, 16);

/// Chunks ever stored by class, at its last examination.
#[derive(Debug, Default)]
pub(crate) struct Fitter {
    looked_at: Vec<u64>,
}

impl Fitter {
    /// Examines the first class that is due, if there is one.
    pub(crate) fn step(&mut self, thread: &Rc<ThreadState>) {
        let store = &*thread.store;
        // Without eviction a fitted class would find no page in a full store, while chunks of the
        // class that had its sizes are free.
        if !store.evict {
            return;
        }
        self.looked_at.resize(usize::from(store.slabs.count()) + 1, 0);
        let is_of_items = |&id: &ClassId| id != store.slabs.largest() && id != store.slabs.heads();
        let due = (1..=store.slabs.count()).filter(is_of_items).find(|&id| self.is_due(thread, id));
        let Some(class) = due else { return };
        self.looked_at[usize::from(class)] = store.slabs.stored(class);
        let mut sizes = sizes(thread, class);
        store.slabs.fit(store.control(), &store.qsbr, class, &mut sizes);
    }

    fn is_due(&self, thread: &ThreadState, class: ClassId) -> bool {
        let store = &*thread.store;
        let last = self.looked_at[usize::from(class)];
        let share = if last == 0 { FIRST_SHARE } else { NEXT_SHARE };
        let least = (store.budget.limit() / share).max(PAGES * store.slabs.page_bytes());
        let since = store.slabs.stored(class) - last;
        since * store.slabs.class(class).chunk_bytes() as u64 >= least
    }
}

/// Bytes of some items and pieces of the class.
fn sizes(thread: &Rc<ThreadState>, class: ClassId) -> Vec<usize> {
    let (pages, chunks) = SAMPLE;
    let start = thread.next_sample(1);
    let (slabs, arena) = (&thread.store.slabs, &thread.store.arena);
    let chunk_bytes = slabs.class(class).chunk_bytes();
    let guard = ReadGuard::open(thread);
    let mut sizes = Vec::new();
    for page in slabs.sample_pages(class, pages, start) {
        // A page that leaves the class now does not change until the section ends.
        let cut = if slabs.page_class(page) == class { slabs.cut_chunks(page) } else { 0 };
        for nth in (0..cut).step_by((cut / chunks).max(1)) {
            let chunk = arena.chunk(page, nth, chunk_bytes);
            if let Some(item) = guard.linked(chunk) {
                sizes.push(item.bytes_in_chunk());
            } else if arena.header(chunk).shape() == Shape(Shape::PIECE) {
                sizes.push(PIECE_AT + arena.piece(chunk).1);
            }
        }
    }
    sizes
}
