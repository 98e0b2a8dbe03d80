//! Invalidations: of everything (`flush_all`), or of every key under a prefix.
//!
//! Invalidations are numbered. The *birth* of an item is the number of invalidations before it was
//! stored. An item is dead if an invalidation with a higher number covers its key. Each prefix
//! keeps only the number of its last invalidation, in a table by length and hash:
//!
//! ```text
//!     count 12     "": 7   "user:": 11   "cart:": 12       an item born at 10 dies under these two
//!     births of codes   0: 12   1: -   2: 8   3: 11 ...    newest code 0
//! ```
//!
//! An item has three bits for its birth, a *code*. Each invalidation assigns a free code to its own
//! number, and items stored after it have that code. So one comparison shows a reader that an item
//! is younger than all invalidations, which is nearly always true. Only an older item is looked up
//! in the table, by a hash for each length of prefix that was invalidated since.
//!
//! A purge walks over all items, frees dead ones, and gives the survivors the newest code. Then the
//! older codes are free. The cleaner does it in steps.
//!
//! If all codes are in use, because many invalidations came during one purge, an item is stored
//! with code 7 and four more bytes, the *stamp* behind its value: its birth in full. A draft that
//! was started before that has no room for a stamp and gets the newest code: it counts as stored at
//! its start or later, before the invalidations since.
//!
//! # Laws
//!
//! 1. Every linked item was born at `purged` or later. So table entries with numbers up to `purged`
//!    concern no linked item, and their places may be reused.
//! 2. A code stands for one number, from before the first item has it until no item has it and no
//!    open section has found such an item.
//! 3. A purge starts with a grace period, in which every thread that read an older code than the
//!    newest links its item. It ends with another, in which every thread that found an item with a
//!    code that will be freed has judged it.
//! 4. An invalidation is in the table before the count names it, and named by the count before
//!    `plain` changes. All is in the memory file before the command is acknowledged.
//!
//! Relaxed is enough for fields that are written and read under the lock, and for `purged` and
//! `prefixes` as statistics. Other loads name their partners.
//!
//! # Price
//!
//! The time of an invalidation does not grow with the number of items or of invalidations. The
//! table has sixteen places for each bucket. An invalidation of a new prefix is refused if its
//! bucket is full of prefixes that are not purged yet: in the table of a store of 64 MB and more,
//! after more than 3,000 others within one purge. A prefix that is already there needs no place,
//! nor does an invalidation of everything.
//!
//! A prefix is kept as its length and hash. Two prefixes with the same hash (one chance in 2^64)
//! would be confused, and the items of both would die.

use arena::birth::{CODE_SHIFT, CODES, NONE, STAMPED};
use arena::region::Region;
use arena::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence, spin_loop};
use narrow::{low_u32, to_usize};

/// Longest prefix, in bytes.
const PREFIX_BYTES_MAX: usize = if cfg!(loom) { 1 } else { 250 };
/// Checks whether an invalidation whose effect was seen is complete.
const LOOKS: usize = if cfg!(loom) { 2 } else { 200 };
/// Places of a bucket.
const WAYS: usize = if cfg!(loom) { 2 } else { 16 };
/// Words of a place: hash, length, and number of the last invalidation.
const PLACE_WORDS: usize = 3;

/// Words before the table.
const COUNT: usize = 0;
const PURGED: usize = 1;
const PREFIXES: usize = 2;
/// The highest number that was overwritten in the table.
const FORGOTTEN: usize = 3;
const NEWEST_CODE: usize = 4;
/// By code: the number it stands for, plus one; 0: the code is free.
const BIRTHS: usize = 5;
/// By length of prefix: the number of the last invalidation of one; of everything at 0.
const LENGTHS: usize = BIRTHS + CODES as usize;
const TABLE: usize = LENGTHS + PREFIX_BYTES_MAX + 1;

/// All state of invalidations.
#[derive(Debug)]
pub(crate) struct Invalidations {
    words: Region<AtomicU64>,
    buckets: usize,
    /// The newest code, in its form in a shape, if an item stored now has it, else `NONE`.
    plain: AtomicU32,
    /// 1 while an invalidation is being added: its effect may be visible before its number.
    adding: AtomicU32,
    /// Held by a thread that adds an invalidation, or starts or ends a purge; it never waits.
    lock: Mutex<()>,
}

