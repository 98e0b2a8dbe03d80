//! PostgreSQL's logical replication, by the plugin `pgoutput`.
//!
//! A replication slot holds the log back until we confirm a position, and we confirm what was
//! delivered; so the log is never gone, unless the slot is. A slot is made where there is no
//! checkpoint, and never where there is one: a slot that vanished is a gap.

mod check;
mod connection;
mod decode;
mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod pgoutput;
mod probe;
mod settings;
mod tls;

use std::time::Duration;

use bytes::Buf;
use tokio::time::{Instant, timeout};

use crate::change::{ChangeSource, Event, SourceError};
use crate::finding::Finding;
use crate::keys::Rules;
use crate::position::{Position, lsn};
use connection::{Connection, literal};
use decode::Decoder;
use failure::Failure;
pub use probe::PostgresProbe;
pub use settings::Settings;
pub use tls::SslMode;

/// The silence after which the connection counts as dead. A server that lives sends something every
/// two seconds.
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
    connection: Connection,
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
    pub async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let mut findings = Vec::new();
        for server in &self.settings.servers {
            let checked = async {
                let mut connection = Connection::open(&self.settings, server, true).await?;
                check::check(&mut connection, &self.settings, &self.rules).await
            };
            let found = checked.await.map_err(|failure: Failure| failure.at(server))?;
            findings.extend(found.into_iter().map(|finding| finding.of(server)));
        }
        Ok(findings)
    }

    async fn open_at(
        &self,
        server: &str,
        from: Option<u64>,
    ) -> Result<(u64, Reading), SourceError> {
        let settings = &self.settings;
        let failed = |failure: Failure| failure.at(server);
        let mut connection = Connection::open(settings, server, true).await.map_err(failed)?;
        let findings = check::check(&mut connection, settings, &self.rules).await;
        if let Some(finding) = findings.map_err(failed)?.into_iter().find(|one| one.is_fatal) {
            return Err(SourceError::Wrong(finding.of(server).text));
        }
        let start = slot(&mut connection, settings, server, from).await?;
        // The server says something at half of this at the latest.
        connection.rows("SET wal_sender_timeout = '4s'").await.map_err(failed)?;
        let started = connection.start_replication(&settings.slot, start, &settings.publication);
        started.await.map_err(failed)?;
        let decoder = Decoder::new(&self.rules, start);
        Ok((
            start,
            Reading { connection, decoder, end: start, read: start, reported_at: Instant::now() },
        ))
    }
}

/// Makes the slot where nothing was delivered yet. Returns the position at which reading begins.
async fn slot(
    connection: &mut Connection,
    settings: &Settings,
    server: &str,
    from: Option<u64>,
) -> Result<u64, SourceError> {
    let failed = |failure: Failure| failure.at(server);
    let (name, quoted) = (&settings.slot, literal(&settings.slot));
    let query = format!(
        "SELECT COALESCE(confirmed_flush_lsn::text, ''), COALESCE(wal_status, ''), plugin \
         FROM pg_replication_slots WHERE slot_name = {quoted}"
    );
    let found = connection.rows(&query).await.map_err(failed)?;
    let Some([confirmed, status, plugin]) = found.first().map(Vec::as_slice) else {
        let made = make(connection, &quoted).await.map_err(failed)?;
        // Where there was one, it is made anew, so that a flush can be followed by reading on.
        return match from {
            Some(_) => Err(SourceError::Purged(format!(
                "{server}: slot {name} is gone, and with it the log since the checkpoint"
            ))),
            None => Ok(made),
        };
    };
    if plugin != "pgoutput" {
        return Err(SourceError::Wrong(format!(
            "{server}: slot {name} is one of plugin {plugin}, not of pgoutput"
        )));
    }
    if status == "lost" {
        let drop = format!("SELECT pg_drop_replication_slot({quoted})");
        connection.rows(&drop).await.map_err(failed)?;
        return Err(SourceError::Purged(format!(
            "{server}: slot {name} fell behind max_slot_wal_keep_size, and the log is removed"
        )));
    }
    let confirmed = lsn(confirmed)
        .ok_or_else(|| SourceError::Wrong(format!("{server}: slot {name} has no position")))?;
    match from {
        Some(from) if from < confirmed => Err(SourceError::Purged(format!(
            "{server}: slot {name} has confirmed {}, after {}",
            Position::Lsn(confirmed),
            Position::Lsn(from)
        ))),
        Some(from) => Ok(from),
        // To begin at the present end, what waits in the slot is passed over.
        None => {
            let end = connection.text("SELECT pg_current_wal_lsn()::text").await.map_err(failed)?;
            lsn(&end)
                .map(|end| end.max(confirmed))
                .ok_or_else(|| SourceError::Lost(format!("{server}: no position of its log")))
        }
    }
}

/// Makes the slot of this name, which is quoted. Returns its position.
async fn make(connection: &mut Connection, name: &str) -> Result<u64, Failure> {
    let query =
        format!("SELECT lsn::text FROM pg_create_logical_replication_slot({name}, 'pgoutput')");
    lsn(&connection.text(&query).await?).ok_or(Failure::Unexpected("a slot without a position"))
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
            match self.open_at(&server, from).await {
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
                Err(error.at(&server))
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
    /// The next event.
    async fn next(&mut self, confirmed: u64) -> Result<Event, Failure> {
        loop {
            if let Some(event) = self.decoder.pop() {
                return Ok(event);
            }
            if self.reported_at.elapsed() >= FEEDBACK_EVERY {
                self.report(confirmed).await?;
            }
            let read = timeout(SILENCE_MAX, self.connection.replicated()).await;
            let mut message = read.map_err(|_| Failure::Silent)??;
            match message.try_get_u8() {
                // XLogData: where it begins, the log's end, the server's clock, and a message.
                Ok(b'w') if message.len() >= 24 => {
                    let (_, end, _) = (message.get_u64(), message.get_u64(), message.get_i64());
                    self.end = self.end.max(end);
                    self.decoder.push(&message);
                    self.read = self.read.max(self.decoder.position());
                }
                // Keepalive: the log's end, the server's clock, whether it wants an answer.
                Ok(b'k') if message.len() >= 17 => {
                    let end = message.get_u64();
                    self.end = self.end.max(end);
                    if !self.decoder.is_open() && end > self.read {
                        // Nothing of ours until here: the server need not keep it.
                        self.read = end;
                        self.report(confirmed).await?;
                        return Ok(Event::Idle { position: Position::Lsn(end) });
                    }
                    self.report(confirmed).await?;
                    return Ok(Event::Alive);
                }
                _ => return Err(Failure::Unexpected("in the log")),
            }
        }
    }

    async fn report(&mut self, confirmed: u64) -> Result<(), Failure> {
        self.reported_at = Instant::now();
        let sent = self.connection.report(self.read.max(confirmed), confirmed);
        timeout(SILENCE_MAX, sent).await.map_err(|_| Failure::Silent)?
    }
}
