//! get, gat, touch.

use sampling::Command;
use store::{Change, Item, Liveness, Section};

use crate::key::Key;
use crate::stats::{ClassCounter, Counter};
use crate::worker::{Worker, is_same, live};

/// The reason for which a key was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// No item has it.
    Absent,
    /// Its item is past its deadline.
    Expired,
    /// Its item was flushed.
    Flushed,
}

/// The item that `touch` touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Client flags.
    pub flags: u32,
    /// Cas unique, unchanged by the touch.
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
        let found = section.find_from(key.hint, key.hash, key.bytes);
        match found {
            Some(item) if item.liveness() == Liveness::Live => {
                let class = item.touch();
                self.count_class(class, ClassCounter::GetHits);
                self.note_hit(Command::Get, key, &item);
                Ok(item)
            }
            found => {
                self.count(Counter::GetMisses);
                self.note_miss(Command::Get, key);
                Err(self.miss(found.as_ref()))
            }
        }
    }

    /// `gat`: as [`Self::get`], and the item gets `deadline`. The item returned is the one that got
    /// it.
    ///
    /// # Errors
    ///
    /// The kind of miss; counted.
    pub fn get_and_touch<'s>(
        &self,
        section: &'s Section<'_>,
        key: Key<'_>,
        deadline: u32,
    ) -> Result<Item<'s>, Miss> {
        self.count(Counter::CmdGat);
        self.count(Counter::CmdTouch);
        let touched = self.touch_found(section, key, deadline);
        match &touched {
            Ok(item) => {
                self.count_class(item.class(), ClassCounter::TouchHits);
                self.note_hit(Command::Get, &key, item);
            }
            Err(_) => {
                self.count(Counter::TouchMisses);
                self.note_miss(Command::Get, &key);
            }
        }
        touched
    }

    /// `touch`: the item gets `deadline`.
    ///
    /// # Errors
    ///
    /// The kind of miss; counted.
    pub fn touch(&self, key: Key<'_>, deadline: u32) -> Result<Touched, Miss> {
        self.count(Counter::CmdTouch);
        let section = self.section();
        match self.touch_found(&section, key, deadline) {
            Ok(item) => {
                self.count_class(item.class(), ClassCounter::TouchHits);
                self.note_touched(Command::Touch, &key, &item);
                Ok(Touched { flags: item.flags(), cas: self.cas_of(&item) })
            }
            Err(miss) => {
                self.count(Counter::TouchMisses);
                self.note_named(Command::Touch, &key);
                Err(miss)
            }
        }
    }

    /// Finds the item and gives it a deadline under the key's lock; looks again when it was
    /// replaced in between.
    fn touch_found<'s>(
        &self,
        section: &'s Section<'_>,
        key: Key<'_>,
        deadline: u32,
    ) -> Result<Item<'s>, Miss> {
        loop {
            let found = section.find(key.hash, key.bytes);
            let Some(item) = found.filter(|item| item.liveness() == Liveness::Live) else {
                if found.is_some() {
                    self.unlink_dead(section, key);
                }
                return Err(self.miss(found.as_ref()));
            };
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

    /// The kind of miss that `found` is, counted as such.
    pub(crate) fn miss(&self, found: Option<&Item<'_>>) -> Miss {
        match found.map(Item::liveness) {
            Some(Liveness::Expired) => {
                self.count(Counter::GetExpired);
                Miss::Expired
            }
            Some(Liveness::Flushed) => {
                self.count(Counter::GetFlushed);
                Miss::Flushed
            }
            Some(Liveness::Live | Liveness::Deleted | Liveness::Gone) | None => Miss::Absent,
        }
    }

    /// Unlinks the key's item if it is expired or flushed.
    pub(crate) fn unlink_dead(&self, section: &Section<'_>, key: Key<'_>) {
        section.update(key.hash, key.bytes, remove_dead);
    }
}

/// A dead item is removed, anything else is kept; so is a deleted one that may still be read as
/// stale.
pub(crate) fn remove_dead(present: Option<&Item<'_>>) -> Change {
    match present.map(Item::liveness) {
        Some(Liveness::Expired | Liveness::Flushed | Liveness::Gone) => Change::Remove,
        Some(Liveness::Live | Liveness::Deleted) | None => Change::Keep,
    }
}
