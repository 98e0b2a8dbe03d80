//! Balance between slab classes: pages move from the class whose items have been unused for longest to one that evicts
//! younger ones.
//!
//! The cleaner compares the classes now and then. A class needs memory if it is evicting and the item that it would evict next
//! was used clearly more recently than what the other classes keep. One page moves at a time: that of the least recently
//! used item, or one of its neighbours in age that holds fewer items still in use. Its items are evicted in
//! steps, and it goes to the needy class alone; the class gets no more before it has begun to use these.
//!
//! Stores need not wait for any of this: they go on evicting from their own class. Only a class that has nothing to evict takes
//! a page by itself (see `pages`).
//!
//! Ages are in ticks of the bags' clock, which rises with every bag that is opened in any class; it runs with the turnover of
//! memory, so it is as fine under heavy load as a slow clock is under light load.
//!
//! Source: seed 004, section 6.2.

use crate::config::Automove;
use crate::lru::Cursor;
use crate::memory::arena::ChunkRef;
use crate::section::Section;
use crate::slabs::ClassId;
use crate::stats::Count;
use crate::sync::{AtomicU32, Mutex, Ordering};
use crate::thread::ThreadState;
use std::rc::Rc;

/// Items looked at for the one that would be evicted next.
const LOOKS: usize = 48;
/// Free chunks that a class in use has now and then: what was just evicted or given back. A page that it just got is not idle either.
const FREE_IN_USE: usize = 64;
/// How many times older than others the items of a class must be, for it to give its last page.
const LAST_PAGE: u64 = 8;
/// Pages that may be on their way to one class.
const PAGES_ON_THEIR_WAY: usize = 4;
/// Of so many pages, one may be on its way.
const SHARE_ON_THEIR_WAY: usize = 64;
/// Seconds after which a page that its class did not take is free for all.
const CLAIM_SECS: u32 = 2;

/// Why a page cannot be moved by request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReassignError {
    /// No such class.
    BadClass,
    /// An earlier request is not done yet.
    Busy,
    /// The source has no page to give.
    NoSpare,
    /// Source and destination are one.
    Same,
}

/// What the store's balance goes by.
#[derive(Debug)]
pub(crate) struct Balance {
    automove: AtomicU32,
    ratio_per_mille: AtomicU32,
    request: Mutex<Option<Request>>,
}

/// A page asked for by `slabs reassign`. No source: the class with the oldest item. Destination 0: whoever needs it first.
#[derive(Clone, Copy, Debug)]
struct Request {
    from: Option<ClassId>,
    to: ClassId,
}

/// The cleaner's part: a move under way, and what the classes had evicted when it looked last.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    current: Option<Move>,
    is_requested: bool,
    /// Stores of each class that had to evict by themselves, when it looked last.
    reclaims: Vec<u64>,
    /// Classes that had to since then.
    evicting: Vec<ClassId>,
    /// By class: items linked, and the tick at which the last of them was seen.
    linked: Vec<(u64, u32)>,
    /// By class: the ticks at which it lately gave a page.
    given: Vec<Vec<u32>>,
    tended_secs: u32,
}

/// A page that is being emptied.
#[derive(Clone, Copy, Debug)]
struct Move {
    class: ClassId,
    page: usize,
    next_chunk: usize,
}

/// The item that a class would evict next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub class: ClassId,
    /// Ticks since it was used; `u64::MAX` for a class in which pages' worth lies idle.
    pub age: u64,
    pub chunk: ChunkRef,
    /// Pages that the class could give; not filled in for a bag list's victim.
    pages: usize,
}

impl Victim {
    /// By how much this class should be the one that gives a page: the age of its items, and a class in use should keep its last page.
    fn claim(&self) -> u64 {
        if self.pages > 1 { self.age } else { self.age / LAST_PAGE }
    }

    /// Whether this class would still not be the younger one when a page had gone from it to `needy`, if ages follow sizes. A
    /// class that is far older is out of use, and gives all.
    fn can_give_to(&self, needy: &Self) -> bool {
        let (mine, theirs) = (self.pages as u64, needy.pages as u64);
        let after = self.age / mine * (mine - 1);
        // A class in which pages lie idle needs none, whatever it evicted a moment ago.
        let needy_after = (needy.age / theirs.max(1)).saturating_mul(theirs + 1);
        after >= needy_after || self.age / LAST_PAGE >= needy.age
    }
}

