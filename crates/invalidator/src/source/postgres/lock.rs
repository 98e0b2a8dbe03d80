//! The lock of a group of invalidators at a server of PostgreSQL: an advisory lock of a session.

use super::connection::{Connection, literal};
use super::failure::Failure;
use super::settings::Settings;
use crate::change_source::SourceError;
use crate::standby::LockSession;

/// A session that may have the lock.
#[derive(Debug)]
pub struct PostgresLock {
    session: Connection,
    server: String,
    /// The lock's name as SQL writes it.
    name: String,
    has_it: bool,
}

impl PostgresLock {
    async fn connect(settings: &Settings, server: &str) -> Result<Connection, Failure> {
        let mut session = Connection::open(settings, server, false).await?;
        let seconds = Self::SILENCE_MAX;
        let silence = format!("SET idle_session_timeout = '{seconds}s'");
        match session.rows(&silence).await {
            Ok(_) => {}
            // PostgreSQL 13 and older: the kernel detects a lost host.
            Err(Failure::Refused { .. }) => {
                let probes = "SET tcp_keepalives_idle = 1; SET tcp_keepalives_interval = 1; \
                              SET tcp_keepalives_count = 3";
                session.rows(probes).await?;
            }
            Err(failure) => return Err(failure),
        }
        Ok(session)
    }
}

impl LockSession for PostgresLock {
    type Settings = Settings;

    async fn open(settings: &Settings, server: &str, group: &str) -> Result<Self, SourceError> {
        let session = Self::connect(settings, server).await;
        let session = session.map_err(|failure| failure.at(server))?;
        let (server, name) = (server.to_owned(), literal(&format!("holdall:{group}")));
        Ok(Self { session, server, name, has_it: false })
    }

    async fn take(&mut self) -> Result<bool, SourceError> {
        // A session that holds it keeps it until its end.
        let query = match self.has_it {
            true => "SELECT 'true'".to_owned(),
            false => {
                format!("SELECT pg_try_advisory_lock(hashtextextended({}, 0))::text", self.name)
            }
        };
        let answer = self.session.text(&query).await;
        self.has_it = answer.map_err(|failure| failure.at(&self.server))? == "true";
        Ok(self.has_it)
    }
}
