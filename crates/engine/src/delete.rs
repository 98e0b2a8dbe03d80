//! delete, including meta's forms: by cas unique, to a stale item, to an empty one.

use sampling::Command;
use store::{Applied, Change, Draft, Item};

use crate::key::Key;
use crate::new_value::NewValue;
use crate::stats::{ClassCounter, Counter};
use crate::worker::{Cas, Worker, live};

/// The options of a delete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delete {
    /// The cas unique that it must have.
    pub compare: Option<u64>,
    /// Meta `I`: it stays, marked stale, with a new cas unique; the next reader wins the right to
    /// renew it.
    pub invalidate: bool,
    /// Meta `x`: it stays without value, with these client flags.
    pub empty_flags: Option<u32>,
    /// The key came as base64: an empty item's key does, too.
    pub base64_key: bool,
    /// Meta `T`: the deadline of the remaining item. Else a stale item keeps its own, and an empty
    /// one has none.
    pub deadline: Option<u32>,
    /// Meta `E`: the cas unique of the remaining item, else the store's next.
    pub cas: Option<u64>,
    /// Seconds in which the key may not be added, whether it existed or not; 0 is no hold-off.
    pub hold_off_secs: u32,
}

impl Delete {
    /// The same delete, after which no item remains.
    const fn without_item(self) -> Self {
        let (empty_flags, invalidate) = (None, false);
        Self { empty_flags, invalidate, ..self }
    }
}

/// The outcome of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The item is gone, or stale, or empty, as requested. `cas`: that of the remaining item, as
    /// clients see it; 0 if there is none or it has none.
    Done {
        /// Cas unique.
        cas: u64,
        /// Slab class of the item before, or of the empty one in its place.
        class: u8,
        /// Bytes of that one's value.
        value_len: usize,
    },
    /// It has another cas unique.
    Exists,
    /// There is no item.
    NotFound,
    /// The key is deleted, but the rest of the request was refused.
    Only(NoRoom),
}

/// The part of a delete for which there was no room. A delete itself needs none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The empty item that should remain. The item is gone.
    EmptyItem,
    /// The hold-off.
    HoldOff,
}

/// The reason why a delete has changed nothing yet.
enum Undone {
    /// The item lacks the required cas unique.
    LacksCas,
    /// There was no room for the empty item.
    NoEmptyItem,
}

impl Worker {
    /// `delete` and `md`. No section may be open.
    pub fn delete(&self, key: Key<'_>, how: &Delete) -> Deleted {
        let (mut how, mut draft, mut is_whole) = (*how, None, true);
        if let Some(flags) = how.empty_flags {
            let deadline = how.deadline.unwrap_or_else(|| self.deadline(key.bytes, 0));
            let (base64_key, has_cas) = (how.base64_key, how.cas.is_some());
            let new = NewValue { flags, deadline, value_len: 0, base64_key, has_cas };
            match self.reserve(key, &new) {
                Ok(mut reserved) => {
                    reserved.set_stale(how.invalidate);
                    draft = Some(reserved);
                }
                Err(error) => {
                    self.refused(error);
                    (how, is_whole) = (how.without_item(), false);
                }
            }
        }
        // A chosen cas unique needs an item that has one.
        let chooses = how.invalidate && how.cas.is_some() && draft.is_none();
        let mut cas = if chooses { Cas::Needed } else { Cas::Any };
        let deleted = loop {
            match self.apply_delete(key, &how, &mut draft, cas) {
                Ok(deleted) => break deleted,
                Err(Undone::LacksCas) => cas = self.give_cas(&key),
                Err(Undone::NoEmptyItem) => (how, is_whole) = (how.without_item(), false),
            }
        };
        if deleted == Deleted::Exists {
            self.note_named(Command::Delete, &key);
        } else {
            self.note_removed(&key);
        }
        match deleted {
            Deleted::Done { .. } if !is_whole => Deleted::Only(NoRoom::EmptyItem),
            _ => deleted,
        }
    }

    fn apply_delete(
        &self,
        key: Key<'_>,
        how: &Delete,
        draft: &mut Option<Draft>,
        cas: Cas,
    ) -> Result<Deleted, Undone> {
        let section = self.section();
        let (mut deleted, mut class) = (Deleted::NotFound, 0);
        let (mut lacks_cas, mut is_held_off) = (false, true);
        let applied = section.update_from(key.hint, key.hash, key.bytes, |present| {
            let Some(item) = live(present) else {
                is_held_off = self.end_leases(key, how);
                return self.remove_found(present);
            };
            if how.compare.is_some_and(|unique| !self.cas_matches(item, unique)) {
                deleted = Deleted::Exists;
                return Change::Keep;
            }
            lacks_cas = self.lacks_cas(item, cas);
            if lacks_cas {
                return Change::Keep;
            }
            is_held_off = self.end_leases(key, how);
            class = item.class();
            let value_len = item.value_len();
            deleted = Deleted::Done { cas: 0, class, value_len };
            if let Some(draft) = draft.take() {
                deleted = Deleted::Done { cas: 0, class: draft.class(), value_len: 0 };
                return Change::Put { draft, cas: how.cas };
            }
            if how.invalidate {
                deleted = Deleted::Done { cas: self.mark_stale(item, how), class, value_len };
                return Change::Keep;
            }
            self.removal()
        });
        if lacks_cas {
            return Err(Undone::LacksCas);
        }
        match applied {
            Applied::Stored { cas: unique } => {
                if let Deleted::Done { cas, .. } = &mut deleted {
                    *cas = self.shown_cas(unique);
                }
            }
            Applied::Refused(error) => {
                self.refused(error);
                return Err(Undone::NoEmptyItem);
            }
            Applied::Kept | Applied::Removed => {}
        }
        if matches!(deleted, Deleted::Done { .. }) {
            self.count_class(class, ClassCounter::DeleteHits);
        } else {
            self.count(Counter::DeleteMisses);
        }
        Ok(if is_held_off { deleted } else { Deleted::Only(NoRoom::HoldOff) })
    }

    /// Makes void all earlier reads of the key: their values must not be stored. Called under its
    /// lock. `false` if there is no room for the hold-off.
    fn end_leases(&self, key: Key<'_>, how: &Delete) -> bool {
        self.void_lease(key);
        how.hold_off_secs == 0 || self.hold_off(key, how.hold_off_secs)
    }

    /// Marks a linked item stale, under its key's lock; returns its new cas unique as shown, 0 if
    /// it has none.
    fn mark_stale(&self, item: &Item<'_>, how: &Delete) -> u64 {
        item.invalidate(how.cas);
        if let Some(deadline) = how.deadline {
            item.set_deadline(deadline);
        }
        self.cas_of(item)
    }
}
