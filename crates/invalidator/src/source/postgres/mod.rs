//! PostgreSQL's logical replication, by the plugin `pgoutput`.
//!
//! A replication slot holds the log back until we confirm a position, and we confirm only delivered
//! positions; so the log is lost only with the slot. The position of an open log is not a delivered
//! one: after a break, reading continues where it ended, and deletes before that may wait. A slot
//! is created if there is no checkpoint, and never if there is one: a vanished slot is a gap.
//!
//! Invalidators of a group use one slot. The server lets one of them read it at a time, and the
//! next one continues from the confirmed position. A slot that was created anew also has a later
//! position, but then nobody executed the changes before it: `restart_lsn` shows the difference,
//! because the log from there on was written after the slot was created.

mod canary;
mod check;
mod connection;
mod encoding;
mod failure;
mod followed;
mod lock;
mod probe;
mod settings;
pub mod setup;
mod timeline;
mod tls;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use changes::change::Event;
use changes::keys::Rules;
use changes::pgoutput::{Decoder, History, Stray};
use changes::position::{Position, lsn};
use tokio::time::{Instant, sleep, timeout};

use crate::change_source::{ChangeSource, SourceError};
use crate::checks::Checks;
use crate::finding::Finding;
use crate::notes::Notes;
use crate::source::recheck::{Checked, Recheck};
use crate::source::rotation::Rotation;
pub use canary::PostgresCanary;
use connection::{AS_WRITTEN, Connection, OTHERS_MAX, WITH_WARNINGS, literal};
use encoding::Converter;
use failure::Failure;
use followed::Catalogue;
pub use lock::PostgresLock;
pub use probe::PostgresProbe;
pub use settings::Settings;

/// The silence after which the connection counts as dead. A live server sends something every two
/// seconds.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The time limit for creating the slot: the server waits for every running transaction.
const MAKE_MAX: Duration = Duration::from_secs(30);

/// The query for the end of a server's log. A standby can send the part that it has replayed.
const LOG_END: &str = "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
                       ELSE pg_current_wal_lsn() END)::text";

/// The interval between reports of our position to the server.
const FEEDBACK_EVERY: Duration = Duration::from_millis(500);

/// Two requests for an answer within this time mean that the server shuts down.
const ASKED_AGAIN: Duration = Duration::from_secs(1);

/// The log of the first reachable server.
pub struct PostgresSource {
    settings: Settings,
    rules: Rules,
    rotation: Rotation,
    reading: Option<Reading>,
    /// The position that the clusters have acknowledged.
    confirmed: u64,
    /// The position up to which everything in the open log was executed.
    delivered: u64,
    /// The parts of the tables at the last check; none before the first.
    parts: Option<BTreeMap<String, String>>,
    /// True after the log could not be read any further at some place, until it is open after that.
    is_stuck: bool,
    notes: Notes,
}

struct Reading {
    connection: Connection,
    decoder: Decoder,
    /// None if the log has the bytes that applications have, and while it works.
    converter: Option<Converter>,
    catalogue: Arc<Catalogue>,
    /// False while no relation can become a partition of a wanted table.
    has_partitions: bool,
    recheck: Recheck,
    /// The loss found when the log was opened.
    lacking: Option<String>,
    /// The position that the slot has.
    slot_confirmed: u64,
    read: u64,
    /// The time at which the server last requested an answer.
    asked_at: Option<Instant>,
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
    /// A source that reads the tables of the rules.
    #[must_use]
    pub fn new(settings: Settings, rules: Rules) -> Self {
        let (rotation, notes) = (Rotation::new(settings.servers.len()), Notes::default());
        Self {
            settings,
            rules,
            rotation,
            reading: None,
            confirmed: 0,
            delivered: 0,
            parts: None,
            is_stuck: false,
            notes,
        }
    }

