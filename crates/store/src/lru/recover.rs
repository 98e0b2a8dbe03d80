//! Recovers bags for the items of a dead process. Their order is lost, but an item's mark shows its
//! last use, or its block shows when its bag was opened.
//!
//! Relaxed is enough: no other thread uses the store before the recovery has ended.

use super::recency::{Tick, tick_of};
use super::{Bag, BagList, Clocks, Cursor, Queue};
use arena::sync::Ordering;

/// Number of ages that the bags distinguish, in ticks: more than the average number of bags of a
/// class. The last means "as old, or older".
pub(crate) const AGES: usize = 1 << 12;

/// Bags made of a class's items.
const BAGS_MADE: u64 = 32;

/// The present, from which bags are dated back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dates<'c> {
    pub clocks: Clocks<'c>,
    /// The approximate turnover between two openings of bags of one class.
    pub bytes_per_tick: u64,
    pub now_secs: u32,
}

impl BagList {
    /// Opens bags of proven items for items whose numbers by age are given, in ticks before the
    /// present. Returns the bag for each age.
    pub(crate) fn recover(&self, ages: &[u32], dates: Dates<'_>) -> Vec<u8> {
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
                self.bag(bag).date((oldest, age), dates);
                (bag, held, oldest) = (bag + 1, 0, age - 1);
            }
        }
        let newest_of_newcomers = bag + 1;
        for newest in [bag, newest_of_newcomers] {
            self.bag(newest).date((oldest, 0), dates);
            self.bag(newest).closed_secs.store(0, Ordering::Relaxed);
        }
        // The queue that an item was in is unknown. Items that survived a crash count as proven.
        let queues = [vec![newest_of_newcomers], (0..=bag).collect()];
        let queues = queues.map(|bags| Queue { bags: bags.into(), evict: Cursor::default() });
        self.set_queues(&mut self.order.lock(), queues);
        bag_of
    }
}

impl Bag {
    /// Dates the bag so that no mark from the oldest to the youngest of these ages counts as
    /// touched.
    fn date(&self, (oldest, youngest): (usize, usize), dates: Dates<'_>) {
        let Dates { clocks, bytes_per_tick, now_secs } = dates;
        let tick = clocks.tick.load(Ordering::Relaxed);
        let turnover = clocks.turnover.load(Ordering::Relaxed);
        // No tick of a process lies within `AGES` of zero.
        let ago = |age: usize| tick - age as u64;
        self.opened_tick.store(ago(oldest), Ordering::Relaxed);
        self.closed_tick.store(ago(youngest) + 1, Ordering::Relaxed);
        self.passed_tick.store(ago(oldest), Ordering::Relaxed);
        let opened_at = turnover.saturating_sub(oldest as u64 * bytes_per_tick);
        self.opened_at.store(opened_at, Ordering::Relaxed);
        self.opened_secs.store(now_secs, Ordering::Relaxed);
        self.closed_secs.store(now_secs, Ordering::Relaxed);
        self.closed_epoch.store(0, Ordering::Relaxed);
    }
}

/// Age of an item, in ticks, by its mark, or by its bag's opening if it has no mark.
pub(crate) fn age_of(mark: u16, bag_opened: Tick, now: Tick) -> usize {
    let used = tick_of(mark, now).unwrap_or(bag_opened);
    usize::try_from(now.saturating_sub(used)).map_or(AGES - 1, |age| age.min(AGES - 1))
}
