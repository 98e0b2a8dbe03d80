//! The version of a linked item: its cas unique, and the marks of the invalidation that gave it.
//!
//! A client stores what it has computed from a value on condition that the cas unique is still that
//! of the value. So no reader may be shown the cas unique of an invalidation without the mark that
//! the value is stale: it would store what it computed from the stale value as fresh. Marks and cas
//! unique are two words, and readers take no lock. So the order matters:
//!
//! ```text
//!     invalidate:  marks, then cas unique      read:  cas unique, then marks
//! ```
//!
//! A reader in between finds the old cas unique with the new marks. A store on that condition
//! fails, as it does a moment later; but no such version ever existed. So code that shows the cas
//! unique of a stale item reads its version again under the key's stripe.
//!
//! Relaxed is enough for the marks: the cas unique publishes them.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The mark of a value that was invalidated but may be read.
pub const STALE: u32 = 1 << 27;
/// The mark of a value whose renewal was given to a reader.
pub const WON: u32 = 1 << 28;

/// An item's cas unique (0: it has none), and facts that held when the item had that one, or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The cas unique.
    pub cas: u64,
    /// Invalidated, but still readable as stale.
    pub is_stale: bool,
    /// A recache win has been handed out.
    pub is_won: bool,
}

/// Marks an item as stale, and gives its cas unique, if it has one, a new value. The caller holds
/// the key's stripe.
pub fn invalidate(unique: Option<(&AtomicU64, u64)>, marks: &AtomicU32) {
    // One step, so that no reader finds the new mark with an earlier win.
    let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
    let _ = marks.fetch_update(set, fetch, |seen| Some((seen | STALE) & !WON));
    if let Some((cas, new)) = unique {
        // Release: partner of the Acquire in `cas`; a reader of this cas unique sees the marks.
        cas.store(new, Ordering::Release);
    }
}

/// An item's cas unique. Marks that are loaded after this are not older than it.
#[inline]
pub fn cas(cas: &AtomicU64) -> u64 {
    // Acquire: partner of the Release in `invalidate`.
    cas.load(Ordering::Acquire)
}

/// An item's version.
#[inline]
pub fn read(unique: Option<&AtomicU64>, marks: &AtomicU32) -> Version {
    let cas = unique.map_or(0, cas);
    let marks = marks.load(Ordering::Relaxed);
    Version { cas, is_stale: marks & STALE != 0, is_won: marks & WON != 0 }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const OLD: u64 = 1;
    const NEW: u64 = 2;

    /// A reader during an invalidation of an item whose renewal had been won: if it sees the new
    /// cas unique, it sees the mark, and no earlier win.
    ///
    /// Seen to fail: the cas unique stored first; a relaxed store of it; the marks read first; a
    /// relaxed load of the cas unique.
    #[test]
    fn loom_the_new_cas_unique_comes_with_its_marks() {
        loom::model(|| {
            let item = Arc::new((AtomicU64::new(OLD), AtomicU32::new(WON)));
            let reader = thread::spawn({
                let item = Arc::clone(&item);
                move || {
                    let seen = read(Some(&item.0), &item.1);
                    let is_right = seen.cas == OLD || (seen.is_stale && !seen.is_won);
                    assert!(is_right, "{seen:?}");
                }
            });
            invalidate(Some((&item.0, NEW)), &item.1);
            assert!(reader.join().is_ok());
            let after = Version { cas: NEW, is_stale: true, is_won: false };
            assert_eq!(read(Some(&item.0), &item.1), after);
        });
    }
}
