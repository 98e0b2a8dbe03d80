//! Balance between slab classes: pages move from the class whose items have been unused for longest
//! to one that evicts younger ones.
//!
//! The cleaner compares the classes now and then. A class needs memory if it is evicting, and if
//! its next victim was used clearly more recently than the next victims of the other classes. One
//! page moves at a time: the page of the least recently used item, or one of a few others that
//! holds fewer items still in use. Its items move to other pages in steps, for which the class
//! evicts its coldest ones (see `page_move`). It goes to the needy class alone, which gets no more
//! before it has begun to use these.
//!
//! In the same way pages leave the store when more memory is in use than the limit allows, because
//! the index or buffers grew or the limit was lowered. A page on its way out counts as given.
//!
//! Stores need not wait for any of this: they go on evicting from their own class. Only a class
//! that has nothing to evict takes a page by itself (see `allocate`).
//!
//! Ages are numbers of bags opened in all classes, counted by 64 bits. That clock runs with the
//! turnover of memory, so it is as fine under heavy load as a slow clock is under light load.
//!
//! Source: Nishtala et al., "Scaling Memcache at Facebook" (NSDI 2013), section 6.2.

use super::candidate::Candidate;
use super::page_move::{CHUNKS_PER_SECTION, PageMove, Progress};
use crate::config::Automove;
use crate::slabs::ClassId;
use crate::slabs::balance_settings::MoveRequest;
use crate::stats::Count;
use crate::store::Store;
use crate::thread::ThreadState;
use std::rc::Rc;

/// Pages that may be on their way to one class.
const PAGES_ON_THEIR_WAY: usize = 4;
/// Pages of the store for each that may be on its way.
const PAGES_PER_MOVE: u64 = 64;
/// Seconds after which a page that its class did not take is free for all.
const CLAIM_SECS: u32 = 2;

/// The cleaner's part: a move under way, and what it saw of the classes when it looked last.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    current: Option<PageMove>,
    is_requested: bool,
    /// By class: what was seen of it.
    classes: Vec<ClassHistory>,
    /// Classes whose stores had to evict since the last look.
    evicting: Vec<ClassId>,
    tended_secs: u32,
}

/// Observations of one class.
#[derive(Clone, Debug, Default)]
struct ClassHistory {
    /// Evictions for stores, by themselves or by the cleaner.
    reclaims: u64,
    /// Items ever linked, and the time when the last of them was seen.
    linked: (u64, u64),
    /// Times when the class lately gave a page.
    given: Vec<u64>,
}

impl Mover {
    /// One step of balancing, looking at about `budget` chunks. `true` if there is more to do at
    /// once.
    pub(crate) fn step(&mut self, thread: &Rc<ThreadState>, budget: usize) -> bool {
        let mut left = budget;
        self.note_evicting(thread);
        while left > 0 {
            let Some(current) = &mut self.current else {
                if self.begin_next(thread) {
                    continue;
                }
                self.tend(thread);
                return false;
            };
            let chunks = left.min(CHUNKS_PER_SECTION);
            left -= chunks;
            match current.empty_some(chunks) {
                Progress::More => continue,
                Progress::Waits if !current.has_waited_long() => return false,
                Progress::Waits => current.evict_rest(),
                Progress::Over => {}
            }
            self.current = None;
            thread.settle();
            if std::mem::take(&mut self.is_requested) {
                thread.store.balance.finish_request();
            }
        }
        true
    }

    /// Begins the next move: the one asked for, one out of the store, or one against an imbalance.
    /// `false` if there is none.
    fn begin_next(&mut self, thread: &Rc<ThreadState>) -> bool {
        let balance = &thread.store.balance;
        let request = balance.request();
        let (from, to, young) = match request {
            Some(MoveRequest { from, to }) => {
                (from.or_else(|| Some(Candidate::oldest(thread, to)?.class)), to, 0)
            }
            None if exceeds_limit(&thread.store) => {
                (Candidate::oldest(thread, 0).map(|giver| giver.class), 0, 0)
            }
            None => match self.imbalance(thread) {
                Some((from, needy)) => (Some(from), needy.class, needy.age),
                None => return false,
            },
        };
        let begun = from.and_then(|class| PageMove::begin(thread, class, to, young));
        if request.is_some() && begun.is_none() {
            // No class has a page to give: the request cannot be done.
            balance.finish_request();
        }
        self.is_requested = request.is_some() && begun.is_some();
        self.current = begun;
        self.current.is_some()
    }

