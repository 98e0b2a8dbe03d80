//! Balance between slab classes: pages move from the class whose items have been unused longest to
//! a class that evicts younger ones.
//!
//! The cleaner compares the classes periodically. A class is *needy* if its next victim was used
//! clearly more recently than that of another class. If stores of needy classes will soon find no
//! chunk, the cleaner empties pages for them in advance, from the classes with the oldest items: as
//! much as a few of its recent steps stored in such classes. So a needy class evicts none of its
//! items unless it grows faster than pages can be emptied. If the difference is great, its stores
//! take pages themselves.
//!
//! One page moves at a time: the page of the least recently used item, or one of a few others that
//! holds fewer items still in use. Its items move to other pages in steps. For them, the class
//! evicts its coldest items (see `page_move`).
//!
//! Pages leave the store in the same way when more memory is in use than the limit allows, because
//! the index or buffers grew or the limit was lowered. A page on its way out counts as freed.
//!
//! Other stores need not wait for any of this: they keep evicting from their own class. Only a
//! class that has nothing to evict also takes a page itself (see `allocate`).
//!
//! Ages are measured in bytes: the bytes of all bags closed since. This clock advances with the
//! turnover of memory, so it is as precise under heavy load as a slow clock is under light load.
//!
//! Source: Nishtala et al., "Scaling Memcache at Facebook" (NSDI 2013), section 6.2.

use super::candidate::Candidate;
use super::page_move::{CHUNKS_PER_SECTION, PageMove, Progress};
use super::store_rate::StoreRate;
use crate::config::Automove;
use crate::slabs::balance_settings::MoveRequest;
use crate::slabs::{ClassId, NEEDY, Need};
use crate::stats::Count;
use crate::store::Store;
use crate::thread::ThreadState;
use std::rc::Rc;

/// Pages of the store for each page that may be moving to needy classes.
const PAGES_PER_MOVE: u64 = 64;
/// Pages that may be moving in any store.
const PAGES_ON_THEIR_WAY: u64 = 2;
/// Seconds after which a page that its class did not take is free for all.
const CLAIM_SECS: u32 = 2;
/// Seconds without a store after which a class without items gives its last pages to needy ones. A
/// store that finds nothing else takes them at once.
const REST_SECS: u32 = 10;

/// The cleaner's part: a move under way, and its last observations of the classes.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    current: Option<PageMove>,
    is_requested: bool,
    /// Observations, by class.
    classes: Vec<ClassHistory>,
    /// Classes whose stores had to evict since the last look, or will soon find no chunk.
    wanting: Vec<ClassId>,
    tended_secs: u32,
}

/// Observations of one class.
#[derive(Clone, Debug, Default)]
struct ClassHistory {
    /// Evictions for stores, by themselves or by the cleaner.
    reclaims: u64,
    rate: StoreRate,
    /// Second in which the class last stored.
    stored_secs: u32,
}

