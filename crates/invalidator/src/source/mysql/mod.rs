//! The binary log of MariaDB and MySQL.
//!
//! `mysql_async` handles the wire protocol and leaves some parts to its user, which are here:
//! MariaDB's transaction identifiers and compressed events, which it skips silently, checksums,
//! which it does not compare, and the checks without which changes would vanish.
//!
//! ```text
//!     Server (connects, checks, asks for the log) -> BinlogStream -> Decoder (events)
//!         -> Rows (images)
//! ```

mod canary;
mod check;
mod compressed;
mod decode;
mod domains;
mod event_type;
mod lag;
mod lock;
mod log_files;
mod offset;
mod probe;
#[cfg(test)]
mod replay_tests;
mod rows;
mod server;
pub mod setup;
mod statement;
mod tls;
mod unfinished;

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use changes::change::{Effect, Event};
use changes::keys::Rules;
use changes::position::Position;
use futures_core::Stream as _;
use mysql_async::{BinlogStream, DriverError, Error, IoError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::change_source::{ChangeSource, SourceError};
use crate::checks::Checks;
use crate::finding::Finding;
use crate::notes::Notes;
use crate::source::recheck::{Checked, Recheck};
use crate::source::rotation::{Attempts, Rotation};
use crate::source::ssl_mode::{SslMode, is_bad_certificate};
pub use canary::MysqlCanary;
use decode::Decoder;
use lag::Lag;
pub use lock::MysqlLock;
use log_files::LogFiles;
pub use probe::MysqlProbe;

/// The form of positions in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// By file and offset, which are valid only at one server.
    File,
    /// By transaction identifiers, with which any replica can take over.
    #[default]
    Gtid,
}

/// The treatment of foreign keys whose row changes the log does not carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnloggedCascades {
    /// Their tables cannot be followed.
    #[default]
    Refuse,
    /// Another program deletes the keys of such rows, or they may be old.
    Accept,
}

/// The database and its login.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `host:port`, in the order in which they are tried.
    pub servers: Vec<String>,
    /// The user, which needs REPLICATION SLAVE and BINLOG MONITOR (MySQL: REPLICATION CLIENT), and
    /// SELECT on the tables.
    pub user: String,
    /// The password.
    pub password: String,
    /// The encryption of connections; if none, the server's address decides.
    pub sslmode: Option<SslMode>,
    /// The trusted issuers of servers' certificates, in PEM; Mozilla's list if it is `None`.
    pub sslrootcert: Option<PathBuf>,
    /// A number that no other replica of these servers has.
    pub server_id: u32,
    /// The form of positions.
    pub by: By,
    /// The treatment of foreign keys whose row changes the log does not carry.
    pub unlogged_cascades: UnloggedCascades,
    /// The interval of checks while the log is read.
    pub check_every: Duration,
}

#[cfg(test)]
impl Settings {
    /// Settings for a database that no test connects to.
    fn for_tests() -> Self {
        Self {
            servers: Vec::new(),
            user: String::new(),
            password: String::new(),
            sslmode: None,
            sslrootcert: None,
            server_id: 1,
            by: By::Gtid,
            unlogged_cascades: UnloggedCascades::Refuse,
            check_every: Duration::MAX,
        }
    }
}

/// The silence after which the connection counts as dead: the server sends something every second.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// From this age of a connection on, a heartbeat shows that the log was read up to its end. MySQL
/// also sends one after transactions that it skips at first, before the next event.
const SETTLED: Duration = Duration::from_secs(3);

/// The time limit for the checks of all other servers, within the one for a whole check.
const ANOTHER_MAX: Duration = Duration::from_secs(5);

/// The log of the first reachable server.
#[derive(Debug)]
pub struct MysqlSource {
    settings: Settings,
    rules: Rules,
    rotation: Rotation,
    reading: Option<Reading>,
    files: LogFiles,
    notes: Notes,
}

