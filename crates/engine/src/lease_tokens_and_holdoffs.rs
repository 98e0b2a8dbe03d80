//! Lease tokens and hold-offs: facts about absent keys.
//!
//! A table of sets, each of a few keys under one lock. A key is known by its 64-bit hash:
//!
//! ```text
//!     hash -> set: [hash, token, issued at, invalidations then, held until] x 8
//!          -> overflow set, eight times as many, made when they are first needed
//! ```
//!
//! A key whose set is full of entries that are still needed goes to its overflow set, which keeps
//! the entries needed longest. A used or void token is needed least. Hold-offs leave places for
//! tokens in each set.
//!
//! # Laws
//!
//! 1. Every call is made under the key's lock in the store, so tokens are given, used and made void
//!    in one order with the stores and deletes of their key.
//! 2. A live item has no token: the creation of an item makes the key's token void.
//! 3. Losing a token is safe: its holder's value is refused, as after a delete in between.
//! 4. Losing a hold-off is not, so none is evicted. One that finds no place is refused with an
//!    error.
//! 5. Nothing here outlives the process, nor does the key with which tokens are drawn: no token is
//!    valid after a restart.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use narrow::low_u32;

/// Keys of a set.
const WAYS: usize = 8;
/// Maximum number of hold-offs of a set: a client that sends many must not take the tokens' places.
const HELD_MAX: usize = WAYS - 2;
/// The table's part of the memory limit, without overflow.
const SHARE: u64 = 256;
/// Minimum and maximum number of sets, without overflow.
const SETS: std::ops::RangeInclusive<u64> = 64..=1 << 18;
/// Overflow sets for each set.
const OVERFLOW: usize = 8;
/// Sets of a segment.
const SEGMENT: usize = 64;

/// mcrouter marks tokens that it has rewritten by these upper bits (`LeaseTokenMap.cpp`).
const MCROUTER_MAGIC: u64 = 0x7ace_b00c;

/// The token that means "wait" on the wire, so it is never given.
pub(crate) const WAIT: u64 = 1;

/// The mark of a token that is void and not used: its holder cannot fill, and may return it. Tokens
/// have 63 bits.
const VOID: u64 = 1 << 63;

/// Tokens and hold-offs by key.
#[derive(Debug)]
pub(crate) struct Table {
    sets: Box<[Mutex<Set>]>,
    overflow: Box<[OnceLock<Segment>]>,
    /// Bytes of the overflow sets, and of the part that [`take_growth`](Self::take_growth) has not
    /// returned.
    overflow_bytes: AtomicU64,
    growth: AtomicU64,
    /// Seconds that must pass after a token before the key's next. The engine changes it.
    interval_secs: Arc<AtomicU32>,
    /// Draws tokens: a keyed hash of a counter, unpredictable from earlier tokens.
    secret: RandomState,
    drawn: AtomicU64,
    /// Tokens that were evicted before they were used.
    lost: AtomicU64,
}

/// Overflow sets that are made together.
type Segment = Box<[Mutex<Set>]>;

#[derive(Debug, Default)]
struct Set {
    keys: [Entry; WAYS],
}

/// The facts about a key. Free when all is zero.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    hash: u64,
    /// 0: used, or given back; with [`VOID`]: void.
    token: u64,
    /// The store's count of invalidations when the token was given.
    invalidations: u64,
    /// The second in which the last token was given; 0: none was.
    issued_secs: u32,
    /// The second from which the key may be added again.
    held_until: u32,
}

impl Entry {
    /// `true` if its loss would lose an unused token or a hold-off.
    fn is_needed(&self, interval_secs: u32, now_secs: u32) -> bool {
        let is_valid = self.token != 0 && self.token & VOID == 0;
        (is_valid || self.is_held(now_secs)) && self.ends(interval_secs) > now_secs
    }

    fn is_held(&self, now_secs: u32) -> bool {
        self.held_until > now_secs
    }

