//! Candidates: the classes that could give a page, by the age of the items that they would lose.

use super::age_after_page::age_after_page;
use crate::eviction::victim::next_victim;
use crate::slabs::ClassId;
use crate::thread::ThreadState;
use narrow::to_usize;
use std::rc::Rc;

/// Free chunks that a class in use has occasionally, in addition to those kept free for the next
/// stores: chunks just evicted or freed. A page that the class has just got is not idle either.
const FREE_IN_USE: usize = 64;
/// A class gives its last page only if its items are this many times older than others'.
const LAST_PAGE: u64 = 8;
/// Pages that a class without items may need again for its next ones.
const PAGES_AT_REST: usize = 2;
/// Classes whose ages differ by less than this part after a move do not give pages. Ages vary by
/// chance, and pages would move back and forth.
const MARGIN: u64 = 64;
/// Maximum number of chunks of a page that a store empties itself.
const CHUNKS_AT_ONCE: usize = 2048;
/// A class's items are much older than another's if they are this many times older.
const MUCH_OLDER: u64 = 2;

/// A class that could give a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub class: ClassId,
    /// Age of its next victim (see `rebalance`), weighed by its size (see `lru::tuning`);
    /// `u64::MAX` for a class with idle pages: a page of free chunks, if it has no item.
    pub weighed: u64,
    /// The weighed age of its next victim after a page has gone, set by [`sample`](Self::sample);
    /// infinite if nothing better than `weighed` is known.
    pub sampled: Option<u64>,
    /// Its pages.
    pub pages: usize,
    /// It may give one. A page of heads would take all their pieces with it.
    pub gives: bool,
    /// A page of it can be emptied so quickly that a store may wait for that.
    pub is_soon_empty: bool,
}

impl Candidate {
    /// The class, if it has a page and an item, or a page of free chunks; the heads of chained
    /// items, too, which may be given a page like any other class.
    pub(crate) fn of_class(thread: &Rc<ThreadState>, class: ClassId) -> Option<Self> {
        let slabs = &thread.store.slabs;
        let pages = slabs.pages_of(class);
        if pages == 0 {
            return None;
        }
        let per_page = slabs.class(class).per_page();
        let is_soon_empty = per_page <= CHUNKS_AT_ONCE;
        let free = to_usize(slabs.class_use(class).free);
        let kept_free = to_usize(slabs.class(class).most_kept_free());
        let is_in_use = free < 2 * per_page + FREE_IN_USE + kept_free;
        let age = is_in_use.then(|| next_victim(thread, class).map(|victim| victim.age));
        let Some(age) = age.flatten() else {
            let (weighed, sampled) = (u64::MAX, Some(u64::MAX));
            let idle = Self { class, weighed, sampled, pages, gives: true, is_soon_empty };
            return (free >= per_page).then_some(idle);
        };
        let gives = class != slabs.heads();
        // A head stands for its pieces.
        let sized = slabs.class(if gives { class } else { slabs.largest() });
        let weighed = thread.store.tuning.weighed(sized.chunk_bytes(), age);
        Some(Self { class, weighed, sampled: None, pages, gives, is_soon_empty })
    }

    /// All classes with items. Those that could give a page to another by their next victims are
    /// sampled.
    pub(crate) fn all(thread: &Rc<ThreadState>) -> Vec<Self> {
        let classes = 1..=thread.store.slabs.count();
        let mut all: Vec<_> = classes.filter_map(|class| Self::of_class(thread, class)).collect();
        Self::sample_givers(thread, &mut all);
        all
    }

    /// Samples its items, if a page is a large part of them. So [`can_give_to`](Self::can_give_to)
    /// detects a class with only a few old ones.
    pub(crate) fn sample(&mut self, thread: &Rc<ThreadState>) {
        if self.sampled.is_some() {
            return;
        }
        let chunk_bytes = thread.store.slabs.class(self.class).chunk_bytes();
        let age = age_after_page(thread, self.class, self.pages).unwrap_or(u64::MAX);
        self.sampled = Some(thread.store.tuning.weighed(chunk_bytes, age));
    }

    /// The class that could give the oldest page, other than `class`. It is sampled.
    pub(crate) fn oldest(thread: &Rc<ThreadState>, class: ClassId) -> Option<Self> {
        Self::oldest_that(thread, class, |_| true)
    }

    fn oldest_that(
        thread: &Rc<ThreadState>,
        class: ClassId,
        may_give: impl Fn(&Self) -> bool,
    ) -> Option<Self> {
        let others = (1..=thread.store.slabs.count()).filter(|&other| other != class);
        let mut givers: Vec<Self> = others
            .filter_map(|other| Self::of_class(thread, other))
            .filter(|candidate| candidate.gives && may_give(candidate))
            .collect();
        loop {
            let oldest = givers.iter_mut().max_by_key(|giver| giver.claim())?;
            if oldest.sampled.is_some() {
                return Some(*oldest);
            }
            oldest.sample(thread);
        }
    }

    /// A class with idle pages, other than `class`.
    pub(crate) fn idle(thread: &Rc<ThreadState>, class: ClassId) -> Option<Self> {
        let slabs = &thread.store.slabs;
        let has_free_page = |other: &ClassId| {
            to_usize(slabs.class_use(*other).free) >= slabs.class(*other).per_page()
        };
        (1..=slabs.count())
            .filter(|&other| other != class)
            .filter(has_free_page)
            .filter_map(|other| Self::of_class(thread, other))
            .find(|candidate| candidate.weighed == u64::MAX)
    }