/// The birth of an item that is being stored: its code, and its stamp if that is `STAMPED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Birth {
    pub(crate) code: u32,
    pub(crate) stamp: u32,
}

/// The births of an item that is stored now: with room for a stamp, and without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Births {
    roomy: Birth,
    tight: Birth,
}

impl Births {
    /// The birth of an item that `has_room` for a stamp or not.
    #[inline]
    pub(crate) fn of(self, has_room: bool) -> Birth {
        if has_room { self.roomy } else { self.tight }
    }
}

/// No place in the table is free for a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Words for a store of this size.
pub(crate) fn words_of(memory_bytes: u64) -> usize {
    let buckets = (memory_bytes >> 16).next_power_of_two().clamp(16, 1024);
    TABLE + to_usize(buckets) * WAYS * PLACE_WORDS
}

impl Invalidations {
    /// The invalidations in these words; all zero means none.
    pub(crate) fn over(words: Region<AtomicU64>) -> Self {
        let buckets = (words.len() - TABLE) / (WAYS * PLACE_WORDS);
        let (plain, adding, lock) = (AtomicU32::new(NONE), AtomicU32::new(0), Mutex::new(()));
        let all = Self { words, buckets, plain, adding, lock };
        // A number out of range means a damaged file.
        for word in [COUNT, PURGED, PREFIXES, FORGOTTEN] {
            all.set(word, all.word(word).min(u64::MAX / 2));
        }
        all.set(PURGED, all.word(PURGED).min(all.word(COUNT)));
        // The next number may be there, of an unfinished invalidation.
        let most = all.word(COUNT) + 1;
        let numbers = (TABLE..all.words.len()).skip(2).step_by(PLACE_WORDS);
        for at in (LENGTHS..TABLE).chain(numbers).filter(|&at| all.word(at) > most) {
            all.set(at, most);
        }
        all.set(NEWEST_CODE, all.word(NEWEST_CODE) % u64::from(CODES));
        if all.birth_of(all.newest_code()).is_none() {
            all.set_birth(all.newest_code(), all.word(COUNT) + 1);
        }
        all.settle();
        all
    }

