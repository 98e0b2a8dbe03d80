//! Counters: each named once, written by one worker, summed by readers.
//!
//! A worker's counter is an atomic only so that others may read it: the owner loads and stores, and
//! never needs a read-modify-write. Counters are never set back. `stats reset` remembers the
//! present sums and subtracts them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slab classes a counter is kept for: a class is a `u8`.
pub(crate) const CLASSES: usize = 256;

macro_rules! counters {
    ($(#[$doc:meta])* $enum:ident, $list:ident: $($(#[$line:meta])* $variant:ident = $name:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $enum { $($(#[$line])* $variant,)* }

        /// Every one of them with memcached's name for it.
        pub const $list: &[($enum, &str)] = &[$(($enum::$variant, $name),)*];
    };
}

counters! {
    /// Counters of a worker as a whole.
    Counter, COUNTERS:
    /// Requests refused because the user lacks a right.
    AccessDenied = "access_denied",
    /// Logins tried.
    AuthCmds = "auth_cmds",
    /// Logins refused.
    AuthErrors = "auth_errors",
    /// `cas` on an absent key.
    CasMisses = "cas_misses",
    /// `flush_all`.
    CmdFlush = "cmd_flush",
    /// `flush_prefix`.
    CmdFlushPrefix = "cmd_flush_prefix",
    /// `gat` and its like, which count neither into `cmd_get` nor into hits and misses of `get`.
    CmdGat = "cmd_gat",
    /// `me`: memcached counts no other meta command.
    CmdMeta = "cmd_meta",
    /// `touch` and `gat`.
    CmdTouch = "cmd_touch",
    /// `decr` on an absent key.
    DecrMisses = "decr_misses",
    /// `delete` of an absent key.
    DeleteMisses = "delete_misses",
    /// Items past their deadline that a request found, and unlinked.
    GetExpired = "get_expired",
    /// Flushed items that a request found, and unlinked.
    GetFlushed = "get_flushed",
    /// Keys asked for and not there.
    GetMisses = "get_misses",
    /// Hold-offs for which there was no room; the delete was done.
    HoldoffNoMemory = "holdoff_no_memory",
    /// An `add` refused because of a hold-off.
    HoldoffRefused = "holdoff_refused",
    /// Deletes with a hold-off.
    Holdoffs = "holdoffs",
    /// `incr` on an absent key.
    IncrMisses = "incr_misses",
    /// Tokens given to readers that missed.
    LeaseIssued = "lease_issued",
    /// Values stored with a token.
    LeaseSets = "lease_sets",
    /// Values refused because their token was void, used or none.
    LeaseSetRejected = "lease_set_rejected",
    /// Tokens given back because nothing will be stored.
    LeaseReleased = "lease_released",
    /// Readers that missed and were told to wait.
    LeaseWaits = "lease_waits",
    /// Requests refused because the limit of a namespace or a user was reached.
    RateRefused = "rate_refused",
    /// Deleted values given out as stale.
    StaleHits = "stale_hits",
    /// Values refused because nothing could be evicted.
    StoreNoMemory = "store_no_memory",
    /// Values refused because of the byte quota of a namespace.
    StoreOverQuota = "store_over_quota",
    /// Values refused for their size.
    StoreTooLarge = "store_too_large",
    /// `touch` and `gat` of an absent key.
    TouchMisses = "touch_misses",
}

counters! {
    /// Counters of a worker by slab class; the whole is the sum.
    ClassCounter, CLASS_COUNTERS:
    /// `get` found the key.
    GetHits = "get_hits",
    /// Values received; in class 0, those to append that needed no memory since they were refused.
    /// A worker counts here only those without a cas unique, and [`Totals`] adds the others.
    CmdSet = "cmd_set",
    /// Values received with a cas unique to compare, by the same classes.
    CasSets = "cas_sets",
    /// `delete` found it.
    DeleteHits = "delete_hits",
    /// `incr` found it.
    IncrHits = "incr_hits",
    /// `decr` found it.
    DecrHits = "decr_hits",
    /// `cas` stored.
    CasHits = "cas_hits",
    /// `cas` found another cas unique.
    CasBadval = "cas_badval",
    /// `touch` and `gat` found it.
    TouchHits = "touch_hits",
}

counters! {
    /// Counters of a worker by namespace or user.
    SubjectCounter, SUBJECT_COUNTERS:
    /// Keys named by requests, refused ones included.
    Requests = "requests",
    /// Keys read.
    Gets = "gets",
    /// Of those, the ones that were there.
    Hits = "hits",
    /// Values received, whether stored or not.
    Sets = "sets",
    /// Keys deleted, whether there or not.
    Deletes = "deletes",
    /// Requests refused because of their number.
    RefusedRate = "refused_rate",
}

impl SubjectCounter {
    /// `true` if it is counted for users, too.
    #[must_use]
    pub const fn is_of_users(self) -> bool {
        matches!(self, Self::Requests | Self::RefusedRate)
    }
}

/// The counters of one subject, in the order of [`SUBJECT_COUNTERS`].
pub(crate) type OfSubject<T> = [T; SUBJECT_COUNTERS.len()];

/// One worker's counters.
#[derive(Debug)]
pub(crate) struct Counters {
    whole: [AtomicU64; COUNTERS.len()],
    classes: Box<[[AtomicU64; CLASS_COUNTERS.len()]]>,
    /// By the number of the namespace or user; there once one is counted.
    subjects: OnceLock<Box<[OfSubject<AtomicU64>]>>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            whole: Default::default(),
            classes: (0..CLASSES).map(|_| Default::default()).collect(),
            subjects: OnceLock::new(),
        }
    }

    /// Adds one. Only the owning worker may call it: two writers would lose counts.
    #[inline]
    pub(crate) fn add(&self, counter: Counter) {
        bump(&self.whole[counter as usize]);
    }

    /// Adds one to `counter` of `class`, by the same rule.
    #[inline]
    pub(crate) fn add_class(&self, class: u8, counter: ClassCounter) {
        bump(&self.classes[usize::from(class)][counter as usize]);
    }

    /// Adds one to `counter` of the subject with this number, by the same rule.
    pub(crate) fn add_subject(&self, number: u16, counter: SubjectCounter) {
        let make = || (0..store::NAMESPACES_MAX).map(|_| Default::default()).collect();
        bump(&self.subjects.get_or_init(make)[usize::from(number)][counter as usize]);
    }

    /// The counters of the subject with this number.
    pub(crate) fn of_subject(&self, number: u16) -> OfSubject<u64> {
        self.subjects.get().map_or_else(Default::default, |subjects| {
            subjects[usize::from(number)].each_ref().map(|cell| cell.load(Ordering::Relaxed))
        })
    }
}