    /// Connects to each server and reports its faults for these rules.
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
            findings.extend(found.findings.into_iter().map(|finding| finding.of(server)));
        }
        Ok(findings)
    }

    /// Fails if [`ChangeSource::open`] would fail at the start. Opens no log, and neither creates
    /// nor drops a slot.
    ///
    /// # Errors
    ///
    /// When no server can be followed from there.
    pub async fn rehearse(&self, from: Option<&Position>) -> Result<(), SourceError> {
        let mut attempts = self.rotation.attempts();
        for server in &self.settings.servers {
            match self.fits(server, from).await {
                Ok(()) if attempts.is_over() => break,
                Ok(()) => return Ok(()),
                Err(error) => attempts.failed(error)?,
            }
        }
        Err(attempts.error())
    }

    async fn fits(&self, server: &str, from: Option<&Position>) -> Result<(), SourceError> {
        let settings = &self.settings;
        let failed = |failure: Failure| failure.at(server);
        let (mut connection, _) = self.connect(server).await?;
        let Some(position) = from else { return Ok(()) };
        let history = timeline::history(&mut connection).await.map_err(failed)?;
        leads_through(&mut connection, &history, server, position).await?;
        if found_slot(&mut connection, settings).await.map_err(failed)?.is_some() {
            return Ok(());
        }
        let is_standby = is_standby(&mut connection).await.map_err(failed)?;
        Err(lacks_slot(settings, server, is_standby))
    }

    /// Connects to a server whose settings fit the rules.
    async fn connect(&self, server: &str) -> Result<(Connection, Checked), SourceError> {
        let settings = &self.settings;
        let failed = |failure: Failure| failure.at(server);
        let mut connection = Connection::open(settings, server, true).await.map_err(failed)?;
        let checked = check::check(&mut connection, settings, &self.rules).await;
        let checked = checked.map_err(|failure| failure.at(server).of_check())?;
        if let Some(finding) = checked.fatal() {
            return Err(SourceError::Lacking(finding.clone().of(server).text));
        }
        self.notes.found(server, &checked.findings);
        Ok((connection, checked))
    }

    /// The server whose turn it is.
    fn current_server(&self) -> String {
        self.settings.servers[self.rotation.current()].clone()
    }

    async fn open_at(
        &self,
        server: &str,
        from: Option<&Position>,
    ) -> Result<(Position, Reading), SourceError> {
        let settings = &self.settings;
        let failed = |failure: Failure| failure.at(server);
        let (mut connection, checked) = self.connect(server).await?;
        // This comes before its timeline: a server promoted later continues with another.
        let was_standby = is_standby(&mut connection).await.map_err(failed)?;
        let history = timeline::history(&mut connection).await.map_err(failed)?;
        let promoted = from.and_then(|position| timeline::promoted(&history, position));
        let from = match from {
            None => None,
            Some(position) => {
                leads_through(&mut connection, &history, server, position).await?;
                Some(lsn_of(position)?)
            }
        };
        let lacking = self.parts.as_ref().and_then(|parts| checked.lost_since(parts));
        let catalogue = Catalogue {
            settings: settings.clone(),
            server: server.to_owned(),
            tables: self.rules.columns().keys().map(ToString::to_string).collect(),
        };
        let followed = catalogue.followed(&mut connection).await.map_err(failed)?;
        // The position of the group is before that place.
        let is_shared = settings.is_shared && !self.is_stuck;
        let at_end = Settings { is_shared, ..settings.clone() };
        let (start, slot_confirmed) = slot(&mut connection, &at_end, server, from).await?;
        // The server sends something after half of this at the latest.
        connection.rows("SET wal_sender_timeout = '4s'").await.map_err(failed)?;
        connection.rows(AS_WRITTEN).await.map_err(failed)?;
        connection.rows(WITH_WARNINGS).await.map_err(failed)?;
        let converter = (!encoding::is_as_written(connection.encoding()))
            .then(|| Converter::new(settings.clone(), server.to_owned(), &self.rules));
        let started = connection.start_replication(&settings.slot, start, &settings.publication);
        started.await.map_err(failed)?;
        if was_standby {
            let mut other = Connection::open(settings, server, false).await.map_err(failed)?;
            if !is_standby(&mut other).await.map_err(failed)? {
                return Err(SourceError::Lost(format!("{server}: it has just been promoted")));
            }
        }
        if let Some(note) = promoted {
            self.notes.add(&note.of(server));
        }
        let mut decoder = Decoder::new(&self.rules, start);
        decoder.set_change_prefix(setup::message_prefix(&settings.slot));
        let position = history.position(start);
        decoder.set_history(history);
        decoder.set_relations(followed.tables);
        let recheck = self.recheck(server, checked);
        let reading = Reading {
            connection,
            decoder,
            converter,
            catalogue: Arc::new(catalogue),
            has_partitions: followed.has_partitions,
            recheck,
            lacking,
            slot_confirmed,
            read: start,
            asked_at: None,
            reported_at: Instant::now(),
        };
        Ok((position, reading))
    }

    fn recheck(&self, server: &str, first: Checked) -> Recheck {
        let (settings, rules) = (self.settings.clone(), self.rules.clone());
        let (server, notes) = (server.to_owned(), self.notes.clone());
        let check = move || {
            let (settings, rules) = (settings.clone(), rules.clone());
            let (server, notes) = (server.clone(), notes.clone());
            async move {
                let checked = async {
                    let mut connection = Connection::open(&settings, &server, false).await?;
                    check::check(&mut connection, &settings, &rules).await
                };
                let checked = checked.await.map_err(|failure: Failure| failure.at(&server))?;
                notes.found(&server, &checked.findings);
                Ok(checked)
            }
        };
        Recheck::start(self.settings.check_every, first, self.notes.clone(), check)
    }
}

