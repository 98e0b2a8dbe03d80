//! The recency mark: what a GET leaves in an item instead of moving it in a list.
//!
//! A mark is one word in the item's header: the bags' tick in its high half, the second of the last
//! access in its low half. A GET stores the present mark (`bump`). A pass over the bags compares
//! the tick with the closing of the item's bag, and moves the item if the mark is not older.
//!
//! # Relaxed
//!
//! Every access is Relaxed. A mark guards no memory, and a lost one costs a bag of recency: two
//! racing GETs write the same tick. Where a mark also publishes an item (`Arena::head_of_piece`),
//! the storing code says so.

use crate::sync::{AtomicU32, Ordering};

/// The store-wide counter by which bags are dated. An item keeps its low 16 bits.
pub(crate) type Tick = u32;

/// The mark of this tick and second.
#[inline]
pub(crate) fn present(tick: Tick, now_secs: u32) -> u32 {
    tick << 16 | now_secs & 0xffff
}

/// Bumps an item: it was used now. Stores only if the mark changes, which is at most once a second
/// and once for each bag opened since.
#[inline]
pub(crate) fn bump(word: &AtomicU32, now: u32) {
    if word.load(Ordering::Relaxed) != now {
        word.store(now, Ordering::Relaxed);
    }
}

/// The tick part of an item's mark.
#[inline]
pub(crate) fn mark_of(word: &AtomicU32) -> u16 {
    low(word.load(Ordering::Relaxed) >> 16)
}

/// Changes the tick part, and leaves the second of last access as it is.
pub(crate) fn set_mark(word: &AtomicU32, mark: u16) {
    let second = word.load(Ordering::Relaxed) & 0xffff;
    word.store(u32::from(mark) << 16 | second, Ordering::Relaxed);
}

/// The part of a tick that an item keeps.
#[inline]
pub(crate) fn low(tick: Tick) -> u16 {
    (tick & 0xffff) as u16
}

/// `true` if `mark >= tick` on the 16-bit circle. A mark older than 32768 ticks may read as newer:
/// the item gets one more life, and no harm is done.
#[inline]
pub(crate) fn is_not_before(mark: u16, tick: Tick) -> bool {
    mark.wrapping_sub(low(tick)) < 0x8000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bump_writes_tick_and_second() {
        let word = AtomicU32::new(0);
        bump(&word, present(0x1_0007, 0x2_0009));
        assert_eq!(word.load(Ordering::Relaxed), 7 << 16 | 9);
        set_mark(&word, 3);
        assert_eq!((mark_of(&word), word.load(Ordering::Relaxed) & 0xffff), (3, 9));
    }

    #[test]
    fn marks_are_compared_on_a_circle() {
        assert!(is_not_before(5, 5) && is_not_before(6, 5) && !is_not_before(4, 5));
        assert!(is_not_before(2, 0x1_fffe), "the tick has wrapped since");
        assert!(!is_not_before(0xfffe, 0x2_0001));
    }
}
