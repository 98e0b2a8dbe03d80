//! set, add, replace, cas and meta's variants of them. (append and prepend: `concat.rs`.)
//!
//! A value is received into a draft, which is then linked under a condition:
//!
//! ```text
//!     draft(key, new) -> push bytes, as they come -> store(key, new, condition, draft)
//!        \ refused: the old value stays; one that is too large may take it along
//! ```

pub use proto::StoreMode as Mode;
use sampling::Command;
use store::{Applied, Change, Draft, DraftError, Item};

use crate::key::Key;
use crate::new_value::NewValue;
use crate::retrieve::remove_dead;
use crate::stats::{ClassCounter, Counter};
use crate::worker::{Worker, live};

/// The condition under which a value is stored.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// The condition on the present state.
    pub mode: Mode,
    /// The cas unique that the present item must have: with set and replace this makes the command
    /// a `cas`.
    pub compare: Option<u64>,
    /// Meta `I`: if `compare` is lower than the present cas unique, store nevertheless, as stale.
    pub invalidate: bool,
    /// The new cas unique (meta `E`), else the store's next. Only for a value that has one
    /// ([`NewValue::has_cas`]).
    pub cas: Option<u64>,
    /// Meta `ms N`: append and prepend create an absent key's item, with this deadline.
    pub vivify_deadline: Option<u32>,
    /// A lease's token: the key must not have changed since it was given.
    pub lease: Option<u64>,
    /// The token is returned, so that the next reader gets one at once: nothing is stored.
    pub gives_back: bool,
}

impl Condition {
    /// The plain condition of `mode`.
    #[must_use]
    pub const fn of(mode: Mode) -> Self {
        Self {
            mode,
            compare: None,
            invalidate: false,
            cas: None,
            vivify_deadline: None,
            lease: None,
            gives_back: false,
        }
    }
}

/// The outcome of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The present item has another cas unique.
    Exists,
    /// A cas unique was given and there is no item.
    NotFound,
    /// The mode's condition does not hold.
    NotStored,
    /// Nothing could be evicted for it.
    OutOfMemory,
    /// Its namespace has reached its byte limit.
    OverQuota,
    /// Done.
    Stored,
    /// Over `-I`.
    TooLarge,
}

/// A store's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The outcome.
    pub verdict: Verdict,
    /// The new cas unique as clients see it; 0 unless stored, or if it has none.
    pub cas: u64,
    /// Bytes of the stored value; after an append, of the whole value.
    pub value_len: usize,
    /// The deadline of the stored item, which after an append is that of the item before it; 0
    /// unless stored.
    pub deadline: u32,
    /// Slab class of the memory taken; 0 if none was.
    pub class: u8,
}

impl Stored {
    /// Refused before memory was taken.
    #[must_use]
    pub const fn refused(verdict: Verdict) -> Self {
        Self { verdict, cas: 0, value_len: 0, deadline: 0, class: 0 }
    }
}

impl From<DraftError> for Verdict {
    fn from(error: DraftError) -> Self {
        match error {
            DraftError::OutOfMemory => Self::OutOfMemory,
            DraftError::OverQuota => Self::OverQuota,
            DraftError::TooLarge => Self::TooLarge,
        }
    }
}

impl Worker {
    /// Memory for a value that will be stored. No section may be open.
    ///
    /// # Errors
    ///
    /// It is too large, or nothing can be evicted; counted. The caller then calls
    /// [`Self::drop_old`] if the protocol requires it, and swallows the value.
    #[inline(always)]
    pub fn draft(&self, key: Key<'_>, new: &NewValue) -> Result<Draft, Verdict> {
        self.reserve(key, new).map_err(|error| self.refused(error))
    }

    /// Counts a refused value.
    pub fn refused(&self, error: DraftError) -> Verdict {
        self.count(match error {
            DraftError::OutOfMemory => Counter::StoreNoMemory,
            DraftError::OverQuota => Counter::StoreOverQuota,
            DraftError::TooLarge => Counter::StoreTooLarge,
        });
        error.into()
    }

