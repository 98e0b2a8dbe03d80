//! Lease tokens and hold-offs: what is remembered of keys that are not there.
//!
//! A fixed table of sets, each of a few keys under one lock. A key is known by its 64-bit hash, and
//! a set keeps whoever is needed longest:
//!
//! ```text
//!     hash -> set: [hash, token, issued at, invalidations then, held until] x 8, and the floor
//! ```
//!
//! # Laws
//!
//! 1. Every call is made under the key's lock in the store: so a token is given, used and made void
//!    in one order with the stores and deletes of its key.
//! 2. A live item has no token: whatever creates an item makes the key's token void.
//! 3. Losing a token is safe: its holder's value is refused, as if a delete had come between.
//! 4. Losing a hold-off is not, so what is pushed out leaves its end in the set's floor: until then
//!    every key of the set is held.
//! 5. Nothing here outlives the process, and tokens are drawn with a key that does not either: none
//!    is valid after a restart.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use narrow::low_u32;

/// Keys of a set.
const WAYS: usize = 8;
/// The table's part of the memory limit.
const SHARE: u64 = 256;
/// Fewest and most sets.
const SETS: std::ops::RangeInclusive<u64> = 64..=1 << 18;

/// mcrouter marks tokens that it has rewritten by these upper bits (`LeaseTokenMap.cpp`).
const MCROUTER_MAGIC: u64 = 0x7ace_b00c;

/// The token that means "wait" on the wire, so none that is given.
pub(crate) const WAIT: u64 = 1;

/// Tokens and hold-offs by key.
#[derive(Debug)]
pub(crate) struct Table {
    sets: Box<[Mutex<Set>]>,
    /// Seconds that must pass after a token before the key's next.
    interval_secs: u32,
    /// Draws tokens: a keyed hash of a counter, which nobody can guess from the tokens before.
    secret: RandomState,
    drawn: AtomicU64,
    /// Keys that were pushed out before their time.
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Set {
    keys: [Entry; WAYS],
    /// Hold-offs that were pushed out end by this second.
    floor: u32,
}

/// The facts about a key. Free when all is zero.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    hash: u64,
    /// 0: void, or used.
    token: u64,
    /// The store's count of invalidations when the token was given.
    invalidations: u64,
    /// The second in which the last token was given; 0: none was.
    issued_secs: u32,
    /// The second from which the key may be added again.
    held_until: u32,
}

impl Entry {
    /// The first second in which nothing of this matters any more.
    fn ends(&self, interval_secs: u32) -> u32 {
        let clock = if self.issued_secs == 0 { 0 } else { self.issued_secs + interval_secs + 1 };
        // A token may be used after its clock has run out; its key goes before those whose clocks
        // run.
        clock.max(self.held_until)
    }
}

/// The answer to a reader who missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The reader is to fill the key with this token.
    Token(u64),
    /// Another is at it.
    Wait,
}

impl Table {
    /// Bytes of the table for a memory limit.
    pub(crate) fn new(memory_bytes: u64, interval_secs: u32) -> Self {
        let set_bytes = size_of::<Mutex<Set>>() as u64;
        let sets = (memory_bytes / SHARE / set_bytes).clamp(*SETS.start(), *SETS.end());
        let sets = 1 << sets.ilog2();
        Self {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            interval_secs,
            secret: RandomState::new(),
            drawn: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Bytes that it takes, always.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.sets) as u64
    }

    /// Keys pushed out before their time.
    pub(crate) fn lost(&self) -> u64 {
        // Relaxed: a number for people.
        self.lost.load(Ordering::Relaxed)
    }

    /// A reader missed: gives a token, unless one was given within the interval. A key that is held
    /// is no exception: a delete voids what was given before it, so who has a token has read the
    /// truth after it.
    pub(crate) fn ask(&self, hash: u64, now_secs: u32, invalidations: u64) -> Grant {
        let interval_secs = self.interval_secs;
        let mut set = self.set(hash);
        let entry = self.entry_mut(&mut set, hash, now_secs);
        let is_recent = interval_secs > 0
            && entry.issued_secs > 0
            && now_secs.saturating_sub(entry.issued_secs) <= interval_secs;
        if is_recent {
            return Grant::Wait;
        }
        entry.token = self.draw();
        entry.issued_secs = now_secs;
        entry.invalidations = invalidations;
        Grant::Token(entry.token)
    }

    /// Uses a token: the count of invalidations at which it was given, if it is the key's.
    pub(crate) fn redeem(&self, hash: u64, token: u64) -> Option<u64> {
        let mut set = self.set(hash);
        let entry = set.keys.iter_mut().find(|entry| entry.hash == hash)?;
        if token <= WAIT || entry.token != token {
            return None;
        }
        entry.token = 0;
        Some(entry.invalidations)
    }

    /// Makes the key's token void. When it was given is kept.
    pub(crate) fn void(&self, hash: u64) {
        let mut set = self.set(hash);
        if let Some(entry) = set.keys.iter_mut().find(|entry| entry.hash == hash) {
            entry.token = 0;
        }
    }