/// The place in the log, in bytes.
fn lsn_of(position: &Position) -> Result<u64, SourceError> {
    match position {
        Position::Lsn { lsn, .. } => Ok(*lsn),
        other => Err(SourceError::Wrong(format!("position {other} means nothing to PostgreSQL"))),
    }
}

async fn is_standby(connection: &mut Connection) -> Result<bool, Failure> {
    Ok(connection.text("SELECT pg_is_in_recovery()::text").await? == "true")
}

/// Refuses a server whose log does not lead through this position: its changes would have positions
/// that were already passed, and the server would omit them.
///
/// A server that may still get there has lost nothing: a lagging standby, or a server on a timeline
/// that another one has left.
async fn leads_through(
    connection: &mut Connection,
    history: &History,
    server: &str,
    position: &Position,
) -> Result<(), SourceError> {
    let Some(stray) = history.strays_from(position) else { return Ok(()) };
    let why = format!("{server}: {position} is not in its log: {stray}");
    let may_come = match stray {
        Stray::Old { .. } => true,
        Stray::Short { .. } => {
            is_standby(connection).await.map_err(|failure| failure.at(server))?
        }
        Stray::Left { .. } | Stray::Other { .. } | Stray::Foreign { .. } => false,
    };
    Err(if may_come { SourceError::Lost(why) } else { SourceError::Purged(why) })
}

