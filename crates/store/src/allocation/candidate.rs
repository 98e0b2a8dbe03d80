//! Candidates: the classes that could give a page, by the age of what they would lose.

use crate::eviction::victim::next_victims;
use crate::slabs::ClassId;
use crate::thread::ThreadState;
use std::rc::Rc;

/// Free chunks that a class in use has now and then: what was just evicted or given back. A page
/// that the class has just got is not idle either.
const FREE_IN_USE: usize = 64;
/// A class gives its last page only if its items are this many times older than others'.
const LAST_PAGE: u64 = 8;
/// Chunks of a page that a store empties by itself, at the most.
const CHUNKS_AT_ONCE: usize = 2048;
/// A class's items are much older than another's if they are this many times older.
const MUCH_OLDER: u64 = 2;

/// A class that could give a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub class: ClassId,
    /// Age of its next victim (see `rebalance`); `u64::MAX` for a class in which pages lie idle.
    pub age: u64,
    /// The age by which classes are compared (see `lru::tuning`).
    pub weighed: u64,
    /// Its pages.
    pub pages: usize,
    /// It may give one. A page of heads would take all their pieces with it.
    pub gives: bool,
}

impl Candidate {
    /// The class, if it has a page and an item or idle chunks; the heads of chained items, too,
    /// which may be given a page like any other class.
    pub(crate) fn of_class(thread: &Rc<ThreadState>, class: ClassId) -> Option<Self> {
        let slabs = &thread.store.slabs;
        let pages = slabs.pages_of(class);
        if pages == 0 {
            return None;
        }
        let idle = 2 * slabs.class(class).per_page() + FREE_IN_USE;
        if slabs.class_use(class).free >= idle as u64 {
            return Some(Self { class, age: u64::MAX, weighed: u64::MAX, pages, gives: true });
        }
        let age = next_victims(thread, class).map(|victim| victim.age).max()?;
        let gives = class != slabs.heads();
        // A head stands for its pieces.
        let sized = slabs.class(if gives { class } else { slabs.largest() });
        let weighed = thread.store.tuning.weighed(sized.chunk_bytes(), age);
        Some(Self { class, age, weighed, pages, gives })
    }

    /// The class with the oldest item, other than `class`.
    pub(crate) fn oldest(thread: &Rc<ThreadState>, class: ClassId) -> Option<Self> {
        (1..=thread.store.slabs.count())
            .filter(|&other| other != class)
            .filter_map(|other| Self::of_class(thread, other))
            .filter(|candidate| candidate.gives)
            .max_by_key(Self::claim)
    }

    /// The class with the oldest item, if that is much older than the next victim of `class` and a
    /// page of it is soon emptied.
    pub(crate) fn much_older(thread: &Rc<ThreadState>, class: ClassId) -> Option<Self> {
        let own = Self::of_class(thread, class)?;
        let giver = Self::oldest(thread, class).filter(|giver| giver.is_much_older_than(&own))?;
        let per_page = thread.store.slabs.class(giver.class).per_page();
        (per_page <= CHUNKS_AT_ONCE).then_some(giver)
    }

    /// `true` if a store of `needy` should rather take a page of this class than wait for the
    /// cleaner.
    pub(crate) fn is_much_older_than(&self, needy: &Self) -> bool {
        self.claim() / MUCH_OLDER >= needy.weighed && self.can_give_to(needy)
    }

    /// Rank of this class as a giver: the weighed age of its items. A class in use should keep its
    /// last page.
    pub(crate) fn claim(&self) -> u64 {
        if self.pages > 1 { self.weighed } else { self.weighed / LAST_PAGE }
    }

    /// `true` if this class would still not be the younger one after a page had gone from it to
    /// `needy`, if ages follow sizes. A class that is far older is out of use, and gives all.
    pub(crate) fn can_give_to(&self, needy: &Self) -> bool {
        let (mine, theirs) = (self.pages as u64, needy.pages as u64);
        let after = self.weighed / mine * (mine - 1);
        // A class in which pages lie idle needs none, whatever it evicted a moment ago.
        let needy_after = (needy.weighed / theirs.max(1)).saturating_mul(theirs + 1);
        after >= needy_after || self.weighed / LAST_PAGE >= needy.weighed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_in_which_pages_lie_idle_is_given_none() {
        let of = |class, age, pages| Candidate { class, age, weighed: age, pages, gives: true };
        let idle = |class, pages| of(class, u64::MAX, pages);
        assert!(!idle(1, 2).can_give_to(&idle(2, 281)));
        let busy = |age| of(3, age, 4);
        assert!(idle(1, 2).can_give_to(&busy(100)), "it gives");
        assert!(busy(200).can_give_to(&busy(100)) && !busy(110).can_give_to(&busy(100)));
    }
}