impl Mover {
    /// Does one step of balancing, which examines about `budget` chunks. `true` if there is more to
    /// do at once.
    pub(crate) fn step(&mut self, thread: &Rc<ThreadState>, budget: usize) -> bool {
        let mut left = budget;
        self.note_wanting(thread);
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

    /// Starts the next move: the requested one, one out of the store, or one against an imbalance.
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
                Some((from, young)) => (Some(from), NEEDY, young),
                None => return false,
            },
        };
        let begun = from.and_then(|class| PageMove::begin(thread, class, to, young));
        if request.is_some() && begun.is_none() {
            // No class has a page to give: the request is impossible.
            balance.finish_request();
        }
        self.is_requested = request.is_some() && begun.is_some();
        self.current = begun;
        self.current.is_some()
    }

    /// Records which classes have evicted, which have stored since the last call, and which will
    /// soon find no chunk.
    fn note_wanting(&mut self, thread: &ThreadState) {
        let store = &*thread.store;
        self.classes.resize_with(usize::from(store.slabs.count()) + 1, ClassHistory::default);
        self.wanting.clear();
        for class in 1..=store.slabs.count() {
            let history = &mut self.classes[usize::from(class)];
            let reclaims = store.counters.of_class(class, Count::DirectReclaims)
                + store.counters.of_class(class, Count::AheadReclaims);
            let mut is_wanting = reclaims != std::mem::replace(&mut history.reclaims, reclaims);
            let usage = store.slabs.class_use(class);
            let stored = history.rate.note(usage.stored);
            if stored > 0 {
                history.stored_secs = thread.now_secs();
                is_wanting |= usage.free < history.rate.wanted()
                    && !store.slabs.may_add_page(&store.budget, class);
            }
            if is_wanting {
                self.wanting.push(class);
            }
        }
    }

    /// The class that should give a page to the needy ones, and the age below which its items are
    /// as young as the youngest of the classes that need memory.
    fn imbalance(&self, thread: &Rc<ThreadState>) -> Option<(ClassId, u64)> {
        let store = &*thread.store;
        if self.wanting.is_empty() || !store.evict {
            return None;
        }
        let mut candidates = Candidate::all(thread);
        for one in candidates.iter_mut().filter(|one| one.is_at_rest()) {
            let stored_secs = self.classes[usize::from(one.class)].stored_secs;
            one.gives = thread.now_secs().saturating_sub(stored_secs) >= REST_SECS;
        }
        for one in &candidates {
            store.slabs.set_need(one.class, need_of(store, one, &candidates));
        }
        let (needy, others): (Vec<&Candidate>, Vec<&Candidate>) =
            candidates.iter().partition(|one| store.slabs.is_needy(one.class));
        let givers = others.into_iter().filter(|other| other.gives);
        let wanting = || needy.iter().filter(|one| self.wanting.contains(&one.class));
        let youngest = wanting().min_by_key(|one| one.weighed)?;
        let bytes_wanted = |class| {
            let chunks = self.classes[usize::from(class)].rate.wanted();
            chunks * store.slabs.class(class).chunk_bytes() as u64
        };
        let wanted: u64 = wanting().map(|one| bytes_wanted(one.class)).sum();
        let most = (store.slabs.pages_in_use() / PAGES_PER_MOVE).max(PAGES_ON_THEIR_WAY);
        let pages = wanted.div_ceil(store.slabs.page_bytes()).min(most);
        if store.slabs.pages_on_their_way()[usize::from(NEEDY)] as u64 >= pages {
            return None;
        }
        let giver =
            givers.filter(|giver| giver.can_give_to(youngest)).max_by_key(|giver| giver.claim())?;
        let chunk_bytes = store.slabs.class(giver.class).chunk_bytes();
        Some((giver.class, store.tuning.unweighed(chunk_bytes, youngest.weighed)))
    }

    /// Once per second: frees for all a page that its class did not take, and retries a page that
    /// could not be emptied.
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

/// `true` if more memory is in use than the limit allows, not counting pages on their way out.
fn exceeds_limit(store: &Store) -> bool {
    let excess = store.budget.excess();
    excess > 0 && excess > store.slabs.bytes_on_their_way_out()
}

/// Whether a page of another class would serve better in this one.
fn need_of(store: &Store, one: &Candidate, all: &[Candidate]) -> Need {
    let others = || all.iter().filter(|other| other.gives && other.class != one.class);
    let oldest = others().map(Candidate::claim).max().unwrap_or(0);
    let is_young = match store.balance.automove() {
        Automove::Off => false,
        Automove::Age => {
            let ratio = u64::from(store.balance.ratio_per_mille());
            one.weighed.saturating_mul(1000) <= ratio.saturating_mul(oldest)
        }
        Automove::Eager => one.weighed < oldest,
    };
    if !is_young || !others().any(|giver| giver.can_give_to(one)) {
        Need::None
    } else if others().any(|giver| giver.is_much_older_than(one)) {
        Need::PageNow
    } else {
        Need::Page
    }
}
