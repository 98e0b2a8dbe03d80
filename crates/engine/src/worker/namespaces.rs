//! Limits and counts of namespaces and users, applied to commands.

use sampling::Command;

use super::Worker;
use crate::key::Key;
use crate::namespaces::{Entry, RateReached};
use crate::stats::{Counter, SubjectCounter};

/// The effect of a command, for its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Hit,
    Other,
}

impl Worker {
    /// `true` if requests must be passed to [`Self::admit`].
    #[inline]
    #[must_use]
    pub fn has_namespaces(&self) -> bool {
        self.namespaces.is_on()
    }

    /// Counts a request of `user` that names `key`, and takes a token of both. `is_delete`: it is
    /// never refused, because the old value would stay. A delete with a hold-off may be refused,
    /// and is then executed without it.
    ///
    /// # Errors
    ///
    /// The exceeded limit of requests; counted.
    pub fn admit(
        &self,
        user: Option<&[u8]>,
        key: &[u8],
        is_delete: bool,
    ) -> Result<(), RateReached> {
        let rules = self.namespaces.rules.borrow();
        let of_user = user.and_then(|name| rules.of_user(name));
        let entries = [(of_user, RateReached::User), (rules.of_key(key), RateReached::Namespace)];
        for (entry, reached) in entries {
            let Some(entry) = entry else { continue };
            self.count_subject(entry, SubjectCounter::Requests);
            if !entry.takes(self.namespaces.now_ms.get()) && !is_delete {
                self.count_subject(entry, SubjectCounter::RefusedRate);
                self.count(Counter::RateRefused);
                return Err(reached);
            }
        }
        Ok(())
    }

    /// The store's deadline for the exptime of a value that will be stored under `key`.
    #[inline]
    #[must_use]
    pub fn deadline(&self, key: &[u8], exptime: i64) -> u32 {
        let deadline = self.deadline_of(exptime);
        if self.namespaces.is_on() { self.bound(key, deadline, true) } else { deadline }
    }

    /// The store's deadline for a new exptime of the item of `key`.
    #[inline]
    #[must_use]
    pub fn touch_deadline(&self, key: &[u8], exptime: i64) -> u32 {
        let deadline = self.deadline_of(exptime);
        if self.namespaces.is_on() { self.bound(key, deadline, false) } else { deadline }
    }

    #[cold]
    fn bound(&self, key: &[u8], deadline: u32, is_stored: bool) -> u32 {
        let rules = self.namespaces.rules.borrow();
        rules
            .of_key(key)
            .map_or(deadline, |entry| entry.rule.limits.bound(deadline, self.now_secs(), is_stored))
    }

    /// Counts a command for the namespace of its key.
    #[inline]
    pub(super) fn count_in_namespace(&self, command: Command, key: &Key<'_>, outcome: Outcome) {
        if self.namespaces.is_on() {
            self.count_command(command, key, outcome);
        }
    }

    #[cold]
    fn count_command(&self, command: Command, key: &Key<'_>, outcome: Outcome) {
        let rules = self.namespaces.rules.borrow();
        let Some(entry) = rules.of_key(key.bytes) else { return };
        match command {
            Command::Get => {
                self.count_subject(entry, SubjectCounter::Gets);
                if outcome == Outcome::Hit {
                    self.count_subject(entry, SubjectCounter::Hits);
                }
            }
            Command::Store => self.count_subject(entry, SubjectCounter::Sets),
            Command::Delete => self.count_subject(entry, SubjectCounter::Deletes),
            Command::Arithmetic | Command::Other | Command::Touch => {}
        }
    }

    fn count_subject(&self, entry: &Entry, counter: SubjectCounter) {
        self.counters.add_subject(entry.number, counter);
    }
}
