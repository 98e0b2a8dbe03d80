//! Findings of repeated checks that lose no changes, and failed checks, for the operator of the
//! invalidator.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::finding::Finding;

/// Findings to report. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Lists>>);

#[derive(Debug, Default)]
struct Lists {
    /// The notes of the last check of each server.
    found: BTreeMap<String, Vec<String>>,
    /// Notes that the previous check did not have, until they are taken.
    new: Vec<String>,
    /// True after checks that could not be made.
    is_blind: bool,
}

impl Notes {
    /// Records all findings of a check of `server`.
    pub(crate) fn found(&self, server: &str, findings: &[Finding]) {
        let notes = findings.iter().filter(|finding| !finding.is_fatal);
        let found: Vec<String> =
            notes.map(|note| format!("warning: {}", note.clone().of(server).text)).collect();
        let mut lists = self.0.lock();
        let before = lists.found.insert(server.to_owned(), found.clone()).unwrap_or_default();
        lists.new.extend(found.into_iter().filter(|note| !before.contains(note)));
        if std::mem::take(&mut lists.is_blind) {
            lists.new.push(format!("{server}: the log can be checked for missing changes again"));
        }
    }

    /// Records that a check could not be made. That is reported once, until a check succeeds.
    pub(crate) fn missed(&self, why: &str) {
        let mut lists = self.0.lock();
        if !std::mem::replace(&mut lists.is_blind, true) {
            lists.new.push(format!("warning: cannot check the log for missing changes now: {why}"));
        }
    }

    /// Records faults of servers that cannot be followed, while another one is.
    pub(crate) fn unfit(&self, faults: Vec<String>) {
        let notes = faults
            .into_iter()
            .map(|fault| format!("warning: {fault}; this server is no substitute"));
        self.0.lock().new.extend(notes);
    }

    /// Records a note about a server that no check makes.
    pub(crate) fn add(&self, note: &Finding) {
        self.0.lock().new.push(format!("warning: {}", note.text));
    }

    /// The notes that are new since they were last taken.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_persisting_note_is_reported_once() {
        let notes = Notes::default();
        let a = Finding::note("a".to_owned());
        let fatal = Finding::fatal("b".to_owned());
        notes.clone().found("s", &[a.clone(), fatal]);
        assert_eq!(notes.take(), ["warning: s: a"]);
        notes.found("s", std::slice::from_ref(&a));
        assert!(notes.take().is_empty());
        notes.found("s", &[]);
        notes.found("s", std::slice::from_ref(&a));
        assert_eq!(notes.take(), ["warning: s: a"]);
        // Each server has its own.
        for _ in 0..3 {
            notes.found("t", std::slice::from_ref(&a));
            notes.found("s", std::slice::from_ref(&a));
        }
        assert_eq!(notes.take(), ["warning: t: a"]);
    }

    #[test]
    fn failed_checks_are_reported_once_until_one_succeeds() {
        let notes = Notes::default();
        notes.missed("a");
        notes.missed("b");
        assert_eq!(notes.take(), ["warning: cannot check the log for missing changes now: a"]);
        notes.missed("a");
        assert!(notes.take().is_empty());
        notes.found("s", &[]);
        assert_eq!(notes.take(), ["s: the log can be checked for missing changes again"]);
        notes.found("s", &[]);
        assert!(notes.take().is_empty());
        notes.missed("c");
        assert_eq!(notes.take(), ["warning: cannot check the log for missing changes now: c"]);
    }
}
