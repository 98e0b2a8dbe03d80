//! Counts cache lines that writes of different threads contend for.
//!
//! With the feature `schedule`, a recording notes each load and store of [`crate::sync`] by the
//! line of 64 bytes in which it lies. A store is *contended* if another thread has loaded from the
//! line or stored to it since this one last stored there: a processor has to take such a line from
//! another one, which has to fetch it again. Taking a lock stores to each line of the lock and of
//! what it guards, except memory behind a pointer.
//!
//! The threads of a recording are names that one system thread takes in turn ([`act_as`]), so that
//! the counts are the same in each run. Memory other than atomics is not seen: keys and values, and
//! memory that a lock guards behind a pointer.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::LINE_BYTES;

/// Maximum number of threads of a recording.
pub const THREADS_MAX: u8 = 8;

/// The kind of memory in which a line lies: the type of the region; elsewhere, of the atomic or the
/// lock that was stored to.
pub type Kind = &'static str;

/// The contended stores of one thread since the last [`take`]: for each kind, the distinct lines.
pub type Contended = BTreeMap<Kind, usize>;

#[derive(Debug, Default)]
struct Recorder {
    /// By line: a bit for each thread, set if another one was there since it last was.
    foreign: HashMap<usize, u8>,
    /// Lines, and the type of what was stored to.
    contended: BTreeMap<usize, Kind>,
    regions: Vec<(Range<usize>, Kind)>,
}

thread_local! {
    /// The thread that acts now; `None`: nothing is recorded.
    static THREAD: Cell<Option<u8>> = const { Cell::new(None) };
    static RECORDER: RefCell<Recorder> = RefCell::default();
}

/// Records later accesses as this thread's, below [`THREADS_MAX`]; `None`: as no thread's.
///
/// # Panics
///
/// If there is no such thread.
pub fn act_as(thread: Option<u8>) {
    assert!(thread.is_none_or(|thread| thread < THREADS_MAX), "no such thread: {thread:?}");
    THREAD.set(thread);
}

/// The lines whose stores were contended since the last call.
#[must_use]
pub fn take() -> Contended {
    RECORDER.with_borrow_mut(|recorder| {
        let lines = std::mem::take(&mut recorder.contended);
        let mut kinds = Contended::new();
        for (line, stored) in lines {
            let kind = recorder.region_of(line * LINE_BYTES).unwrap_or(stored);
            *kinds.entry(kind).or_default() += 1;
        }
        kinds
    })
}

/// Notes that this system thread made a region.
pub(crate) fn note_region(addresses: Range<usize>, kind: Kind) {
    RECORDER.with_borrow_mut(|recorder| {
        // An unmapped region may have been here.
        recorder.regions.retain(|(other, _)| !overlap(other, &addresses));
        recorder.regions.push((addresses, kind));
    });
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Notes a load from this atomic.
#[inline]
pub(crate) fn loaded<T>(atomic: &T) {
    touch(atomic, false);
}

/// Notes a store to this atomic, or to all of the memory that a lock guards.
#[inline]
pub(crate) fn stored<T>(to: &T) {
    touch(to, true);
}

#[inline]
fn touch<T>(value: &T, is_store: bool) {
    if let Some(thread) = THREAD.get() {
        note(value, is_store, thread);
    }
}

#[cold]
fn note<T>(value: &T, is_store: bool, thread: u8) {
    let first = std::ptr::from_ref(value).addr();
    let last = first + size_of::<T>().max(1) - 1;
    RECORDER.with_borrow_mut(|recorder| {
        for line in first / LINE_BYTES..=last / LINE_BYTES {
            recorder.touch(line, thread, is_store.then(std::any::type_name::<T>));
        }
    });
}

impl Recorder {
    fn touch(&mut self, line: usize, thread: u8, stored: Option<Kind>) {
        let own = 1 << thread;
        let foreign = self.foreign.entry(line).or_default();
        let Some(kind) = stored else {
            // Others must be informed of the next store. This thread's ownership makes none of its
            // own stores free, because others have the line as well.
            *foreign |= !own;
            return;
        };
        if *foreign & own != 0 {
            self.contended.entry(line).or_insert(kind);
        }
        *foreign = !own;
    }

    fn region_of(&self, address: usize) -> Option<Kind> {
        let region = self.regions.iter().find(|(range, _)| range.contains(&address));
        region.map(|&(_, kind)| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::{act_as, take};
    use crate::sync::{AtomicU64, Mutex, Ordering};
    use crossbeam_utils::CachePadded;

    fn contended(thread: u8, act: impl FnOnce()) -> usize {
        act_as(Some(thread));
        let _ = take();
        act();
        act_as(None);
        take().values().sum()
    }

    #[test]
    fn a_store_is_contended_if_another_thread_was_there() {
        let [one, other] = [0, 1].map(|_| CachePadded::new(AtomicU64::new(0)));
        let store = |to: &AtomicU64| to.store(1, Ordering::Relaxed);
        let load = |from: &AtomicU64| _ = from.load(Ordering::Relaxed);
        assert_eq!(contended(0, || store(&one)), 0, "nobody was there");
        assert_eq!(contended(0, || store(&one)), 0);
        assert_eq!(contended(1, || store(&other)), 0, "another line");
        assert_eq!(contended(1, || load(&one)), 0, "a load");
        assert_eq!(contended(0, || store(&one)), 1, "it was loaded");
        assert_eq!(contended(1, || (0..3).for_each(|_| store(&one))), 1, "each line counts once");
        assert_eq!(contended(0, || _ = one.fetch_add(1, Ordering::Relaxed)), 1);
        assert_eq!(contended(0, || _ = one.swap(1, Ordering::Relaxed)), 0);
    }

    #[test]
    fn locking_stores_to_every_guarded_line() {
        let lock = CachePadded::new(Mutex::new([0_u64; 20]));
        let act = || lock.lock()[0] = 1;
        assert_eq!(contended(0, act), 0);
        assert_eq!(contended(1, act), 3);
        assert_eq!(contended(1, act), 0);
    }
}
