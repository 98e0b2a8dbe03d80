//! Decodes events of the binary log into changes and ends of transactions.
//!
//! ```text
//!     MariaDB   GTID .................... changes .. XID | COMMIT | XA_PREPARE
//!               GTID(standalone) statement
//!     MySQL     GTID  BEGIN | XA START .. changes .. XID | COMMIT | XA_PREPARE
//!               GTID statement
//! ```
//!
//! An event that is not known to be harmless is a gap: nothing is skipped silently.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;

use changes::change::{Change, Effect, Event, Mark};
use changes::comment;
use changes::gtid::Origin;
use changes::keys::Rules;
use changes::position::Position;
use mysql_async::binlog::BinlogChecksumAlg;
use mysql_async::binlog::events::{
    Event as Logged, EventData, GtidEvent, RotateEvent, StatusVar, StatusVarVal, StatusVars,
    TableMapEvent,
};
use mysql_common::binlog::consts::{RowsEventFlags, StatusVarKey};
use mysql_common::proto::MySerialize as _;

use super::By;
use super::compressed;
use super::event_type;
use super::offset;
use super::rows::Rows;
use super::server::Flavour;
use super::statement::{self, Charset, Control, Followed, Session, control, effect};
use super::unfinished::{Progress, Unfinished};

/// The state of decoding, and the decoded events that were not popped yet.
#[derive(Debug)]
pub(super) struct Decoder {
    server: statement::Origin,
    by: By,
    rows: Rows,
    followed: Followed,
    pending: VecDeque<Event>,
    /// The end of the last whole transaction.
    position: Position,
    /// The transaction being read.
    reading: Option<Gtid>,
    is_open: bool,
    progress: Progress,
    /// The current file, and the offset in it.
    file: String,
    offset: u64,
    /// True once a format description showed whether events have checksums.
    is_described: bool,
    rules: Commented,
    /// True after the text of the statement whose rows follow, or after the gap for its absence.
    has_text: bool,
}

/// The rules' requirements on statements.
#[derive(Debug, Clone, Copy)]
struct Commented {
    /// Their comments name keys.
    comments: bool,
    /// Rows are a gap without their statement's text.
    needs_text: bool,
}

#[derive(Debug, Clone)]
enum Gtid {
    Maria { domain: u32, server: u32, sequence: u64 },
    Mysql { origin: Origin, number: u64 },
}

/// Characters of a statement that are kept, for an error message.
const TEXT_CHARS: usize = 200;

/// Flag of a MariaDB identifier: one statement without a separate commit follows.
const STANDALONE: u8 = 1;

impl Decoder {
    pub(super) fn new(server: statement::Origin, by: By, from: &Position, rules: &Rules) -> Self {
        let (file, offset) = match from {
            Position::File { name, offset } => (name.clone(), *offset),
            _ => (String::new(), 0),
        };
        // MariaDB has no event with the text; if there are rules for tables, comments count only in
        // statements that it logs as text.
        let needs_text = rules.comments && (server.flavour == Flavour::MySql || !rules.need_rows());
        Self {
            server,
            by,
            rules: Commented { comments: rules.comments, needs_text },
            has_text: false,
            rows: Rows::new(rules),
            followed: Followed::new(rules),
            pending: VecDeque::new(),
            position: from.clone(),
            reading: None,
            is_open: false,
            progress: Progress::default(),
            file,
            offset,
            is_described: false,
        }
    }

    /// True once after the description of a wanted table changed.
    pub(super) const fn has_new_table(&mut self) -> bool {
        self.rows.has_new_table()
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.pending.pop_front()
    }

    /// The current file and offset; the name is empty while unknown.
    pub(super) fn place(&self) -> (&str, u64) {
        (&self.file, self.offset)
    }

