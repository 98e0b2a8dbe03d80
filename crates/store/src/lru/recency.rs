//! The recency mark: a GET writes it into an item instead of moving the item in a list.
//!
//! A class counts its bags as they are opened; the count is its *tick*, of 64 bits. An item's
//! recency word has the low 16 bits of the tick at which it was used in its high half, which is the
//! mark, and the second of the last access in its low half. A GET stores the present word (`bump`).
//! A pass over the bags compares the mark with the closing of the item's bag.
//!
//! # A mark never wraps
//!
//! Sixteen bits identify a tick only if it is one of the last 65,536. Two rules ensure that.
//!
//! 1. When a pass has examined an unused item of a closed bag, its mark is zero: *not used since
//!    the bag closed*. So all nonzero marks were written since the last pass over their bag
//!    started, or since the bag was opened. The list knows that tick for each bag
//!    (`Bag::passed_tick`).
//! 2. A bag is not opened if a mark of the class might then be older than [`AGE_MAX`]. The newest
//!    bag takes more items than it should until the cleaner has passed the overdue bag.
//!
//! The second rule hardly ever applies. A bag is freed only by the cleaner, which passes older ones
//! first, or by an eviction, if it is the oldest. So an unpassed bag holds back at most the bags
//! that one round of the cleaner frees behind it.
//!
//! A thread may write a mark later than it read the tick, but within one section, and no bag that
//! closes during a section is freed before its end. So the tick rises by no more than the number of
//! bags in between, which [`SLACK`] allows for.
//!
//! # Relaxed
//!
//! Every access is Relaxed. A mark guards no memory, and two racing GETs write ticks of one time.
//! Where a mark also publishes an item (`Arena::head_of_piece`), the storing code says so.

use super::BAGS;
use arena::sync::{AtomicU32, Ordering};

/// Bags opened in one class.
pub(crate) type Tick = u64;

/// The tick of a class before its first opening. Dates before it stay above zero.
pub(crate) const FIRST_TICK: Tick = 1 << 16 | 1;

/// No tick comes near this limit.
pub(crate) const LAST_TICK: Tick = 1 << 48;

/// The mark of an item that was not used since its bag closed. No tick has it as its low half.
pub(crate) const UNUSED: u16 = 0;

/// Ticks by which a mark may lag behind the tick when it is written: each bag of a list may be
/// opened in between, and one tick of 65,536 is left out.
pub(crate) const SLACK: u64 = 2 * BAGS as u64;

/// The greatest age of a mark, in ticks.
pub(crate) const AGE_MAX: u64 = 0xffff - SLACK;

/// The tick after this one.
pub(crate) fn next(tick: Tick) -> Tick {
    let next = tick + 1;
    if low(next) == UNUSED { next + 1 } else { next }
}

/// The recency word of this tick and this `second_of` a time.
#[inline]
pub(crate) fn word_of(tick: Tick, second: u32) -> u32 {
    u32::from(low(tick)) << 16 | second
}

/// The part of a time that a recency word stores.
#[inline]
pub(crate) fn second_of(secs: u32) -> u32 {
    secs & 0xffff
}

/// Bumps an item: it was used now. Stores only if the word changes, which is at most once per
/// second and once for each bag of its class opened since.
#[inline]
pub(crate) fn bump(word: &AtomicU32, now: u32) {
    if word.load(Ordering::Relaxed) != now {
        word.store(now, Ordering::Relaxed);
    }
}

/// The mark in an item's recency word.
#[inline]
pub(crate) fn mark_of(word: u32) -> u16 {
    (word >> 16) as u16
}

/// Changes the mark in `word`, unless the item was used since `seen` was read from it. The second
/// of last access stays.
pub(crate) fn set_mark(word: &AtomicU32, seen: u32, mark: u16) {
    let changed = u32::from(mark) << 16 | seen & 0xffff;
    if changed != seen {
        // It fails if a GET has left a newer mark, which stays.
        let _ = word.compare_exchange(seen, changed, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Copies the second of last access from `seen` into a word that no other thread can see yet.
pub(crate) fn keep_second(word: &AtomicU32, seen: u32) {
    let mark = u32::from(mark_of(word.load(Ordering::Relaxed))) << 16;
    // Release: partner of the Acquire in `Arena::head_of_piece`, as in `linked::link`.
    word.store(mark | seen & 0xffff, Ordering::Release);
}

/// The part of a tick that an item stores.
#[inline]
pub(crate) fn low(tick: Tick) -> u16 {
    (tick & 0xffff) as u16
}

/// The mark of the tick, or of the one before it if the tick has none.
pub(crate) fn mark_at(tick: Tick) -> u16 {
    if low(tick) == UNUSED { low(tick - 1) } else { low(tick) }
}

/// The tick of a mark, given the class's present tick; `None` if it is [`UNUSED`]. Without the
/// list's order lock a GET may have written a mark of a tick that the caller has not seen yet: that
/// counts as the present one.
#[inline]
pub(crate) fn tick_of(mark: u16, now: Tick) -> Option<Tick> {
    let age = u64::from(low(now).wrapping_sub(mark));
    match (mark, age) {
        (UNUSED, _) => None,
        (_, 0..=AGE_MAX) => Some(now - age),
        _ => Some(now),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_bump_writes_tick_and_second() {
        let word = AtomicU32::new(0);
        bump(&word, word_of(0x1_0007, second_of(0x2_0009)));
        assert_eq!(word.load(Ordering::Relaxed), 7 << 16 | 9);
    }

    #[test]
    fn a_pass_changes_only_the_mark_it_has_seen() {
        let word = AtomicU32::new(7 << 16 | 9);
        set_mark(&word, 7 << 16 | 9, UNUSED);
        assert_eq!(word.load(Ordering::Relaxed), 9);
        bump(&word, 8 << 16 | 10);
        set_mark(&word, 9, 5);
        assert_eq!(word.load(Ordering::Relaxed), 8 << 16 | 10, "a use in between is kept");
    }

    /// Every mark, at every age that the rules allow, once around the circle and over its ends.
    #[test]
    fn every_age_up_to_the_maximum_is_exact_at_any_tick() {
        let ticks = (FIRST_TICK..FIRST_TICK + 0x1_0000).step_by(251);
        let ends = [0x1_ffff, 0x2_0001, 0x2_0002, 0xffff_ffff, 0x1_0000_0001, LAST_TICK - 1];
        for now in ticks.chain(ends).filter(|&now| low(now) != UNUSED) {
            for age in (0..=AGE_MAX).filter(|age| *age < now) {
                let then = now - age;
                let expected = (low(then) != UNUSED).then_some(then);
                assert_eq!(tick_of(low(then), now), expected, "age {age} at {now}");
            }
        }
    }

    #[test]
    fn ticks_skip_the_mark_for_unused() {
        assert_eq!(next(FIRST_TICK), FIRST_TICK + 1);
        assert_eq!(next(0x1_ffff), 0x2_0001);
        assert_eq!((mark_at(0x2_0000), mark_at(0x2_0001)), (0xffff, 1));
        assert_eq!(tick_of(UNUSED, 0x2_0001), None);
    }

    #[test]
    fn a_mark_ahead_of_the_tick_counts_as_current() {
        assert_eq!(tick_of(low(0x2_0003), 0x2_0001), Some(0x2_0001));
        assert_eq!(tick_of(low(0x2_0001), 0x1_ffff), Some(0x1_ffff));
    }
}
