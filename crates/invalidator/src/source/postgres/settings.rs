//! The settings of a PostgreSQL source.

use std::path::PathBuf;
use std::time::Duration;

use crate::source::ssl_mode::SslMode;

/// The database and its login.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `host:port`, in the order in which they are tried.
    pub servers: Vec<String>,
    /// The user, which needs REPLICATION.
    pub user: String,
    /// The password.
    pub password: String,
    /// The database.
    pub database: String,
    /// The replication slot.
    pub slot: String,
    /// The publication, created by the operator, which selects the followed tables.
    pub publication: String,
    /// The encryption of the connection; if none, the server's address decides.
    pub sslmode: Option<SslMode>,
    /// The trusted issuers of servers' certificates, in PEM; Mozilla's list if it is `None`.
    pub sslrootcert: Option<PathBuf>,
    /// True if the slot's position belongs to a group of invalidators: confirmed changes were
    /// executed, so an older checkpoint of this invalidator does not count while the slot is the
    /// same.
    pub is_shared: bool,
    /// The interval of checks while the log is read.
    pub check_every: Duration,
}
