//! The samples that commands take, and the counts of their namespaces. A key that is not sampled
//! costs one comparison.

use std::time::Duration;

use sampling::{Command, Kind};
use store::Item;

use super::Worker;
use super::namespaces::Outcome;
use crate::key::Key;
use crate::new_value::NewValue;

impl Worker {
    /// Notes that the key's item was read.
    #[inline]
    pub(crate) fn note_hit(&self, key: &Key<'_>, item: &Item<'_>) {
        self.count_in_namespace(Command::Get, key, Outcome::Hit);
        if self.sampler.takes(key.hash) {
            let what = (item.total_bytes(), item.deadline());
            self.sampler.note(Command::Get, Kind::Hit, key, what);
        }
    }

    /// Notes that the key's item got a deadline, or another state, and was not read.
    #[inline]
    pub(crate) fn note_touched(&self, key: &Key<'_>, item: &Item<'_>) {
        self.count_in_namespace(Command::Touch, key, Outcome::Other);
        if self.sampler.takes(key.hash) {
            let what = (item.total_bytes(), item.deadline());
            self.sampler.note(Command::Touch, Kind::Touched, key, what);
        }
    }

    /// Notes that the key was read and has no item.
    #[inline]
    pub(crate) fn note_miss(&self, key: &Key<'_>) {
        self.count_in_namespace(Command::Get, key, Outcome::Other);
        if self.sampler.takes(key.hash) {
            self.sampler.note(Command::Get, Kind::Miss, key, (0, 0));
        }
    }

    /// Notes that the key was named and has no item, or its item did not change.
    #[inline]
    pub(crate) fn note_named(&self, command: Command, key: &Key<'_>) {
        self.count_in_namespace(command, key, Outcome::Other);
        if self.sampler.takes(key.hash) {
            self.sampler.note(command, Kind::Touched, key, (0, 0));
        }
    }

    /// Notes that a value was stored.
    #[inline(always)]
    pub(crate) fn note_stored(&self, command: Command, key: &Key<'_>, new: &NewValue) {
        self.count_in_namespace(command, key, Outcome::Hit);
        if self.sampler.takes(key.hash) {
            let bytes = store::item_bytes(key.bytes.len(), new.flags, new.value_len);
            self.sampler.note(command, Kind::Stored, key, (bytes, new.deadline));
        }
    }

    /// Notes that the key was to be deleted: it no longer has an item.
    #[inline]
    pub(crate) fn note_removed(&self, key: &Key<'_>) {
        // A read that creates an item is a hit, as in `get_hits`.
        self.count_in_namespace(Command::Delete, key, Outcome::Hit);
        if self.sampler.takes(key.hash) {
            self.sampler.note(Command::Delete, Kind::Removed, key, (0, 0));
        }
    }

    /// Starts a batch of requests; `true` if it is sampled by time. Then the caller calls
    /// [`Self::answered`] for each request, and [`Self::end_batch`] at the end.
    #[inline]
    #[must_use]
    pub fn begin_batch(&self) -> bool {
        self.sampler.begin_batch()
    }

    /// Notes that a request of a sampled batch was answered, this long after its bytes had come.
    pub fn answered(&self, after: Duration) {
        self.sampler.answered(after);
    }

    /// Ends the sampled batch.
    pub fn end_batch(&self) {
        self.sampler.end_batch();
    }
}