impl Mover {
    /// The victim with the age that it will have. A page that went from a class in use took items of all ages with it: the oldest
    /// that is left grows younger only as the class turns over once. A class out of use does not.
    fn foresee(&mut self, victim: Victim, tick: u32) -> Victim {
        let class = usize::from(victim.class);
        let since = |then: u32| u64::from(tick.wrapping_sub(then));
        if victim.age == u64::MAX || since(self.linked[class].1) > victim.age / 4 {
            return victim;
        }
        self.given[class].retain(|&then| since(then) < victim.age);
        let (pages, given) = (victim.pages as u64, self.given[class].len() as u64);
        Victim { age: victim.age * pages / (pages + given).max(1), ..victim }
    }
}

impl Balance {
    pub(crate) fn new(automove: Automove, ratio_per_mille: u32) -> Self {
        Self {
            automove: AtomicU32::new(automove as u32),
            ratio_per_mille: AtomicU32::new(ratio_per_mille),
            request: Mutex::new(None),
        }
    }

    pub(crate) fn automove(&self) -> Automove {
        match self.automove.load(Ordering::Relaxed) {
            0 => Automove::Off,
            1 => Automove::Age,
            _ => Automove::Eager,
        }
    }

    pub(crate) fn set_automove(&self, automove: Automove) {
        self.automove.store(automove as u32, Ordering::Relaxed);
    }

    pub(crate) fn ratio_per_mille(&self) -> u32 {
        self.ratio_per_mille.load(Ordering::Relaxed)
    }

    pub(crate) fn set_ratio_per_mille(&self, ratio: u32) {
        self.ratio_per_mille.store(ratio, Ordering::Relaxed);
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.request.lock().is_some()
    }

    fn ask(&self, request: Request) -> Result<(), ReassignError> {
        let mut pending = self.request.lock();
        if pending.is_some() {
            return Err(ReassignError::Busy);
        }
        *pending = Some(request);
        Ok(())
    }
}

impl crate::store::Store {
    /// Asks the cleaner to move a page from one class to another. Source -1 is the class with the oldest item; destination 0 is
    /// whichever class needs a page first. Answers at once; `slabs_moved` tells when it is done.
    ///
    /// # Errors
    ///
    /// See [`ReassignError`].
    pub fn reassign(&self, from: i32, to: i32) -> Result<(), ReassignError> {
        if self.balance.is_requested() {
            return Err(ReassignError::Busy);
        }
        if from == to {
            return Err(ReassignError::Same);
        }
        let class = |id: i32| u8::try_from(id).ok().filter(|&id| id <= self.slabs.count());
        let to = class(to).ok_or(ReassignError::BadClass)?;
        let from = match from {
            -1 => None,
            0 => return Err(ReassignError::NoSpare),
            id => Some(class(id).ok_or(ReassignError::BadClass)?),
        };
        if from.is_some_and(|from| self.slabs.pages_of(from) == 0) {
            return Err(ReassignError::NoSpare);
        }
        self.balance.ask(Request { from, to })
    }
}

impl ThreadState {
    /// One step of balancing, looking at about `budget` chunks. `true` if there is more to do at once.
    pub(crate) fn balance(self: &Rc<Self>, mover: &mut Mover, budget: usize) -> bool {
        let mut left = budget;
        self.note_evicting(mover);
        while left > 0 {
            let Some(current) = &mut mover.current else {
                if self.next_move(mover) {
                    continue;
                }
                self.tend(mover);
                return false;
            };
            let chunks = left.min(64);
            left -= chunks;
            if !self.empty_some(current, chunks) {
                self.settle();
                mover.current = None;
                if std::mem::take(&mut mover.is_requested) {
                    *self.store.balance.request.lock() = None;
                }
            }
        }
        true
    }

    /// Finds what to move next; `true` if something is.
    fn next_move(self: &Rc<Self>, mover: &mut Mover) -> bool {
        let request = *self.store.balance.request.lock();
        let (from, to, young) = match request {
            Some(Request { from, to }) => (from.or_else(|| Some(self.oldest(to)?.class)), to, 0),
            None => match self.imbalance(mover) {
                Some((from, needy)) => (Some(from), needy.class, needy.age),
                None => return false,
            },
        };
        let begun = from.and_then(|class| self.begin_move(class, to, young));
        if request.is_some() && begun.is_none() {
            *self.store.balance.request.lock() = None;
        }
        mover.is_requested = request.is_some() && begun.is_some();
        mover.current = begun;
        begun.is_some()
    }

