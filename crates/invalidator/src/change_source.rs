//! A source of changes as the pipeline sees it: the log, a session that reports visible commits,
//! and a session that writes the canary's beats.

use changes::change::{Event, Mark};
use changes::position::Position;

use crate::checks::Checks;

/// The reason why a source stops.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The connection broke or was refused; retry here or at the next server.
    #[error("{0}")]
    Lost(String),
    /// The connection ended after delivering everything it had; another continues after that and
    /// need not repeat it.
    #[error("{0}")]
    Ended(String),
    /// The log does not reach back to the wanted position.
    #[error("{0}")]
    Purged(String),
    /// The check of a server that could be reached failed, and a retry does not fix it. The log may
    /// lack changes until the check succeeds.
    #[error("{0}")]
    Lacking(String),
    /// A fault that a retry does not fix: credentials, rights, settings.
    #[error("{0}")]
    Wrong(String),
    /// Nothing more will come, for example at the end of a file.
    #[error("the input ended")]
    Over,
}

impl SourceError {
    /// The same as the failure of a check.
    pub(crate) fn of_check(self) -> Self {
        match self {
            Self::Wrong(why) => Self::Lacking(why),
            other => other,
        }
    }
}

/// An ordinary session of the database that reports which commits are visible to other sessions.
///
/// A log shows a commit before the database shows it to others: MariaDB and MySQL write the binary
/// log, wait for replicas (`AFTER_SYNC`) and then commit in the engine; PostgreSQL writes its log,
/// waits for synchronous standbys and then leaves the list of those that run.
pub trait VisibilityProbe: Send {
    /// Asks the database which commits are visible now.
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
    /// When no server is known to have accepted it.
    fn write(&mut self, beat: u64) -> impl Future<Output = Result<(), SourceError>> + Send;
}

/// The log of a database, from a given position.
///
/// The pipeline owns one and calls it from one task; it never calls back.
pub trait ChangeSource: Send {
    /// A probe at the followed server.
    type Probe: VisibilityProbe;

    /// Connects and seeks to `from`, or to the log's current end if it is none. Returns the
    /// position. Discards the read part of an unfinished transaction; it will be read again.
    ///
    /// # Errors
    ///
    /// When none of the configured servers can be followed from there.
    fn open(
        &mut self,
        from: Option<&Position>,
    ) -> impl Future<Output = Result<Position, SourceError>> + Send;

    /// The next event. After an error, [`Self::open`] must be called first.
    ///
    /// # Errors
    ///
    /// When the log can be read no further.
    fn next(&mut self) -> impl Future<Output = Result<Event, SourceError>> + Send;

    /// A probe at the server whose log is open; it connects at its first refresh.
    fn probe(&self) -> Self::Probe;

    /// Bytes of log in the database that were not read yet; none if unknown.
    fn behind_bytes(&self) -> Option<u64>;

    /// The name of the server whose log is open; none if there is no server to name.
    fn server(&self) -> Option<&str> {
        None
    }

    /// The checks of the server whose log is open; none if there is nothing to check.
    fn checks(&self) -> Option<Checks> {
        None
    }

    /// The reason why a log that was followed before may lack changes, if no log was read after
    /// that.
    fn lacking(&self) -> Option<String> {
        None
    }

    /// Everything up to this position of the open log was delivered, so the database need not keep
    /// that log for us.
    fn confirm(&mut self, position: &Position);

    /// Everything up to this position of the open log was executed. The others of a group may not
    /// know it yet, so a database whose log they share keeps the log, unless it shuts down.
    fn delivered(&mut self, _position: &Position) {}
}
