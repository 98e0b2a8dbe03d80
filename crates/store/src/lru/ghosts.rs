//! Ghosts: fingerprints of evicted newcomers. An item that comes back after its eviction counts as
//! proven.
//!
//! A ghost is 8 bits of the key's hash, in a place that other bits of it name. A later ghost
//! overwrites an earlier one in the same place. With as many places as there are items, a ghost
//! lives about as long as it takes to store that many items. Places are added in small steps, as a
//! table grows by linear hashing: of the hashes that lead to one old place, half lead to the new
//! one. One key is taken for another in one of 255 cases, and then a newcomer counts as proven,
//! which may cost the place of an item that is.
//!
//! Four ghosts share a word. All accesses are Relaxed: a ghost guards nothing, and a race of two
//! writers only loses one ghost.
//!
//! Source: the ghost queue of Yang and others, "FIFO queues are all you need for cache eviction"
//! (SOSP 2023).

use arena::budget::Budget;
use arena::region::Region;
use arena::sync::{AtomicU32, AtomicU64, Ordering};
use narrow::to_usize;
use std::io;

/// Places of an empty store.
const PLACES_MIN: u64 = 1 << 10;
/// A step of growth is about this part of the places.
const STEP: u64 = 16;
/// Ghosts in a word.
const PER_WORD: u8 = 4;
/// Bits of a ghost in its word.
const BITS: u32 = 8;
const MASK: u32 = 0xff;

/// The ghosts of one store.
#[derive(Debug)]
pub(crate) struct Ghosts {
    words: Region<AtomicU32>,
    /// Places in use.
    places: AtomicU64,
}

/// The place of a ghost, and its fingerprint, which is not zero.
#[derive(Clone, Copy, Debug)]
struct Ghost {
    word: usize,
    shift: u32,
    print: u32,
}

impl Ghosts {
    /// An empty set, with room for the ghosts of `items_max` items. Hardly any memory is resident
    /// yet.
    ///
    /// # Errors
    ///
    /// The system's refusal to map the address space.
    pub(crate) fn new(items_max: u64) -> io::Result<Self> {
        let places = items_max.max(PLACES_MIN).next_power_of_two();
        let words = Region::reserve(to_usize(places / u64::from(PER_WORD)))?;
        Ok(Self { words, places: AtomicU64::new(PLACES_MIN) })
    }

    /// Makes places for the ghosts of a store with this number of items, and charges the bytes. Of
    /// the existing ghosts, few are lost because lookups expect them elsewhere.
    pub(crate) fn fit(&self, items: u64, budget: &Budget) {
        let places = self.places.load(Ordering::Relaxed);
        let most = self.words.len() as u64 * u64::from(PER_WORD);
        if items > places && places < most {
            let more = (floor(places) / STEP).max(PLACES_MIN).min(most - places);
            budget.charge(more);
            self.places.store(places + more, Ordering::Relaxed);
        }
    }

    #[inline]
    fn of(&self, hash: u64) -> Ghost {
        let places = self.places.load(Ordering::Relaxed);
        let half = floor(places);
        let place = (hash >> 8) & (2 * half - 1);
        let place = if place < places { place } else { place - half };
        let ([print, ..], [low, ..]) = (hash.to_be_bytes(), place.to_le_bytes());
        Ghost {
            word: to_usize(place / u64::from(PER_WORD)),
            shift: u32::from(low % PER_WORD) * BITS,
            print: u32::from(print.max(1)),
        }
    }

    /// Notes a key by its hash.
    pub(crate) fn note(&self, hash: u64) {
        self.put(self.of(hash), true);
    }

    /// `true` if the key was noted recently; the ghost is then forgotten.
    pub(crate) fn take(&self, hash: u64) -> bool {
        let ghost = self.of(hash);
        let seen = self.words[ghost.word].load(Ordering::Relaxed) >> ghost.shift & MASK;
        if seen != ghost.print {
            return false;
        }
        self.put(ghost, false);
        true
    }

    fn put(&self, ghost: Ghost, is_there: bool) {
        let word = &self.words[ghost.word];
        let others = word.load(Ordering::Relaxed) & !(MASK << ghost.shift);
        let print = if is_there { ghost.print << ghost.shift } else { 0 };
        word.store(others | print, Ordering::Relaxed);
    }

    /// Fetches the line in which [`take`](Self::take) will look, and [`note`](Self::note) write.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        arena::region::prefetch(&raw const self.words[self.of(hash).word]);
    }
}

/// The greatest power of two that is not above a number over zero.
#[inline]
fn floor(number: u64) -> u64 {
    1 << number.ilog2()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        number
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn a_ghost_is_taken_once() {
        let ghosts = Ghosts::new(1 << 12).unwrap();
        assert!(!ghosts.take(hash(1)));
        ghosts.note(hash(1));
        ghosts.note(hash(2));
        assert!(ghosts.take(hash(2)) && !ghosts.take(hash(2)));
        assert!(ghosts.take(hash(1)) && !ghosts.take(hash(1)));
    }

    #[test]
    fn ghosts_cover_most_recent_items_and_few_others() {
        let ghosts = Ghosts::new(1 << 16).unwrap();
        let budget = Budget::new(1 << 20);
        for items in 0..1 << 14 {
            ghosts.fit(items, &budget);
        }
        let charged = budget.used() + PLACES_MIN;
        assert_eq!(charged, ghosts.places.load(Ordering::Relaxed), "a byte a place");
        assert!((1 << 14..1 << 14 | 1 << 11).contains(&charged), "a byte an item: {charged}");
        (0..1 << 16).for_each(|number| ghosts.note(hash(number)));
        let newest = (1 << 16) - (1 << 13);
        let kept = (newest..1 << 16).filter(|&number| ghosts.take(hash(number))).count();
        assert!(kept > (1 << 13) * 7 / 10, "{kept} of {}", 1 << 13);
        let strange = (1 << 20..1 << 21).filter(|&number| ghosts.take(hash(number))).count();
        assert!(strange < (1 << 20) / 200, "{strange} of a million others");
    }

    #[test]
    fn a_step_of_growth_loses_few_ghosts() {
        let ghosts = Ghosts::new(1 << 16).unwrap();
        let budget = Budget::new(1 << 20);
        for items in (1 << 14..24 << 10).step_by(100) {
            ghosts.fit(items, &budget);
        }
        let noted = (0..1 << 10).filter(|&number| {
            ghosts.note(hash(number));
            let places = ghosts.places.load(Ordering::Relaxed);
            while ghosts.places.load(Ordering::Relaxed) == places {
                ghosts.fit(places + 1, &budget);
            }
            let found = ghosts.take(hash(number));
            ghosts.places.store(places, Ordering::Relaxed);
            found
        });
        // Half of those in a sixteenth of the places have another place.
        let noted = noted.count();
        assert!(noted > (1 << 10) * 15 / 16, "{noted} of 1024");
    }
}
