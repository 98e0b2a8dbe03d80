//! mg: a get that may create, claim and invalidate.
//!
//! The plain case, which only shows flags, is as short as `get` and takes no lock. Only a claim
//! (`W`: a stale item, or one that nearly expires), a new deadline, a new item, the cas unique of a
//! stale item, or a dead item takes one.

use sampling::Command;
use store::{Applied, Change, DraftError, Item, Liveness, Section};

use crate::key::Key;
use crate::new_value::NewValue;
use crate::retrieve::Miss;
use crate::stats::{ClassCounter, Counter};
use crate::worker::{Cas, Worker, is_same, live};

/// The options of `mg` beyond reading the item.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetaGet {
    /// `N`: create an empty item with this deadline if there is none; its creator wins.
    pub vivify_deadline: Option<u32>,
    /// `R`: with less than this many seconds left, one reader wins.
    pub recache_secs: Option<u32>,
    /// `T`: the new deadline of an existing item.
    pub deadline: Option<u32>,
    /// `R` comes after `T`, and so judges the new deadline: flags act in their order.
    pub recache_after_touch: bool,
    /// `u`: keep recency and hit mark.
    pub no_bump: bool,
    /// Leave the win to others: this reader may not get the reply, or may lie about itself.
    pub no_claim: bool,
    /// `E`: the cas unique of a created item.
    pub cas: Option<u64>,
    /// `c`: its cas unique will be shown.
    pub wants_cas: Cas,
    /// The key came as base64: a created item's key does, too.
    pub base64_key: bool,
}

/// A found (or created) item and the facts reported about it: all from before this command, except
/// the marks.
#[derive(Clone, Copy)]
pub struct MetaHit<'s> {
    /// The item.
    pub item: Item<'s>,
    /// Its cas unique, 0 if it has none: not that of an invalidation unless `is_stale`.
    pub(crate) cas: u64,
    /// It was deleted, and is only there as stale. It shows no cas unique, by which clients tell a
    /// hit from a lease.
    is_deleted: bool,
    /// Read before.
    pub is_fetched: bool,
    /// This request created it.
    pub is_created: bool,
    /// Seconds since it was last read.
    pub idle_secs: u32,
    /// Its deadline before.
    pub deadline_before: u32,
    /// Its deadline now.
    pub deadline: u32,
    /// `W`: this reader should renew it.
    pub is_winner: bool,
    /// `Z`: another reader renews it.
    pub is_won: bool,
    /// `X`: it is stale.
    pub is_stale: bool,
    /// The token of a winner by lease.
    pub lease: Option<u64>,
}

impl std::fmt::Debug for MetaHit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaHit").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl<'s> MetaHit<'s> {
    #[inline]
    fn of(item: Item<'s>) -> Self {
        let version = item.version();
        Self {
            item,
            cas: version.cas,
            is_deleted: false,
            is_fetched: item.is_fetched(),
            is_created: false,
            idle_secs: item.idle_secs(),
            deadline_before: item.deadline(),
            deadline: item.deadline(),
            is_winner: false,
            is_won: version.is_won,
            is_stale: version.is_stale,
            lease: None,
        }
    }

    /// A deleted item, shown to a reader that wants a lease or takes stale values.
    #[must_use]
    pub fn stale(item: Item<'s>, lease: Option<u64>, is_won: bool) -> Self {
        let is_winner = lease.is_some();
        Self {
            cas: 0,
            is_deleted: true,
            is_stale: true,
            is_winner,
            is_won,
            lease,
            ..Self::of(item)
        }
    }
}

impl Worker {
    /// The cas unique of the item that `mg` found, as clients see it; 0 if it has none or was
    /// deleted. For a requested one, see [`Self::asked_cas`].
    #[inline]
    #[must_use]
    pub fn cas_of_hit(&self, hit: &MetaHit<'_>, is_asked: bool) -> u64 {
        match hit.cas {
            0 if hit.is_deleted => 0,
            0 if is_asked => self.asked_cas(&hit.item),
            cas => self.shown_cas(cas),
        }
    }

