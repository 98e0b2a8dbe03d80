//! Distances for caches in which items weigh their size: see [`crate::trials`].
//!
//! Such a cache evicts the item with the greatest *weighed age*: the time since its last use, times
//! the weight of its bytes. It hits a key of weighed age *w* if it has room for all items of less.
//! So the bytes of the known keys by weighed age, summed periodically, convert *w* to a distance.

use narrow::low_u32;

use super::order::{Known, Order};
use crate::histogram::Histogram;
use crate::trials::weight_of;

/// Reads of all keys in a unit of time: 32 bits of it are enough.
const READS_OF_A_TICK: f64 = 64.0;

/// Keys are examined after this part of their number was read.
const PART: usize = 8;

/// Minimum reads between two examinations of few keys.
const READS_MIN: usize = 16;

/// Distances by weighed age.
#[derive(Debug)]
pub(super) struct BySize {
    pub(super) distances: Histogram,
    /// Bytes of the sample's keys by weighed age, at the last look.
    bytes: Histogram,
    /// Reads until the next look.
    reads_left: usize,
}

/// Time as reads of all keys.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock(f64);

impl Clock {
    /// Lets this number of reads pass.
    pub(super) fn pass(&mut self, reads: f64) {
        self.0 += reads;
    }

    /// The present tick; it restarts at 0 after the greatest.
    pub(super) fn tick(self) -> u32 {
        low_u32(super::cut(self.0 / READS_OF_A_TICK))
    }

    /// A key's weighed age.
    pub(super) fn weighed_age(self, known: &Known) -> u64 {
        let age = f64::from(self.tick().wrapping_sub(known.used_at));
        super::cut(age * weight_of(f64::from(known.bytes)))
    }
}

impl BySize {
    /// Memory of one, in bytes.
    pub(super) const BYTES: usize = 2 * Histogram::BYTES;

    pub(super) fn new() -> Self {
        Self { distances: Histogram::default(), bytes: Histogram::default(), reads_left: 0 }
    }

    /// The distance of a key, in bytes of the sample's keys.
    pub(super) fn distance(&mut self, known: &Known, clock: Clock, order: &Order) -> f64 {
        self.reads_left = match self.reads_left.checked_sub(1) {
            Some(left) => left,
            None => {
                self.look(clock, order);
                (order.len() / PART).max(READS_MIN)
            }
        };
        self.bytes.up_to(clock.weighed_age(known))
    }

    fn look(&mut self, clock: Clock, order: &Order) {
        self.bytes.scale(0.0);
        for known in order.known() {
            self.bytes.add(clock.weighed_age(known), f64::from(known.bytes));
        }
    }
}