    /// Decodes an event. After an error, the connection is unreliable.
    pub(super) fn push<'t>(
        &mut self,
        event: &Logged,
        tables: impl Fn(u64) -> Option<&'t TableMapEvent<'static>>,
    ) -> Result<(), Damaged> {
        verify(event)?;
        self.progress.note(event)?;
        let header = event.header();
        self.offset = offset::after(event, self.offset).unwrap_or(self.offset);
        let decoded = match compressed::plain(event) {
            Ok(Some(plain)) => self.decode(&plain, tables),
            Ok(None) => self.decode(event, tables),
            Err(error) => Err(error),
        };
        if let Err(error) = decoded {
            self.gap(format!(
                "an event of type {} at {}:{}: {error}",
                header.event_type_raw(),
                self.file,
                self.offset
            ));
        }
        Ok(())
    }

    fn gap(&mut self, why: String) {
        self.progress.end();
        self.pending.push_back(Event::Gap { why });
    }

    fn decode<'t>(
        &mut self,
        event: &Logged,
        tables: impl Fn(u64) -> Option<&'t TableMapEvent<'static>>,
    ) -> io::Result<()> {
        if self.server.flavour == Flavour::MariaDb && self.decode_mariadb(event)? {
            return Ok(());
        }
        let Some(data) = event.read_data()? else {
            if event.header().event_type_raw() == event_type::HEARTBEAT_V2 {
                self.pending.push_back(Event::Alive);
                return Ok(());
            }
            return Err(io::Error::other("its type is unknown"));
        };
        let time_us = u64::from(event.header().timestamp()) * 1_000_000;
        match data {
            EventData::TableMapEvent(table) => self.rows.describe(event, &table)?,
            EventData::RowsEvent(rows) => {
                let is_known = self.has_text
                    || !self.rules.needs_text
                    || rows.rows_data().is_empty()
                    || self.rows.need_no_text(rows.table_id());
                self.has_text &= !rows.flags().contains(RowsEventFlags::STMT_END);
                if !is_known {
                    // The gap is that of the statement, of which more rows may follow.
                    self.has_text = !rows.flags().contains(RowsEventFlags::STMT_END);
                    return Err(io::Error::other(
                        "rows came without their statement, whose comments name keys: a session has \
                         binlog_rows_query_log_events=OFF, or another binlog_format",
                    ));
                }
                let pending = &mut self.pending;
                let found = |change| pending.push_back(Event::Change(change));
                self.rows.changes(&rows, tables(rows.table_id()), found)?;
            }
            EventData::QueryEvent(query) => {
                let charset = charset(query.status_vars());
                self.statement(&query.schema(), charset, query.query_raw(), time_us);
            }
            EventData::ExecuteLoadQueryEvent(load) => {
                let charset = charset(load.status_vars());
                self.statement(&load.schema(), charset, load.query_raw(), time_us);
            }
            EventData::XidEvent(_) => self.commit(time_us),
            EventData::XaPrepareLogEvent(data) => self.prepared(&data, time_us)?,
            EventData::GtidEvent(gtid) => self.mysql_gtid(&gtid),
            EventData::AnonymousGtidEvent(_) => {
                self.begin();
                self.reading = None;
                self.is_open = false;
            }
            EventData::RotateEvent(rotate) => self.rotate(event, &rotate),
            EventData::FormatDescriptionEvent(_) => self.is_described = true,
            // The library delivers its contents as separate events.
            EventData::TransactionPayloadEvent(payload) => self.progress.decompress(&payload),
            EventData::IncidentEvent(_) => {
                return Err(io::Error::other("the database says that it lost changes here"));
            }
            EventData::RowsQueryEvent(query) => self.rows_query(query.query_raw()),
            EventData::HeartbeatEvent => self.pending.push_back(Event::Alive),
            EventData::StopEvent
            | EventData::IntvarEvent(_)
            | EventData::RandEvent(_)
            | EventData::UserVarEvent(_)
            | EventData::BeginLoadQueryEvent(_)
            | EventData::AppendBlockEvent(_)
            | EventData::DeleteFileEvent(_)
            | EventData::IgnorableEvent(_)
            | EventData::PreviousGtidsEvent(_)
            | EventData::TransactionContextEvent(_)
            | EventData::ViewChangeEvent(_) => {}
            _ => return Err(io::Error::other("its type is not supported")),
        }
        Ok(())
    }

    /// A transaction starts.
    fn begin(&mut self) {
        self.rows.begin();
        self.has_text = false;
    }

    /// Decodes an event that only MariaDB has, and returns true; false for any other.
    fn decode_mariadb(&mut self, event: &Logged) -> io::Result<bool> {
        match event.header().event_type_raw() {
            event_type::MARIADB_GTID => self.maria_gtid(event).map(|()| true),
            harmless => Ok(event_type::is_harmless_of_mariadb(harmless)),
        }
    }

    /// The library reads both forms: `GTID_LOG_EVENT`, and `GTID_TAGGED_LOG_EVENT` of MySQL 8.3.
    fn mysql_gtid(&mut self, gtid: &GtidEvent) {
        let tag = gtid.tag().map(|tag| tag.as_str().to_owned()).unwrap_or_default();
        let origin = Origin { server: gtid.sid(), tag };
        self.reading = Some(Gtid::Mysql { origin, number: gtid.gno() });
        self.begin();
        self.is_open = false;
    }

    /// Continues in the next file. At connect, the server sends a rotate event without a log
    /// position.
    fn rotate(&mut self, event: &Logged, rotate: &RotateEvent<'_>) {
        let is_fake = event.header().log_pos() == 0;
        self.file = name(event, rotate.name_raw(), self.is_described);
        self.offset = rotate.position();
        if !is_fake && self.by == By::File && !self.is_open {
            self.position = self.here();
            self.pending.push_back(Event::Idle { position: self.position.clone() });
        }
    }

    /// The statement whose rows follow: only its comments count.
    fn rows_query(&mut self, query: &[u8]) {
        self.has_text = true;
        self.noted(query, &String::from_utf8_lossy(query), Effect::None);
    }

    /// Keys are read from the bytes, because the text replaces bytes that are not UTF-8.
    fn noted(&mut self, query: &[u8], text: &str, effect: Effect) {
        let keys = if self.rules.comments { comment::keys(query) } else { Vec::new() };
        let text: String = text.chars().take(TEXT_CHARS).collect();
        self.pending.push_back(Event::Change(Change::Statement { keys, effect, text }));
    }

    /// The body is sequence number, domain, flags; see MariaDB's `Gtid_log_event`.
    fn maria_gtid(&mut self, event: &Logged) -> io::Result<()> {
        let data = event.data();
        let (Some(sequence), Some(domain), Some(flags)) = (
            data.first_chunk::<8>(),
            data.get(8..).and_then(<[u8]>::first_chunk::<4>),
            data.get(12),
        ) else {
            return Err(io::Error::other("a transaction identifier is cut short"));
        };
        self.reading = Some(Gtid::Maria {
            domain: u32::from_le_bytes(*domain),
            server: event.header().server_id(),
            sequence: u64::from_le_bytes(*sequence),
        });
        self.is_open = flags & STANDALONE == 0;
        self.begin();
        Ok(())
    }

    fn statement(&mut self, schema: &str, charset: Charset, query: &[u8], time_us: u64) {
        let text = &*String::from_utf8_lossy(query);
        match control(text) {
            Some(Control::Begin) => self.is_open = true,
            Some(Control::End) => self.commit(time_us),
            Some(Control::XaEnd) => {}
            Some(Control::XaCommit) => self.finish(text, true, time_us),
            Some(Control::XaRollback) => self.finish(text, false, time_us),
            None => {
                let (flavour, followed) = (self.server.flavour, &self.followed);
                let session = Session { flavour, schema, charset, followed };
                let effect = effect(session, query);
                let changes_rows = matches!(effect, Effect::Rows | Effect::RowsWithoutComments);
                if self.server.has_unlogged_cascades && !changes_rows {
                    let added = statement::added_cascades(session, query);
                    self.followed.remember(&added);
                }
                self.noted(query, text, effect);
                if !self.is_open {
                    self.commit(time_us);
                }
            }
        }
    }

    /// The end of a prepared transaction. The server itself writes this text.
    fn finish(&mut self, text: &str, is_committed: bool, time_us: u64) {
        let words = text.trim_end_matches(';').trim();
        let xid = words.splitn(3, ' ').nth(2).unwrap_or_default();
        let xid = xid.trim_end_matches("ONE PHASE").trim().to_ascii_lowercase();
        self.is_open = false;
        let mark = Mark::Prepared(Box::new(self.mark()));
        let position = self.advance();
        let committed_us = time_us;
        self.pending.push_back(Event::Finish { xid, is_committed, position, committed_us, mark });
    }

    /// The body is one byte (one phase), the format's number, two lengths, the name.
    fn prepared(&mut self, data: &[u8], time_us: u64) -> io::Result<()> {
        let number = |at: usize| {
            data.get(at..)
                .and_then(<[u8]>::first_chunk::<4>)
                .map(|bytes| u32::from_le_bytes(*bytes))
        };
        let (Some(format), Some(first), Some(second)) = (number(1), number(5), number(9)) else {
            return Err(io::Error::other("a prepared transaction's name is cut short"));
        };
        if data[0] != 0 {
            self.commit(time_us);
            return Ok(());
        }
        let (first, second) = (first as usize, second as usize);
        let name = data.get(13..13 + first + second);
        let Some((global, branch)) = name.map(|name| name.split_at(first)) else {
            return Err(io::Error::other("a prepared transaction's name is cut short"));
        };
        let xid = format!("x'{}',x'{}',{format}", hex(global), hex(branch));
        self.is_open = false;
        let position = self.advance();
        self.pending.push_back(Event::Prepare { xid, position });
        Ok(())
    }

    fn commit(&mut self, time_us: u64) {
        self.is_open = false;
        let mark = self.mark();
        let position = self.advance();
        self.pending.push_back(Event::Commit { position, committed_us: time_us, mark });
    }

    /// Identifies the transaction being read to a visibility probe.
    fn mark(&self) -> Mark {
        match (self.server.flavour, &self.reading) {
            (Flavour::MariaDb, _) if !self.file.is_empty() => {
                Mark::End { file: self.file.clone(), offset: self.offset }
            }
            (Flavour::MySql, Some(Gtid::Mysql { origin, number })) => {
                Mark::Gtid { origin: origin.clone(), number: *number }
            }
            _ => Mark::Unknown,
        }
    }

    fn here(&self) -> Position {
        Position::File { name: self.file.clone(), offset: self.offset }
    }

    /// The position after the transaction being read.
    fn advance(&mut self) -> Position {
        self.progress.end();
        let gtid = self.reading.take();
        match (&mut self.position, gtid) {
            (Position::MariaGtid(domains), Some(Gtid::Maria { domain, server, sequence })) => {
                domains.insert(domain, (server, sequence));
            }
            (Position::MysqlGtid(set), Some(Gtid::Mysql { origin, number })) => {
                set.insert(origin, number)
            }
            // Reading cannot begin beyond; the part from the last such place is read again.
            (Position::File { name, offset }, _) if self.offset <= offset::REQUESTED_MAX => {
                name.clone_from(&self.file);
                *offset = self.offset;
            }
            _ => {}
        }
        self.position.clone()
    }
}