    /// The first second in which the entry no longer matters.
    fn ends(&self, interval_secs: u32) -> u32 {
        let clock = if self.issued_secs == 0 { 0 } else { self.issued_secs + interval_secs + 1 };
        // A token may be used after its interval has ended; its key is evicted before those whose
        // intervals run.
        clock.max(self.held_until)
    }
}

impl Set {
    fn find(&mut self, hash: u64) -> Option<&mut Entry> {
        self.keys.iter_mut().find(|entry| entry.hash == hash)
    }

    fn is_held(&self, hash: u64, now_secs: u32) -> bool {
        self.keys.iter().any(|entry| entry.hash == hash && entry.is_held(now_secs))
    }

    /// `true` if a hold-off of this key leaves enough places for tokens.
    fn may_hold(&self, hash: u64, now_secs: u32) -> bool {
        let others = |entry: &&Entry| entry.hash != hash && entry.is_held(now_secs);
        self.keys.iter().filter(others).count() < HELD_MAX
    }
}

/// The answer to a reader that missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The reader should fill the key with this token.
    Token(u64),
    /// Another reader fills it.
    Wait,
}

impl Table {
    /// A table for a memory limit.
    pub(crate) fn new(memory_bytes: u64, interval_secs: Arc<AtomicU32>) -> Self {
        let set_bytes = size_of::<Mutex<Set>>() as u64;
        let sets = (memory_bytes / SHARE / set_bytes).clamp(*SETS.start(), *SETS.end());
        let sets = 1 << sets.ilog2();
        Self {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            overflow: (0..sets * OVERFLOW / SEGMENT).map(|_| OnceLock::new()).collect(),
            overflow_bytes: AtomicU64::new(0),
            growth: AtomicU64::new(0),
            interval_secs,
            secret: RandomState::new(),
            drawn: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    fn interval_secs(&self) -> u32 {
        // Relaxed: a number that depends on nothing else.
        self.interval_secs.load(Ordering::Relaxed)
    }

    /// Its present bytes, at most about a 28th of the memory limit.
    pub(crate) fn bytes(&self) -> u64 {
        // Relaxed: a number for people.
        size_of_val(&*self.sets) as u64 + self.overflow_bytes.load(Ordering::Relaxed)
    }

    /// Bytes by which it has grown since the last call.
    pub(crate) fn take_growth(&self) -> u64 {
        // Relaxed: each growth is returned once, whatever the order.
        if self.growth.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.growth.swap(0, Ordering::Relaxed)
    }

    /// Tokens that were evicted before they were used.
    pub(crate) fn lost(&self) -> u64 {
        // Relaxed, here and below: a number for people.
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts lost tokens from zero again.
    pub(crate) fn reset_lost(&self) {
        self.lost.store(0, Ordering::Relaxed);
    }

    /// A reader missed: gives a token, unless one was given within the interval. Held keys are no
    /// exception: a delete voids earlier tokens, so a holder of a token has read the truth after
    /// it.
    pub(crate) fn ask(&self, hash: u64, now_secs: u32, invalidations: u64) -> Grant {
        let interval_secs = self.interval_secs();
        self.with_entry(hash, now_secs, |entry| {
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
        })
    }

    /// Uses a token: the count of invalidations when it was given, if it is the key's.
    pub(crate) fn redeem(&self, hash: u64, token: u64) -> Option<u64> {
        self.with_known(hash, |entry| {
            if !is_given(token) || entry.token != token {
                return None;
            }
            entry.token = 0;
            Some(entry.invalidations)
        })
        .flatten()
    }

    /// Makes the key's token void. The time at which it was given is kept.
    pub(crate) fn void(&self, hash: u64) {
        self.with_known(hash, |entry| {
            if entry.token != 0 {
                entry.token |= VOID;
            }
        });
    }

    /// Takes back a token, void or not, so that the key's next is given at once. `false` if it is
    /// not the last one given, or was used.
    pub(crate) fn give_back(&self, hash: u64, token: u64) -> bool {
        let given_back = self.with_known(hash, |entry| {
            let is_last = is_given(token) && entry.token & !VOID == token;
            if is_last {
                (entry.token, entry.issued_secs) = (0, 0);
            }
            is_last
        });
        given_back.unwrap_or(false)
    }

    /// Forbids adds of the key before this second. `false` if there is no room to remember that.
    #[must_use]
    pub(crate) fn hold(&self, hash: u64, until: u32, now_secs: u32) -> bool {
        let mut set = self.set(hash);
        if set.find(hash).is_none()
            && let Some(mut overflow) = self.overflow_of(hash)
            && overflow.find(hash).is_some()
        {
            return self.hold_in(&mut overflow, hash, (until, now_secs), true).is_some();
        }
        if self.hold_in(&mut set, hash, (until, now_secs), false).is_some() {
            return true;
        }
        let mut overflow = self.overflow_made(hash);
        let Some(entry) = self.hold_in(&mut overflow, hash, (until, now_secs), true) else {
            return false;
        };
        // A key has one entry.
        if let Some(known) = set.find(hash) {
            *entry = Entry { held_until: entry.held_until, ..std::mem::take(known) };
        }
        true
    }

    /// `true` if the key may not be added now.
    pub(crate) fn is_held(&self, hash: u64, now_secs: u32) -> bool {
        let in_overflow = || self.overflow_of(hash).is_some_and(|set| set.is_held(hash, now_secs));
        self.set(hash).is_held(hash, now_secs) || in_overflow()
    }

    fn set(&self, hash: u64) -> MutexGuard<'_, Set> {
        self.sets[index_of(hash) & (self.sets.len() - 1)].lock()
    }

    /// The key's overflow set, if there is one yet.
    fn overflow_of(&self, hash: u64) -> Option<MutexGuard<'_, Set>> {
        let (segment, at) = self.overflow_place(hash);
        Some(self.overflow[segment].get()?[at].lock())
    }

    fn overflow_place(&self, hash: u64) -> (usize, usize) {
        let place = index_of(hash) & (self.overflow.len() * SEGMENT - 1);
        (place / SEGMENT, place % SEGMENT)
    }

    /// The key's overflow set, made if necessary.
    fn overflow_made(&self, hash: u64) -> MutexGuard<'_, Set> {
        let (segment, at) = self.overflow_place(hash);
        let sets = self.overflow[segment].get_or_init(|| {
            let sets: Segment = (0..SEGMENT).map(|_| Mutex::default()).collect();
            let bytes = size_of_val(&*sets) as u64;
            self.overflow_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.growth.fetch_add(bytes, Ordering::Relaxed);
            sets
        });
        sets[at].lock()
    }

