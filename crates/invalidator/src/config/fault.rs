//! The faults of a configuration file.

use std::io;
use std::path::{Path, PathBuf};

use changes::template::BadTemplate;
use toml::de::{DeTable, DeValue};

/// The maximum number of keys or bytes in a setting.
pub(super) const NUMBER_MAX: u32 = u32::MAX / 2;

/// The longest interval of checks while the log is read: a day.
pub(super) const CHECK_EVERY_MS_MAX: u64 = 86_400_000;

/// The reason why a file is not a valid configuration.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct ConfigError {
    /// The file, or one that it names; with line and column if known.
    place: String,
    fault: Fault,
}

impl ConfigError {
    pub(super) fn new(path: &Path, fault: impl Into<Fault>) -> Self {
        Self { place: path.display().to_string(), fault: fault.into() }
    }

    /// The error at the faulty line of the file's text.
    pub(super) fn within(path: &Path, text: &str, fault: impl Into<Fault>) -> Self {
        let mut error = Self::new(path, fault);
        let byte = match &error.fault {
            Fault::Syntax(error) => error.span().map(|span| span.start),
            other => setting(text, &other.to_string()),
        };
        if let Some(byte) = byte {
            let (line, column) = files::place(text, byte);
            error.place = format!("{}:{line}:{column}", error.place);
        }
        error
    }
}

