//! Frees memory of the hash table that few items need, so that a page finds room.

use crate::store::Store;

/// Maximum number of buckets merged or sifted, or chains examined, in one step.
const BUCKETS_PER_STEP: usize = 256;

/// Makes the table shrink.
#[derive(Debug, Default)]
pub(super) struct Shrinker {
    /// Buckets to merge, as of the last look at the items.
    surplus: usize,
    /// The epoch of the last merge of buckets whose memory will be freed.
    merged: Option<u64>,
    overflow: Overflow,
}

/// Progress with the overflow buckets.
#[derive(Clone, Copy, Debug, Default)]
enum Overflow {
    #[default]
    Kept,
    /// Free buckets from `kept` on are being retired.
    Sifting { kept: usize },
    /// Buckets from `kept` on are being emptied; the chains of the buckets before `home` have none.
    Emptying { kept: usize, home: usize },
    /// Waiting for the end of the sections in which a lookup may be in one of them.
    Emptied { epoch: u64 },
    /// Their memory is being freed.
    Unused,
}

impl Shrinker {
    /// Computes the number of buckets that the items need.
    pub(super) fn look(&mut self, store: &Store) {
        let is_short = !store.budget.has_room(store.slabs.page_bytes());
        self.surplus = if is_short { store.table.surplus() } else { 0 };
        if is_short && self.surplus == 0 && matches!(self.overflow, Overflow::Kept) {
            let begun = store.table.begin_without_overflow();
            self.overflow = begun.map_or(Overflow::Kept, |kept| Overflow::Sifting { kept });
        }
    }

    /// Does the next step.
    pub(super) fn step(&mut self, store: &Store) {
        self.merge(store);
        self.overflow = match self.overflow {
            Overflow::Sifting { kept } if store.table.sift_overflow(BUCKETS_PER_STEP) => {
                Overflow::Emptying { kept, home: 0 }
            }
            Overflow::Emptying { kept, home } => empty(store, kept, home),
            Overflow::Emptied { epoch } if store.qsbr.is_safe(epoch) => {
                store.table.end_without_overflow();
                Overflow::Unused
            }
            Overflow::Unused => match store.table.give_back_overflow() {
                0 => Overflow::Kept,
                bytes => {
                    store.budget.give_back(bytes);
                    Overflow::Unused
                }
            },
            unchanged => unchanged,
        };
    }

    /// Frees the memory of buckets that no lookup can be reading, and merges some others.
    fn merge(&mut self, store: &Store) {
        if let Some(epoch) = self.merged {
            if !store.qsbr.is_safe(epoch) {
                return;
            }
            store.budget.give_back(store.table.give_back());
            self.merged = None;
        }
        let merges = self.surplus.min(BUCKETS_PER_STEP);
        let is_done = (0..merges).all(|_| store.table.merge_one());
        self.surplus = if is_done { self.surplus - merges } else { 0 };
        if store.table.has_unused() {
            self.merged = Some(store.qsbr.epoch());
        }
    }
}

/// Empties overflow buckets from `kept` on in the next chains.
fn empty(store: &Store, kept: usize, home: usize) -> Overflow {
    let buckets = store.table.buckets();
    let end = buckets.min(home + BUCKETS_PER_STEP);
    (home..end).for_each(|home| store.table.move_overflow(home, kept));
    match store.table.is_without_overflow() {
        _ if end < buckets => Overflow::Emptying { kept, home: end },
        true => Overflow::Emptied { epoch: store.qsbr.epoch() },
        false => Overflow::Kept,
    }
}
