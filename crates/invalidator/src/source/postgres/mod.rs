//! PostgreSQL's logical replication, by the plugin `pgoutput`.
//!
//! The wire is `pg_walstream`'s. A replication slot holds the log back until we confirm a position,
//! and we confirm what was delivered; so the log is never gone, unless the slot is. A slot is made
//! where there is no checkpoint, and never where there is one: a slot that vanished is a gap.

mod check;
mod decode;
mod probe;

use std::time::Duration;

use pg_walstream::{
    CancellationToken, PgReplicationConnection, ReplicationError, parse_keepalive_message,
};
use tokio::time::{Instant, timeout};

use crate::change::{ChangeSource, Event, SourceError};
use crate::finding::Finding;
use crate::keys::Rules;
use crate::position::{Position, lsn};
use decode::Decoder;
pub use probe::PostgresProbe;

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
    /// `disable`, `prefer`, `require`, `verify-ca` or `verify-full`.
    pub sslmode: String,
}

impl Settings {
    /// Connects; `more` is added to the parameters.
    fn connect(&self, server: &str, more: &str) -> Result<PgReplicationConnection, SourceError> {
        let (host, port) = server.rsplit_once(':').unwrap_or((server, "5432"));
        let quote = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
        let line = format!(
            "host={} port={} user={} password={} dbname={} sslmode={} connect_timeout=10{more}",
            quote(host.trim_matches(['[', ']'])),
            quote(port),
            quote(&self.user),
            quote(&self.password),
            quote(&self.database),
            quote(&self.sslmode),
        );
        PgReplicationConnection::connect(&line).map_err(|error| refused(server, &error))
    }
}

/// The server's clock may stand still for so long before the connection counts as dead; it says
/// something every two seconds.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The interval between reports of our position to the server.
const FEEDBACK_EVERY: Duration = Duration::from_millis(500);

/// The log of the first server that can be reached.
pub struct PostgresSource {
    settings: Settings,
    rules: Rules,
    turn: usize,
    reading: Option<Reading>,
    /// The position that the clusters have acknowledged.
    confirmed: u64,
}

struct Reading {
    connection: PgReplicationConnection,
    decoder: Decoder,
    /// The end of the log as the server last said.
    end: u64,
    read: u64,
    reported_at: Instant,
}

impl std::fmt::Debug for PostgresSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresSource")
            .field("settings", &self.settings.servers)
            .finish_non_exhaustive()
    }
}

impl PostgresSource {
    /// A source that looks for what the rules need.
    #[must_use]
    pub const fn new(settings: Settings, rules: Rules) -> Self {
        Self { settings, rules, turn: 0, reading: None, confirmed: 0 }
    }

    /// Connects to each server and says what is wrong with it for these rules.
    ///
    /// # Errors
    ///
    /// When a server cannot be reached or queried.
    pub fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let mut findings = Vec::new();
        for server in &self.settings.servers {
            let mut connection = self.connect(server)?;
            let found = check::check(&mut connection, &self.settings, &self.rules)?;
            findings.extend(found.into_iter().map(|finding| finding.of(server)));
        }
        Ok(findings)
    }

    fn connect(&self, server: &str) -> Result<PgReplicationConnection, SourceError> {
        self.settings.connect(server, " replication=database")
    }

    fn open_at(&self, server: &str, from: Option<u64>) -> Result<(u64, Reading), SourceError> {
        let settings = &self.settings;
        let failed = |error: ReplicationError| refused(server, &error);
        let mut connection = self.connect(server)?;
        let findings = check::check(&mut connection, settings, &self.rules)?;
        if let Some(finding) = findings.into_iter().find(|finding| finding.is_fatal) {
            return Err(SourceError::Wrong(finding.of(server).text));
        }
        let start = slot(&mut connection, settings, server, from)?;
        // The server says something at half of this at the latest.
        connection.exec("SET wal_sender_timeout = '4s'").map_err(failed)?;
        let names = format!("\"{}\"", settings.publication.replace('"', "\"\""));
        let options =
            [("proto_version", "1"), ("publication_names", names.as_str()), ("messages", "on")];
        connection.start_replication(&settings.slot, start, &options).map_err(failed)?;
        let decoder = Decoder::new(&self.rules, start);
        Ok((
            start,
            Reading { connection, decoder, end: start, read: start, reported_at: Instant::now() },
        ))
    }
}

