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
    /// The key's item was read.
    #[inline]
    pub(crate) fn note_hit(&self, command: Command, key: &Key<'_>, item: &Item<'_>) {
        self.count_in_namespace(command, key, Outcome::Hit);
        if self.sampler.takes(key.hash) {
            let what = (item.total_bytes(), item.deadline());
            self.sampler.note(command, Kind::Hit, key, what);
        }
    }

    /// The key's item was given a deadline, or another state, and not read.
    #[inline]
    pub(crate) fn note_touched(&self, command: Command, key: &Key<'_>, item: &Item<'_>) {
        self.count_in_namespace(command, key, Outcome::Other);
        if self.sampler.takes(key.hash) {
            let what = (item.total_bytes(), item.deadline());
            self.sampler.note(command, Kind::Touched, key, what);
        }
    }

    /// The key was read and has no item.
    #[inline]
    pub(crate) fn note_miss(&self, command: Command, key: &Key<'_>) {
        self.count_in_namespace(command, key, Outcome::Other);
        if self.sampler.takes(key.hash) {
            self.sampler.note(command, Kind::Miss, key, (0, 0));
        }
    }

    /// The key was named and has no item, or its item stayed as it was.
    #[inline]
    pub(crate) fn note_named(&self, command: Command, key: &Key<'_>) {
        self.count_in_namespace(command, key, Outcome::Other);
        if self.sampler.takes(key.hash) {
            self.sampler.note(command, Kind::Touched, key, (0, 0));
        }
    }

    /// A value was stored.
    #[inline(always)]
    pub(crate) fn note_stored(&self, command: Command, key: &Key<'_>, new: &NewValue) {
        self.count_in_namespace(command, key, Outcome::Hit);
        if self.sampler.takes(key.hash) {
            let bytes = store::item_bytes(key.bytes.len(), new.flags, new.value_len);
            self.sampler.note(command, Kind::Stored, key, (bytes, new.deadline));
        }
    }

    /// The key was to be deleted: it has no item any more.
    #[inline]
    pub(crate) fn note_removed(&self, command: Command, key: &Key<'_>) {
        // A read that creates an item is a hit, as in `get_hits`.
        self.count_in_namespace(command, key, Outcome::Hit);
        if self.sampler.takes(key.hash) {
            self.sampler.note(command, Kind::Removed, key, (0, 0));
        }
    }

    /// A batch of requests begins; true if it is sampled by time. Then the caller calls
    /// [`Self::answered`] for each request, and [`Self::end_batch`] at the end.
    #[inline]
    #[must_use]
    pub fn begin_batch(&self) -> bool {
        self.sampler.begin_batch()
    }

    /// A request of a sampled batch was answered, this long after its bytes had come.
    pub fn answered(&self, after: Duration) {
        self.sampler.answered(after);
    }

    /// The sampled batch has ended.
    pub fn end_batch(&self) {
        self.sampler.end_batch();
    }
}
