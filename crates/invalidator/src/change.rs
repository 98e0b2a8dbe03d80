//! The common form of all database logs: changes, and the ends of transactions.

use std::sync::Arc;

use bytes::Bytes;

use crate::gtid::Origin;
use crate::position::Position;

/// A table as the log describes it at one moment.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// `schema.name`, as declared in the configuration.
    pub name: String,
    /// Names of its columns, in the order in which rows give them.
    pub columns: Vec<String>,
}

/// One column's value in a row image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// The image does not carry this column.
    Absent,
    /// SQL's NULL.
    Null,
    /// The value, as its text.
    Text(Bytes),
    /// The log carries a value of a type that has no one text.
    Unprintable,
}

/// A row image: one cell for each column of its table.
pub type Row = Vec<Cell>;

/// One change inside a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A message that the application wrote into the log (`pg_logical_emit_message`).
    Message {
        /// The kind of message, as the application named it.
        prefix: String,
        /// Its bytes.
        content: Bytes,
    },
    /// The keys that the sender of a change named.
    Keys(Vec<Bytes>),
    /// A row was inserted (no `before`), deleted (no `after`) or updated.
    Row {
        /// The table, as it was then.
        table: Arc<Table>,
        /// The row before.
        before: Option<Row>,
        /// The row after.
        after: Option<Row>,
    },
    /// A statement.
    Statement {
        /// The keys that its comments name.
        keys: Vec<Bytes>,
        /// Its effect on rows that the log does not carry.
        effect: Effect,
        /// Its text, or the beginning of it.
        text: String,
    },
}

/// The effect of a statement on rows that it does not name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It is known to leave rows as they are, or the log carries them.
    None,
    /// It changes rows of some table.
    Rows,
    /// It empties, removes, swaps or rewrites these tables, `schema.name`.
    Tables(Vec<String>),
    /// It removes every table of this database.
    Database(String),
    /// It is not understood.
    Unknown,
}

/// Identifies a commit to a [`VisibilityProbe`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// The database cannot report whether other sessions see it.
    Unknown,
    /// The lower half of PostgreSQL's transaction number.
    Xid(u32),
    /// The end of the transaction in a binary log.
    End {
        /// The binary log's name.
        file: String,
        /// Bytes from its beginning.
        offset: u64,
    },
    /// MySQL's transaction identifier.
    Gtid {
        /// The server that committed first, and the tag.
        origin: Origin,
        /// Its number there.
        number: u64,
    },
    /// The end of a prepared transaction, which probes report a moment before others see it.
    Prepared(Box<Self>),
}

/// The next event of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A change of the transaction that is being read.
    Change(Change),
    /// The transaction that was being read is committed.
    Commit {
        /// The position after it.
        position: Position,
        /// Commit time, in microseconds since 1970; of the database's clock.
        committed_us: u64,
        /// Identifies the commit to a [`VisibilityProbe`].
        mark: Mark,
    },
    /// The transaction that was being read is rolled back.
    Rollback,
    /// The transaction that was being read is prepared; [`Event::Finish`] ends it by its name.
    Prepare {
        /// The transaction's name.
        xid: String,
        /// The position after it, disregarding this transaction.
        position: Position,
    },
    /// A prepared transaction ends.
    Finish {
        /// The transaction's name.
        xid: String,
        /// True when it is committed.
        is_committed: bool,
        /// The position after it.
        position: Position,
        /// Commit time, in microseconds since 1970; of the database's clock.
        committed_us: u64,
        /// Identifies the commit to a [`VisibilityProbe`].
        mark: Mark,
    },
    /// A heartbeat: the database is there and has no news.
    Alive,
    /// Nothing of interest up to here.
    Idle {
        /// The position to continue from.
        position: Position,
    },
    /// The log may lack changes since the last check, and reading it again does not show that.
    Lacking {
        /// The cause, and a remedy.
        why: String,
    },
    /// A part of the log cannot be understood, so what changed there is not known.
    Gap {
        /// The cause, and a remedy.
        why: String,
    },
}

/// The reason why a source stops.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The connection broke or was refused; try again, here or at the next server.
    #[error("{0}")]
    Lost(String),
    /// The log does not reach back to the wanted position.
    #[error("{0}")]
    Purged(String),
    /// A fault that a retry does not mend: credentials, rights, settings.
    #[error("{0}")]
    Wrong(String),
    /// Nothing more will come, as the end of a file says.
    #[error("the input ended")]
    Over,
}

/// An ordinary session of the database that reports which commits other sessions see.
///
/// A log shows a commit before the database shows it to others: MariaDB and MySQL write the binary
/// log, wait for replicas (`AFTER_SYNC`) and then commit in the engine; PostgreSQL writes its log,
/// waits for synchronous standbys and then leaves the list of those that run.
pub trait VisibilityProbe: Send {
    /// Asks the database what is visible now.
    ///
    /// # Errors
    ///
    /// The reason when the database gives no usable answer.
    fn refresh(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// True if the commit was visible at the last refresh; none if this database cannot report it.
    fn is_visible(&self, mark: &Mark) -> Option<bool>;
}

/// An ordinary session of the database that writes the canary's row or message.
pub trait CanaryWriter: Send {
    /// Writes a beat and commits.
    ///
    /// # Errors
    ///
    /// When no server took it, as far as is known.
    fn write(&mut self, beat: u64) -> impl Future<Output = Result<(), SourceError>> + Send;
}

/// The room that a database's log has before it is removed unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRoom {
    /// Bytes that may still be written.
    pub bytes: u64,
    /// True when less than a quarter is left.
    pub is_short: bool,
}

/// The log of a database, from a position on.
///
/// The pipeline owns one and calls it from one task; it never calls back.
pub trait ChangeSource: Send {
    /// A probe at the server that is followed.
    type Probe: VisibilityProbe;

    /// Connects and seeks to `from`, or to the log's present end if it is none. Returns the
    /// position. Forgets what was read of an unfinished transaction; it will be read again.
    ///
    /// # Errors
    ///
    /// When none of the configured servers can be followed from there.
    fn open(
        &mut self,
        from: Option<&Position>,
    ) -> impl Future<Output = Result<Position, SourceError>> + Send;

    /// The next event. After an error [`Self::open`] comes first.
    ///
    /// # Errors
    ///
    /// When the log cannot be read any further.
    fn next(&mut self) -> impl Future<Output = Result<Event, SourceError>> + Send;

    /// A probe at the server whose log is open; it connects at its first refresh.
    fn probe(&self) -> Self::Probe;

    /// Bytes of log that the database has beyond what was read; none if unknown.
    fn behind_bytes(&self) -> Option<u64>;

    /// The room before the database removes log that was not delivered; none if there is no limit,
    /// or it is not known.
    fn log_room(&self) -> Option<LogRoom> {
        None
    }

    /// Findings of checks that lose no changes and that the checks before them did not have; each
    /// is answered once.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Everything up to here was delivered, so the database need not keep its log for us.
    fn confirm(&mut self, position: &Position);
}