struct Reading {
    stream: BinlogStream,
    decoder: Decoder,
    lag: Lag,
    recheck: Recheck,
    /// The reason to follow another server, once one can be.
    stalled: mpsc::Receiver<String>,
    /// The reason why the log may lack changes, found when it was opened.
    lacking: Option<String>,
    opened: Instant,
    server: String,
    /// The name of its log among the [`LogFiles`].
    log: String,
}

/// A server that can be followed.
struct Fit {
    server: server::Server,
    /// The position as the server knows it.
    from: Option<Position>,
    /// True for a replica whose replication does not run.
    is_stalled: bool,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading").field("server", &self.server).finish_non_exhaustive()
    }
}

impl MysqlSource {
    /// A source that reads the tables of the rules.
    #[must_use]
    pub fn new(settings: Settings, rules: Rules) -> Self {
        let (files, notes) = (LogFiles::default(), Notes::default());
        let rotation = Rotation::new(settings.servers.len());
        Self { settings, rules, rotation, reading: None, files, notes }
    }

    /// Connects to each server and reports its faults for these rules.
    ///
    /// # Errors
    ///
    /// When a server cannot be reached or queried.
    pub async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let mut findings = Vec::new();
        for name in &self.settings.servers {
            let mut server = server::Server::connect(&self.settings, name).await?;
            let found = check::check(&mut server, &self.settings, &self.rules).await?;
            findings.extend(found.into_iter().map(|finding| finding.of(name)));
        }
        Ok(findings)
    }

    /// Fails if [`ChangeSource::open`] would fail at the start. Opens no log.
    ///
    /// # Errors
    ///
    /// When no server can be followed from there.
    pub async fn rehearse(mut self, from: Option<&Position>) -> Result<(), SourceError> {
        let mut attempts = self.rotation.attempts();
        for name in &self.settings.servers {
            match self.fit(name, from).await {
                Ok(_) if attempts.is_over() => break,
                Ok(_) => return Ok(()),
                Err(error) => attempts.failed(error)?,
            }
        }
        Err(self.rotation.gap_unless_awaited(attempts))
    }

    /// Connects to a server that can be followed from there.
    async fn fit(&self, name: &str, from: Option<&Position>) -> Result<Fit, SourceError> {
        let mut server = server::Server::connect(&self.settings, name).await?;
        let checked = check::check(&mut server, &self.settings, &self.rules).await;
        let findings = checked.map_err(SourceError::of_check)?;
        if let Some(finding) = findings.iter().find(|finding| finding.is_fatal) {
            return Err(SourceError::Lacking(finding.clone().of(name).text));
        }
        self.notes.found(name, &findings);
        let from = match from {
            Some(position) => Some(server.known(position).await?),
            None => None,
        };
        let is_stalled = findings.iter().any(|finding| finding.is_stalled);
        Ok(Fit { server, from, is_stalled })
    }

    /// Opens the log of the server whose turn it is. Returns its position; none, and opens nothing,
    /// if it is a replica whose replication does not run and `may_be_stalled` is false, or if an
    /// earlier attempt ends the invalidator.
    async fn open_current(
        &mut self,
        from: Option<&Position>,
        may_be_stalled: bool,
        attempts: &Attempts,
    ) -> Result<Option<Position>, SourceError> {
        if let Some(error) = self.rotation.lacks_position() {
            return Err(error);
        }
        let name = self.settings.servers[self.rotation.current()].clone();
        let fit = self.fit(&name, from).await?;
        if fit.is_stalled && !may_be_stalled || attempts.is_over() {
            return Ok(None);
        }
        let (position, mut reading) = self.follow(fit.server, &name, fit.from).await?;
        reading.lacking = self.rotation.opened().filter(|_| from.is_some());
        self.reading = Some(reading);
        Ok(Some(position))
    }

    async fn follow(
        &self,
        mut server: server::Server,
        name: &str,
        from: Option<Position>,
    ) -> Result<(Position, Reading), SourceError> {
        let position = match from {
            Some(position) => position,
            None => server.end(self.settings.by).await?,
        };
        let lag = Lag::watch(&self.settings, name);
        let origin = statement::Origin {
            flavour: server.flavour,
            has_unlogged_cascades: self.settings.unlogged_cascades == UnloggedCascades::Refuse
                && !server.logs_cascades().await?,
        };
        // Another server may take over the address, and has other files. A position in a file would
        // mean nothing there, so with such positions it must look like a new log.
        let log = match self.settings.by {
            By::Gtid => server.identity().await?,
            By::File => name.to_owned(),
        };
        let decoder = Decoder::new(origin, self.settings.by, &position, &self.rules);
        let stream = server.follow(&self.settings, &position).await?;
        let (stall, stalled) = mpsc::channel(1);
        let recheck = self.recheck(name, stall);
        let server = name.to_owned();
        let (lacking, opened) = (None, Instant::now());
        let reading =
            Reading { stream, decoder, lag, recheck, stalled, lacking, opened, server, log };
        Ok((position, reading))
    }

    /// Repeats the check. Reports the server to `stalled` when its replication does not run while
    /// another server can be followed.
    fn recheck(&self, name: &str, stalled: mpsc::Sender<String>) -> Recheck {
        let (settings, rules) = (self.settings.clone(), self.rules.clone());
        let (name, notes, begun) = (name.to_owned(), self.notes.clone(), Instant::now());
        let check = move || {
            let (settings, rules) = (settings.clone(), rules.clone());
            let (name, notes, stalled) = (name.clone(), notes.clone(), stalled.clone());
            async move {
                let findings = findings_at(&name, &settings, &rules).await?;
                notes.found(&name, &findings);
                // The others may lack the position. A check that a new table triggers early must
                // not reopen the log again and again.
                if let Some(finding) = findings.iter().find(|finding| finding.is_stalled)
                    && begun.elapsed() >= settings.check_every
                    && another_is_fit(&name, &settings, &rules).await
                {
                    // One report is enough: it ends this reading.
                    let _ = stalled.try_send(finding.clone().of(&name).text);
                }
                let findings = findings.into_iter().map(|finding| finding.of(&name)).collect();
                Ok(Checked { findings, ..Checked::default() })
            }
        };
        Recheck::start(self.settings.check_every, Checked::default(), self.notes.clone(), check)
    }
}