    /// Number of invalidations so far.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        // Acquire: partner of the Release in `add`; the table of this count is visible.
        self.words[COUNT].load(Ordering::Acquire)
    }

    /// The code of items that need not be judged, in its form in a shape; `NONE`: every item is
    /// judged.
    #[inline]
    pub(crate) fn plain(&self) -> u32 {
        // Acquire: partner of the Release in `settle`; the code's birth and the count are visible.
        self.plain.load(Ordering::Acquire)
    }

    /// `true` while new items need a stamp.
    #[inline]
    pub(crate) fn needs_stamps(&self) -> bool {
        self.plain() == NONE
    }

    /// The births of an item that is stored by a decision made after this call. So an item
    /// invalidated during the decision is not stored again under a later birth. The caller is in a
    /// section.
    #[inline]
    pub(crate) fn births(&self) -> Births {
        match self.plain() {
            NONE => Births {
                roomy: Birth { code: STAMPED, stamp: low_u32(self.count()) },
                tight: Birth { code: self.newest_code(), stamp: 0 },
            },
            plain => {
                let birth = Birth { code: plain >> CODE_SHIFT, stamp: 0 };
                Births { roomy: birth, tight: birth }
            }
        }
    }

    /// The births of an item that is stored by a decision made because of an invalidation whose
    /// effect the caller has seen.
    ///
    /// While one is being added, this waits briefly. If its thread is preempted, the item counts as
    /// stored before it, and dies by it.
    #[cold]
    pub(crate) fn births_after_seen(&self) -> Births {
        for _ in 0..LOOKS {
            // Acquire: partner of the Release at the end of `add`; the newest code is visible.
            if self.adding.load(Ordering::Acquire) == 0 {
                break;
            }
            spin_loop();
        }
        self.births()
    }

    /// The number at which an item with this code was born. The caller has found it in its section.
    pub(crate) fn born(&self, code: u32, stamp: impl FnOnce() -> u32) -> u64 {
        if code == STAMPED {
            let count = self.count();
            // Fewer than 2^32 come within one purge.
            return count.saturating_sub(u64::from(low_u32(count).wrapping_sub(stamp())));
        }
        self.birth_of(code).unwrap_or(0)
    }

    /// The newest code and its number.
    pub(crate) fn newest(&self) -> (u32, u64) {
        let code = self.newest_code();
        (code, self.birth_of(code).unwrap_or(0))
    }

    /// Number of invalidations of a prefix since the last reset of the number.
    pub(crate) fn prefixes(&self) -> u64 {
        self.words[PREFIXES].load(Ordering::Relaxed)
    }

    /// Counts invalidations of prefixes from zero again.
    pub(crate) fn reset_prefixes(&self) {
        let _lock = self.lock.lock();
        self.set(PREFIXES, 0);
    }

    /// Invalidations that are not purged yet.
    pub(crate) fn outstanding(&self) -> u64 {
        self.count().saturating_sub(self.words[PURGED].load(Ordering::Relaxed))
    }

    /// Adds an invalidation of every key, or of the keys under the prefix of this length and hash.
    ///
    /// # Errors
    ///
    /// The table has no room, and nothing has changed.
    pub(crate) fn add(&self, prefix: Option<(usize, u64)>) -> Result<(), Full> {
        let _lock = self.lock.lock();
        // Relaxed: seen by any thread that sees the effect by the Acquire in `hits` or in `last`.
        self.adding.store(1, Ordering::Relaxed);
        let added = self.add_locked(prefix);
        // Release: partner of the Acquire in `births_after_seen`.
        self.adding.store(0, Ordering::Release);
        added
    }

    /// Adds an invalidation. The caller holds the lock.
    fn add_locked(&self, prefix: Option<(usize, u64)>) -> Result<(), Full> {
        let next = self.word(COUNT) + 1;
        let (len, hash) = prefix.unwrap_or((0, 0));
        if prefix.is_some() {
            self.enter(len, hash, next)?;
            self.set(PREFIXES, self.word(PREFIXES) + 1);
        }
        // Release: partner of the Acquire in `hits`; the place in the table is visible.
        self.words[LENGTHS + len].store(next, Ordering::Release);
        // Release: partner of the Acquire in `count`.
        self.words[COUNT].store(next, Ordering::Release);
        self.settle();
        Ok(())
    }

    /// Puts a prefix into the table, in place of one that no longer concerns any item. The caller
    /// holds the lock.
    fn enter(&self, len: usize, hash: u64, number: u64) -> Result<(), Full> {
        let is_it = |place: &usize| self.word(*place) == hash && self.word(place + 1) == len as u64;
        if let Some(place) = self.places(hash).find(is_it) {
            // Release: partner of the Acquire in `last`.
            self.words[place + 2].store(number, Ordering::Release);
            return Ok(());
        }
        let done = self.word(PURGED).max(self.word(LENGTHS));
        let oldest = self.places(hash).min_by_key(|place| self.word(place + 2)).ok_or(Full)?;
        let old = self.word(oldest + 2);
        if old > done {
            return Err(Full);
        }
        self.set(FORGOTTEN, self.word(FORGOTTEN).max(old));
        // Release: partner of the fence in `hits`; a thread that sees these words sees the
        // invalidation of everything before them, and what was forgotten.
        self.words[oldest].store(hash, Ordering::Release);
        self.words[oldest + 1].store(len as u64, Ordering::Release);
        // Release: partner of the Acquire in `last`; hash and length are visible.
        self.words[oldest + 2].store(number, Ordering::Release);
        Ok(())
    }

    /// Gives the count a code if one is free. The caller holds the lock, or is the only user.
    fn settle(&self) {
        let count = self.word(COUNT);
        let mut code = self.newest_code();
        if self.birth_of(code) != Some(count)
            && let Some(free) = (0..CODES).find(|&code| self.birth_of(code).is_none())
        {
            self.set_birth(free, count + 1);
            // Release: partner of the Acquire in `newest_code`.
            self.words[NEWEST_CODE].store(u64::from(free), Ordering::Release);
            code = free;
        }
        let plain = if self.birth_of(code) == Some(count) { code << CODE_SHIFT } else { NONE };
        // Release: partner of the Acquire in `plain`.
        self.plain.store(plain, Ordering::Release);
    }

    /// Starts a purge. Returns the minimum birth of all items after it, which the last part of the
    /// purge passes to [`end_purge`](Self::end_purge).
    pub(crate) fn begin_purge(&self) -> u64 {
        let _lock = self.lock.lock();
        self.settle();
        self.newest().1
    }

    /// Records that every linked item was born at `purged` or later, and no thread knows another.
    pub(crate) fn end_purge(&self, purged: u64) {
        let _lock = self.lock.lock();
        self.set(PURGED, purged);
        for code in 0..CODES {
            if self.birth_of(code).is_some_and(|birth| birth < purged) {
                self.set_birth(code, 0);
            }
        }
        self.settle();
    }

    /// Counts an invalidation that a process was adding when it died. No other thread uses the
    /// store.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn count_unfinished(&self) {
        self.set(COUNT, self.word(COUNT) + 1);
        self.settle();
    }

    /// `true` if an invalidation after the number `born` covers `key`. Numbers up to `purged` may
    /// not be found.
    pub(crate) fn hits(&self, key: &[u8], born: u64, hash: impl Fn(&[u8]) -> u64) -> bool {
        let is_hit = (0..=key.len().min(PREFIX_BYTES_MAX)).any(|len| {
            // Acquire: partner of the Release in `add`.
            self.words[LENGTHS + len].load(Ordering::Acquire) > born
                && (len == 0 || self.last(len, hash(&key[..len])) > born)
        });
        // Acquire: partner of the Release of a place in `enter`. If one has been overwritten since
        // the first look because everything was invalidated, that is seen now.
        fence(Ordering::Acquire);
        is_hit || self.word(LENGTHS) > born
    }

    /// `true` if an invalidation since the count `since` covers `key`, or if that is too long ago
    /// to know.
    pub(crate) fn since(&self, key: &[u8], since: u64, hash: impl Fn(&[u8]) -> u64) -> bool {
        if self.count() == since {
            return false;
        }
        // Relaxed: behind the fence of `hits`. If a place had been overwritten, its number is
        // forgotten.
        self.hits(key, since, hash) || since < self.words[FORGOTTEN].load(Ordering::Relaxed)
    }

    /// The number of the last invalidation that covers `key`, of those in the table; 0: none.
    pub(crate) fn last_of_key(&self, key: &[u8], hash: impl Fn(&[u8]) -> u64) -> u64 {
        (0..=key.len().min(PREFIX_BYTES_MAX)).fold(0, |newest, len| {
            // Acquire: partner of the Release in `add`.
            match self.words[LENGTHS + len].load(Ordering::Acquire) {
                number if number <= newest => newest,
                number if len == 0 => number,
                _ => newest.max(self.last(len, hash(&key[..len]))),
            }
        })
    }

    /// The number of the last invalidation of everything; 0: none.
    pub(crate) fn last_of_all(&self) -> u64 {
        // Acquire: partner of the Release in `add`.
        self.words[LENGTHS].load(Ordering::Acquire)
    }

    /// The number of the last invalidation of the prefix of this length and hash; 0: none.
    fn last(&self, len: usize, hash: u64) -> u64 {
        let number = |place: usize| {
            // Acquire: partner of the Release in `enter`; hash and length are not older.
            let number = self.words[place + 2].load(Ordering::Acquire);
            let is_it = self.word(place) == hash && self.word(place + 1) == len as u64;
            if is_it { number } else { 0 }
        };
        self.places(hash).map(number).max().unwrap_or(0)
    }

    /// First words of the places where a prefix of this hash may stand.
    fn places(&self, hash: u64) -> impl Iterator<Item = usize> {
        let bucket = low_u32(hash) as usize % self.buckets;
        (0..WAYS).map(move |way| TABLE + (bucket * WAYS + way) * PLACE_WORDS)
    }

    #[inline]
    fn newest_code(&self) -> u32 {
        // Acquire: partner of the Release in `settle`; the code's birth is visible. It is below 8.
        low_u32(self.words[NEWEST_CODE].load(Ordering::Acquire))
    }

    /// The number for which a code stands; `None`: the code is free.
    fn birth_of(&self, code: u32) -> Option<u64> {
        // Acquire: partner of the Release in `set_birth`.
        self.words[BIRTHS + code as usize].load(Ordering::Acquire).checked_sub(1)
    }

    fn set_birth(&self, code: u32, plus_one: u64) {
        // Release: partner of the Acquire in `birth_of`.
        self.words[BIRTHS + code as usize].store(plus_one, Ordering::Release);
    }

    fn word(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, to: u64) {
        self.words[at].store(to, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests;
