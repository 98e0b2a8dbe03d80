//! Cas uniques: numbers that a store gives to items, each once.
//!
//! One counter holds the next number. Threads take blocks of it, so that storing shares no line
//! (decision 14). An item gets a number when it is stored if its client receives the number or
//! chose it. Any other item gets one when a client first asks for it.
//!
//! A number never comes twice, and the numbers of one key rise as its items follow each other:
//!
//! * `next`: greater than the number of the replaced item. It may be from a block that was taken
//!   long ago.
//! * `fresh`: greater than every number given before. It is for the item of a key whose earlier
//!   numbers are unknown, because an item without a number came between.
//! * A number that a client chose raises the counter above itself, so the two rules also hold with
//!   chosen numbers. Numbers over [`CHOSEN_MAX`] do not: nothing may bring the counter to its end.
//!   No counter comes there, so these are not given twice either.
//!
//! A chosen number is an exception: it may be one that a thread's block still has. That number is
//! then given once more, possibly to the same key, if its item was deleted since. memcached's
//! counter also passes chosen numbers in this way.
//!
//! Relaxed is enough: the numbers guard no other memory. A thread that has seen a number has seen
//! the addition that took it, or a later one, and adds later.

use crate::sync::{AtomicU64, Ordering};
use std::cell::Cell;

/// Numbers that a thread takes together.
const BLOCK: u64 = 1024;

/// The greatest chosen number that raises the counter.
pub const CHOSEN_MAX: u64 = 1 << 63;

/// Numbers reserved for one thread: the next one, and the end of the block.
#[derive(Debug, Default)]
pub struct UniqueBlock(Cell<(u64, u64)>);

impl UniqueBlock {
    /// A number of this block, or of a new one if this one is used up or not greater than `old`.
    /// Always greater than `old`, unless that is the last number: then it is another.
    pub fn next(&self, counter: &AtomicU64, old: u64) -> u64 {
        let (mut next, mut end) = self.0.get();
        if next == end || next <= old {
            next = counter.fetch_add(BLOCK, Ordering::Relaxed);
            end = next + BLOCK;
        }
        self.0.set((next + 1, end));
        // A client may have chosen an `old` above all numbers that the store gives out.
        if next <= old { old.checked_add(1).unwrap_or(next) } else { next }
    }

    /// A number greater than every number given before. It starts a new block, so the thread's
    /// later numbers are greater, too, whatever happens to the item.
    pub fn fresh(&self, counter: &AtomicU64) -> u64 {
        let fresh = counter.fetch_add(BLOCK, Ordering::Relaxed);
        self.0.set((fresh + 1, fresh + BLOCK));
        fresh
    }
}

/// Notes that a client has chosen this number.
pub fn note_chosen(counter: &AtomicU64, chosen: u64) {
    if chosen <= CHOSEN_MAX && counter.load(Ordering::Relaxed) <= chosen {
        counter.fetch_max(chosen + 1, Ordering::Relaxed);
    }
}

/// `true` if a number that a client holds is older than the one that an item without a number would
/// get now.
#[must_use]
pub fn is_older(counter: &AtomicU64, held: u64) -> bool {
    held < counter.load(Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_exceed_replaced_and_client_chosen_ones() {
        let counter = AtomicU64::new(1);
        let (one, other) = (UniqueBlock::default(), UniqueBlock::default());
        assert_eq!(one.next(&counter, 0), 1);
        assert_eq!(other.next(&counter, 0), 1025);
        assert_eq!(one.next(&counter, 1025), 2049, "its block was older");
        assert_eq!(one.fresh(&counter), 3073);
        assert_eq!(one.next(&counter, 0), 3074, "a key that was deleted meanwhile has no number");
        note_chosen(&counter, 5000);
        assert_eq!(one.fresh(&counter), 5001);
        note_chosen(&counter, 7);
        assert_eq!(one.fresh(&counter), 6025, "a number that is given already changes nothing");
        assert!(is_older(&counter, 6025) && !is_older(&counter, 7049));
    }

    #[test]
    fn a_chosen_number_near_the_maximum_does_not_move_the_counter() {
        let counter = AtomicU64::new(1);
        note_chosen(&counter, u64::MAX);
        note_chosen(&counter, CHOSEN_MAX + 1);
        let block = UniqueBlock::default();
        assert_eq!(block.fresh(&counter), 1);
        assert_eq!(block.next(&counter, u64::MAX - 1), u64::MAX);
        let another = block.next(&counter, u64::MAX);
        assert!(
            another < u64::MAX,
            "there is none above, and a `cas` with it must not succeed twice"
        );
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// One thread gives an item its block's number, another a fresh one to the item's successor,
    /// while a third takes a fresh one for another key.
    ///
    /// Seen to fail: `fresh` by a load and a store.
    #[test]
    fn loom_a_fresh_number_is_unique_and_above_those_seen() {
        loom::model(|| {
            let (counter, shown) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
            let storing = thread::spawn({
                let (counter, shown) = (Arc::clone(&counter), Arc::clone(&shown));
                move || {
                    let number = UniqueBlock::default().next(&counter, 0);
                    // Release: partner of the Acquire below, as for the table's slot of an item.
                    shown.store(number, Ordering::Release);
                    number
                }
            });
            let other = thread::spawn({
                let counter = Arc::clone(&counter);
                move || UniqueBlock::default().fresh(&counter)
            });
            // Acquire: partner of the Release above.
            let seen = shown.load(Ordering::Acquire);
            let number = UniqueBlock::default().fresh(&counter);
            assert!(number > seen, "{number} after {seen}");
            let (stored, other) = (storing.join().unwrap(), other.join().unwrap());
            assert!(number != other && number != stored && other != stored);
            // A block belongs to one thread.
            let block = stored..stored + BLOCK;
            assert!(!block.contains(&number) && !block.contains(&other));
        });
    }

    /// One thread stores under a chosen number, while another takes fresh ones: later numbers are
    /// above the chosen one, and no number comes twice.
    ///
    /// Seen to fail: the counter raised by a load and a store.
    #[test]
    fn loom_a_chosen_number_is_not_issued_later() {
        const CHOSEN: u64 = 2;
        loom::model(|| {
            let (counter, shown) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
            let choosing = thread::spawn({
                let (counter, shown) = (Arc::clone(&counter), Arc::clone(&shown));
                move || {
                    note_chosen(&counter, CHOSEN);
                    // Release: partner of the Acquire below.
                    shown.store(CHOSEN, Ordering::Release);
                }
            });
            let mut last = 0;
            for _ in 0..2 {
                // Acquire: partner of the Release above.
                let seen = shown.load(Ordering::Acquire);
                let number = UniqueBlock::default().fresh(&counter);
                assert!(number > seen && number > last, "{number} after {seen} and {last}");
                last = number;
            }
            choosing.join().unwrap();
            assert!(UniqueBlock::default().fresh(&counter) > last.max(CHOSEN));
        });
    }
}