    /// The key may not be added before this second.
    pub(crate) fn hold(&self, hash: u64, until: u32, now_secs: u32) {
        let mut set = self.set(hash);
        let entry = self.entry_mut(&mut set, hash, now_secs);
        entry.held_until = entry.held_until.max(until);
    }

    /// `true` if the key may not be added now.
    pub(crate) fn is_held(&self, hash: u64, now_secs: u32) -> bool {
        let set = self.set(hash);
        let held = set.keys.iter().any(|entry| entry.hash == hash && entry.held_until > now_secs);
        held || set.floor > now_secs
    }

    fn set(&self, hash: u64) -> MutexGuard<'_, Set> {
        // Bits that choose neither the table's stripe nor its tag.
        let index = low_u32(hash >> 24) as usize;
        self.sets[index & (self.sets.len() - 1)].lock()
    }

    /// The key's entry; a new one takes the place of that whose time is over soonest.
    fn entry_mut<'g>(&self, set: &'g mut Set, hash: u64, now_secs: u32) -> &'g mut Entry {
        let known = set.keys.iter().position(|entry| entry.hash == hash);
        let soonest = || {
            let ends = set.keys.iter().map(|entry| entry.ends(self.interval_secs));
            ends.enumerate().min_by_key(|&(_, end)| end).map_or(0, |(at, _)| at)
        };
        let at = known.unwrap_or_else(soonest);
        if known.is_none() {
            let old = set.keys[at];
            if old.held_until > now_secs {
                set.floor = set.floor.max(old.held_until);
            }
            self.lost
                .fetch_add(u64::from(old.ends(self.interval_secs) > now_secs), Ordering::Relaxed);
            set.keys[at] = Entry { hash, ..Entry::default() };
        }
        &mut set.keys[at]
    }

    /// A token of 63 bits, as some clients read it signed.
    fn draw(&self) -> u64 {
        loop {
            // Relaxed: each call gets a number of its own, and their order means nothing.
            let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
            let token = self.secret.hash_one(drawn) >> 1;
            if token > WAIT && token >> 32 != MCROUTER_MAGIC {
                return token;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(interval_secs: u32) -> Table {
        Table::new(0, interval_secs)
    }

    fn token(grant: Grant) -> u64 {
        match grant {
            Grant::Token(token) => token,
            Grant::Wait => panic!("no token"),
        }
    }

    #[test]
    fn one_token_in_an_interval_whatever_becomes_of_it() {
        let table = small(10);
        let first = token(table.ask(7, 100, 0));
        assert_eq!(table.ask(7, 100, 0), Grant::Wait);
        table.void(7);
        assert_eq!(table.ask(7, 110, 0), Grant::Wait, "a delete does not set the clock back");
        assert_eq!(table.redeem(7, first), None, "void");
        let second = token(table.ask(7, 111, 3));
        assert_eq!(table.redeem(7, first), None, "an old one");
        assert_eq!(table.redeem(7, second), Some(3));
        assert_eq!(table.redeem(7, second), None, "used");
    }

    #[test]
    fn no_number_that_was_not_given_is_accepted() {
        let table = small(10);
        let given = token(table.ask(7, 100, 0));
        let forged = [0, 1, given + 1, given ^ 1 << 40, u64::MAX];
        assert!(forged.iter().all(|&forged| table.redeem(7, forged).is_none()));
        assert_eq!(table.redeem(8, given), None, "of another key");
        assert!(small(10).redeem(7, given).is_none(), "of another life");
        table.void(7);
        assert_eq!((table.redeem(7, 0), table.redeem(7, given)), (None, None));
    }

    #[test]
    fn without_an_interval_each_miss_gets_a_token_and_the_last_one_counts() {
        let table = small(0);
        let (first, second) = (token(table.ask(7, 100, 0)), token(table.ask(7, 100, 0)));
        assert_eq!((table.redeem(7, first), table.redeem(7, second)), (None, Some(0)));
    }

    /// All keys of one set, since their hashes differ in bits that choose no set.
    #[test]
    fn more_keys_than_places_lose_tokens_but_no_hold_off() {
        let table = small(10);
        let tokens: Vec<_> = (1..=20).map(|hash| token(table.ask(hash, 100, 0))).collect();
        let kept =
            (1..=20).zip(&tokens).filter(|&(hash, &token)| table.redeem(hash, token).is_some());
        assert_eq!((kept.count(), table.lost()), (WAYS, 12));
        let bytes = table.bytes();
        (1..=20).for_each(|hash| table.hold(hash, 150 + u32::try_from(hash).unwrap(), 120));
        assert!((1..=20).all(|hash| table.is_held(hash, 149)));
        assert!(table.is_held(99, 149), "the floor holds everybody");
        assert!(table.ask(99, 149, 0) != Grant::Wait, "a hold-off is no reason to wait");
        assert!(table.is_held(99, 149));
        assert!(!(1..=99).any(|hash| table.is_held(hash, 171)));
        assert_eq!(table.bytes(), bytes);
    }

    #[test]
    fn a_longer_hold_off_is_not_shortened_and_another_key_is_free() {
        let table = small(10);
        table.hold(7, 105, 100);
        table.hold(7, 102, 100);
        assert!(table.is_held(7, 104) && !table.is_held(7, 105) && !table.is_held(8, 104));
    }
}
