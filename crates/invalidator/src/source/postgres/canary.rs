//! Writes the canary's row, or its message, to PostgreSQL.

use changes::canary_rule::{CanaryRule, MESSAGE_PREFIX};

use super::connection::{Connection, identifier, literal};
use super::failure::Failure;
use super::settings::Settings;
use crate::change_source::{CanaryWriter, SourceError};

/// A session at the first server that accepts writes.
#[derive(Debug)]
pub struct PostgresCanary {
    settings: Settings,
    rule: CanaryRule,
    session: Option<Connection>,
}

impl PostgresCanary {
    /// A writer of the row or message of `rule`, at one of the servers of `settings`.
    #[must_use]
    pub const fn new(settings: Settings, rule: CanaryRule) -> Self {
        Self { settings, rule, session: None }
    }

    fn statement(&self, beat: u64) -> String {
        let name = literal(&self.rule.name);
        let Some(table) = &self.rule.table else {
            let (prefix, message) = (literal(MESSAGE_PREFIX), literal(&self.rule.message(beat)));
            return format!("SELECT pg_logical_emit_message(true, {prefix}, {message})");
        };
        let table = table.split('.').map(identifier).collect::<Vec<_>>().join(".");
        format!(
            "INSERT INTO {table} (name, beat) VALUES ({name}, {beat}) \
             ON CONFLICT (name) DO UPDATE SET beat = EXCLUDED.beat"
        )
    }

    async fn write_at(&mut self, server: &str, statement: &str) -> Result<(), Failure> {
        // A session that fails is dropped.
        let mut session = match self.session.take() {
            Some(session) => session,
            None => Connection::open(&self.settings, server, false).await?,
        };
        session.rows(statement).await?;
        self.session = Some(session);
        Ok(())
    }
}

impl CanaryWriter for PostgresCanary {
    async fn write(&mut self, beat: u64) -> Result<(), SourceError> {
        let statement = self.statement(beat);
        let mut refused = SourceError::Lost("no server is named".to_owned());
        for _ in 0..self.settings.servers.len() {
            let Some(server) = self.settings.servers.first().cloned() else { break };
            match self.write_at(&server, &statement).await {
                Ok(()) => return Ok(()),
                Err(failure) => refused = failure.at(&server),
            }
            // For example a standby: from now on, the next server is asked first.
            self.settings.servers.rotate_left(1);
        }
        Err(refused)
    }
}