/// Makes the slot where nothing was delivered yet; answers where reading begins.
fn slot(
    connection: &mut PgReplicationConnection,
    settings: &Settings,
    server: &str,
    from: Option<u64>,
) -> Result<u64, SourceError> {
    let failed = |error: ReplicationError| refused(server, &error);
    let name = settings.slot.replace('\'', "''");
    let query = format!(
        "SELECT COALESCE(confirmed_flush_lsn::text, ''), COALESCE(wal_status, ''), plugin FROM pg_replication_slots WHERE slot_name = '{name}'"
    );
    let found = connection.exec(&query).map_err(failed)?;
    let text = |column| found.get_value(0, column).unwrap_or_default();
    if found.ntuples() > 0 {
        if text(2) != "pgoutput" {
            return Err(SourceError::Wrong(format!(
                "{server}: slot {name} is one of plugin {}, not of pgoutput",
                text(2)
            )));
        }
        if text(1) == "lost" {
            connection
                .exec(&format!("SELECT pg_drop_replication_slot('{name}')"))
                .map_err(failed)?;
            return Err(SourceError::Purged(format!(
                "{server}: slot {name} fell behind max_slot_wal_keep_size, and the log is removed"
            )));
        }
        let confirmed = lsn(&text(0))
            .ok_or_else(|| SourceError::Wrong(format!("{server}: slot {name} has no position")))?;
        return match from {
            Some(from) if from < confirmed => Err(SourceError::Purged(format!(
                "{server}: slot {name} has confirmed {}, after {}",
                Position::Lsn(confirmed),
                Position::Lsn(from)
            ))),
            Some(from) => Ok(from),
            // To begin at the present end, what waits in the slot is passed over.
            None => {
                let end = connection.exec("SELECT pg_current_wal_lsn()::text").map_err(failed)?;
                let end = end.get_value(0, 0).and_then(|text| lsn(&text));
                end.map(|end| end.max(confirmed))
                    .ok_or_else(|| SourceError::Lost(format!("{server}: no position of its log")))
            }
        };
    }
    if from.is_some() {
        // Made anew, so that a flush can be followed by reading on.
        make(connection, &name).map_err(failed)?;
        return Err(SourceError::Purged(format!(
            "{server}: slot {name} is gone, and with it the log since the checkpoint"
        )));
    }
    let made = make(connection, &name).map_err(failed)?;
    Ok(made)
}

fn make(connection: &mut PgReplicationConnection, name: &str) -> Result<u64, ReplicationError> {
    let made = connection.exec(&format!(
        "SELECT lsn::text FROM pg_create_logical_replication_slot('{name}', 'pgoutput')"
    ))?;
    Ok(made.get_value(0, 0).and_then(|text| lsn(&text)).unwrap_or_default())
}

impl ChangeSource for PostgresSource {
    type Probe = PostgresProbe;

    async fn open(&mut self, from: Option<&Position>) -> Result<Position, SourceError> {
        self.reading = None;
        let from = match from {
            None => None,
            Some(Position::Lsn(lsn)) => Some(*lsn),
            Some(other) => {
                return Err(SourceError::Wrong(format!(
                    "position {other} means nothing to PostgreSQL"
                )));
            }
        };
        let mut reasons = Vec::new();
        for _ in 0..self.settings.servers.len() {
            let at = self.turn % self.settings.servers.len();
            let server = self.settings.servers[at].clone();
            // The library connects without giving way to other tasks.
            match tokio::task::block_in_place(|| self.open_at(&server, from)) {
                Ok((start, reading)) => {
                    self.confirmed = self.confirmed.max(start);
                    self.reading = Some(reading);
                    return Ok(Position::Lsn(start));
                }
                Err(SourceError::Lost(why)) => reasons.push(why),
                Err(error) => return Err(error),
            }
            self.turn = at + 1;
        }
        Err(SourceError::Lost(reasons.join("; ")))
    }

