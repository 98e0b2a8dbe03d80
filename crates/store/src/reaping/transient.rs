//! Frees transient items in the second in which they expire, by the notes of the transient ring.

use crate::expiry::transient::Note;
use crate::item::{Item, Liveness};
use crate::linked::{ReadGuard, Verdict, hash_of, with_linked};
use crate::stats::Count;
use crate::thread::ThreadState;
use arena::ChunkRef;
use std::rc::Rc;

/// Notes examined in one section.
const BATCH: usize = 32;
/// Maximum number of freed items that may wait for the end of other threads' sections.
const RETIRED_MAX: usize = 1 << 14;

/// Frees expired items, of those whose notes are due, examining about `budget` notes. Returns the
/// number of notes examined, and of items freed.
pub(crate) fn expire(thread: &Rc<ThreadState>, budget: usize) -> (usize, usize) {
    let store = &*thread.store;
    let mut due = Vec::with_capacity(BATCH);
    let (mut looked, mut freed) = (0, 0);
    while looked < budget && thread.retired_count() < RETIRED_MAX {
        due.clear();
        store.transients.take_due(&store.blocks, thread.now_secs(), &mut due, BATCH);
        if due.is_empty() {
            break;
        }
        looked += due.len();
        freed += expire_batch(thread, &due);
        thread.settle();
    }
    (looked, freed)
}

/// Frees the dead items in these chunks, at most `BATCH` of them. Returns their number.
fn expire_batch(thread: &Rc<ThreadState>, due: &[ChunkRef]) -> usize {
    let store = &*thread.store;
    let guard = ReadGuard::open(thread);
    due.iter().for_each(|&chunk| store.arena.prefetch(chunk));
    let mut hashes = [0; BATCH];
    for (&chunk, hash) in due.iter().zip(&mut hashes) {
        if guard.noted(chunk).is_some() {
            *hash = hash_of(store, chunk);
            store.table.prefetch(*hash);
        }
    }
    let mut freed = 0;
    for (&chunk, hash) in due.iter().zip(hashes) {
        // Checked again: another thread may have unlinked the item since its hash was taken.
        if guard.noted(chunk).is_none() {
            continue;
        }
        let verdict = with_linked(thread, chunk, hash, |item| judge(thread, item));
        freed += usize::from(verdict == Some(Verdict::Remove));
    }
    freed
}

/// Removes and counts a dead item. A live one has received a later deadline since it was noted.
fn judge(thread: &ThreadState, item: &Item<'_>) -> Verdict {
    let liveness = item.liveness();
    if matches!(liveness, Liveness::Live | Liveness::Deleted) {
        return Verdict::Stay;
    }
    let class = item.class();
    thread.count(class, Count::Reclaimed, 1);
    thread.count(class, Count::TransientReclaimed, 1);
    if liveness == Liveness::Expired && !item.is_fetched() {
        thread.count(class, Count::ExpiredUnfetched, 1);
    }
    Verdict::Remove
}

/// Drops outdated notes if there are many more notes than items. `true` if there is more to do.
pub(crate) fn sift_notes(thread: &Rc<ThreadState>) -> bool {
    let store = &*thread.store;
    let mut notes = Vec::new();
    let items = || store.counters.total(Count::Items);
    let second = store.transients.take_to_sift(&store.blocks, items, &mut notes);
    let Some(second) = second else { return false };
    notes.sort_unstable();
    notes.dedup();
    for batch in notes.chunks(BATCH) {
        let guard = ReadGuard::open(thread);
        let is_due = |chunk| guard.noted(chunk).is_some_and(|item| item.deadline() == second);
        let kept = batch.iter().copied().filter(|&chunk| is_due(chunk));
        thread.notes.borrow_mut().extend(kept.map(|chunk| Note { deadline: second, chunk }));
        drop(guard);
        thread.settle();
    }
    thread.file_notes();
    true
}
