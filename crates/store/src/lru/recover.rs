//! Bags for the items that a dead process left. Their own order is lost, but each item's mark tells
//! when it was last used.
//!
//! Relaxed is enough: no other thread uses the store before the recovery has ended.

use super::recency::{Tick, low};
use super::{Bag, BagList};
use crate::narrow::to_u32;
use crate::sync::Ordering;

/// Number of ages that the bags distinguish, in ticks: more than a class has bags on average. The
/// last is "as old, or older".
pub(crate) const AGES: usize = 1 << 12;

/// Bags made of a class's items.
const BAGS_MADE: u64 = 32;

impl BagList {
    /// Opens bags for items whose numbers by age are given, in ticks before `tick`. Returns the bag
    /// for each age.
    pub(crate) fn recover(&self, ages: &[u32], tick: Tick, now_secs: u32) -> Vec<u8> {
        let items: u64 = ages.iter().copied().map(u64::from).sum();
        let share = items.div_ceil(BAGS_MADE).max(1);
        let mut bag_of = vec![0; ages.len()];
        let (mut bag, mut held) = (0u8, 0);
        let mut oldest = ages.len() - 1;
        // Oldest first; the newest bag takes the rest.
        for age in (0..ages.len()).rev() {
            bag_of[age] = bag;
            held += u64::from(ages[age]);
            if held >= share && age > 0 {
                self.bag(bag).date((oldest, age), tick, now_secs);
                (bag, held, oldest) = (bag + 1, 0, age - 1);
            }
        }
        self.bag(bag).date((oldest, 0), tick, now_secs);
        self.bag(bag).closed_secs.store(0, Ordering::Relaxed);
        self.set_queue(&mut self.order.lock(), (0..=bag).collect());
        bag_of
    }
}

impl Bag {
    /// Dates the bag so that no mark from the oldest to the youngest of these ages counts as
    /// touched.
    fn date(&self, (oldest, youngest): (usize, usize), tick: Tick, now_secs: u32) {
        let ago = |age: usize| tick.wrapping_sub(to_u32(age));
        self.opened_tick.store(ago(oldest), Ordering::Relaxed);
        self.closed_tick.store(ago(youngest).wrapping_add(1), Ordering::Relaxed);
        self.opened_secs.store(now_secs, Ordering::Relaxed);
        self.closed_secs.store(now_secs, Ordering::Relaxed);
        self.closed_epoch.store(0, Ordering::Relaxed);
    }
}

/// Age of a mark, in ticks.
pub(crate) fn age_of(mark: u16, tick: Tick) -> usize {
    usize::from(low(tick).wrapping_sub(mark)).min(AGES - 1)
}