    /// The class with the oldest item, if that is much older than the next victim of `class` and a
    /// page of it can be emptied quickly. Pages at rest are left to the cleaner.
    pub(crate) fn much_older(thread: &Rc<ThreadState>, class: ClassId) -> Option<Self> {
        let own = Self::of_class(thread, class)?;
        Self::oldest_that(thread, class, |giver| !giver.is_at_rest())
            .filter(|giver| giver.is_much_older_than(&own))
    }

    /// `true` if it has no item, and only pages that it may need again soon.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.weighed == u64::MAX && self.pages <= PAGES_AT_REST
    }

    /// `true` if a store of `needy` should rather take a page of this class than wait for the
    /// cleaner.
    pub(crate) fn is_much_older_than(&self, needy: &Self) -> bool {
        self.is_soon_empty && self.claim() / MUCH_OLDER >= needy.weighed && self.can_give_to(needy)
    }

    /// The weighed age of its next victim, now or after a page has gone, whichever is less.
    fn oldest_left(&self) -> u64 {
        self.sampled.map_or(self.weighed, |age| age.min(self.weighed))
    }

    /// Rank of this class as a giver, by the age of the oldest left. A class in use should keep its
    /// last page.
    pub(crate) fn claim(&self) -> u64 {
        let age = self.oldest_left();
        if self.pages > 1 { age } else { age / LAST_PAGE }
    }

    /// The weighed age of its next victim with one more page, if ages follow sizes. A class with
    /// idle pages needs none, whatever it just evicted.
    fn age_with_page(&self) -> u64 {
        let pages = self.pages as u64;
        (self.weighed / pages.max(1)).saturating_mul(pages + 1)
    }

    fn sample_givers(thread: &Rc<ThreadState>, all: &mut [Self]) {
        let takers = Self::takers(all);
        let givers = all.iter_mut().filter(|one| one.gives && one.can_give_to_one_of(&takers));
        givers.for_each(|one| one.sample(thread));
    }

    /// The classes to one of which a class can give if it can give to any.
    fn takers(all: &[Self]) -> Vec<Self> {
        let youngest = all.iter().min_by_key(|one| one.weighed);
        let neediest = all.iter().min_by_key(|one| one.age_with_page());
        youngest.into_iter().chain(neediest).copied().collect()
    }

    fn can_give_to_one_of(&self, takers: &[Self]) -> bool {
        takers.iter().any(|taker| self.can_give_to(taker))
    }

    /// `true` if this class would still be the older one after giving a page to `needy`, if ages
    /// follow sizes. A class that is far older is out of use, and gives all pages.
    pub(crate) fn can_give_to(&self, needy: &Self) -> bool {
        let mine = self.pages as u64;
        let after = self.oldest_left().min(self.weighed / mine * (mine - 1));
        let is_out_of_use = self.oldest_left() / LAST_PAGE >= needy.weighed;
        let wanted = needy.age_with_page();
        mine > 1 && after >= wanted.saturating_add(wanted / MARGIN) || is_out_of_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(weighed: u64, pages: usize) -> Candidate {
        let (sampled, is_soon_empty) = (None, true);
        Candidate { class: 1, weighed, sampled, pages, gives: true, is_soon_empty }
    }

    #[test]
    fn a_class_with_idle_pages_receives_none() {
        let idle = |pages| of(u64::MAX, pages);
        assert!(!idle(2).can_give_to(&idle(281)));
        let busy = |age| of(age, 4);
        assert!(idle(2).can_give_to(&busy(100)), "it gives");
        assert!(busy(200).can_give_to(&busy(100)) && !busy(110).can_give_to(&busy(100)));
    }

    /// They would exchange the same page again and again.
    #[test]
    fn classes_of_similar_age_exchange_no_pages() {
        let of = |age: u64| of(age * 1000, 100);
        assert!(!of(102).can_give_to(&of(100)), "101 is left of the one, the other would have 101");
        assert!(!of(103).can_give_to(&of(100)), "102 and 101");
        assert!(of(104).can_give_to(&of(100)), "103 and 101");
    }

    #[test]
    fn a_class_with_few_old_items_gives_no_page() {
        let (needy, mut giver) = (of(100, 4), of(10_000, 2));
        assert!(giver.can_give_to(&needy) && giver.is_much_older_than(&needy));
        giver.sampled = Some(90);
        assert!(!giver.can_give_to(&needy) && !giver.is_much_older_than(&needy));
    }

    /// Doubling a class of one page makes it old; one page more of sixty changes little.
    #[test]
    fn a_giver_is_found_despite_a_younger_class_of_one_page() {
        let (youngest, larger, giver) = (of(90, 1), of(100, 60), of(150, 6));
        assert!(!giver.can_give_to(&youngest) && giver.can_give_to(&larger));
        assert!(giver.can_give_to_one_of(&Candidate::takers(&[youngest, larger, giver])));
        assert!(!giver.can_give_to_one_of(&Candidate::takers(&[youngest, giver])));
    }

    #[test]
    fn a_page_of_many_chunks_is_left_to_the_cleaner() {
        let giver = Candidate { is_soon_empty: false, ..of(10_000, 4) };
        assert!(giver.can_give_to(&of(100, 4)) && !giver.is_much_older_than(&of(100, 4)));
    }
}