/// Creates the slot if nothing was delivered yet. Returns the start position and the one that the
/// slot has confirmed.
///
/// A standby without the slot is no loss: the primary, which has it, may be back soon. Only a
/// server that accepts writes can have lost it.
async fn slot(
    connection: &mut Connection,
    settings: &Settings,
    server: &str,
    from: Option<u64>,
) -> Result<(u64, u64), SourceError> {
    let failed = |failure: Failure| failure.at(server);
    let (name, quoted) = (&settings.slot, literal(&settings.slot));
    let found = found_slot(connection, settings).await.map_err(failed)?;
    let Some([confirmed, status, plugin, restart, active, reason]) = found.as_deref() else {
        let is_standby = is_standby(connection).await.map_err(failed)?;
        if from.is_some() || is_standby && settings.servers.len() > 1 {
            return Err(lacks_slot(settings, server, is_standby));
        }
        let made = timeout(MAKE_MAX, make(connection, &quoted, is_standby)).await;
        let made = made.unwrap_or(Err(Failure::Silent)).map_err(failed)?;
        return Ok((made, made));
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
            "{server}: slot {name} is lost: {}",
            check::lost_slot(reason)
        )));
    }
    let confirmed = lsn(confirmed)
        .ok_or_else(|| SourceError::Wrong(format!("{server}: slot {name} has no position")))?;
    let start = match from {
        Some(from) if from >= confirmed => from,
        Some(_) if settings.is_shared && active == "true" => {
            return Err(SourceError::Lost(format!("{server}: slot {name} is in use")));
        }
        // Another invalidator has executed the changes in between.
        Some(from) if settings.is_shared && lsn(restart).is_some_and(|lsn| lsn < from) => confirmed,
        Some(from) => {
            let (confirmed, from) = (Position::of_lsn(confirmed), Position::of_lsn(from));
            return Err(SourceError::Purged(match settings.is_shared {
                true => format!(
                    "{server}: slot {name} was created after {from}, or another invalidator moved it \
                     to {confirmed} without a report to this one"
                ),
                false => format!("{server}: slot {name} has confirmed {confirmed}, after {from}"),
            }));
        }
        None if settings.is_shared => confirmed,
        // To start at the current end, the changes in the slot are skipped.
        None => {
            let end = connection.text(LOG_END).await.map_err(failed)?;
            lsn(&end)
                .map(|end| end.max(confirmed))
                .ok_or_else(|| SourceError::Lost(format!("{server}: no position of its log")))?
        }
    };
    Ok((start, confirmed))
}

/// The slot's confirmed position, state, plugin and oldest place in the log, whether it is in use,
/// and why the server has invalidated it; none if there is no slot.
async fn found_slot(
    connection: &mut Connection,
    settings: &Settings,
) -> Result<Option<Vec<String>>, Failure> {
    let query = format!(
        "SELECT COALESCE(confirmed_flush_lsn::text, ''), COALESCE(wal_status, ''), plugin, \
         COALESCE(restart_lsn::text, ''), active::text, \
         COALESCE(to_jsonb(s) ->> 'invalidation_reason', '') \
         FROM pg_replication_slots s WHERE slot_name = {}",
        literal(&settings.slot)
    );
    Ok(connection.rows(&query).await?.into_iter().next())
}

/// The failure of a server without the slot.
fn lacks_slot(settings: &Settings, server: &str, is_standby: bool) -> SourceError {
    let name = &settings.slot;
    if is_standby {
        return SourceError::Lost(format!("{server}: a standby without slot {name}"));
    }
    SourceError::Purged(format!(
        "{server}: slot {name} is gone, and with it the log since the checkpoint"
    ))
}

/// Creates the slot of this name, which is quoted. Returns its position.
///
/// Standbys synchronize it (PostgreSQL 17) if the primary sends nothing that they lack. Otherwise,
/// a standby without the log's end would count as one that has all of it.
async fn make(connection: &mut Connection, name: &str, is_standby: bool) -> Result<u64, Failure> {
    let awaited = "SELECT COALESCE(current_setting('synchronized_standby_slots', true), '')";
    let has_failover = !is_standby && !connection.text(awaited).await?.is_empty();
    let failover = if has_failover { ", failover => true" } else { "" };
    let query = format!(
        "SELECT lsn::text FROM pg_create_logical_replication_slot({name}, 'pgoutput'{failover})"
    );
    lsn(&connection.text_within(&query, OTHERS_MAX).await?)
        .ok_or(Failure::Unexpected("a slot without a position"))
}

impl ChangeSource for PostgresSource {
    type Probe = PostgresProbe;