async fn findings_at(
    name: &str,
    settings: &Settings,
    rules: &Rules,
) -> Result<Vec<Finding>, SourceError> {
    let mut server = server::Server::connect(settings, name).await?;
    check::check(&mut server, settings, rules).await
}

/// True if another server than `name` has neither faults nor a replication that does not run.
async fn another_is_fit(name: &str, settings: &Settings, rules: &Rules) -> bool {
    // All at once: one that does not answer must not hide another.
    let mut checks = JoinSet::new();
    for other in settings.servers.iter().filter(|other| *other != name) {
        let (other, settings, rules) = (other.clone(), settings.clone(), rules.clone());
        checks.spawn(async move { findings_at(&other, &settings, &rules).await });
    }
    let is_unfit = |finding: &Finding| finding.is_fatal || finding.is_stalled;
    let one_is_fit = async {
        while let Some(findings) = checks.join_next().await {
            if matches!(findings, Ok(Ok(findings)) if !findings.iter().any(is_unfit)) {
                return true;
            }
        }
        false
    };
    timeout(ANOTHER_MAX, one_is_fit).await.unwrap_or(false)
}

impl ChangeSource for MysqlSource {
    type Probe = MysqlProbe;

    async fn open(&mut self, from: Option<&Position>) -> Result<Position, SourceError> {
        self.reading = None;
        if from.is_none() {
            self.files.clear();
            self.rotation.forget_position();
        }
        let mut attempts = self.rotation.attempts();
        let (first, mut stalled) = (self.rotation.current(), Vec::new());
        for _ in 0..self.settings.servers.len() {
            match self.open_current(from, false, &attempts).await {
                Ok(Some(position)) => {
                    self.notes.unfit(attempts.faults());
                    return Ok(position);
                }
                Ok(None) => stalled.push(self.rotation.current()),
                Err(error) => self.rotation.failed(&mut attempts, error)?,
            }
            self.rotation.advance();
        }
        for server in stalled {
            self.rotation.turn_to(server);
            match self.open_current(from, true, &attempts).await {
                Ok(Some(position)) => {
                    self.notes.unfit(attempts.faults());
                    return Ok(position);
                }
                Ok(None) => {}
                Err(error) => self.rotation.failed(&mut attempts, error)?,
            }
        }
        self.rotation.turn_to(first);
        Err(self.rotation.gap_unless_awaited(attempts))
    }

