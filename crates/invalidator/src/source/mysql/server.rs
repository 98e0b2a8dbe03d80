//! A connection to a server: its identity, the end of its log, and the log itself.

use std::time::Duration;

use changes::gtid::{GtidSet, Origin};
use changes::position::{Position, maria_domains, maria_text};
use mysql_async::prelude::Queryable as _;
use mysql_async::{
    BinlogStream, BinlogStreamRequest, Conn, DriverError, Error, GnoInterval, OptsBuilder, Row,
    Sid, Value,
};
use mysql_common::packets::{InvalidTag, Tag};
use tokio::time::{sleep, timeout};

use super::domains::{self, Comparison, Domains, History};
use super::{By, Settings, log_files, offset, refused, tls};
use crate::change_source::SourceError;
use crate::source::ssl_mode::SslMode;

/// The make of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    MariaDb,
    MySql,
}

/// A connection for queries.
#[derive(Debug)]
pub(super) struct Server {
    conn: Conn,
    name: String,
    pub(super) flavour: Flavour,
    /// The three numbers of its version.
    pub(super) version: (u32, u32, u32),
}

/// The time limit for connecting.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// The time limit for an answer; to find a position in a log, the server reads a whole file.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The interval at which the engine's progress is queried.
const COMMITTED_EVERY: Duration = Duration::from_millis(20);

/// The size limit for an event of the log. A server sends events of up to this size, regardless of
/// its `max_allowed_packet`: the event of an updated row has the old and the new row.
const EVENT_BYTES_MAX: usize = 1 << 30;

/// The longest password that RSA with OAEP encrypts with a key of 2048 bits, which is the size of
/// the key that MySQL creates: 256 bytes less 42 of padding and the final zero.
const PASSWORD_BYTES_MAX: usize = 213;

/// MariaDB's rows for replication that runs, and for a node of a Galera cluster, which gets the
/// transactions of the other nodes.
const MARIADB_REPLICATES: &str = "SHOW GLOBAL STATUS WHERE \
    Variable_name = 'Slaves_running' AND Value > 0 \
    OR Variable_name = 'wsrep_connected' AND Value = 'ON'";