/// Events were damaged on their way, or are missing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Damaged {
    #[error("an event of type {event_type} has a wrong checksum")]
    WrongChecksum { event_type: u8 },
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
}

/// The character set of a statement, by the variables of its session.
fn charset(variables: &StatusVars<'_>) -> Charset {
    let charset = variables.get_status_var(StatusVarKey::Charset);
    match charset.as_ref().map(StatusVar::get_value) {
        Some(Ok(StatusVarVal::Charset { charset_client, .. })) => Charset::of(charset_client),
        _ => Charset::Wide,
    }
}

/// Verifies the checksum, which the library reads but does not verify.
fn verify(event: &Logged) -> Result<(), Damaged> {
    let Ok(Some(BinlogChecksumAlg::BINLOG_CHECKSUM_ALG_CRC32)) = event.footer().get_checksum_alg()
    else {
        return Ok(());
    };
    let is_description = event.header().event_type_raw() == event_type::FORMAT_DESCRIPTION;
    let Some(sum) = event.checksum() else { return Ok(()) };
    // If reading starts later, the server changes the header of the first event.
    if is_description || !event.footer().get_checksum_enabled() {
        return Ok(());
    }
    if u32::from_le_bytes(sum) == event.calc_checksum(BinlogChecksumAlg::BINLOG_CHECKSUM_ALG_CRC32)
    {
        return Ok(());
    }
    Err(Damaged::WrongChecksum { event_type: event.header().event_type_raw() })
}

