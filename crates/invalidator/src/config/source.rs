//! `[source]`: the database, its login, and the settings of each kind.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use changes::keys::Rules;
use serde::Deserialize;

use super::fault::{CHECK_EVERY_MS_MAX, ConfigError, Fault};
use crate::source::ssl_mode::SslMode;
use crate::source::{lines, mysql, postgres};

/// The database and its login.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The name that the checkpoint file is bound to.
    #[serde(default = "default_name")]
    pub name: String,
    /// The kind of database.
    pub kind: Kind,
    #[serde(default)]
    pub(super) servers: Vec<String>,
    #[serde(default)]
    pub(super) user: String,
    #[serde(default)]
    pub(super) password: Option<String>,
    #[serde(default)]
    pub(super) password_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) database: Option<String>,
    #[serde(default)]
    pub(super) slot: Option<String>,
    #[serde(default)]
    pub(super) publication: Option<String>,
    #[serde(default)]
    pub(super) sslmode: Option<SslMode>,
    #[serde(default)]
    pub(super) sslrootcert: Option<PathBuf>,
    #[serde(default)]
    pub(super) server_id: Option<u32>,
    #[serde(default)]
    pub(super) position: mysql::By,
    #[serde(default)]
    pub(super) unlogged_cascades: mysql::UnloggedCascades,
    #[serde(default = "check_every_ms")]
    pub(super) check_every_ms: u64,
    #[serde(default)]
    pub(super) listen: Option<String>,
    #[serde(default)]
    pub(super) old_rows: Option<lines::OldRows>,
    #[serde(default)]
    pub(super) schemas: Option<lines::Schemas>,
    #[serde(default)]
    pub(super) offsets_have_holes: Option<bool>,
}

/// The default interval of checks while the log is read.
const fn check_every_ms() -> u64 {
    60_000
}

fn default_name() -> String {
    "default".to_owned()
}

/// The kinds of databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// MariaDB's binary log.
    MariaDb,
    /// MySQL's binary log.
    MySql,
    /// PostgreSQL's logical replication.
    Postgresql,
    /// Lines of another program, in holdall's own form.
    Ndjson,
    /// Lines of another program, in Debezium's form.
    Debezium,
}

impl Source {
    /// Checks the settings that each kind of database needs.
    pub(super) fn values(&self, rules: &Rules) -> Result<(), Fault> {
        if !(1..=CHECK_EVERY_MS_MAX).contains(&self.check_every_ms) {
            return Err(Fault::CheckEvery);
        }
        self.lines_values()?;
        if self.is_lines() {
            if rules.comments {
                return Err(Fault::RuleOfDatabases("comments"));
            }
            if self.kind == Kind::Ndjson && rules.messages.is_some() {
                return Err(Fault::RuleOfDatabases("messages"));
            }
            return Ok(());
        }
        if self.kind == Kind::Postgresql {
            for (name, value) in [
                ("database", &self.database),
                ("slot", &self.slot),
                ("publication", &self.publication),
            ] {
                if value.as_deref().unwrap_or_default().is_empty() {
                    return Err(Fault::PostgresNeeds(name));
                }
            }
            if rules.comments {
                return Err(Fault::CommentsOfPostgres);
            }
            return Ok(());
        }
        if self.sslmode == Some(SslMode::VerifyCa) {
            return Err(Fault::VerifyCaOfMysql);
        }
        if rules.messages.is_some() {
            return Err(Fault::MessagesOfMysql);
        }
        if self.server_id.is_none_or(|id| id == 0) {
            return Err(Fault::ServerId);
        }
        if self.position == mysql::By::File && self.servers.len() > 1 {
            return Err(Fault::OffsetsOfSeveral);
        }
        Ok(())
    }

    fn password(&self) -> Result<String, ConfigError> {
        match (&self.password, &self.password_file) {
            (Some(password), _) => Ok(password.clone()),
            (None, Some(path)) => {
                let text =
                    fs::read_to_string(path).map_err(|error| ConfigError::new(path, error))?;
                Ok(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            (None, None) => Ok(String::new()),
        }
    }

    /// The settings for MariaDB and MySQL, with the password.
    pub(super) fn mysql(&self) -> Result<mysql::Settings, ConfigError> {
        Ok(mysql::Settings {
            servers: self.servers.clone(),
            user: self.user.clone(),
            password: self.password()?,
            sslmode: self.sslmode,
            sslrootcert: self.sslrootcert.clone(),
            server_id: self.server_id.unwrap_or_default(),
            by: self.position,
            unlogged_cascades: self.unlogged_cascades,
            check_every: Duration::from_millis(self.check_every_ms),
        })
    }

    /// The settings for PostgreSQL, with the password; `is_shared` if invalidators take turns.
    pub(super) fn postgres(&self, is_shared: bool) -> Result<postgres::Settings, ConfigError> {
        Ok(postgres::Settings {
            servers: self.servers.clone(),
            user: self.user.clone(),
            password: self.password()?,
            database: self.database.clone().unwrap_or_default(),
            slot: self.slot.clone().unwrap_or_default(),
            publication: self.publication.clone().unwrap_or_default(),
            sslmode: self.sslmode,
            sslrootcert: self.sslrootcert.clone(),
            check_every: Duration::from_millis(self.check_every_ms),
            is_shared,
        })
    }
}
