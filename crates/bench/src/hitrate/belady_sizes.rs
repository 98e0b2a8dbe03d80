//! Belady's rule with sizes: evicts the item that takes most bytes for longest until its next use.
//!
//! For objects of several sizes, no rule is known to be best, and this one comes closer to the best
//! than evicting only by distance. The costliest object changes over time, so each eviction
//! examines a sample.

use std::collections::HashMap;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::Counts;
use super::future::{Future, FutureRequest};

/// Objects examined per eviction.
const SAMPLE: usize = 64;

/// A cache that knows the future, and evicts by distance times bytes.
pub(super) struct BySize {
    capacity: u64,
    used: u64,
    held: Vec<Held>,
    /// Indexes in `held`, by the position of the next use.
    places: HashMap<u64, usize>,
    rng: SmallRng,
    counts: Counts,
}

struct Held {
    next: u64,
    bytes: u32,
}

impl BySize {
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            used: 0,
            held: Vec::new(),
            places: HashMap::new(),
            rng: SmallRng::seed_from_u64(1),
            counts: Counts::default(),
        }
    }

    fn remove(&mut self, place: usize) {
        let gone = self.held.swap_remove(place);
        self.places.remove(&gone.next);
        if let Some(moved) = self.held.get(place) {
            self.places.insert(moved.next, place);
        }
        self.used -= u64::from(gone.bytes);
    }

    fn evict(&mut self, now: u64) {
        let cost = |held: &Held| u128::from(held.next - now) * u128::from(held.bytes);
        let count = self.held.len();
        let sample = (0..SAMPLE).map(|nth| match count {
            0..=SAMPLE => nth % count.max(1),
            _ => self.rng.random_range(0..count),
        });
        // The newest is examined, too: it need not be kept.
        let costliest = sample.chain(count.checked_sub(1)).max_by_key(|at| cost(&self.held[*at]));
        if let Some(place) = costliest {
            self.remove(place);
        }
    }
}

impl Future for BySize {
    fn meet(&mut self, met: &FutureRequest) {
        let held = self.places.get(&met.at).copied();
        if let Some(place) = held {
            self.remove(place);
        }
        if met.is_get && met.counts {
            self.counts.gets += 1;
            self.counts.hits += u64::from(held.is_some());
        }
        let Some((next, bytes)) = met.keep.filter(|(_, bytes)| u64::from(*bytes) <= self.capacity)
        else {
            return;
        };
        self.used += u64::from(bytes);
        self.places.insert(next, self.held.len());
        self.held.push(Held { next, bytes });
        while self.used > self.capacity {
            self.evict(met.at);
        }
    }

    fn counts(self) -> Counts {
        self.counts
    }
}