/// The byte position of the setting whose name, such as `delivery.batch_keys`, starts a fault.
fn setting(text: &str, fault: &str) -> Option<usize> {
    // Faults that start with a cluster's name have no position: several tables share one header.
    let (name, _) = fault.split_once(": ")?;
    let table = DeTable::parse(text).ok()?;
    let (mut table, mut byte) = (table.get_ref(), None);
    for part in name.split('.') {
        let (key, value) = table.iter().find(|(key, _)| key.get_ref() == part)?;
        byte = Some(key.span().start);
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    byte
}

/// The fault of a configuration.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not TOML, or has a setting that does not exist.
    #[error("{}", .0.message().trim_end().replace('\n', ", "))]
    Syntax(#[from] toml::de::Error),
    /// No setting says which keys to delete.
    #[error("keys: name at least one of comments, outbox, tables or messages")]
    NoKeys,
    /// There is no cluster.
    #[error("name at least one [[cluster]]")]
    NoCluster,
    /// A cluster has no routers.
    #[error("cluster '{0}': it has no routers")]
    NoRouters(String),
    /// A cluster's name is empty or has other characters.
    #[error("cluster '{0}': a name has letters, digits, '-', '_' and '.'")]
    ClusterName(String),
    /// Two clusters have the same name.
    #[error("cluster '{0}' is named twice")]
    ClusterTwice(String),
    /// There is no database server.
    #[error("source.servers: name at least one")]
    NoServers,
    /// A number is out of range.
    #[error("delivery.{0}: from 1 to {max}", max = NUMBER_MAX)]
    Number(&'static str),
    /// A transaction may be larger than the disk's share.
    #[error(
        "delivery.spool_bytes_max: at least {0}, which is transaction_bytes_max, since a transaction \
         is stored whole; lower that, too, or write 0 for no disk"
    )]
    SmallSpool(u64),
    /// A table's name has no schema.
    #[error("{0}: write '{1}' as \"database.table\"")]
    TableName(&'static str, String),
    /// A template cannot be read.
    #[error(transparent)]
    Template(#[from] BadTemplate),
    /// No key can start with a prefix.
    #[error("delivery.prefixes: '{0}' cannot be the beginning of a key")]
    Prefix(String),
    /// Keys may start with anything.
    #[error(
        "on_gap = \"prefixes\": how keys of comments, messages, lines and the outbox begin is not known: \
         name it in delivery.prefixes"
    )]
    NoPrefixes,
    /// A template's keys have no usable prefix.
    #[error(
        "on_gap = \"prefixes\": template '{0}' begins with a column, or with what no prefix can carry"
    )]
    TemplatePrefix(String),
    /// A setting has no meaning for this kind of source.
    #[error("source.{0}: it means nothing for this kind of source")]
    OtherKind(&'static str),
    /// A canary or a standby without a database.
    #[error("[canary] and [standby] need a database, which a source of lines is not")]
    NoDatabase,
    /// Lines have no comments, and lines in holdall's own form no messages.
    #[error("keys.{0}: a source of lines has none")]
    RuleOfDatabases(&'static str),
    /// A setting is missing.
    #[error("source.{0}: PostgreSQL needs it")]
    PostgresNeeds(&'static str),
    /// Keys in statements, from PostgreSQL.
    #[error("keys.comments: PostgreSQL's log has no statements; use messages")]
    CommentsOfPostgres,
    /// Keys in messages, from MariaDB or MySQL.
    #[error("keys.messages: only PostgreSQL has messages in its log")]
    MessagesOfMysql,
    /// MariaDB and MySQL identify replicas by a number.
    #[error(
        "source.server_id: give it a number above 0 that no replica and no other invalidator has"
    )]
    ServerId,
    /// Offsets in files, with several servers.
    #[error(
        "source.position = \"file\": offsets mean something on one server only, so name one, or use \"gtid\""
    )]
    OffsetsOfSeveral,
    /// The driver compares the name whenever it verifies a certificate.
    #[error(
        "source.sslmode: \"verify-ca\" is for PostgreSQL; MariaDB and MySQL have \"verify-full\""
    )]
    VerifyCaOfMysql,
    /// TLS that an attacker on the path can turn off, where nothing requires it.
    #[error("routers.sslmode: \"disable\", \"require\", \"verify-ca\" or \"verify-full\"")]
    PreferOfRouters,
    /// One of two settings that belong together is missing.
    #[error("routers: {0} and {1} go together")]
    RoutersNeed(&'static str, &'static str),
    /// A file of certificates cannot be used.
    #[error(transparent)]
    Certs(Box<certs::CertsError>),
    /// Checks without a pause.
    #[error("source.check_every_ms: from 1 to {max}", max = CHECK_EVERY_MS_MAX)]
    CheckEvery,
    /// A canary without messages needs a row.
    #[error("canary.table: MariaDB and MySQL have no messages in their log, so name a table")]
    CanaryNeedsTable,
    /// The canary's table has rows of the application.
    #[error("canary.table: keys are made of rows of {0}; give the canary a table of its own")]
    CanaryTableTaken(String),
    /// The canary's row would be written to replicas.
    #[error(
        "canary.servers: name the one server that takes writes; a row that is written to a replica stays there alone"
    )]
    CanaryServers,
    /// A number of the canary is out of range.
    #[error("canary.{0}: from {1} to {2}")]
    CanaryNumber(&'static str, u64, u64),
    /// The canary's name has other characters.
    #[error("canary.name: '{0}' must have letters, digits, '-', '_' and '.' alone")]
    CanaryName(String),
    /// No key can start with a prefix.
    #[error("canary.prefixes: '{0}' is too long for a key, or cannot be the beginning of one")]
    CanaryPrefix(String),
    /// The group's name is too long or has other characters.
    #[error("standby.group: '{0}' must have 1 to 48 letters, digits, '-', '_' and '.' alone")]
    GroupName(String),
    /// Another invalidator's status port.
    #[error("standby.peers: '{0}' is no address:port")]
    Peer(String),
    /// The others could not query the position of this one.
    #[error(
        "standby.peers: name this invalidator's own port for the others, too: status = \"ADDRESS:PORT\""
    )]
    PeersWithoutStatus,
    /// Deletes wait on the disk, and no cluster would deliver them.
    #[error(
        "spool {}: deletes of {records} transactions wait there, and {why}; or give them up: \
         remove the folder and run `holdall invalidate flush`",
        folder.display()
    )]
    LeftOver {
        /// The folder.
        folder: PathBuf,
        /// The records in it.
        records: u64,
        /// The reason, and the remedy.
        why: String,
    },
    /// The checkpoint has a position of another kind of database.
    #[error(
        "source.kind: a checkpoint is valid for one kind of database: stop the invalidator, \
         and start the new one with a checkpoint of its own"
    )]
    AnotherKind,
    /// A reload would start without a position.
    #[error(
        "checkpoint: {} does not exist, and without a position changes would be skipped: stop the \
         invalidator, move {} there, and start it",
        to.display(),
        from.display()
    )]
    NoCheckpointThere {
        /// The running invalidator's file.
        from: PathBuf,
        /// The file that is configured now.
        to: PathBuf,
    },
    /// The folder of a cluster's spool cannot be used.
    #[error("spool {}/{cluster}: {error}", folder.display())]
    Spool {
        /// The folder of all spools.
        folder: PathBuf,
        /// The cluster.
        cluster: String,
        /// The system's error.
        error: io::Error,
    },
}
