//! The common form of all database logs: changes, and the ends of transactions.

use std::sync::Arc;

use bytes::Bytes;

use crate::gtid::Origin;
use crate::position::Position;

/// A table as the log describes it at one time.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// `schema.name`, as declared in the configuration.
    pub name: String,
    /// Names of its columns, in the order of rows.
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
    /// The log has a value of a type without a unique text.
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
        /// Its text, or the start of it.
        text: String,
    },
}

/// The effect of a statement on rows that it does not name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It is known to leave rows unchanged, or the log carries them.
    None,
    /// It changes rows of some table.
    Rows,
    /// It changes rows of some table, and the log does not have its comments.
    RowsWithoutComments,
    /// It empties, removes, swaps or rewrites these tables, `schema.name`.
    Tables(Vec<String>),
    /// It removes every table of this database.
    Database(String),
    /// Its effect is unknown.
    Unknown,
}

/// Identifies a commit, to query whether other sessions of the database see it.
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
        /// Bytes from its start.
        offset: u64,
    },
    /// MySQL's transaction identifier.
    Gtid {
        /// The server that committed first, and the tag.
        origin: Origin,
        /// Its number there.
        number: u64,
    },
    /// The end of a prepared transaction, which the database reports shortly before others see it.
    Prepared(Box<Self>),
}

/// The next event of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A change of the current transaction.
    Change(Change),
    /// The current transaction is committed.
    Commit {
        /// The position after it.
        position: Position,
        /// Commit time, in microseconds since 1970, by the database's clock.
        committed_us: u64,
        /// Identifies the commit, to query whether other sessions see it.
        mark: Mark,
    },
    /// The current transaction is rolled back.
    Rollback,
    /// The current transaction is prepared; [`Event::Finish`] ends it by its name.
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
        /// Commit time, in microseconds since 1970, by the database's clock.
        committed_us: u64,
        /// Identifies the commit, to query whether other sessions see it.
        mark: Mark,
    },
    /// A heartbeat: the database is up and has no news.
    Alive,
    /// There are no relevant changes up to here.
    Idle {
        /// The position to continue from.
        position: Position,
    },
    /// The log may lack changes since the last check, and reading it again does not show that.
    Lacking {
        /// The cause, and a remedy.
        why: String,
    },
    /// A part of the log is unreadable, so its changes are unknown.
    Gap {
        /// The cause, and a remedy.
        why: String,
    },
}