impl Server {
    pub(super) async fn connect(settings: &Settings, name: &str) -> Result<Self, SourceError> {
        let (host, port) = hostport::split(name);
        let port = port.unwrap_or("3306").parse().map_err(|_| {
            SourceError::Wrong(format!("{name}: the port is no number from 1 to 65535"))
        })?;
        let options = OptsBuilder::default()
            .ip_or_hostname(host)
            .tcp_port(port)
            .prefer_socket(false)
            .user(Some(&settings.user))
            .pass(Some(&settings.password))
            .max_allowed_packet(Some(EVENT_BYTES_MAX));
        let mode = SslMode::of(settings.sslmode, host, SslMode::Disable);
        let ssl = tls::options(mode, settings.sslrootcert.as_ref());
        let ssl = ssl.map_err(|error| SourceError::Wrong(format!("{name}: {error}")))?;
        let connecting = async {
            if ssl.is_none() {
                return without_tls(settings, name, options).await;
            }
            match Conn::new(options.clone().ssl_opts(ssl)).await {
                Err(Error::Driver(DriverError::NoClientSslFlagFromServer))
                    if mode == SslMode::Prefer =>
                {
                    without_tls(settings, name, options).await
                }
                connected => connected.map_err(|error| refused(name, &error)),
            }
        };
        let conn = match timeout(CONNECT_MAX, connecting).await {
            Ok(Ok(conn)) => conn,
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                return Err(SourceError::Lost(format!("{name}: no answer within {CONNECT_MAX:?}")));
            }
        };
        let (name, flavour) = (name.to_owned(), Flavour::MariaDb);
        let mut server = Self { conn, name, flavour, version: (0, 0, 0) };
        let version = server.text("SELECT VERSION()").await?;
        if !version.to_ascii_lowercase().contains("mariadb") {
            server.flavour = Flavour::MySql;
        }
        let mut numbers = version.split(['.', '-']).map_while(|part| part.parse().ok());
        let mut next = || numbers.next().unwrap_or(0);
        server.version = (next(), next(), next());
        Ok(server)
    }

    /// Queries rows.
    pub(super) async fn rows(&mut self, query: &str) -> Result<Vec<Row>, SourceError> {
        answer(&self.name, self.conn.query::<Row, _>(query)).await
    }

    /// Queries one value as text; NULL and no row are empty.
    pub(super) async fn text(&mut self, query: &str) -> Result<String, SourceError> {
        let row = self.rows(query).await?.into_iter().next();
        Ok(row.map(|row| cell(&row, 0)).unwrap_or_default())
    }

    /// Runs a statement without an answer.
    pub(super) async fn set(&mut self, statement: &str) -> Result<(), SourceError> {
        answer(&self.name, self.conn.query_drop(statement)).await
    }

    /// Runs a statement without an answer, which may fail with one of these codes.
    pub(super) async fn set_unless(
        &mut self,
        statement: &str,
        harmless: &[u16],
    ) -> Result<(), SourceError> {
        let asked = async {
            match self.conn.query_drop(statement).await {
                Err(Error::Server(error)) if harmless.contains(&error.code) => Ok(()),
                done => done,
            }
        };
        answer(&self.name, asked).await
    }

    /// Identifies the server, in contrast to its address, which another server may take over.
    pub(super) async fn identity(&mut self) -> Result<String, SourceError> {
        // MariaDB has the first, in newer versions also the second; MySQL has the first and third.
        let query = "SHOW GLOBAL VARIABLES WHERE \
            Variable_name IN ('server_id', 'server_uid', 'server_uuid')";
        let rows = self.rows(query).await?;
        Ok(rows.iter().map(|row| cell(row, 1)).collect::<Vec<_>>().join("/"))
    }

    /// The current end of the log's part that is visible to other sessions.
    pub(super) async fn end(&mut self, by: By) -> Result<Position, SourceError> {
        match (by, self.flavour) {
            (By::Gtid, Flavour::MariaDb) => self.visible_end().await.map(Position::MariaGtid),
            (By::Gtid, Flavour::MySql) => self.executed().await.map(Position::MysqlGtid),
            (By::File, Flavour::MariaDb) => {
                let (name, offset) = self.seen().await?;
                Ok(Position::File { name, offset })
            }
            (By::File, Flavour::MySql) => {
                let (name, offset) = self.logged().await?;
                Ok(Position::File { name, offset })
            }
        }
    }

    /// MariaDB: the last transactions of the log that are committed in the engine.
    async fn visible_end(&mut self) -> Result<Domains, SourceError> {
        let (file, offset) = self.seen().await?;
        let query = format!("SELECT BINLOG_GTID_POS('{file}', {offset})");
        let rows = self.rows(&query).await?;
        if let Some(row) = rows.first().filter(|row| row.as_ref(0) != Some(&Value::NULL)) {
            return self.domains("BINLOG_GTID_POS", &cell(row, 0));
        }
        // The server could not search the file, for example because an event there is larger than
        // its max_allowed_packet. The log's last transactions are known in any case: they are the
        // end once they are committed.
        let text = self.text("SELECT @@GLOBAL.gtid_binlog_pos").await?;
        let (file, offset) = self.logged().await?;
        let waiting = async {
            while !self.has_committed(&file, offset).await? {
                sleep(COMMITTED_EVERY).await;
            }
            Ok(())
        };
        timeout(ANSWER_MAX, waiting).await.unwrap_or_else(|_| {
            Err(SourceError::Lost(format!(
                "{}: the end of its log ({file}:{offset}) is not committed within {ANSWER_MAX:?}",
                self.name
            )))
        })?;
        self.domains("gtid_binlog_pos", &text)
    }

    /// MariaDB: true once the engine has committed the log up to this place.
    async fn has_committed(&mut self, file: &str, offset: u64) -> Result<bool, SourceError> {
        let (seen, until) = self.seen().await?;
        Ok((log_files::number(&seen), until) >= (log_files::number(file), offset))
    }

    fn domains(&self, what: &str, text: &str) -> Result<Domains, SourceError> {
        maria_domains(text).ok_or_else(|| self.strange(what, text))
    }

    /// The file and offset of the log's end.
    async fn logged(&mut self) -> Result<(String, u64), SourceError> {
        let row = self.log_status().await?;
        let row = row
            .ok_or_else(|| SourceError::Wrong(format!("{}: it writes no binary log", self.name)))?;
        let offset = cell(&row, 1);
        let number = offset.parse().map_err(|_| self.strange("position", &offset))?;
        Ok((cell(&row, 0), number))
    }

    /// The log's file and offset, and the databases that it includes and omits; none if there is no
    /// log.
    pub(super) async fn log_status(&mut self) -> Result<Option<Row>, SourceError> {
        let has_new_words = self.has_new_words();
        let query = if has_new_words { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
        Ok(self.rows(query).await?.into_iter().next())
    }

    /// True for MySQL from 9.6 on, unless it is set to cascade as before. In other servers, the
    /// storage engine itself changes rows where a foreign key cascades, and does not log that.
    pub(super) async fn logs_cascades(&mut self) -> Result<bool, SourceError> {
        if self.flavour == Flavour::MariaDb || self.version < (9, 6, 0) {
            return Ok(false);
        }
        let query = "SHOW GLOBAL VARIABLES WHERE Variable_name = 'innodb_native_foreign_keys' \
                     AND Value = 'OFF'";
        Ok(!self.rows(query).await?.is_empty())
    }

    /// MySQL 8.4 has only the new words.
    fn has_new_words(&self) -> bool {
        self.flavour == Flavour::MySql && self.version >= (8, 2, 0)
    }

    /// The setting by which a replica omits replicated changes from its log; none elsewhere.
    pub(super) async fn unlogged_replication(&mut self) -> Result<Option<String>, SourceError> {
        let query = match self.flavour {
            // Its `SHOW` needs a right that nothing else needs.
            Flavour::MariaDb => {
                "SELECT @@GLOBAL.gtid_slave_pos FROM dual WHERE @@GLOBAL.gtid_slave_pos <> ''"
            }
            Flavour::MySql => self.replica_status(),
        };
        if self.rows(query).await?.is_empty() {
            return Ok(None);
        }
        let settings = "SHOW GLOBAL VARIABLES WHERE Value = 'OFF' \
                        AND Variable_name IN ('log_replica_updates', 'log_slave_updates')";
        Ok(self.rows(settings).await?.first().map(|row| cell(row, 0)))
    }

    /// False for a server that is set to be read only.
    pub(super) async fn accepts_writes(&mut self) -> Result<bool, SourceError> {
        let read_only = self.text("SELECT @@GLOBAL.read_only").await?;
        // MariaDB 12 has several words for a server without writes.
        Ok(["0", "OFF"].contains(&read_only.as_str()))
    }

    /// The query for the state of replication.
    pub(super) fn replica_status(&self) -> &'static str {
        match self.flavour {
            Flavour::MariaDb => "SHOW ALL SLAVES STATUS",
            Flavour::MySql if self.has_new_words() => "SHOW REPLICA STATUS",
            Flavour::MySql => "SHOW SLAVE STATUS",
        }
    }

    /// True for a server that may still get transactions of others: it replicates, has stopped
    /// applying received ones, or accepts no writes.
    async fn is_replica(&mut self) -> Result<bool, SourceError> {
        if !self.accepts_writes().await? {
            return Ok(true);
        }
        if self.flavour == Flavour::MariaDb && !self.rows(MARIADB_REPLICATES).await?.is_empty() {
            return Ok(true);
        }
        let channels = match self.rows(self.replica_status()).await {
            // Without the right SLAVE MONITOR, MariaDB hides an error that stopped replication.
            Err(SourceError::Wrong(_)) if self.flavour == Flavour::MariaDb => return Ok(false),
            channels => channels?,
        };
        let is = |row: &Row, name: &str, idle: &str| {
            let at = row.columns_ref().iter().position(|column| column.name_str().ends_with(name));
            at.is_some_and(|at| cell(row, at) != idle)
        };
        Ok(channels.iter().any(|row| {
            is(row, "_IO_Running", "No")
                || is(row, "_SQL_Running", "No")
                || is(row, "Last_SQL_Errno", "0")
        }))
    }

    /// MariaDB: the file and offset of its log up to which the engine has committed.
    pub(super) async fn seen(&mut self) -> Result<(String, u64), SourceError> {
        let rows = self.rows("SHOW STATUS LIKE 'Binlog\\_snapshot\\_%'").await?;
        let value = |name: &str| {
            let row = rows.iter().find(|row| cell(row, 0).eq_ignore_ascii_case(name));
            row.map(|row| cell(row, 1)).unwrap_or_default()
        };
        let offset = value("Binlog_snapshot_position");
        let number = offset.parse();
        let number = number.map_err(|_| self.strange("Binlog_snapshot_position", &offset))?;
        Ok((value("Binlog_snapshot_file"), number))
    }

    /// MySQL: the transactions that are committed in the engine.
    pub(super) async fn executed(&mut self) -> Result<GtidSet, SourceError> {
        let text = self.text("SELECT @@GLOBAL.gtid_executed").await?.replace('\n', "");
        text.parse().map_err(|_| self.strange("gtid_executed", &text))
    }

    /// Returns the same position as this server knows it. Fails for a position after transactions
    /// that the server lacks.
    pub(super) async fn known(&mut self, position: &Position) -> Result<Position, SourceError> {
        match (position, self.flavour) {
            (Position::MariaGtid(domains), Flavour::MariaDb) => {
                let known = self.known_domains(position, domains).await?;
                return Ok(Position::MariaGtid(known));
            }
            (Position::MysqlGtid(set), Flavour::MySql) => self.has_had_all(set).await?,
            _ => {}
        }
        Ok(position.clone())
    }

    /// Returns a position of MariaDB without the domains that were deleted from this server's log:
    /// if they are used again, their numbers begin again, and the server would skip the first ones.
    async fn known_domains(
        &mut self,
        position: &Position,
        domains: &Domains,
    ) -> Result<Domains, SourceError> {
        // Queried in this order, because a replicated transaction is first in the log.
        let replicated = self.text("SELECT @@GLOBAL.gtid_slave_pos").await?;
        // The server adds an identifier before it sends the transaction to any replica.
        let state = self.text("SELECT @@GLOBAL.gtid_binlog_state").await?;
        let own = self.text("SELECT @@GLOBAL.server_id").await?;
        let history = History {
            own: own.parse().map_err(|_| self.strange("server_id", &own))?,
            logged: domains::logged(&state)
                .ok_or_else(|| self.strange("gtid_binlog_state", &state))?,
            replicated: self.domains("gtid_slave_pos", &replicated)?,
        };
        let name = &self.name;
        match history.compare(domains) {
            Comparison::HasAll { deleted } => {
                let known = domains.iter().filter(|(domain, _)| !deleted.contains(domain));
                Ok(known.map(|(domain, last)| (*domain, *last)).collect())
            }
            Comparison::LacksOwn => Err(SourceError::Purged(format!(
                "{name}: its log ends before {position}, which it had: it was reset, or lost its end"
            ))),
            Comparison::Passed(passed) => Err(SourceError::Purged(format!(
                "{name}: it lacks {passed}, which was read, and has later transactions"
            ))),
            Comparison::Lacks(lacking) => Err(self.lacks(&lacking).await?),
        }
    }

    /// Fails for a position of MySQL after transactions of other servers that this one lacks. MySQL
    /// itself compares only its own transactions, and sends those that follow.
    async fn has_had_all(&mut self, set: &GtidSet) -> Result<(), SourceError> {
        // Transactions in the log that are not committed yet, each with `#` and its session. They
        // are queried first, because they may be committed in the meantime.
        let owned = self.text("SELECT @@GLOBAL.gtid_owned").await?;
        let owned = without_sessions(&owned);
        let query = format!(
            "SELECT GTID_SUBTRACT(GTID_SUBTRACT('{set}', @@GLOBAL.gtid_executed), '{owned}')"
        );
        let lacking = self.text(&query).await?.replace('\n', "");
        let own = self.text("SELECT @@GLOBAL.server_uuid").await?;
        let is_own = |origin: &str| origin.trim().starts_with(&own);
        if lacking.split(',').all(|origin| origin.is_empty() || is_own(origin)) {
            return Ok(());
        }
        Err(self.lacks(&lacking).await?)
    }

    /// The error for a position after these transactions of other servers, which this one lacks.
    ///
    /// A server that accepts writes does not get them any more: they were lost when it took over.
    async fn lacks(&mut self, lacking: &str) -> Result<SourceError, SourceError> {
        let why = format!("{}: it lacks transactions that were read: {lacking}", self.name);
        Ok(match self.is_replica().await? {
            true => SourceError::Lost(format!("{why}; it is a replica and may get them")),
            false => SourceError::Purged(format!("{why}; they were lost when it took over")),
        })
    }

    fn strange(&self, what: &str, text: &str) -> SourceError {
        SourceError::Wrong(format!("{}: its {what} '{text}' is not understood", self.name))
    }

    /// Requests the log from a position on.
    pub(super) async fn follow(
        mut self,
        settings: &Settings,
        from: &Position,
    ) -> Result<BinlogStream, SourceError> {
        // Nanoseconds. An idle server sends a heartbeat each second.
        self.set("SET @master_heartbeat_period=1000000000, @source_heartbeat_period=1000000000")
            .await?;
        if self.flavour == Flavour::MariaDb {
            // Otherwise it hides transaction identifiers behind BEGIN.
            self.set("SET @mariadb_slave_capability=4").await?;
        }
        let request = BinlogStreamRequest::new(settings.server_id);
        let name = self.name.clone();
        let request = match (from, self.flavour) {
            (Position::File { offset, .. }, _) if *offset > offset::REQUESTED_MAX => {
                return Err(SourceError::Wrong(format!(
                    "{name}: position {from} lies beyond 4 GiB of its file, where a server cannot begin; start at offset 4 of the next file"
                )));
            }
            (Position::File { name, offset }, _) => {
                request.with_filename(name.as_bytes()).with_pos(*offset)
            }
            (Position::MariaGtid(domains), Flavour::MariaDb) => {
                let state = maria_text(domains);
                self.set(&format!("SET @slave_connect_state='{state}', @slave_gtid_strict_mode=0, @slave_gtid_ignore_duplicates=0"))
                    .await?;
                request
            }
            (Position::MysqlGtid(set), Flavour::MySql) => {
                let sids = sids(set).map_err(|error| {
                    SourceError::Wrong(format!("{name}: position {from}: {error}"))
                })?;
                request.with_gtid().with_gtid_set(sids)
            }
            (other, flavour) => {
                return Err(SourceError::Wrong(format!(
                    "{name}: position {other} means nothing to {flavour:?}"
                )));
            }
        };
        answer(&name, self.conn.get_binlog_stream(request)).await
    }
}