    async fn next(&mut self) -> Result<Event, SourceError> {
        let Some(reading) = &mut self.reading else {
            return Err(SourceError::Lost("the log is not open".to_owned()));
        };
        if let Some(why) = reading.lacking.take() {
            return Ok(Event::Lacking { why });
        }
        let failed = loop {
            if let Some(event) = reading.decoder.pop() {
                match event {
                    Event::Commit { .. } => self.rotation.read(),
                    Event::Alive if reading.opened.elapsed() >= SETTLED => {
                        self.rotation.reached_end();
                    }
                    Event::Idle { .. } => self.rotation.reached_end(),
                    _ => {}
                }
                return Ok(event);
            }
            let stream = &mut reading.stream;
            let read = timeout(
                SILENCE_MAX,
                std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)),
            );
            let read = tokio::select! {
                why = reading.recheck.gap() => return Ok(Event::Lacking { why }),
                Some(why) = reading.stalled.recv() => break SourceError::Lost(why),
                read = read => read,
            };
            match read {
                Ok(Some(Ok(event))) => {
                    let tables = |id| reading.stream.get_tme(id);
                    if let Err(why) = reading.decoder.push(&event, tables) {
                        self.rotation.is_damaged();
                        break SourceError::Lost(format!("{}: {why}", reading.server));
                    }
                    if reading.decoder.has_new_table() {
                        reading.recheck.ask();
                    }
                    let (server, place) = (&reading.server, reading.decoder.place());
                    if let Some(begun) = begun(&event)
                        && !self.files.note(&reading.log, place.0, begun)
                    {
                        let why =
                            format!("{server}: its log was reset, and begins anew in {}", place.0);
                        break SourceError::Purged(why);
                    }
                    reading.lag.read_until(place);
                }
                Ok(Some(Err(error))) => break refused(&reading.server, &error),
                Ok(None) => break SourceError::Lost(format!("{}: the log ended", reading.server)),
                Err(_) => break SourceError::Lost(format!("{}: it is silent", reading.server)),
            }
        };
        self.reading = None;
        Err(match failed {
            SourceError::Purged(why) => self.rotation.ended_without_position(why),
            failed => self.rotation.ended(failed),
        })
    }

    fn probe(&self) -> MysqlProbe {
        let server = self.reading.as_ref().map(|reading| reading.server.clone());
        MysqlProbe::new(self.settings.clone(), server.unwrap_or_default())
    }

    fn behind_bytes(&self) -> Option<u64> {
        self.reading.as_ref()?.lag.bytes()
    }

    fn server(&self) -> Option<&str> {
        self.reading.as_ref().map(|reading| reading.server.as_str())
    }

    fn checks(&self) -> Option<Checks> {
        self.reading.as_ref().map(|reading| reading.recheck.checks())
    }

    fn lacking(&self) -> Option<String> {
        match &self.reading {
            Some(reading) => reading.lacking.clone(),
            None => self.rotation.lacking(),
        }
    }

    fn confirm(&mut self, _position: &Position) {
        // The server keeps its log by its own rules (binlog_expire_logs_seconds).
    }
}