    /// `mg` without `N`. Usable inside a section: it never makes an item.
    ///
    /// # Errors
    ///
    /// The kind of miss; counted, except [`Miss::NoCas`].
    #[inline]
    pub fn meta_get<'s>(
        &self,
        section: &'s Section<'_>,
        key: Key<'_>,
        how: &MetaGet,
    ) -> Result<MetaHit<'s>, Miss> {
        loop {
            let found = section.find_from(key.hint, key.hash, key.bytes);
            let Some(item) = found.filter(|item| item.liveness() == Liveness::Live) else {
                self.note_miss(&key);
                return Err(self.meta_miss(section, &key, found));
            };
            if self.lacks_cas(&item, how.wants_cas) {
                return Err(Miss::NoCas);
            }
            let mut hit = MetaHit::of(item);
            // The mark may have come after the cas unique was read (see `arena::version`).
            let may_be_of_two = hit.is_stale && how.wants_cas == Cas::Needed;
            let needs_lock = how.deadline.is_some() || self.wins(&hit, how) || may_be_of_two;
            if needs_lock && !self.claim(section, key, how, &mut hit) {
                // Replaced or flushed in the meantime.
                continue;
            }
            self.count_meta_hit(&hit, how);
            self.note_hit(&key, &item);
            if !how.no_bump {
                item.touch();
            }
            return Ok(hit);
        }
    }

    /// `mg` with `N`: never a miss. `visit` receives the item inside the section. No other section
    /// may be open.
    ///
    /// # Errors
    ///
    /// The new item gets no memory.
    pub fn meta_get_or_create<T>(
        &self,
        key: Key<'_>,
        how: &MetaGet,
        visit: impl FnOnce(&MetaHit<'_>) -> T,
    ) -> Result<T, DraftError> {
        let deadline = how.vivify_deadline.unwrap_or(0);
        let base64_key = how.base64_key;
        // Its cas unique shows whether the found item is the created one.
        let new = NewValue { flags: 0, deadline, value_len: 0, base64_key, has_cas: true };
        let mut how = *how;
        let how = &mut how;
        loop {
            let lacks_cas = {
                let section = self.section();
                let found = section.find_from(key.hint, key.hash, key.bytes);
                let is_live = live(found.as_ref()).is_some();
                match is_live.then(|| self.meta_get(&section, key, how)) {
                    Some(Ok(hit)) => return Ok(visit(&hit)),
                    found => matches!(found, Some(Err(Miss::NoCas))),
                }
            };
            if lacks_cas {
                how.wants_cas = self.give_cas(&key);
                continue;
            }
            let reserved = self.reserve(key, &new);
            let mut draft = reserved.inspect_err(|&error| {
                self.refused(error);
            })?;
            draft.set_won(true);
            let mut draft = Some(draft);
            let section = self.section();
            let applied = section.update_from(key.hint, key.hash, key.bytes, |present| match draft
                .take_if(|_| live(present).is_none())
            {
                Some(draft) => {
                    self.count_dead(present);
                    self.void_lease(key);
                    Change::Put { draft, cas: how.cas }
                }
                None => Change::Keep,
            });
            let cas = match applied {
                Applied::Stored { cas } => cas,
                Applied::Refused(error) => {
                    self.refused(error);
                    return Err(error);
                }
                Applied::Kept | Applied::Removed => continue,
            };
            if let Some(item) =
                section.find_from(key.hint, key.hash, key.bytes).filter(|item| item.cas() == cas)
            {
                let hit = MetaHit {
                    is_created: true,
                    is_winner: true,
                    is_won: false,
                    ..MetaHit::of(item)
                };
                self.count_meta_hit(&hit, how);
                self.note_stored(Command::Get, &key, &new);
                if !how.no_bump {
                    // The winner's own request counts as the first fetch: the next reader sees
                    // `h1`.
                    item.touch();
                }
                return Ok(visit(&hit));
            }
        }
    }

    /// `true` if this reader should renew the item.
    #[inline]
    fn wins(&self, hit: &MetaHit<'_>, how: &MetaGet) -> bool {
        !hit.is_won && !how.no_claim && (hit.is_stale || self.is_late(hit, how))
    }

    /// `R`: little time is left.
    #[inline]
    fn is_late(&self, hit: &MetaHit<'_>, how: &MetaGet) -> bool {
        let touched = how.deadline.filter(|_| how.recache_after_touch);
        let deadline = touched.unwrap_or(hit.deadline_before);
        how.recache_secs
            .is_some_and(|secs| deadline != 0 && deadline.saturating_sub(self.now_secs()) < secs)
    }

    /// Under the key's lock: reads the version, takes the win if no reader has it, sets the
    /// deadline. `false` if the item is no longer linked.
    #[cold]
    fn claim(
        &self,
        section: &Section<'_>,
        key: Key<'_>,
        how: &MetaGet,
        hit: &mut MetaHit<'_>,
    ) -> bool {
        let mut is_done = false;
        section.update_from(key.hint, key.hash, key.bytes, |present| {
            let Some(item) = live(present).filter(|item| is_same(item, &hit.item)) else {
                return Change::Keep;
            };
            hit.deadline_before = item.deadline();
            hit.deadline = how.deadline.unwrap_or(hit.deadline_before);
            if how.deadline.is_some() {
                item.set_deadline(hit.deadline);
            }
            let version = item.version();
            (hit.cas, hit.is_stale, hit.is_won) = (version.cas, version.is_stale, version.is_won);
            if self.wins(hit, how) {
                item.set_won();
                hit.is_winner = true;
            }
            is_done = true;
            Change::Keep
        });
        is_done
    }

    #[inline]
    fn count_meta_hit(&self, hit: &MetaHit<'_>, how: &MetaGet) {
        if how.deadline.is_some() {
            self.count(Counter::CmdGat);
            self.count(Counter::CmdTouch);
            self.count_class(hit.item.class(), ClassCounter::TouchHits);
        } else {
            self.count_class(hit.item.class(), ClassCounter::GetHits);
        }
    }

    fn meta_miss(&self, section: &Section<'_>, key: &Key<'_>, found: Option<Item<'_>>) -> Miss {
        // As in memcached one that was to be touched, too: where all reads touch, the misses are
        // seen nowhere else.
        self.count(Counter::GetMisses);
        self.miss(section, key, found)
    }
}
