//! get, gat, touch.

use sampling::Command;
use store::{Change, Item, Liveness, Section};

use crate::key::Key;
use crate::stats::{ClassCounter, Counter};
use crate::worker::{Cas, Worker, is_same, live};

/// The reason why a key was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// No item has it.
    Absent,
    /// Its item is past its deadline.
    Expired,
    /// Its item was flushed.
    Flushed,
    /// Its item has no cas unique, and one was required. Nothing is counted: the caller ends the
    /// section, calls [`Worker::give_cas`] and asks again.
    NoCas,
}

/// The item that `touch` touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Client flags.
    pub flags: u32,
    /// Cas unique as clients see it, unchanged by the touch; 0 if it was not requested.
    pub cas: u64,
}

impl Worker {
    /// `get`: the live item of `key`, marked as used.
    ///
    /// # Errors
    ///
    /// The kind of miss; counted.
    #[inline(always)]
    pub fn get<'s>(&self, section: &'s Section<'_>, key: &Key<'_>) -> Result<Item<'s>, Miss> {
        self.found(section, key, section.find_from(key.hint, key.hash, key.bytes))
    }

    /// `gets`: as [`Self::get`], for an item with a cas unique.
    ///
    /// # Errors
    ///
    /// The kind of miss; counted, except [`Miss::NoCas`].
    pub fn gets<'s>(
        &self,
        section: &'s Section<'_>,
        key: &Key<'_>,
        cas: Cas,
    ) -> Result<Item<'s>, Miss> {
        let found = section.find_from(key.hint, key.hash, key.bytes);
        if live(found.as_ref()).is_some_and(|item| self.lacks_cas(item, cas)) {
            return Err(Miss::NoCas);
        }
        self.found(section, key, found)
    }

    /// Counts the result of a get, and marks a live item as used.
    #[inline(always)]
    fn found<'s>(
        &self,
        section: &'s Section<'_>,
        key: &Key<'_>,
        found: Option<Item<'s>>,
    ) -> Result<Item<'s>, Miss> {
        match found {
            Some(item) if item.liveness() == Liveness::Live => {
                let class = item.touch();
                self.count_class(class, ClassCounter::GetHits);
                self.note_hit(key, &item);
                Ok(item)
            }
            found => {
                self.count(Counter::GetMisses);
                self.note_miss(key);
                Err(self.miss(section, key, found))
            }
        }
    }

    /// `gat`: as [`Self::get`], and the item gets `deadline`. Returns the item that got it.
    ///
    /// # Errors
    ///
    /// The kind of miss; counted, except [`Miss::NoCas`].
    pub fn get_and_touch<'s>(
        &self,
        section: &'s Section<'_>,
        key: Key<'_>,
        deadline: u32,
        cas: Cas,
    ) -> Result<Item<'s>, Miss> {
        let touched = self.touch_found(section, key, deadline, cas);
        if matches!(touched, Err(Miss::NoCas)) {
            return touched;
        }
        self.count(Counter::CmdGat);
        self.count(Counter::CmdTouch);
        match &touched {
            Ok(item) => {
                self.count_class(item.class(), ClassCounter::TouchHits);
                self.note_hit(&key, item);
            }
            Err(_) => {
                self.count(Counter::TouchMisses);
                self.note_miss(&key);
            }
        }
        touched
    }

    /// `touch`: the item gets `deadline`. No section may be open.
    ///
    /// # Errors
    ///
    /// The kind of miss; counted. Never [`Miss::NoCas`].
    pub fn touch(&self, key: Key<'_>, deadline: u32, mut cas: Cas) -> Result<Touched, Miss> {
        self.count(Counter::CmdTouch);
        let is_shown = cas == Cas::Needed;
        loop {
            let section = self.section();
            match self.touch_found(&section, key, deadline, cas) {
                Ok(item) => {
                    self.count_class(item.class(), ClassCounter::TouchHits);
                    self.note_touched(&key, &item);
                    let cas = if is_shown { self.asked_cas(&item) } else { 0 };
                    return Ok(Touched { flags: item.flags(), cas });
                }
                Err(Miss::NoCas) => {}
                Err(miss) => {
                    self.count(Counter::TouchMisses);
                    self.note_named(Command::Touch, &key);
                    return Err(miss);
                }
            }
            drop(section);
            cas = self.give_cas(&key);
        }
    }

    /// Finds the item and gives it a deadline under the key's lock; searches again if it was
    /// replaced in between.
    fn touch_found<'s>(
        &self,
        section: &'s Section<'_>,
        key: Key<'_>,
        deadline: u32,
        cas: Cas,
    ) -> Result<Item<'s>, Miss> {
        loop {
            let found = section.find(key.hash, key.bytes);
            let Some(item) = found.filter(|item| item.liveness() == Liveness::Live) else {
                return Err(self.miss(section, &key, found));
            };
            if self.lacks_cas(&item, cas) {
                return Err(Miss::NoCas);
            }
            let mut is_set = false;
            section.update(key.hash, key.bytes, |present| {
                if let Some(present) = live(present).filter(|present| is_same(present, &item)) {
                    present.set_deadline(deadline);
                    is_set = true;
                }
                Change::Keep
            });
            if is_set {
                item.touch();
                return Ok(item);
            }
        }
    }

    /// The kind of miss that `found` is. As in memcached, the request that finds a dead item
    /// unlinks it.
    pub(crate) fn miss(
        &self,
        section: &Section<'_>,
        key: &Key<'_>,
        found: Option<Item<'_>>,
    ) -> Miss {
        let miss = match found.map(|item| item.liveness()) {
            Some(Liveness::Expired) => Miss::Expired,
            Some(Liveness::Flushed) => Miss::Flushed,
            Some(Liveness::Live | Liveness::Deleted | Liveness::Gone) | None => Miss::Absent,
        };
        if matches!(miss, Miss::Expired | Miss::Flushed) {
            self.unlink_dead(section, *key);
        }
        miss
    }

    /// Unlinks and counts the key's item if it is expired or flushed.
    #[cold]
    pub fn unlink_dead(&self, section: &Section<'_>, key: Key<'_>) {
        section.update(key.hash, key.bytes, |present| self.remove_found(present));
    }

    /// As [`remove_dead`], and counts a dead item, for requests that memcached counts: all except
    /// stores.
    pub(crate) fn remove_found(&self, present: Option<&Item<'_>>) -> Change {
        self.count_dead(present);
        remove_dead(present)
    }

    /// Counts an expired or flushed item, which is then unlinked.
    pub(crate) fn count_dead(&self, present: Option<&Item<'_>>) {
        match present.map(Item::liveness) {
            Some(Liveness::Expired) => self.count(Counter::GetExpired),
            Some(Liveness::Flushed) => self.count(Counter::GetFlushed),
            Some(Liveness::Live | Liveness::Deleted | Liveness::Gone) | None => {}
        }
    }
}

/// Removes a dead item and keeps any other; also keeps a deleted one that may still be read as
/// stale.
pub(crate) fn remove_dead(present: Option<&Item<'_>>) -> Change {
    match present.map(Item::liveness) {
        Some(Liveness::Expired | Liveness::Flushed | Liveness::Gone) => Change::Remove,
        Some(Liveness::Live | Liveness::Deleted) | None => Change::Keep,
    }
}
