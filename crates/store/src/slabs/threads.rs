//! The free chunks that each thread keeps, by class.

use super::ClassId;
use super::class::ThreadsUse;
use arena::kept::KeptChunks;
use arena::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use std::sync::OnceLock;

/// The lists of one thread by class, from its first store on.
type Lists = OnceLock<Box<[CachePadded<KeptChunks>]>>;

/// Lists by the slots of threads, and by class.
#[derive(Debug)]
pub(super) struct KeptByThreads {
    slots: Box<[Lists]>,
    /// Slots that have lists.
    storing: AtomicU64,
}

impl KeptByThreads {
    /// Room for this many threads, none of which has lists yet.
    pub(super) fn new(threads: usize) -> Self {
        Self { slots: (0..threads).map(|_| OnceLock::new()).collect(), storing: AtomicU64::new(0) }
    }

    /// The list of a storing thread, which gets lists for this many classes if it has none.
    #[inline]
    pub(super) fn list(&self, slot: usize, id: ClassId, classes: usize) -> &KeptChunks {
        let lists = self.slots[slot].get_or_init(|| {
            // Relaxed: a number that only scales the lists.
            self.storing.fetch_add(1, Ordering::Relaxed);
            (0..classes).map(|_| CachePadded::default()).collect()
        });
        &lists[usize::from(id) - 1]
    }

    /// The list of a thread, if it has ever stored.
    #[inline]
    pub(super) fn existing(&self, slot: usize, id: ClassId) -> Option<&KeptChunks> {
        Some(&self.slots[slot].get()?[usize::from(id) - 1])
    }

    /// Threads that have lists; threads that have left count until others take their slots.
    pub(super) fn storing(&self) -> u64 {
        self.storing.load(Ordering::Relaxed)
    }

    /// The lists of all threads for one class.
    pub(super) fn lists(&self, id: ClassId) -> impl Iterator<Item = &KeptChunks> {
        (0..self.slots.len()).filter_map(move |slot| self.existing(slot, id))
    }

    pub(super) fn usage(&self, id: ClassId) -> ThreadsUse {
        self.lists(id).fold(ThreadsUse::default(), |sum, list| ThreadsUse {
            kept: sum.kept + list.len(),
            taken: sum.taken + list.taken(),
        })
    }
}