    /// Calls `f` with the key's entry, if there is one.
    fn with_known<T>(&self, hash: u64, f: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut set = self.set(hash);
        if let Some(entry) = set.find(hash) {
            return Some(f(entry));
        }
        self.overflow_of(hash)?.find(hash).map(f)
    }

    /// Calls `f` with the key's entry. A new one replaces one that is not needed, or in the
    /// overflow set the one that ends first.
    fn with_entry<T>(&self, hash: u64, now_secs: u32, f: impl FnOnce(&mut Entry) -> T) -> T {
        let mut set = self.set(hash);
        if let Some(entry) = set.find(hash) {
            return f(entry);
        }
        if let Some(mut overflow) = self.overflow_of(hash)
            && let Some(entry) = overflow.find(hash)
        {
            return f(entry);
        }
        if let Some(entry) = self.replaced(&mut set, hash, now_secs, false) {
            return f(entry);
        }
        let mut overflow = self.overflow_made(hash);
        let mut lost = Entry::default();
        let entry = self.replaced(&mut overflow, hash, now_secs, true).unwrap_or(&mut lost);
        f(entry)
    }

    /// Holds the key in this set, in its entry or in a new one as by [`replaced`](Self::replaced).
    /// `None` if there are too many hold-offs, or all others are needed.
    fn hold_in<'g>(
        &self,
        set: &'g mut Set,
        hash: u64,
        (until, now_secs): (u32, u32),
        must: bool,
    ) -> Option<&'g mut Entry> {
        if !set.may_hold(hash, now_secs) {
            return None;
        }
        let entry = match set.keys.iter().position(|entry| entry.hash == hash) {
            Some(at) => &mut set.keys[at],
            None => self.replaced(set, hash, now_secs, must)?,
        };
        entry.held_until = entry.held_until.max(until);
        Some(entry)
    }

    /// A new entry for the key in place of the one that is needed least; `None` if all are needed,
    /// unless one `must` be replaced. A hold-off is never replaced.
    fn replaced<'g>(
        &self,
        set: &'g mut Set,
        hash: u64,
        now_secs: u32,
        must: bool,
    ) -> Option<&'g mut Entry> {
        let interval_secs = self.interval_secs();
        let need = |entry: &Entry| {
            let is_needed = entry.is_needed(interval_secs, now_secs);
            (entry.is_held(now_secs), is_needed, entry.ends(interval_secs))
        };
        let at = (0..WAYS).min_by_key(|&at| need(&set.keys[at]))?;
        let (is_held, is_needed, _) = need(&set.keys[at]);
        if is_held || is_needed && !must {
            return None;
        }
        if is_needed {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        set.keys[at] = Entry { hash, ..Entry::default() };
        Some(&mut set.keys[at])
    }

    /// A token of 63 bits, as some clients read it signed.
    fn draw(&self) -> u64 {
        loop {
            // Relaxed: each call gets a distinct number, and their order means nothing.
            let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
            let token = self.secret.hash_one(drawn) >> 1;
            if token > WAIT && token >> 32 != MCROUTER_MAGIC {
                return token;
            }
        }
    }
}