/// Connects without TLS. MySQL's `caching_sha2_password` then encrypts the password with the
/// server's key, and the library panics if the password is too long for that.
async fn without_tls(
    settings: &Settings,
    name: &str,
    options: OptsBuilder,
) -> Result<Conn, SourceError> {
    if settings.password.len() > PASSWORD_BYTES_MAX {
        return Err(SourceError::Wrong(format!(
            "{name}: the password is longer than {PASSWORD_BYTES_MAX} bytes, which needs TLS; set sslmode in [source]"
        )));
    }
    Conn::new(options).await.map_err(|error| refused(name, &error))
}

/// A list of MySQL's transactions without the `#` and session number after each.
fn without_sessions(owned: &str) -> String {
    let mut is_session = false;
    let is_kept = |letter: &char| {
        is_session = *letter == '#' || is_session && letter.is_ascii_digit();
        !is_session && !letter.is_whitespace()
    };
    owned.chars().filter(is_kept).collect()
}

/// The server's answer, or an error if it comes too late.
async fn answer<T>(
    name: &str,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T, SourceError> {
    match timeout(ANSWER_MAX, asked).await {
        Ok(said) => said.map_err(|error| refused(name, &error)),
        Err(_) => Err(SourceError::Lost(format!("{name}: no answer within {ANSWER_MAX:?}"))),
    }
}

/// MySQL's protocol has intervals without their end.
fn sids(set: &GtidSet) -> Result<Vec<Sid<'static>>, InvalidTag> {
    let one = |(origin, intervals): (&Origin, &[(u64, u64)])| {
        let mut sid = Sid::new(origin.server);
        if !origin.tag.is_empty() {
            sid = sid.with_tag(Tag::new(origin.tag.clone())?);
        }
        Ok(intervals
            .iter()
            .fold(sid, |sid, (first, last)| sid.with_interval(GnoInterval::new(*first, last + 1))))
    };
    set.iter().map(one).collect()
}