    async fn open(&mut self, from: Option<&Position>) -> Result<Position, SourceError> {
        self.reading = None;
        from.map(lsn_of).transpose()?;
        let mut attempts = self.rotation.attempts();
        for _ in 0..self.settings.servers.len() {
            let server = self.current_server();
            let opened = match attempts.is_over() {
                true => self.fits(&server, from).await.map(|()| None),
                false => self.open_at(&server, from).await.map(Some),
            };
            match opened {
                Ok(None) => {}
                Ok(Some((position, mut reading))) => {
                    let lacking = self.rotation.opened().filter(|_| from.is_some());
                    reading.lacking = reading.lacking.or(lacking);
                    self.notes.unfit(attempts.faults());
                    // Without `from`, confirmed positions may be those of another log. A position
                    // before the slot's would move the slot back.
                    let confirmed = from.map_or(0, |_| self.confirmed);
                    self.confirmed = confirmed.max(reading.slot_confirmed);
                    self.delivered = from.map_or(0, |_| self.delivered);
                    self.reading = Some(reading);
                    self.is_stuck = false;
                    return Ok(position);
                }
                Err(error) => self.rotation.failed(&mut attempts, error)?,
            }
            self.rotation.advance();
        }
        Err(attempts.error())
    }

    async fn next(&mut self) -> Result<Event, SourceError> {
        let (confirmed, delivered) = (self.confirmed, self.delivered);
        let Some(reading) = &mut self.reading else {
            return Err(SourceError::Lost("the log is not open".to_owned()));
        };
        match reading.next(confirmed, delivered).await {
            Ok(event) => {
                match event {
                    Event::Commit { .. } => self.rotation.read(),
                    Event::Idle { .. } => self.rotation.reached_end(),
                    _ => {}
                }
                Ok(event)
            }
            Err(error) => {
                self.parts = Some(reading.recheck.parts());
                self.reading = None;
                let error = error.in_log(&self.current_server());
                self.is_stuck = matches!(error, SourceError::Purged(_));
                Err(self.rotation.ended(error))
            }
        }
    }

    fn probe(&self) -> PostgresProbe {
        PostgresProbe::new(self.settings.clone(), self.current_server())
    }

    /// The server reports only the place that it has sent.
    fn behind_bytes(&self) -> Option<u64> {
        None
    }

    fn server(&self) -> Option<&str> {
        let server = &self.settings.servers[self.rotation.current()];
        self.reading.as_ref().map(|_| server.as_str())
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

    fn confirm(&mut self, position: &Position) {
        if let Position::Lsn { lsn, .. } = position {
            self.confirmed = self.confirmed.max(*lsn);
        }
    }

    fn delivered(&mut self, position: &Position) {
        if let Position::Lsn { lsn, .. } = position {
            self.delivered = *lsn;
        }
    }
}

impl Reading {
    /// The next event.
    async fn next(&mut self, confirmed: u64, delivered: u64) -> Result<Event, Failure> {
        loop {
            if let Some(event) = self.decoder.pop() {
                return self.converted(event, confirmed).await;
            }
            if self.reported_at.elapsed() >= FEEDBACK_EVERY {
                self.report(confirmed).await?;
            }
            // Between transactions, so that a flush precedes the next changes.
            if let Some(why) = self.lacking.take_if(|_| !self.decoder.is_open()) {
                return Ok(Event::Lacking { why });
            }
            if self.decoder.was_told() {
                self.recheck.told();
                self.forget();
            }
            if self.decoder.has_new_table() {
                self.recheck.ask();
            }
            let read = timeout(SILENCE_MAX, self.connection.replicated());
            let read = tokio::select! {
                why = self.recheck.gap() => {
                    self.lacking.get_or_insert(why);
                    self.forget();
                    continue;
                }
                read = read => read,
            };
            let mut message = read.map_err(|_| Failure::Silent)??;
            match message.try_get_u8() {
                // XLogData: its place in the log, twice, the server's clock, and a message.
                Ok(b'w') if message.len() >= 24 => {
                    message.advance(24);
                    if self.has_partitions
                        && let Some((xid, number)) = self.decoder.unknown(&message)
                    {
                        self.ask(xid, number, confirmed).await?;
                    }
                    self.decoder.push(&message);
                    self.read = self.read.max(self.decoder.position());
                }
                // Keepalive: the place sent, the server's clock, whether it requests an answer.
                Ok(b'k') if message.len() >= 17 => {
                    let end = message.get_u64();
                    if self.is_ending(message.get(8) == Some(&1)) && delivered >= end {
                        self.slot_confirmed = self.slot_confirmed.max(delivered);
                    }
                    if !self.decoder.is_open() && end > self.read {
                        // There are no changes for us up to here, so the server need not keep it.
                        self.read = end;
                        self.report(confirmed).await?;
                        return Ok(Event::Idle { position: self.decoder.position_at(end) });
                    }
                    self.report(confirmed).await?;
                    return Ok(Event::Alive);
                }
                _ => return Err(Failure::Unexpected("in the log")),
            }
        }
    }

