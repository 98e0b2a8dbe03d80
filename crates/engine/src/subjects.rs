//! Rules of namespaces and users in the shared part, and their numbers.

use store::NamespaceStats;

use crate::namespaces::{Rule, RulesError};
use crate::shared::Shared;
use crate::stats::SUBJECT_COUNTERS;

/// The numbers of one namespace or user.
#[derive(Clone, Debug)]
pub struct SubjectStats {
    /// Its limits.
    pub rule: Rule,
    /// Its items; nothing for a user. Evictions and refusals are those since the last reset.
    pub items: NamespaceStats,
    /// Since the last reset, in the order of [`SUBJECT_COUNTERS`].
    pub counts: [u64; SUBJECT_COUNTERS.len()],
}

impl Shared {
    /// Replaces the rules of all namespaces and users, whose subjects differ. The items of the
    /// store are counted again if the prefixes differ. Earlier counts stay.
    ///
    /// # Errors
    ///
    /// See [`RulesError`].
    pub fn set_rules(&self, rules: Vec<Rule>) -> Result<(), RulesError> {
        self.registry.replace(rules, |namespaces| {
            self.store().join().ok_or(RulesError::NoThread)?.set_namespaces(namespaces);
            Ok(())
        })
    }

    /// The numbers of each namespace and user, in the order of the rules; `None` before the first
    /// rules.
    #[must_use]
    pub fn subject_stats(&self) -> Option<Vec<SubjectStats>> {
        let rules = self.registry.rules()?;
        let stats = rules.entries.iter().map(|entry| SubjectStats {
            rule: entry.rule.clone(),
            items: self.store().namespace_stats(entry.number),
            counts: self.counts_of_subject(entry.number),
        });
        Some(stats.collect())
    }
}