/// The second of the log file's creation, from its description; none for other events.
fn begun(event: &mysql_async::binlog::events::Event) -> Option<u32> {
    let header = event.header();
    let is_description = header.event_type_raw() == event_type::FORMAT_DESCRIPTION;
    (is_description && header.timestamp() > 0).then(|| header.timestamp())
}

/// The effect of a MariaDB or MySQL statement on rows, in a session whose database is `schema`.
pub(in crate::source) fn effect_of(is_mariadb: bool, schema: &str, text: &str) -> Effect {
    let flavour = if is_mariadb { server::Flavour::MariaDb } else { server::Flavour::MySql };
    let (charset, followed) = (statement::Charset::Utf8, &statement::Followed::default());
    statement::effect(statement::Session { flavour, schema, charset, followed }, text.as_bytes())
}

/// Server error codes for missing rights: on a database, for a login, on a table, on a column, of
/// an administrative kind, and for a login without a password.
const ACCESS_DENIED: [u16; 6] = [1044, 1045, 1142, 1143, 1227, 1698];

/// `ER_MASTER_FATAL_ERROR_READING_BINLOG`, for all reasons why a log cannot be sent.
const FATAL_READING_BINLOG: u16 = 1236;

/// `ER_SECURE_TRANSPORT_REQUIRED`.
const TLS_REQUIRED: u16 = 3159;

/// Classifies a failure by its code and, because one code has many causes, by the server's text.
fn refused(server: &str, error: &Error) -> SourceError {
    let said = format!("{server}: {error}");
    let answer = match error {
        Error::Server(answer) => answer,
        Error::Driver(DriverError::NoClientSslFlagFromServer) => {
            return SourceError::Wrong(format!(
                "{server}: the server does not offer TLS, which sslmode requires; with sslmode = \"disable\" it is not asked for"
            ));
        }
        Error::Driver(
            DriverError::UnknownAuthPlugin { .. }
            | DriverError::MysqlOldPasswordDisabled
            | DriverError::CleartextPluginDisabled,
        ) => {
            return SourceError::Wrong(format!(
                "{said}; give the user another plugin: mysql_native_password, caching_sha2_password or MariaDB's ed25519"
            ));
        }
        Error::Io(IoError::Tls(_)) => return SourceError::Wrong(said),
        Error::Io(IoError::Io(error)) if is_bad_certificate(error) => {
            return SourceError::Wrong(said);
        }
        _ => return SourceError::Lost(said),
    };
    let text = answer.message.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    match answer.code {
        code if ACCESS_DENIED.contains(&code) => SourceError::Wrong(said),
        TLS_REQUIRED => SourceError::Wrong(format!("{said}; set sslmode in [source]")),
        // MariaDB uses code 4052, MySQL 1236.
        _ if has(&["same server_uuid", "same server_id", "same server id"]) => SourceError::Wrong(
            format!("{said}; give each invalidator and replica a server_id of its own"),
        ),
        FATAL_READING_BINLOG
            if has(&[
                "diverged",
                "purged",
                "could not find first log",
                "could not find gtid",
                "position > file size",
                // About the server's own transactions: its log was reset, or lost its end. A
                // lagging replica lacks those of others, and does not report it.
                "more gtids than",
            ]) =>
        {
            SourceError::Purged(said)
        }
        // For example, a replica that lags behind its source: wait for it.
        _ => SourceError::Lost(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_by_a_plugin_that_is_not_supported_is_a_fault_of_the_settings() {
        let unknown = DriverError::UnknownAuthPlugin { name: "sha256_password".to_owned() };
        for refusal in
            [unknown, DriverError::MysqlOldPasswordDisabled, DriverError::CleartextPluginDisabled]
        {
            let SourceError::Wrong(why) = refused("db:3306", &Error::Driver(refusal)) else {
                panic!("it would be tried again");
            };
            assert!(why.starts_with("db:3306: ") && why.contains("another plugin"), "{why}");
        }
        let closed = Error::Driver(DriverError::ConnectionClosed);
        assert!(matches!(refused("db:3306", &closed), SourceError::Lost(_)));
    }
}