    /// True if the server shuts down: it then waits until it has an answer that everything which it
    /// has sent was executed, and requests one after each other answer. Otherwise, it requests one
    /// after two seconds without an answer.
    fn is_ending(&mut self, is_asked: bool) -> bool {
        if !is_asked {
            return false;
        }
        let before = self.asked_at.replace(Instant::now());
        before.is_some_and(|at| at.elapsed() < ASKED_AGAIN)
    }

    /// Queries the kind of a relation that this transaction has rows of.
    async fn ask(&mut self, xid: u32, number: u32, confirmed: u64) -> Result<(), Failure> {
        let catalogue = Arc::clone(&self.catalogue);
        let asked = catalogue.after(xid, number);
        let (followed, is_gone) = self.while_reporting(asked, confirmed).await?;
        self.has_partitions = followed.has_partitions;
        self.decoder.set_relations(followed.tables);
        if is_gone {
            self.decoder.set_gone(number);
        }
        Ok(())
    }

    /// The event with values as applications have them.
    async fn converted(&mut self, event: Event, confirmed: u64) -> Result<Event, Failure> {
        let Some(mut converter) = self.converter.take() else { return Ok(event) };
        let event = self.while_reporting(converter.converted(event), confirmed).await?;
        self.converter = Some(converter);
        Ok(event)
    }

    /// Waits for an answer while reporting to the server.
    async fn while_reporting<T>(
        &mut self,
        answer: impl Future<Output = Result<T, Failure>>,
        confirmed: u64,
    ) -> Result<T, Failure> {
        let mut answer = pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = sleep(FEEDBACK_EVERY) => self.report(confirmed).await?,
            }
        }
    }

    /// Wanted tables may have other relations from now on.
    fn forget(&mut self) {
        self.decoder.set_relations(BTreeMap::new());
        self.has_partitions = true;
    }

    async fn report(&mut self, confirmed: u64) -> Result<(), Failure> {
        self.reported_at = Instant::now();
        // An earlier position would move the slot back.
        self.slot_confirmed = self.slot_confirmed.max(confirmed);
        let confirmed = self.slot_confirmed;
        let sent = self.connection.report(self.read.max(confirmed), confirmed);
        timeout(SILENCE_MAX, sent).await.map_err(|_| Failure::Silent)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reader of a log that was read up to `read`.
    pub(super) fn reading(connection: Connection, read: u64) -> Reading {
        let (settings, rules) = (connection::tests::settings(), Rules::default());
        let (notes, every) = (Notes::default(), Duration::from_secs(3600));
        let check = || async { Ok(Checked::default()) };
        Reading {
            connection,
            decoder: Decoder::new(&rules, read),
            converter: None,
            catalogue: Arc::new(Catalogue { settings, server: String::new(), tables: Vec::new() }),
            has_partitions: false,
            recheck: Recheck::start(every, Checked::default(), notes, check),
            lacking: None,
            slot_confirmed: 0,
            read,
            asked_at: None,
            reported_at: Instant::now(),
        }
    }
}