/// A column of a row as text; NULL is empty.
pub(super) fn cell(row: &Row, at: usize) -> String {
    match row.as_ref(at) {
        Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Some(Value::Int(number)) => number.to_string(),
        Some(Value::UInt(number)) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use mysql_common::packets::{AuthPlugin, AuthPluginData};

    use super::*;

    /// Without its feature, the library panics.
    #[test]
    fn a_server_that_asks_for_ed25519_gets_an_answer() {
        let answer = AuthPlugin::Ed25519.gen_data(Some("secret"), &[7; 32]);
        assert!(matches!(answer, Some(AuthPluginData::Ed25519(_))));
    }

    #[tokio::test]
    async fn a_password_that_is_too_long_without_tls_is_refused_before_the_login() {
        let mut settings = Settings::for_tests();
        settings.password = "x".repeat(PASSWORD_BYTES_MAX + 1);
        let SourceError::Wrong(why) = Server::connect(&settings, "127.0.0.1:1").await.unwrap_err()
        else {
            panic!("it would be tried again");
        };
        assert!(why.contains("needs TLS"), "{why}");
        settings.password.pop();
        let refused = Server::connect(&settings, "127.0.0.1:1").await;
        assert!(matches!(refused, Err(SourceError::Lost(_))));
    }

    #[test]
    fn session_counters_are_removed_from_gtid_sets() {
        assert_eq!(without_sessions("ab-c1:5#17:6#3,\nd2:7#118"), "ab-c1:5:6,d2:7");
        assert_eq!(without_sessions(""), "");
    }
}