    /// Notes which classes have evicted, and which have stored, since the last call.
    fn note_evicting(&mut self, thread: &ThreadState) {
        let store = &*thread.store;
        let now = store.openings();
        self.classes.resize_with(usize::from(store.slabs.count()) + 1, ClassHistory::default);
        self.evicting.clear();
        for class in 1..=store.slabs.count() {
            let history = &mut self.classes[usize::from(class)];
            let reclaims = store.counters.of_class(class, Count::DirectReclaims)
                + store.counters.of_class(class, Count::AheadReclaims);
            if reclaims != std::mem::replace(&mut history.reclaims, reclaims) {
                self.evicting.push(class);
            }
            let linked = store.counters.of_class(class, Count::Linked);
            if linked != history.linked.0 {
                history.linked = (linked, now);
            }
        }
    }

    /// The candidate with the age that it will have.
    ///
    /// A page that went from a class in use took items of all ages with it, so the oldest that is
    /// left grows younger only as the class turns over once. A class out of use does not turn over.
    fn with_future_age(&mut self, candidate: Candidate, now: u64) -> Candidate {
        let history = &mut self.classes[usize::from(candidate.class)];
        let since = |then: u64| now.saturating_sub(then);
        // Idle, or nothing was stored for a quarter of its age: its victim's age is what it is.
        if candidate.age == u64::MAX || since(history.linked.1) > candidate.age / 4 {
            return candidate;
        }
        // A page given longer ago than the victim's age has had its effect.
        history.given.retain(|&then| since(then) < candidate.age);
        let (pages, given) = (candidate.pages as u64, history.given.len() as u64);
        Candidate { age: candidate.age * pages / (pages + given).max(1), ..candidate }
    }

    /// The class that is to give a page, and the class that needs it most.
    fn imbalance(&mut self, thread: &Rc<ThreadState>) -> Option<(ClassId, Candidate)> {
        let store = &*thread.store;
        let automove = store.balance.automove();
        if automove == Automove::Off || !store.evict || self.evicting.is_empty() {
            return None;
        }
        let now = store.openings();
        let candidates: Vec<_> = (1..=store.slabs.count())
            .filter_map(|class| Candidate::of_class(thread, class))
            .map(|candidate| self.with_future_age(candidate, now))
            .collect();
        let on_their_way = store.slabs.pages_on_their_way();
        // Pages on their way serve no class, so a small store moves one at a time.
        if on_their_way.iter().sum::<usize>() as u64 > store.slabs.pages_in_use() / PAGES_PER_MOVE {
            return None;
        }
        let ratio = u64::from(store.balance.ratio_per_mille());
        let is_needy = |one: &&Candidate| {
            let others = candidates.iter().filter(|other| other.class != one.class);
            let is_young = match automove {
                Automove::Eager => others.map(|other| other.age).max() > Some(one.age),
                _ => one.age.saturating_mul(1000) <= ratio.saturating_mul(average(others)),
            };
            is_young
                && self.evicting.contains(&one.class)
                && on_their_way[usize::from(one.class)] < PAGES_ON_THEIR_WAY
        };
        let needy = candidates.iter().filter(is_needy).min_by_key(|one| one.age)?;
        let givers = candidates.iter().filter(|giver| giver.class != needy.class);
        let giver =
            givers.filter(|giver| giver.can_give_to(needy)).max_by_key(|giver| giver.claim())?;
        self.classes[usize::from(giver.class)].given.push(now);
        Some((giver.class, *needy))
    }

    /// Once a second: a page that its class did not take is free for all, and a page that could not
    /// be emptied is tried again.
    fn tend(&mut self, thread: &Rc<ThreadState>) {
        if self.tended_secs == thread.now_secs() {
            return;
        }
        self.tended_secs = thread.now_secs();
        let slabs = &thread.store.slabs;
        slabs.release_promises(CLAIM_SECS);
        for (class, page) in slabs.draining_pages() {
            PageMove::of_draining(thread, class, page).empty_some(usize::MAX);
        }
    }
}

/// `true` if more memory is in use than the limit allows, even when the pages that are on their way
/// out will have left.
fn exceeds_limit(store: &Store) -> bool {
    let excess = store.budget.excess();
    excess > 0 && excess > store.slabs.bytes_on_their_way_out()
}

/// The average age of the classes' memory: many small classes weigh no more than one large one of
/// as many pages.
fn average<'c>(candidates: impl Iterator<Item = &'c Candidate>) -> u64 {
    let (mut sum, mut count) = (0u64, 0);
    for candidate in candidates {
        let pages = candidate.pages as u64;
        sum = sum.saturating_add(candidate.age.saturating_mul(pages));
        count += pages;
    }
    sum.checked_div(count).unwrap_or(0)
}
