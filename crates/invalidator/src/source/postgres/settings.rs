//! The settings of a PostgreSQL source.

use std::path::PathBuf;
use std::time::Duration;

use crate::source::ssl_mode::SslMode;

/// The database, and the login there.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `host:port`, in the order in which they are tried.
    pub servers: Vec<String>,
    /// The user, who needs REPLICATION.
    pub user: String,
    /// The password.
    pub password: String,
    /// The database.
    pub database: String,
    /// The replication slot.
    pub slot: String,
    /// The publication, which the operator makes: it says which tables are followed.
    pub publication: String,
    /// The encryption of the connection; none for what the server's address asks for.
    pub sslmode: Option<SslMode>,
    /// The trusted issuers of servers' certificates, in PEM; Mozilla's list if it is `None`.
    pub sslrootcert: Option<PathBuf>,
    /// True where the slot's position is that of a group of invalidators: what it confirmed was
    /// executed, so a checkpoint of this invalidator that is older does not count.
    pub is_shared: bool,
    /// The interval of checks while the log is read.
    pub check_every: Duration,
}
