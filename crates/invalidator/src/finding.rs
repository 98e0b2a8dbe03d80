//! The findings of a check of a database's settings.

/// A fact about a server that an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// True when changes would be lost.
    pub is_fatal: bool,
    /// True when only the canary's row would be lost, on which nothing else depends.
    pub is_of_canary: bool,
    /// True for a replica whose replication does not run, which is followed only if no other server
    /// can be.
    pub(crate) is_stalled: bool,
    /// The fault and its remedy.
    pub text: String,
}

impl Finding {
    pub(crate) const fn fatal(text: String) -> Self {
        Self { is_fatal: true, is_of_canary: false, is_stalled: false, text }
    }

    /// A finding that loses nothing.
    pub(crate) const fn note(text: String) -> Self {
        Self { is_fatal: false, is_of_canary: false, is_stalled: false, text }
    }

    /// A note about a replica whose replication does not run.
    pub(crate) const fn stalled(text: String) -> Self {
        Self { is_fatal: false, is_of_canary: false, is_stalled: true, text }
    }

    /// This finding, marked as one of the canary's table if it is.
    pub(crate) fn of_canary(self, table: &str) -> Self {
        let text = format!(
            "canary: {}; its table is made by CREATE TABLE {table} (name VARCHAR(190) PRIMARY KEY, beat BIGINT NOT NULL)",
            self.text
        );
        Self { is_fatal: false, is_of_canary: true, is_stalled: false, text }
    }

    /// True for a finding that must be fixed.
    pub(crate) const fn is_fault(&self) -> bool {
        self.is_fatal || self.is_of_canary
    }

    /// This finding with the server's name in front.
    pub(crate) fn of(self, server: &str) -> Self {
        Self { text: format!("{server}: {}", self.text), ..self }
    }
}
