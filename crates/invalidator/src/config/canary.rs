//! The table `[canary]` of the configuration.

use std::time::Duration;

use changes::canary_rule::CanaryRule;
use changes::keys::{KEY_BYTES_MAX, Rules, is_plain};
use serde::Deserialize;

use super::{Fault, Kind, Source};

/// The table as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Canary {
    table: Option<String>,
    servers: Vec<String>,
    every_ms: u64,
    name: Option<String>,
    prefixes: Vec<String>,
    keys: u32,
}

impl Default for Canary {
    fn default() -> Self {
        Self {
            table: None,
            servers: Vec::new(),
            every_ms: 2000,
            name: None,
            prefixes: vec!["holdall-canary:".to_owned()],
            keys: 16,
        }
    }
}

/// The shortest and the longest interval.
const EVERY_MS: std::ops::RangeInclusive<u64> = 100..=600_000;

/// Maximum number of keys per prefix.
const KEYS_MAX: u32 = 1000;

/// The bytes of a key in addition to its prefix and the canary's name.
const NUMBERS_BYTES: usize = ":999|#|18446744073709551615".len();

impl Canary {
    pub(super) const fn every(&self) -> Duration {
        Duration::from_millis(self.every_ms)
    }

    /// The servers to write to.
    pub(super) fn servers(&self, source: &Source) -> Vec<String> {
        if self.servers.is_empty() { source.servers.clone() } else { self.servers.clone() }
    }

    pub(super) fn rule(&self, source: &Source) -> CanaryRule {
        let own = || match &source.slot {
            Some(slot) => format!("{}-{slot}", source.name),
            None => format!("{}-{}", source.name, source.server_id.unwrap_or_default()),
        };
        CanaryRule {
            table: self.table.clone(),
            name: self.name.clone().unwrap_or_else(own),
            prefixes: self.prefixes.clone(),
            keys: self.keys,
        }
    }

    pub(super) fn values(&self, source: &Source, rules: &Rules) -> Result<(), Fault> {
        let rule = self.rule(source);
        match &rule.table {
            None if source.kind != Kind::Postgresql => return Err(Fault::CanaryNeedsTable),
            Some(table) if !table.contains('.') => {
                return Err(Fault::TableName("canary.table", table.clone()));
            }
            Some(table) => {
                let is_outbox = rules.outbox.as_ref().is_some_and(|one| one.table == *table);
                if is_outbox || rules.tables.contains_key(table) {
                    return Err(Fault::CanaryTableTaken(table.clone()));
                }
            }
            None => {}
        }
        // PostgreSQL's standbys refuse writes.
        if source.kind != Kind::Postgresql && self.servers(source).len() > 1 {
            return Err(Fault::CanaryServers);
        }
        if !EVERY_MS.contains(&self.every_ms) {
            return Err(Fault::CanaryNumber("every_ms", *EVERY_MS.start(), *EVERY_MS.end()));
        }
        if !(1..=KEYS_MAX).contains(&self.keys) {
            return Err(Fault::CanaryNumber("keys", 1, u64::from(KEYS_MAX)));
        }
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if rule.name.is_empty() || !rule.name.chars().all(is_letter) {
            return Err(Fault::CanaryName(rule.name));
        }
        let is_prefix = |prefix: &String| {
            let bytes = prefix.len() + rule.name.len() + NUMBERS_BYTES;
            is_plain(prefix.as_bytes()) && bytes <= KEY_BYTES_MAX
        };
        if self.prefixes.is_empty() {
            return Err(Fault::CanaryPrefix(String::new()));
        }
        match self.prefixes.iter().find(|prefix| !is_prefix(prefix)) {
            Some(prefix) => Err(Fault::CanaryPrefix(prefix.clone())),
            None => Ok(()),
        }
    }
}
