//! append and prepend: a new item made of the present one and the received bytes.
//!
//! ```text
//!     look (copy an inline value, pin a chained one) -> reserve the whole -> fill
//!          -> link if nothing has changed, else look again
//! ```
//!
//! A chained value is pinned so that it can be read outside a section: taking memory for the new
//! pieces may evict, which is not done while reading.

use sampling::Command;
use store::{Applied, Change, Draft, DraftError, Item, Liveness, Pin};

use crate::key::Key;
use crate::mutate::{Condition, Mode, Stored, Verdict};
use crate::new_value::NewValue;
use crate::retrieve::remove_dead;
use crate::stats::Counter;
use crate::worker::{Worker, live};

/// The class under which a value without memory is counted.
const NO_CLASS: u8 = 0;

/// The present value as seen, with the facts that must still hold when the new item is linked.
struct Seen {
    new: NewValue,
    cas: u64,
    value: Value,
}

enum Value {
    Copy(Vec<u8>),
    Pinned(Pin),
}

impl Seen {
    /// `true` if `item` is the one seen. A pinned value's memory is not reused, so its address
    /// suffices; an inline value is compared, because an explicit cas unique may come twice.
    fn is_still(&self, item: &Item<'_>) -> bool {
        if item.cas() != self.cas
            || item.flags() != self.new.flags
            || item.deadline() != self.new.deadline
        {
            return false;
        }
        match &self.value {
            Value::Copy(bytes) => item.inline_value() == Some(bytes),
            Value::Pinned(pin) => {
                let mut first = None;
                item.for_each_piece(|piece| {
                    first.get_or_insert(piece.as_ptr());
                });
                first == Some(pin.bytes_at(0).as_ptr())
            }
        }
    }

    fn push_to(&self, draft: &mut Draft) -> Result<(), DraftError> {
        match &self.value {
            Value::Copy(bytes) => draft.push(bytes),
            Value::Pinned(pin) => {
                let mut offset = 0;
                while offset < pin.value_len() {
                    let piece = pin.bytes_at(offset);
                    draft.push(piece)?;
                    offset += piece.len();
                }
                Ok(())
            }
        }
    }
}

/// The result of a look at the key.
enum Look {
    Found(Seen),
    Ended(Verdict),
    Vivify(u32),
}

impl Worker {
    /// `append` and `prepend` of `bytes` (no lease allows either); flags, deadline and key form of
    /// the present item are kept. Except for the cas unique, `new` counts only if an item is
    /// created (meta `N`). No section may be open.
    pub fn concat(
        &self,
        key: Key<'_>,
        new: &NewValue,
        condition: &Condition,
        bytes: &[u8],
    ) -> Stored {
        if condition.lease.is_some() {
            self.count(Counter::LeaseSetRejected);
            return Stored::refused(Verdict::NotStored);
        }
        loop {
            let attempt = match self.look(key, condition, new.has_cas) {
                Look::Ended(verdict) => {
                    self.count_set(NO_CLASS, condition);
                    self.note_named(Command::Store, &key);
                    return Stored::refused(verdict);
                }
                Look::Found(seen) => self.extend(key, &seen, condition, bytes),
                Look::Vivify(deadline) => {
                    let new = NewValue { deadline, value_len: bytes.len(), ..*new };
                    self.create(key, &new, condition, bytes)
                }
            };
            match attempt {
                Ok(Some(stored)) => return stored,
                Ok(None) => {}
                Err(error) => {
                    self.count_set(NO_CLASS, condition);
                    return Stored::refused(self.refused(error));
                }
            }
        }
    }

    fn look(&self, key: Key<'_>, condition: &Condition, has_cas: bool) -> Look {
        let section = self.section();
        let found = section.find_from(key.hint, key.hash, key.bytes);
        let Some(item) = found.filter(|item| item.liveness() == Liveness::Live) else {
            if found.is_some() {
                section.update(key.hash, key.bytes, remove_dead);
            }
            return match (condition.vivify_deadline, condition.compare) {
                (Some(deadline), None) => Look::Vivify(deadline),
                // Also with a cas unique: memcached answers NS here, but NF to a set.
                _ => Look::Ended(Verdict::NotStored),
            };
        };
        if condition.compare.is_some_and(|unique| !self.cas_matches(&item, unique)) {
            return Look::Ended(Verdict::Exists);
        }
        let value = match item.pin() {
            Some(pin) => Value::Pinned(pin),
            None => Value::Copy(item.inline_value().unwrap_or_default().to_vec()),
        };
        let new = NewValue {
            flags: item.flags(),
            deadline: item.deadline(),
            value_len: item.value_len(),
            base64_key: item.is_base64_key(),
            has_cas,
        };
        Look::Found(Seen { new, cas: item.cas(), value })
    }

    /// Links the longer item; `None` if the seen value is no longer there.
    fn extend(
        &self,
        key: Key<'_>,
        seen: &Seen,
        condition: &Condition,
        bytes: &[u8],
    ) -> Result<Option<Stored>, DraftError> {
        let value_len = seen.new.value_len.saturating_add(bytes.len());
        let mut draft = self.reserve(key, &NewValue { value_len, ..seen.new })?;
        if condition.mode == Mode::Prepend {
            draft.push(bytes)?;
            seen.push_to(&mut draft)?;
        } else {
            seen.push_to(&mut draft)?;
            draft.push(bytes)?;
        }
        let linked = self.link(key, draft, condition, value_len, |present| {
            live(present).is_some_and(|item| seen.is_still(item))
        });
        if let Ok(Some(_)) = linked {
            self.note_stored(Command::Store, &key, &NewValue { value_len, ..seen.new });
        }
        linked
    }

    /// Links `bytes` as a new item; `None` if the key has got an item in the meantime.
    fn create(
        &self,
        key: Key<'_>,
        new: &NewValue,
        condition: &Condition,
        bytes: &[u8],
    ) -> Result<Option<Stored>, DraftError> {
        let mut draft = self.reserve(key, new)?;
        draft.push(bytes)?;
        let linked =
            self.link(key, draft, condition, bytes.len(), |present| live(present).is_none());
        if let Ok(Some(_)) = linked {
            self.note_stored(Command::Store, &key, new);
        }
        linked
    }

    fn link(
        &self,
        key: Key<'_>,
        draft: Draft,
        condition: &Condition,
        value_len: usize,
        holds: impl FnOnce(Option<&Item<'_>>) -> bool,
    ) -> Result<Option<Stored>, DraftError> {
        let (class, deadline) = (draft.class(), draft.deadline());
        let mut draft = Some(draft);
        let section = self.section();
        let applied = section.update_from(key.hint, key.hash, key.bytes, |present| {
            if holds(present)
                && let Some(mut draft) = draft.take()
            {
                if let Some(item) = live(present).filter(|item| item.is_stale()) {
                    // The longer value is as old as the one in it.
                    draft.set_stale(true);
                    draft.set_won(item.is_won());
                }
                self.void_lease(key);
                return Change::Put { draft, cas: condition.cas };
            }
            remove_dead(present)
        });
        match applied {
            Applied::Stored { cas } => {
                self.count_set(class, condition);
                let (verdict, cas) = (Verdict::Stored, self.shown_cas(cas));
                Ok(Some(Stored { verdict, cas, value_len, deadline, class }))
            }
            Applied::Refused(error) => Err(error),
            Applied::Kept | Applied::Removed => Ok(None),
        }
    }
}