    fn begin_move(self: &Rc<Self>, class: ClassId, to: ClassId, young: u64) -> Option<Move> {
        let store = &*self.store;
        let page = self.page_to_give(class, young)?;
        store.slabs.drain(&store.arena, &store.qsbr, class, page, to).then_some(Move {
            class,
            page,
            next_chunk: 0,
        })
    }

    /// Evicts from the next chunks of a draining page; `false` when it is at its end.
    fn empty_some(self: &Rc<Self>, current: &mut Move, chunks: usize) -> bool {
        let slabs = &self.store.slabs;
        let section = Section::open(self);
        // Once it is free it may become another class's, when this section has ended.
        if slabs.page_class(current.page) != current.class {
            return false;
        }
        let end = slabs.cut_chunks(current.page).min(current.next_chunk + chunks);
        for index in current.next_chunk..end {
            let at = index * slabs.class(current.class).chunk_bytes;
            self.evict_chunk(&section, self.store.arena.chunk(current.page, at));
        }
        current.next_chunk = end;
        end < slabs.cut_chunks(current.page)
    }

    /// Evicts the items of one page of the class and takes the page out of its use, for the class `to`.
    pub(crate) fn take_page_from(self: &Rc<Self>, class: ClassId, to: ClassId) -> bool {
        let Some(mut current) = self.begin_move(class, to, 0) else { return false };
        while self.empty_some(&mut current, 64) {}
        self.settle();
        true
    }

    /// Notes which classes have evicted since the last call.
    fn note_evicting(&self, mover: &mut Mover) {
        let store = &*self.store;
        let classes = usize::from(store.slabs.count()) + 1;
        let tick = store.control().tick.load(Ordering::Relaxed);
        mover.reclaims.resize(classes, 0);
        mover.linked.resize(classes, (0, 0));
        mover.given.resize(classes, Vec::new());
        mover.evicting.clear();
        for class in 1..=store.slabs.count() {
            let now = store.counters.of_class(class, Count::DirectReclaims);
            if now != std::mem::replace(&mut mover.reclaims[usize::from(class)], now) {
                mover.evicting.push(class);
            }
            let linked = store.counters.of_class(class, Count::Linked);
            if linked != mover.linked[usize::from(class)].0 {
                mover.linked[usize::from(class)] = (linked, tick);
            }
        }
    }

    /// The class that needs a page most, and the class that is to give it.
    fn imbalance(self: &Rc<Self>, mover: &mut Mover) -> Option<(ClassId, Victim)> {
        let store = &*self.store;
        let automove = store.balance.automove();
        if automove == Automove::Off || !store.evict {
            return None;
        }
        if mover.evicting.is_empty() {
            return None;
        }
        let tick = store.control().tick.load(Ordering::Relaxed);
        let victims: Vec<_> = (1..=store.slabs.count())
            .filter_map(|class| self.victim_of(class))
            .map(|victim| mover.foresee(victim, tick))
            .collect();
        let on_their_way = store.slabs.pages_on_their_way();
        if on_their_way.iter().sum::<usize>() > store.slabs.pages_in_use() / SHARE_ON_THEIR_WAY {
            return None;
        }
        let ratio = u64::from(store.balance.ratio_per_mille());
        let is_needy = |victim: &&Victim| {
            let others = victims.iter().filter(|other| other.class != victim.class);
            let is_young = match automove {
                Automove::Eager => others.map(|other| other.age).max() > Some(victim.age),
                _ => victim.age.saturating_mul(1000) <= ratio.saturating_mul(average(others)),
            };
            is_young
                && mover.evicting.contains(&victim.class)
                && on_their_way[usize::from(victim.class)] < PAGES_ON_THEIR_WAY
        };
        let needy = victims.iter().filter(is_needy).min_by_key(|victim| victim.age)?;
        let givers = victims.iter().filter(|giver| giver.class != needy.class);
        let giver =
            givers.filter(|giver| giver.can_give_to(needy)).max_by_key(|giver| giver.claim())?;
        mover.given[usize::from(giver.class)].push(tick);
        Some((giver.class, *needy))
    }

