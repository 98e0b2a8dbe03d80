//! The lock of a group of invalidators at a server of MariaDB or MySQL: a user-level lock.

use super::Settings;
use super::server::Server;
use crate::change_source::SourceError;
use crate::standby::LockSession;

/// A session that may have the lock.
#[derive(Debug)]
pub struct MysqlLock {
    server: Server,
    name: String,
}

impl LockSession for MysqlLock {
    type Settings = Settings;

    async fn open(settings: &Settings, server: &str, group: &str) -> Result<Self, SourceError> {
        let mut server = Server::connect(settings, server).await?;
        server.set(&format!("SET SESSION wait_timeout = {}", Self::SILENCE_MAX)).await?;
        Ok(Self { server, name: format!("holdall:{group}") })
    }

    async fn take(&mut self) -> Result<bool, SourceError> {
        let name = &self.name;
        // A second GET_LOCK would count how often this session took it.
        let query = format!(
            "SELECT IF(IS_USED_LOCK('{name}') = CONNECTION_ID(), 1, GET_LOCK('{name}', 0))"
        );
        Ok(self.server.text(&query).await? == "1")
    }
}