    async fn next(&mut self) -> Result<Event, SourceError> {
        let confirmed = self.confirmed;
        let Some(reading) = &mut self.reading else {
            return Err(SourceError::Lost("the log is not open".to_owned()));
        };
        match reading.next(confirmed).await {
            Ok(event) => Ok(event),
            Err(error) => {
                let server = self.settings.servers[self.turn % self.settings.servers.len()].clone();
                self.reading = None;
                self.turn += 1;
                Err(error.map_or_else(
                    || SourceError::Lost(format!("{server}: it is silent")),
                    |error| refused(&server, &error),
                ))
            }
        }
    }

    fn probe(&self) -> PostgresProbe {
        let server = self.settings.servers[self.turn % self.settings.servers.len()].clone();
        PostgresProbe::new(self.settings.clone(), server)
    }

    fn behind_bytes(&self) -> Option<u64> {
        self.reading.as_ref().map(|reading| reading.end.saturating_sub(reading.read))
    }

    fn confirm(&mut self, position: &Position) {
        if let Position::Lsn(lsn) = position {
            self.confirmed = self.confirmed.max(*lsn);
        }
    }
}

impl Reading {
    /// The next event; the error is none when the server is silent.
    async fn next(&mut self, confirmed: u64) -> Result<Event, Option<ReplicationError>> {
        loop {
            if let Some(event) = self.decoder.pop() {
                return Ok(event);
            }
            if self.reported_at.elapsed() >= FEEDBACK_EVERY {
                self.tell(confirmed).await?;
            }
            let token = CancellationToken::new();
            let read = timeout(SILENCE_MAX, self.connection.get_copy_data_async(&token)).await;
            let data = read.map_err(|_| None)?.map_err(Some)?;
            match data.first() {
                Some(b'w') if data.len() >= 25 => {
                    let end =
                        data[9..17].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                    self.end = self.end.max(end);
                    self.decoder.push(data.slice(25..));
                    self.read = self.read.max(self.decoder.position());
                }
                Some(b'k') => {
                    let alive = parse_keepalive_message(&data).map_err(Some)?;
                    self.end = self.end.max(alive.wal_end);
                    if !self.decoder.is_open() && alive.wal_end > self.read {
                        // Nothing of ours until here: the server need not keep it.
                        self.read = alive.wal_end;
                        self.tell(confirmed).await?;
                        return Ok(Event::Idle { position: Position::Lsn(alive.wal_end) });
                    }
                    self.tell(confirmed).await?;
                    return Ok(Event::Alive);
                }
                None => {}
                Some(other) => {
                    return Err(Some(ReplicationError::protocol(format!(
                        "an unknown message of type {other}"
                    ))));
                }
            }
        }
    }

    async fn tell(&mut self, confirmed: u64) -> Result<(), Option<ReplicationError>> {
        self.reported_at = Instant::now();
        let sent = self.connection.send_standby_status_update(
            self.read.max(confirmed),
            confirmed,
            confirmed,
            false,
        );
        sent.await.map_err(Some)
    }
}

/// Classifies a failure.
fn refused(server: &str, error: &ReplicationError) -> SourceError {
    let said = format!("{server}: {error}");
    let text = said.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    if has(&[
        "has already been removed",
        "can no longer get changes",
        "exceeded the maximum reserved size",
    ]) {
        return SourceError::Purged(said);
    }
    if matches!(error, ReplicationError::Authentication(_) | ReplicationError::Config(_))
        || has(&[
            "password authentication failed",
            "permission denied",
            "must be superuser",
            "does not exist",
            "no pg_hba.conf",
        ])
    {
        return SourceError::Wrong(said);
    }
    SourceError::Lost(said)
}