/// Relaxed: a reader needs a recent number, and orders nothing by it.
#[inline]
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Sums over workers.
#[derive(Clone, Debug)]
pub struct Totals {
    whole: [u64; COUNTERS.len()],
    classes: Vec<[u64; CLASS_COUNTERS.len()]>,
}

impl Totals {
    pub(crate) fn zero() -> Self {
        Self { whole: [0; COUNTERS.len()], classes: vec![[0; CLASS_COUNTERS.len()]; CLASSES] }
    }

    pub(crate) fn add(&mut self, worker: &Counters) {
        for (sum, counter) in self.whole.iter_mut().zip(&worker.whole) {
            *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
        }
        for (sums, counters) in self.classes.iter_mut().zip(&worker.classes) {
            let mut now = counters.each_ref().map(|counter| counter.load(Ordering::Relaxed));
            // Both sums from one reading, so that their difference never falls.
            let with_cas = now[ClassCounter::CasSets as usize];
            let sets = &mut now[ClassCounter::CmdSet as usize];
            *sets = sets.wrapping_add(with_cas);
            for (sum, now) in sums.iter_mut().zip(now) {
                *sum = sum.wrapping_add(now);
            }
        }
    }

    pub(crate) fn subtract(&mut self, baseline: &Self) {
        for (sum, base) in self.whole.iter_mut().zip(&baseline.whole) {
            *sum = sum.wrapping_sub(*base);
        }
        for (sums, bases) in self.classes.iter_mut().zip(&baseline.classes) {
            for (sum, base) in sums.iter_mut().zip(bases) {
                *sum = sum.wrapping_sub(*base);
            }
        }
    }

    /// A worker-wide counter's sum.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.whole[counter as usize]
    }

    /// One class's sum.
    #[must_use]
    pub fn of_class(&self, class: u8, counter: ClassCounter) -> u64 {
        self.classes[usize::from(class)][counter as usize]
    }

    /// The sum over all classes.
    #[must_use]
    pub fn of_all_classes(&self, counter: ClassCounter) -> u64 {
        self.classes.iter().map(|class| class[counter as usize]).sum()
    }

    /// memcached's `cmd_get`: keys asked for and not touched at the same time, so that hits divided
    /// by this are a ratio.
    #[must_use]
    pub fn cmd_get(&self) -> u64 {
        self.of_all_classes(ClassCounter::GetHits) + self.get(Counter::GetMisses)
    }

    /// Keys asked for, by whatever command.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.cmd_get() + self.get(Counter::CmdGat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_names_are_unique() {
        let mut names: Vec<_> = COUNTERS.iter().map(|(_, name)| *name).collect();
        names.extend(CLASS_COUNTERS.iter().map(|(_, name)| *name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn values_with_a_cas_unique_count_as_sets_too() {
        let (counters, mut totals) = (Counters::new(), Totals::zero());
        counters.add_class(3, ClassCounter::CmdSet);
        counters.add_class(4, ClassCounter::CasSets);
        totals.add(&counters);
        assert_eq!(totals.of_all_classes(ClassCounter::CmdSet), 2);
        assert_eq!(totals.of_class(4, ClassCounter::CmdSet), 1);
        assert_eq!(totals.of_all_classes(ClassCounter::CasSets), 1);
    }

    #[test]
    fn a_reset_subtracts_earlier_counts() {
        let (counters, mut before, mut after) = (Counters::new(), Totals::zero(), Totals::zero());
        counters.add(Counter::CmdFlush);
        counters.add_class(7, ClassCounter::GetHits);
        before.add(&counters);
        counters.add_class(7, ClassCounter::GetHits);
        counters.add(Counter::GetMisses);
        after.add(&counters);
        after.subtract(&before);
        assert_eq!(after.get(Counter::CmdFlush), 0);
        assert_eq!(after.of_class(7, ClassCounter::GetHits), 1);
        assert_eq!(after.cmd_get(), 2);
    }
}
