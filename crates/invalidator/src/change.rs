//! What a database's log says, whichever database it is: changes, and where transactions end.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::gtid::Uuid;
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
        /// What kind of message, as the application named it.
        prefix: String,
        /// Its bytes.
        content: Bytes,
    },
    /// A row was inserted (no `before`), deleted (no `after`) or updated.
    Row {
        /// The table, as it was then.
        table: Arc<Table>,
        /// The row before.
        before: Option<Row>,
        /// The row after.
        after: Option<Row>,
    },
    /// A statement, where the log keeps statements.
    Statement {
        /// The database that was the default one, which table names without a schema refer to.
        schema: String,
        /// Its text.
        text: String,
    },
    /// All rows of these tables are gone, which are not named in the log.
    Emptied {
        /// Names of tables, `schema.name`.
        tables: Vec<String>,
    },
}

/// By what a [`Witness`] recognises a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// By nothing: whether others see it cannot be told.
    Unknown,
    /// The lower half of PostgreSQL's transaction number.
    Xid(u32),
    /// Its end in a binary log.
    End {
        /// The binary log's name.
        file: String,
        /// Bytes from its beginning.
        offset: u64,
    },
    /// MySQL's transaction identifier.
    Gtid {
        /// The server that committed first.
        server: Uuid,
        /// Its number there.
        number: u64,
    },
    /// The end of a prepared transaction: it is marked as others are, and a moment before others see it.
    Prepared(Box<Self>),
}

/// What a source says next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A change of the transaction that is being read.
    Change(Change),
    /// The transaction that was being read is committed.
    Commit {
        /// Where to go on after it.
        position: Position,
        /// When it was committed, in microseconds since 1970; of the database's clock.
        committed_us: u64,
        /// By what it is recognised among those that other sessions see.
        mark: Mark,
    },
    /// The transaction that was being read is undone.
    Rollback,
    /// The transaction that was being read is prepared: whether it is committed is said later, under its name.
    Prepare {
        /// The transaction's name.
        xid: String,
        /// Where to go on after it, were it not for this transaction.
        position: Position,
    },
    /// A prepared transaction ends.
    Finish {
        /// The transaction's name.
        xid: String,
        /// True when it is committed.
        is_committed: bool,
        /// Where to go on after it.
        position: Position,
        /// As in [`Event::Commit`].
        committed_us: u64,
        /// The same.
        mark: Mark,
    },
    /// The database has nothing to say, and is there.
    Alive,
    /// Nothing of ours until here.
    Idle {
        /// Where to go on.
        position: Position,
    },
    /// A part of the log cannot be understood, so what changed there is not known.
    Gap {
        /// What happened, and what can be done.
        why: String,
    },
}

/// Why a source does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceError {
    /// The connection is gone or was refused: worth another try, here or at the next server.
    Lost(String),
    /// The log does not reach back to the wanted position.
    Purged(String),
    /// What no repetition changes: credentials, rights, settings.
    Wrong(String),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(why) | Self::Purged(why) | Self::Wrong(why) => f.write_str(why),
        }
    }
}

/// An ordinary session of the database, which tells what other sessions see.
///
/// A log shows a commit before the database shows it to others: MariaDB and MySQL write the binary log, wait for replicas
/// (`AFTER_SYNC`) and then commit in the engine; PostgreSQL writes its log, waits for synchronous standbys and then leaves the list of
/// those that run.
pub trait Witness: Send {
    /// Looks at what is visible now.
    ///
    /// # Errors
    ///
    /// When the database does not say.
    fn look(&mut self) -> impl Future<Output = Result<(), String>> + Send;

    /// True when the commit was visible at the last look; none where this database cannot tell.
    fn saw(&self, mark: &Mark) -> Option<bool>;
}

/// The log of a database, from a position on.
///
/// The pipeline owns one and calls it from one task; it never calls back.
pub trait ChangeSource: Send {
    /// A session at the server that is followed.
    type Witness: Witness;

    /// Connects and goes to `from`, or to the log's present end where that is none. Answers where it stands. What was read of an
    /// unfinished transaction before is forgotten, and will be said again.
    ///
    /// # Errors
    ///
    /// When no server of those configured lets itself be followed from there.
    fn open(
        &mut self,
        from: Option<&Position>,
    ) -> impl Future<Output = Result<Position, SourceError>> + Send;

    /// The next event. After an error [`Self::open`] comes first.
    ///
    /// # Errors
    ///
    /// When the log cannot be read on.
    fn next(&mut self) -> impl Future<Output = Result<Event, SourceError>> + Send;

    /// A session at the server whose log is open, which connects when it looks first.
    fn witness(&self) -> Self::Witness;

    /// How many bytes of log the database has beyond what was read; none when it is not known.
    fn behind_bytes(&self) -> Option<u64>;

    /// Everything until here was delivered, so the database need not keep it for us.
    fn confirm(&mut self, position: &Position);
}