    /// Once a second: pages that were not taken are for all, and pages that could not be emptied are passed again.
    fn tend(self: &Rc<Self>, mover: &mut Mover) {
        if mover.tended_secs == self.now_secs() {
            return;
        }
        mover.tended_secs = self.now_secs();
        self.store.slabs.release_promises(CLAIM_SECS);
        for (class, page) in self.store.slabs.draining_pages() {
            let mut again = Move { class, page, next_chunk: 0 };
            while self.empty_some(&mut again, 64) {}
            self.settle();
        }
    }

    /// The class with the oldest item, other than `class`.
    pub(crate) fn oldest(self: &Rc<Self>, class: ClassId) -> Option<Victim> {
        (1..=self.store.slabs.count())
            .filter(|&other| other != class)
            .filter_map(|other| self.victim_of(other))
            .max_by_key(Victim::claim)
    }

    /// What would be evicted next to make room in a class that has a page to give. The largest class holds its own items and
    /// the pieces of chained ones.
    pub(crate) fn victim_of(self: &Rc<Self>, class: ClassId) -> Option<Victim> {
        let slabs = &self.store.slabs;
        let pages = slabs.pages_of(class);
        if pages == 0 {
            return None;
        }
        let idle = 2 * slabs.class(class).per_page + FREE_IN_USE;
        if slabs.class_use(class).free >= idle as u64 {
            return Some(Victim { class, age: u64::MAX, chunk: 0, pages });
        }
        self.next_victims(class).max_by_key(|victim| victim.age).map(|victim| Victim {
            class,
            pages,
            ..victim
        })
    }

    /// The next victims of the bag lists whose items hold chunks of this class.
    pub(crate) fn next_victims(self: &Rc<Self>, class: ClassId) -> impl Iterator<Item = Victim> {
        let heads = self.store.slabs.heads();
        let pieces = (class == self.store.slabs.largest()).then_some(heads);
        let lists = [Some(class), pieces].into_iter().flatten();
        lists.filter_map(|list| self.next_victim(list))
    }

    /// The item that an eviction from this list would take: the first, of some, that was not used since its bag closed; else the
    /// one of these that was unused for longest.
    fn next_victim(self: &Rc<Self>, list_id: ClassId) -> Option<Victim> {
        let store = &*self.store;
        let list = store.list(list_id);
        let order = list.order.lock();
        let _section = Section::open(self);
        let now = store.control().tick.load(Ordering::Relaxed);
        let (mut looks, mut oldest) = (0, None::<Victim>);
        let mut from = order.evict;
        for &index in &order.queue {
            let bag = list.bag(index);
            while let Some((chunk, after)) = self.next_item(bag, from) {
                from = after;
                looks += 1;
                let mark = Self::mark_of(store.arena.header(chunk));
                let is_open = index == list.newest();
                let touched = is_open || bag.is_touched(mark);
                let seen_at = if touched { now } else { bag.closed_tick() };
                let used =
                    seen_at.wrapping_sub(u32::from(crate::lru::low(seen_at).wrapping_sub(mark)));
                let victim =
                    Victim { class: list_id, age: now.wrapping_sub(used).into(), chunk, pages: 0 };
                if !touched {
                    return Some(victim);
                }
                oldest = oldest.filter(|oldest| oldest.age >= victim.age).or(Some(victim));
                if looks == LOOKS {
                    return oldest;
                }
            }
            from = Cursor::default();
        }
        oldest
    }
}

/// The average age.
fn average<'v>(victims: impl Iterator<Item = &'v Victim>) -> u64 {
    let (mut sum, mut count) = (0u64, 0);
    for victim in victims {
        sum = sum.saturating_add(victim.age);
        count += 1;
    }
    sum.checked_div(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_in_which_pages_lie_idle_is_given_none() {
        let idle = |class, pages| Victim { class, age: u64::MAX, chunk: 0, pages };
        assert!(!idle(1, 2).can_give_to(&idle(2, 281)));
        let busy = |age| Victim { class: 3, age, chunk: 0, pages: 4 };
        assert!(idle(1, 2).can_give_to(&busy(100)), "it gives");
        assert!(busy(200).can_give_to(&busy(100)) && !busy(110).can_give_to(&busy(100)));
    }
}