/// The file name in a rotate event. MariaDB sends the first one before the format description, so
/// the library reads the checksum as a part of the name.
fn name(event: &Logged, raw: &[u8], is_described: bool) -> String {
    let plain = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    match raw.split_last_chunk::<4>() {
        Some((name, sum)) if !is_described => {
            let mut header = Vec::with_capacity(event_type::HEADER_BYTES);
            event.header().serialize(&mut header);
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&header);
            hasher.update(&event.data()[..event.data().len() - sum.len()]);
            plain(if hasher.finalize() == u32::from_le_bytes(*sum) { name } else { raw })
        }
        _ => plain(raw),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use mysql_common::packets::Tag;
    use mysql_common::proto::MySerialize as _;

    use super::event_type::event;
    use super::*;
    use changes::gtid::Uuid;

    const SERVER: Uuid = [7; 16];

    const fn origin(flavour: Flavour) -> statement::Origin {
        statement::Origin { flavour, has_unlogged_cascades: true }
    }

    /// Decodes events, each a type and a body, as MySQL's; reads the first five transactions.
    fn said(by: By, events: &[(u8, Vec<u8>)]) -> Vec<Event> {
        said_by(by, &Rules::default(), events)
    }

    fn said_by(by: By, rules: &Rules, events: &[(u8, Vec<u8>)]) -> Vec<Event> {
        let mut from = changes::gtid::GtidSet::default();
        (1..=5).for_each(|number| from.insert(Origin::untagged(SERVER), number));
        let from = Position::MysqlGtid(from);
        let mut decoder = Decoder::new(origin(Flavour::MySql), by, &from, rules);
        for (kind, body) in events {
            decoder.push(&event(*kind, 100, body), |_| None).unwrap();
        }
        std::iter::from_fn(|| decoder.pop()).collect()
    }

    fn body(gtid: &GtidEvent) -> Vec<u8> {
        let mut bytes = Vec::new();
        gtid.serialize(&mut bytes);
        bytes
    }

    /// Thread, time, length of the schema's name, error, length of the part before it, the name.
    fn statement(text: impl AsRef<[u8]>) -> Vec<u8> {
        [&[0; 8][..], &[0, 0, 0, 0, 0, 0], text.as_ref()].concat()
    }

    #[test]
    fn the_character_set_of_the_session_decides_which_names_are_known() {
        // Flags, SQL mode, and the collations of client, connection and server.
        let of = |collation: u8| {
            let variables = [&[0; 5][..], &[1; 9], &[4, collation, 0, 45, 0, 45, 0]].concat();
            let length = u8::try_from(variables.len()).unwrap();
            let start = [&[0; 8][..], &[0, 0, 0, length, 0], &variables, &[0]].concat();
            let event = (2, [&start[..], "TRUNCATE `\u{170}`".as_bytes()].concat());
            let mut rules = Rules::default();
            rules.tables.insert("shop.k\u{e4}se".to_owned(), Vec::new());
            let all = said_by(By::Gtid, &rules, &[event]);
            let effect = all.into_iter().find_map(|event| match event {
                Event::Change(Change::Statement { effect, .. }) => Some(effect),
                _ => None,
            });
            effect.unwrap()
        };
        for collation in [33, 45, 255, 63] {
            assert_eq!(of(collation), Effect::Tables(vec![".\u{170}".to_owned()]), "{collation}");
        }
        // latin1, euckr, gbk.
        for collation in [8, 19, 28] {
            assert_eq!(of(collation), Effect::Unknown, "{collation}");
        }
    }

    #[test]
    fn a_foreign_key_that_changes_rows_is_remembered_until_it_is_dropped() {
        let effects = |has_unlogged_cascades| {
            let mut rules = Rules::default();
            rules.tables.insert(".pets".to_owned(), Vec::new());
            let from = Position::MysqlGtid(changes::gtid::GtidSet::default());
            let server = statement::Origin { flavour: Flavour::MySql, has_unlogged_cascades };
            let mut decoder = Decoder::new(server, By::Gtid, &from, &rules);
            for text in [
                "ALTER TABLE pets DROP FOREIGN KEY owner",
                "ALTER TABLE pets ADD CONSTRAINT owner FOREIGN KEY (owner) REFERENCES users (id) \
                 ON DELETE CASCADE",
                "ALTER TABLE pets DROP FOREIGN KEY owner",
            ] {
                decoder.push(&event(2, 100, &statement(text)), |_| None).unwrap();
            }
            let effects = std::iter::from_fn(|| decoder.pop()).filter_map(|event| match event {
                Event::Change(Change::Statement { effect, .. }) => Some(effect),
                _ => None,
            });
            effects.collect::<Vec<_>>()
        };
        let lost = Effect::Tables(vec![".pets".to_owned()]);
        assert_eq!(effects(true), [Effect::None, Effect::None, lost]);
        assert_eq!(effects(false), [Effect::None, Effect::None, Effect::None]);
    }

    #[test]
    fn keys_in_comments_keep_the_bytes_of_the_session() {
        let text = b"UPDATE t SET a=1 /* mc:del k:schl\xfcssel */";
        let rows = [&[0], &text[..]].concat();
        let rules = Rules { comments: true, ..Rules::default() };
        let all = said_by(By::Gtid, &rules, &[(2, statement(text)), (29, rows)]);
        let keys = all.iter().filter_map(|event| match event {
            Event::Change(Change::Statement { keys, .. }) => Some(keys.concat()),
            _ => None,
        });
        assert_eq!(keys.collect::<Vec<_>>(), [b"k:schl\xfcssel"; 2], "{all:?}");
    }

    #[test]
    fn rows_without_their_statement_are_one_gap_of_the_statement() {
        let rules = Rules { comments: true, ..Rules::default() };
        let from = Position::MysqlGtid(changes::gtid::GtidSet::default());
        let mut decoder = Decoder::new(origin(Flavour::MySql), By::Gtid, &from, &rules);
        // Number and flags of a table with one INT, its names, its columns.
        let table = event(19, 100, b"\x07\0\0\0\0\0\0\0\x01d\0\x01t\0\x01\x03\0\0");
        let Some(EventData::TableMapEvent(described)) = table.read_data().unwrap() else {
            panic!("not a table")
        };
        let described = described.into_owned();
        // A row of it; the flag of the last event of a statement.
        let rows = |is_last: bool| {
            let body = [b"\x07\0\0\0\0\0", &[u8::from(is_last), 0, 2, 0, 1, 1][..], &[0; 5]];
            event(30, 100, &body.concat())
        };
        let gtid = event(33, 100, &body(&GtidEvent::new(SERVER, 6)));
        let mut gaps = |events: &[&Logged]| {
            for event in events {
                decoder.push(event, |_| Some(&described)).unwrap();
            }
            let popped = std::iter::from_fn(|| decoder.pop());
            popped.filter(|event| matches!(event, Event::Gap { .. })).count()
        };
        assert_eq!(gaps(&[&gtid, &table, &rows(false), &rows(false), &rows(true)]), 1);
        assert_eq!(gaps(&[&table, &rows(true)]), 1, "another statement");
        assert_eq!(gaps(&[&table, &rows(false)]), 1);
        assert_eq!(gaps(&[&gtid, &table, &rows(true)]), 1, "another transaction");
    }

    #[test]
    fn a_mysql_transaction_advances_the_position_by_its_gtid() {
        let gtid = body(&GtidEvent::new(SERVER, 6));
        let all = said(By::Gtid, &[(33, gtid), (2, statement("BEGIN")), (16, vec![1; 8])]);
        let [Event::Commit { position, .. }] = &all[..] else { panic!("{all:?}") };
        assert_eq!(position.to_string(), "mysql-gtid:07070707-0707-0707-0707-070707070707:1-6");
    }

    #[test]
    fn a_transaction_beyond_4_gib_of_its_file_has_its_offset_and_the_position_before_it() {
        let start = Position::File { name: "log.000001".to_owned(), offset: 4 };
        let rules = Rules::default();
        let mut decoder = Decoder::new(origin(Flavour::MariaDb), By::File, &start, &rules);
        let rotate = [&4_u64.to_le_bytes()[..], b"log.000002"].concat();
        let events = [
            event(162, 300, &[0; 19]),
            event(16, 400, &[1; 8]),
            event(162, 4_294_967_000, &[0; 19]),
            event(16, 700, &[1; 8]),
            event(4, 900, &rotate),
        ];
        for event in &events {
            decoder.push(event, |_| None).unwrap();
        }
        let all: Vec<_> = std::iter::from_fn(|| decoder.pop()).collect();
        let [
            Event::Commit { .. },
            Event::Commit { position, mark, .. },
            Event::Idle { position: next },
        ] = &all[..]
        else {
            panic!("{all:?}")
        };
        let offset = (1 << 32) + 700;
        assert_eq!(*mark, Mark::End { file: "log.000001".to_owned(), offset });
        assert_eq!(position.to_string(), "file:log.000001:400");
        assert_eq!(next.to_string(), "file:log.000002:4");
    }

    #[test]
    fn a_tagged_gtid_is_not_confused_with_an_untagged_one() {
        let gtid = body(&GtidEvent::new_tagged(SERVER, Tag::new("batch").unwrap(), 3));
        let events = [(42, gtid), (2, statement("BEGIN")), (16, vec![1; 8])];
        let all = said(By::Gtid, &events);
        let [Event::Commit { position, mark, .. }] = &all[..] else { panic!("{all:?}") };
        let after = "mysql-gtid:07070707-0707-0707-0707-070707070707:1-5:batch:3";
        assert_eq!(position.to_string(), after);
        let origin = Origin { server: SERVER, tag: "batch".to_owned() };
        assert_eq!(*mark, Mark::Gtid { origin, number: 3 });
        assert!(!said(By::File, &events).iter().any(|event| matches!(event, Event::Gap { .. })));
    }

    /// The bytes follow MySQL's description of its serialization: a version, the total length, the
    /// last field that must be understood, and fields after their numbers. Numbers have their
    /// length in the low bits of the first byte; those of the server are one byte each.
    #[test]
    fn a_tagged_gtid_event_is_parsed_by_the_mysql_specification() {
        let number = |number: u8| number << 1;
        // Flags; the server, each byte a number; the number, which has a sign; the tag.
        let mut fields = vec![number(0), number(0), number(1)];
        fields.extend(SERVER.map(number));
        fields.extend([number(2), number(9 << 1), number(3), number(5)]);
        fields.extend(b"batch");
        // Both logical times, with their signs, and the time of the commit.
        fields.extend([number(4), number(0), number(5), number(1 << 1), number(6), number(0)]);
        let length = u8::try_from(3 + fields.len()).unwrap();
        let mut body = vec![number(1), number(length), number(0)];
        body.extend(fields);
        let all = said(By::Gtid, &[(42, body), (2, statement("BEGIN")), (16, vec![1; 8])]);
        let [Event::Commit { position, .. }] = &all[..] else { panic!("{all:?}") };
        let after = "mysql-gtid:07070707-0707-0707-0707-070707070707:1-5:batch:9";
        assert_eq!(position.to_string(), after);
    }
}