/// `false` for values that are no tokens, whatever a client sends.
const fn is_given(token: u64) -> bool {
    token > WAIT && token & VOID == 0
}

/// Bits that choose neither the store's stripe nor its tag.
fn index_of(hash: u64) -> usize {
    low_u32(hash >> 24) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(interval_secs: u32) -> Table {
        Table::new(0, Arc::new(AtomicU32::new(interval_secs)))
    }

    fn token(grant: Grant) -> u64 {
        match grant {
            Grant::Token(token) => token,
            Grant::Wait => panic!("no token"),
        }
    }

    #[test]
    fn a_key_gets_at_most_one_token_per_interval() {
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
    fn forged_tokens_are_refused() {
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
    fn a_released_token_allows_the_next_one() {
        let table = small(10);
        let first = token(table.ask(7, 100, 0));
        for other in [0, 1, first ^ 2, first | VOID, VOID, u64::MAX] {
            assert!(!table.give_back(7, other), "{other}");
        }
        assert!(!table.give_back(8, first), "of another key");
        assert_eq!(table.ask(7, 100, 0), Grant::Wait);
        assert!(table.give_back(7, first) && !table.give_back(7, first));
        assert_eq!(table.redeem(7, first), None);
        let second = token(table.ask(7, 100, 0));
        assert!(!table.give_back(7, first), "another's");
        table.void(7);
        assert_eq!(table.redeem(7, second | VOID), None);
        assert_eq!((table.redeem(7, second), table.ask(7, 100, 0)), (None, Grant::Wait));
        assert!(table.give_back(7, second), "a void one as well");
        let third = token(table.ask(7, 100, 0));
        assert_eq!(table.redeem(7, third), Some(0));
        assert!(!table.give_back(7, third), "used");
        assert_eq!(table.ask(7, 100, 0), Grant::Wait);
    }

    #[test]
    fn without_an_interval_every_miss_gets_a_token_the_last_wins() {
        let table = small(0);
        let (first, second) = (token(table.ask(7, 100, 0)), token(table.ask(7, 100, 0)));
        assert_eq!((table.redeem(7, first), table.redeem(7, second)), (None, Some(0)));
    }

    /// All keys are in one set, because their hashes differ only in bits that choose no set.
    #[test]
    fn overflow_loses_tokens_but_no_hold_offs() {
        let table = small(10);
        let tokens: Vec<_> = (1..=20).map(|hash| token(table.ask(hash, 100, 0))).collect();
        let kept =
            (1..=20).zip(&tokens).filter(|&(hash, &token)| table.redeem(hash, token).is_some());
        assert_eq!((kept.count(), table.lost()), (2 * WAYS, 4));
        let bytes = table.bytes();
        let held: Vec<u64> = (1..=20).filter(|&hash| table.hold(hash, 150, 120)).collect();
        assert_eq!(held.len(), 2 * HELD_MAX);
        assert!((1..=99).all(|hash| table.is_held(hash, 149) == held.contains(&hash)));
        assert!(held.iter().all(|&hash| table.hold(hash, 151, 120)), "what is held, longer");
        for hash in 200..300 {
            let given = token(table.ask(hash, 120, 0));
            assert_eq!(table.redeem(hash, given), Some(0), "hold-offs leave places for tokens");
        }
        assert!((1..=99).all(|hash| table.is_held(hash, 150) == held.contains(&hash)));
        assert!(!(1..=99).any(|hash| table.is_held(hash, 151)));
        assert!(table.hold(99, 170, 151), "they are over");
        assert_eq!(table.bytes(), bytes);
    }

    /// Its set has too many hold-offs, so its entry moves.
    #[test]
    fn a_key_with_a_token_moves_to_get_a_hold_off() {
        let table = small(10);
        let given = token(table.ask(99, 100, 0));
        let most = u64::try_from(HELD_MAX).unwrap();
        assert!((1..=most).all(|hash| table.hold(hash, 200, 100)));
        assert!(table.hold(99, 150, 100) && table.is_held(99, 149) && !table.is_held(99, 150));
        assert_eq!(table.ask(99, 105, 0), Grant::Wait, "the interval is known");
        assert_eq!((table.redeem(99, given), table.redeem(99, given)), (Some(0), None));
    }

    /// A cold server: every reader misses, and the fills come seconds later.
    #[test]
    fn each_of_many_misses_of_a_cold_server_may_be_filled() {
        for (memory_bytes, misses) in [(64 << 20, 10_000), (1 << 30, 100_000)] {
            let table = Table::new(memory_bytes, Arc::new(10.into()));
            let hash = |miss: u64| {
                // The finalizer of MurmurHash3: as good as random.
                let mixed = (miss ^ miss >> 33 ^ 0x5bd1).wrapping_mul(0xff51_afd7_ed55_8ccd);
                (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
            };
            let tokens: Vec<_> =
                (0..misses).map(|miss| token(table.ask(hash(miss), 100, 0))).collect();
            let refused = (0..misses).zip(&tokens);
            let refused =
                refused.filter(|&(miss, &token)| table.redeem(hash(miss), token).is_none());
            assert_eq!(refused.count(), 0, "of {misses}");
            assert!(table.bytes() < memory_bytes / 28, "{} bytes", table.bytes());
        }
    }

    #[test]
    fn a_used_token_makes_room_for_another_key() {
        let table = small(10);
        for hash in 1..=1000 {
            let given = token(table.ask(hash, 100, 0));
            assert_eq!(table.redeem(hash, given), Some(0));
        }
        assert_eq!((table.lost(), table.take_growth()), (0, 0));
        let held = u64::try_from(WAYS).unwrap();
        assert!((1..=held).all(|hash| table.hold(hash, 200, 100)));
        assert!(table.take_growth() > 0, "no hold-off makes room");
        let given = token(table.ask(5000, 100, 0));
        assert_eq!((table.take_growth(), table.redeem(5000, given)), (0, Some(0)));
        assert!((1..=held).all(|hash| table.is_held(hash, 150)));
    }

    #[test]
    fn a_hold_off_is_not_shortened_and_affects_only_its_key() {
        let table = small(10);
        assert!(table.hold(7, 105, 100) && table.hold(7, 102, 100));
        assert!(table.is_held(7, 104) && !table.is_held(7, 105) && !table.is_held(8, 104));
    }
}