    /// After a set whose value is too large: the item that the client meant to overwrite must no
    /// longer be served.
    pub fn drop_old(&self, key: Key<'_>) {
        self.section().update(key.hash, key.bytes, |_| {
            self.void_lease(key);
            Change::Remove
        });
    }

    /// Links a complete draft of `key` if `condition` holds. `new` describes the draft.
    #[inline(always)]
    pub fn store(
        &self,
        key: Key<'_>,
        new: &NewValue,
        condition: &Condition,
        draft: Draft,
    ) -> Stored {
        let class = draft.class();
        self.count_set(class, condition);
        let section = self.section();
        let (mut verdict, mut deadline) = (Verdict::Stored, 0);
        // The draft is taken out of here only to be linked: an unneeded one is dropped outside the
        // key's lock.
        let mut draft = Some(draft);
        let applied = section.update_from(key.hint, key.hash, key.bytes, |present| {
            verdict = self.judge(key, present, condition, draft.as_mut());
            if verdict == Verdict::Stored {
                self.void_lease(key);
            }
            match draft.take_if(|_| verdict == Verdict::Stored) {
                Some(draft) => {
                    deadline = draft.deadline();
                    Change::Put { draft, cas: condition.cas }
                }
                None if live(present).is_none() => remove_dead(present),
                None => Change::Keep,
            }
        });
        if !matches!(applied, Applied::Stored { .. }) {
            self.note_named(Command::Store, &key);
        }
        match applied {
            Applied::Stored { cas } => {
                self.note_stored(Command::Store, &key, new);
                let (cas, value_len) = (self.shown_cas(cas), new.value_len);
                Stored { verdict, cas, value_len, deadline, class }
            }
            Applied::Refused(error) => Stored::refused(self.refused(error)),
            Applied::Kept | Applied::Removed => Stored { class, ..Stored::refused(verdict) },
        }
    }

    /// Counts a received value for `cmd_set`.
    #[inline]
    pub(crate) fn count_set(&self, class: u8, condition: &Condition) {
        let counter = match condition.compare {
            Some(_) => ClassCounter::CasSets,
            None => ClassCounter::CmdSet,
        };
        self.count_class(class, counter);
    }

    /// Judges `condition` by the key's present item, and counts a `cas`. If it holds only by meta's
    /// `I`, `draft` becomes a stale version of the item.
    #[inline]
    fn judge(
        &self,
        key: Key<'_>,
        present: Option<&Item<'_>>,
        condition: &Condition,
        draft: Option<&mut Draft>,
    ) -> Verdict {
        if condition.gives_back {
            if let Some(token) = condition.lease {
                self.give_back(key, token);
            }
            return Verdict::NotStored;
        }
        let Some(item) = live(present) else {
            if condition.compare.is_some() && condition.mode != Mode::Add {
                self.count(Counter::CasMisses);
                return Verdict::NotFound;
            }
            if condition.lease.is_some_and(|token| !self.redeem(key, token)) {
                return Verdict::NotStored;
            }
            return match condition.mode {
                Mode::Add if self.is_held(key) => Verdict::NotStored,
                Mode::Add | Mode::Set => Verdict::Stored,
                Mode::Append | Mode::Prepend | Mode::Replace => Verdict::NotStored,
            };
        };
        if condition.lease.is_some() {
            self.count(Counter::LeaseSetRejected);
            return Verdict::NotStored;
        }
        if condition.mode == Mode::Add {
            item.bump();
            return Verdict::NotStored;
        }
        let Some(unique) = condition.compare else { return Verdict::Stored };
        if self.cas_matches(item, unique) {
            self.count_class(item.class(), ClassCounter::CasHits);
            return Verdict::Stored;
        }
        if condition.invalidate && self.is_older_cas(item, unique) {
            self.count_class(item.class(), ClassCounter::CasHits);
            if let Some(draft) = draft {
                draft.set_deadline(item.deadline());
                draft.set_stale(true);
                draft.set_won(item.is_won());
            }
            return Verdict::Stored;
        }
        self.count_class(item.class(), ClassCounter::CasBadval);
        Verdict::Exists
    }
}
