//! One thread's interface to the engine.
//!
//! [`Worker`] has many methods, in many files: they are the interface of the engine, one for each
//! command, and each kind of command has a file. They share little: the shared part, the store's
//! handle, the counters, the sampler and the rules of namespaces, none of which a command replaces.

use std::sync::Arc;

use store::{Draft, DraftError, Handle, Item, Liveness, NewItem, Section, SlotHint};

use crate::exptime::deadline_of;
use crate::key::Key;
use crate::namespaces::View;
use crate::new_value::NewValue;
use crate::samples::Sampler;
use crate::shared::{FlushNotAllowed, Shared};
use crate::stats::{ClassCounter, Counter, Counters};

mod namespaces;
mod sampling;

/// A worker's engine: its membership in the store and its counters. Stays in its thread.
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) participant: Handle,
    pub(crate) counters: Arc<Counters>,
    pub(crate) sampler: Sampler,
    pub(crate) namespaces: View,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Worker {
    /// Joins the calling thread; `None` if the store has its maximum number of participants.
    #[must_use]
    pub fn join(shared: &Arc<Shared>) -> Option<Self> {
        let participant = shared.store().join()?;
        let (counters, sampler) = (shared.register(), shared.sampler());
        let (shared, namespaces) = (Arc::clone(shared), View::default());
        Some(Self { shared, participant, counters, sampler, namespaces })
    }

    /// Starts a turn: sets this thread's clock, in seconds since start, does a due flush, and takes
    /// new rules of namespaces.
    pub fn begin_turn(&self, now_secs: u32) {
        self.participant.begin_turn(now_secs);
        self.namespaces.renew(&self.shared.registry);
        if self.shared.store().claim_flush(now_secs) {
            self.participant.flush_scheduled();
        }
    }

    /// Starts a turn for samples: sets the milliseconds since the server's start, which order
    /// samples and limit rates.
    pub fn begin_samples(&self, now_ms: u64) {
        self.sampler.begin_turn(&self.shared.samples, now_ms);
        self.namespaces.now_ms.set(now_ms);
    }

    /// Between connections: no earlier finding is held any more.
    #[inline]
    pub fn quiesce(&self) {
        self.participant.quiesce();
    }

    /// About to sleep.
    pub fn rest(&self) {
        self.participant.rest();
    }

    /// This thread's clock: seconds since start.
    #[inline]
    #[must_use]
    pub fn now_secs(&self) -> u32 {
        self.participant.now_secs()
    }

    /// The shared part.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The membership in the store, for walks and observers.
    #[must_use]
    pub fn participant(&self) -> &Handle {
        &self.participant
    }

    /// A read section; items found in it are valid until it is dropped. Methods that make a new
    /// item open a section themselves, and are not called while it lives.
    #[inline]
    #[must_use]
    pub fn section(&self) -> Section<'_> {
        self.participant.section()
    }

    /// A key, hashed.
    #[inline]
    #[must_use]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key { bytes, hash: self.shared.store().hash(bytes), hint: SlotHint::default() }
    }

    /// The store's deadline for a client's exptime, for any key.
    #[inline]
    fn deadline_of(&self, exptime: i64) -> u32 {
        if exptime == 0 {
            return 0;
        }
        deadline_of(exptime, self.now_secs(), self.shared.started_at_unix())
    }

    /// The item's cas unique as clients see it: 0 under `-C`, or if it has none.
    #[inline]
    #[must_use]
    pub fn cas_of(&self, item: &Item<'_>) -> u64 {
        self.shown_cas(item.cas())
    }

    /// The item's cas unique for a client that asked for it: 0 under `-C`. If the item has none,
    /// because there was no memory to give it one, a unique of no item: a command with it ends as
    /// one that came too late.
    #[inline]
    #[must_use]
    pub fn asked_cas(&self, item: &Item<'_>) -> u64 {
        match item.cas() {
            0 => self.shown_cas(self.participant.spare_cas()),
            cas => self.shown_cas(cas),
        }
    }

    /// `true` if the client asked for a cas unique, and the item must get one first.
    #[inline]
    pub(crate) fn lacks_cas(&self, item: &Item<'_>, wants_cas: Cas) -> bool {
        wants_cas == Cas::Needed && !item.has_cas() && self.shared.settings().cas_enabled
    }

    /// Gives the key's item a cas unique, if it has none. No section may be open. Returns the wish
    /// for the next attempt: any unique, if there was no memory.
    #[cold]
    pub fn give_cas(&self, key: &Key<'_>) -> Cas {
        if self.participant.give_cas(key.hash, key.bytes) { Cas::Needed } else { Cas::Any }
    }

    /// `flush_all`.
    ///
    /// # Errors
    ///
    /// Under `-F`; it is also counted.
    pub fn flush_all(&self, exptime: i64) -> Result<(), FlushNotAllowed> {
        self.count(Counter::CmdFlush);
        if self.shared.schedule_flush(exptime, self.now_secs())? {
            self.participant.flush();
        }
        Ok(())
    }

    /// Counts events that only the protocol knows (logins, meta commands).
    #[inline]
    pub fn count(&self, counter: Counter) {
        self.counters.add(counter);
    }

    #[inline]
    pub(crate) fn count_class(&self, class: u8, counter: ClassCounter) {
        self.counters.add_class(class, counter);
    }

    /// A cas unique as shown to clients.
    #[inline]
    pub(crate) fn shown_cas(&self, cas: u64) -> u64 {
        if self.shared.settings().cas_enabled { cas } else { 0 }
    }

    /// `true` if the client's cas unique names an older item of the key than this one.
    pub(crate) fn is_older_cas(&self, item: &Item<'_>, unique: u64) -> bool {
        unique != 0
            && self.shared.settings().cas_enabled
            && match item.cas() {
                0 => self.shared.store().is_older_cas(unique),
                present => unique < present,
            }
    }

    /// `true` if the client's cas unique names this item. 0 names none.
    #[inline]
    pub(crate) fn cas_matches(&self, item: &Item<'_>, unique: u64) -> bool {
        unique != 0 && self.cas_of(item) == unique
    }

    /// Memory for an item of `key`; no section may be open.
    #[inline]
    pub(crate) fn reserve(&self, key: Key<'_>, new: &NewValue) -> Result<Draft, DraftError> {
        self.participant.draft(NewItem {
            key: key.bytes,
            flags: new.flags,
            deadline: new.deadline,
            value_len: new.value_len,
            base64_key: new.base64_key,
            has_cas: new.has_cas,
        })
    }
}

/// A reader's wish to see the cas unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cas {
    /// No, or it accepts the present one.
    #[default]
    Any,
    /// Yes: an item that has none is [`Miss::NoCas`](crate::Miss::NoCas).
    Needed,
}

/// `true` if two findings of one section are the same item. Within a section memory that was found
/// is not reused, so equal addresses mean equal items.
#[inline]
pub(crate) fn is_same(one: &Item<'_>, other: &Item<'_>) -> bool {
    std::ptr::eq(one.key(), other.key())
}

/// The item, if it is neither expired nor flushed.
#[inline]
pub(crate) fn live<'i, 's>(item: Option<&'i Item<'s>>) -> Option<&'i Item<'s>> {
    item.filter(|item| item.liveness() == Liveness::Live)
}
