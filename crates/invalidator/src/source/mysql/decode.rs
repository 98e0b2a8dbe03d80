//! Events of the binary log, one by one, into changes and ends of transactions.
//!
//! ```text
//!     MariaDB   GTID .................... changes .. XID | COMMIT | XA_PREPARE        GTID(standalone) statement
//!     MySQL     GTID  BEGIN | XA START .. changes .. XID | COMMIT | XA_PREPARE        GTID statement
//! ```
//!
//! A type of event that is not known to be harmless is a gap: nothing is passed over in silence.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;

use mysql_async::binlog::BinlogChecksumAlg;
use mysql_async::binlog::events::{Event as Logged, EventData, TableMapEvent};
use mysql_common::proto::MySerialize as _;

use super::By;
use super::compressed;
use super::rows::Rows;
use super::server::Flavour;
use crate::change::{Change, Event, Mark};
use crate::gtid::Uuid;
use crate::keys::Rules;
use crate::position::Position;

/// What has been read, and what of it was not asked for yet.
#[derive(Debug)]
pub(super) struct Decoder {
    flavour: Flavour,
    by: By,
    rows: Rows,
    pending: VecDeque<Event>,
    /// The end of the last whole transaction.
    position: Position,
    /// The transaction that is being read.
    reading: Option<Gtid>,
    is_open: bool,
    /// The file and the place in it.
    file: String,
    offset: u64,
    /// True once the log said whether it has checksums.
    is_described: bool,
}

#[derive(Debug, Clone, Copy)]
enum Gtid {
    Maria { domain: u32, server: u32, sequence: u64 },
    Mysql { server: Uuid, number: u64 },
}

/// MariaDB: one statement without a commit of its own follows.
const STANDALONE: u8 = 1;

impl Decoder {
    pub(super) fn new(flavour: Flavour, by: By, from: &Position, rules: &Rules) -> Self {
        let (file, offset) = match from {
            Position::File { name, offset } => (name.clone(), *offset),
            _ => (String::new(), 0),
        };
        Self {
            flavour,
            by,
            rows: Rows::new(rules),
            pending: VecDeque::new(),
            position: from.clone(),
            reading: None,
            is_open: false,
            file,
            offset,
            is_described: false,
        }
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.pending.pop_front()
    }

    /// The file and offset that are read now; the name is empty while it is not known.
    pub(super) fn place(&self) -> (&str, u64) {
        (&self.file, self.offset)
    }

    /// Takes an event. An error means that the connection cannot be believed any more.
    pub(super) fn push<'t>(
        &mut self,
        event: &Logged,
        tables: impl Fn(u64) -> Option<&'t TableMapEvent<'static>>,
    ) -> Result<(), String> {
        verify(event)?;
        let header = event.header();
        if header.log_pos() > 0 && header.event_type_raw() != HEARTBEAT {
            self.offset = u64::from(header.log_pos());
        }
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
        self.pending.push_back(Event::Gap { why });
    }

    fn decode<'t>(
        &mut self,
        event: &Logged,
        tables: impl Fn(u64) -> Option<&'t TableMapEvent<'static>>,
    ) -> io::Result<()> {
        if self.flavour == Flavour::MariaDb {
            match event.header().event_type_raw() {
                162 => return self.maria_gtid(event),
                // Annotations, checkpoints of the engine, lists of identifiers, the beginning of encryption.
                160 | 161 | 163 | 164 => return Ok(()),
                _ => {}
            }
        }
        let Some(data) = event.read_data()? else {
            // MySQL's second form of the heartbeat.
            if event.header().event_type_raw() == 41 {
                self.pending.push_back(Event::Alive);
                return Ok(());
            }
            return Err(io::Error::other("its type is unknown"));
        };
        let time_us = u64::from(event.header().timestamp()) * 1_000_000;
        match data {
            EventData::TableMapEvent(table) => self.rows.describe(event, &table)?,
            EventData::RowsEvent(rows) => {
                let pending = &mut self.pending;
                let found = |change| pending.push_back(Event::Change(change));
                self.rows.changes(&rows, tables(rows.table_id()), found)?;
            }
            EventData::QueryEvent(query) => {
                self.statement(&query.schema(), &query.query(), time_us)
            }
            EventData::ExecuteLoadQueryEvent(load) => {
                self.statement(&load.schema(), &load.query(), time_us)
            }
            EventData::XidEvent(_) => self.commit(time_us),
            EventData::XaPrepareLogEvent(data) => self.prepared(&data, time_us)?,
            // A set without the tag would say that another transaction has been read, and the server would leave that out.
            EventData::GtidEvent(gtid) if gtid.is_tagged() && self.by == By::Gtid => {
                return Err(io::Error::other(
                    "its transaction identifier has a tag, which positions do not have: use position = \"file\"",
                ));
            }
            EventData::GtidEvent(gtid) => {
                self.reading = Some(Gtid::Mysql { server: gtid.sid(), number: gtid.gno() });
                self.is_open = false;
            }
            EventData::AnonymousGtidEvent(_) => {
                self.reading = None;
                self.is_open = false;
            }
            EventData::RotateEvent(rotate) => {
                let is_fake = event.header().log_pos() == 0;
                self.file = name(event, rotate.name_raw(), self.is_described);
                self.offset = rotate.position();
                if !is_fake && self.by == By::File && !self.is_open {
                    self.position = self.here();
                    self.pending.push_back(Event::Idle { position: self.position.clone() });
                }
            }
            EventData::FormatDescriptionEvent(_) => self.is_described = true,
            EventData::TransactionPayloadEvent(_) => {} // What is in it follows as events of its own.
            EventData::IncidentEvent(_) => {
                return Err(io::Error::other("the database says that it lost changes here"));
            }
            EventData::RowsQueryEvent(query) => {
                let text = query.query().into_owned();
                // The rows follow; of the statement only its comments count.
                let text =
                    text.split_once("/*").map(|(_, rest)| format!("/*{rest}")).unwrap_or_default();
                if !text.is_empty() {
                    self.pending.push_back(Event::Change(Change::Statement {
                        schema: String::new(),
                        text: comments_of(&text),
                    }));
                }
            }
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

    /// Sequence number, domain, flags; see MariaDB's `Gtid_log_event`.
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
        Ok(())
    }

    fn statement(&mut self, schema: &str, text: &str, time_us: u64) {
        let words = text.trim_end_matches(';').trim();
        if words.eq_ignore_ascii_case("BEGIN")
            || starts(words, "XA START ")
            || starts(words, "XA BEGIN ")
        {
            self.is_open = true;
        } else if words.eq_ignore_ascii_case("COMMIT") || words.eq_ignore_ascii_case("ROLLBACK") {
            // An undone transaction is logged only for what an engine without transactions could not undo.
            self.commit(time_us);
        } else if starts(words, "XA END") {
        } else if starts(words, "XA COMMIT ") || starts(words, "XA ROLLBACK ") {
            let is_committed = starts(words, "XA COMMIT ");
            let xid = words.splitn(3, ' ').nth(2).unwrap_or_default();
            let xid = xid.trim_end_matches("ONE PHASE").trim().to_ascii_lowercase();
            self.is_open = false;
            let mark = Mark::Prepared(Box::new(self.mark()));
            let position = self.advance();
            self.pending.push_back(Event::Finish {
                xid,
                is_committed,
                position,
                committed_us: time_us,
                mark,
            });
        } else {
            let change = match emptied(schema, words) {
                Some(tables) => Change::Emptied { tables },
                None => Change::Statement { schema: schema.to_owned(), text: text.to_owned() },
            };
            self.pending.push_back(Event::Change(change));
            if !self.is_open {
                self.commit(time_us);
            }
        }
    }

    /// One byte (one phase), the format's number, two lengths, the name.
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
        match (self.flavour, self.reading) {
            (Flavour::MariaDb, _) if !self.file.is_empty() => {
                Mark::End { file: self.file.clone(), offset: self.offset }
            }
            (Flavour::MySql, Some(Gtid::Mysql { server, number })) => Mark::Gtid { server, number },
            _ => Mark::Unknown,
        }
    }

    fn here(&self) -> Position {
        Position::File { name: self.file.clone(), offset: self.offset }
    }

    /// The position after the transaction that is being read.
    fn advance(&mut self) -> Position {
        let gtid = self.reading.take();
        match (&mut self.position, gtid) {
            (Position::MariaGtid(domains), Some(Gtid::Maria { domain, server, sequence })) => {
                domains.insert(domain, (server, sequence));
            }
            (Position::MysqlGtid(set), Some(Gtid::Mysql { server, number })) => {
                set.insert(server, number)
            }
            (Position::File { name, offset }, _) => {
                name.clone_from(&self.file);
                *offset = self.offset;
            }
            _ => {}
        }
        self.position.clone()
    }
}

const HEARTBEAT: u8 = 27;

/// Bytes before an event's own.
const HEADER_BYTES: usize = 19;

/// Compares the checksum, which the library reads and does not compare.
fn verify(event: &Logged) -> Result<(), String> {
    let Ok(Some(BinlogChecksumAlg::BINLOG_CHECKSUM_ALG_CRC32)) = event.footer().get_checksum_alg()
    else {
        return Ok(());
    };
    let is_description = event.header().event_type_raw() == 15;
    let Some(sum) = event.checksum() else { return Ok(()) };
    // The header of the log's first event is changed on its way where reading begins later.
    if is_description || !event.footer().get_checksum_enabled() {
        return Ok(());
    }
    if u32::from_le_bytes(sum) == event.calc_checksum(BinlogChecksumAlg::BINLOG_CHECKSUM_ALG_CRC32)
    {
        return Ok(());
    }
    Err(format!("an event of type {} has a wrong checksum", event.header().event_type_raw()))
}

/// The name in a rotate event. MariaDB sends the first one before the log says that it has checksums, and the library takes the
/// checksum for a part of the name.
fn name(event: &Logged, raw: &[u8], is_described: bool) -> String {
    let plain = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    match raw.split_last_chunk::<4>() {
        Some((name, sum)) if !is_described => {
            let mut header = Vec::with_capacity(HEADER_BYTES);
            event.header().serialize(&mut header);
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&header);
            hasher.update(&event.data()[..event.data().len() - sum.len()]);
            plain(if hasher.finalize() == u32::from_le_bytes(*sum) { name } else { raw })
        }
        _ => plain(raw),
    }
}

fn starts(text: &str, words: &str) -> bool {
    text.get(..words.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(words))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The comments of a statement alone, so that it counts as no change by itself.
fn comments_of(text: &str) -> String {
    crate::comment::keys(text)
        .iter()
        .fold(String::new(), |all, key| format!("{all}/* mc:del {key} */"))
}

/// The tables that a statement empties as a whole: their rows are not in the log.
fn emptied(schema: &str, statement: &str) -> Option<Vec<String>> {
    let mut rest = statement;
    for words in ["TRUNCATE", "DROP TABLE"] {
        if !starts(rest, words) {
            continue;
        }
        rest = rest[words.len()..].trim_start();
        for word in ["TABLE ", "IF EXISTS "] {
            if starts(rest, word) {
                rest = rest[word.len()..].trim_start();
            }
        }
        let name = |part: &str| {
            let word = part
                .trim()
                .split([' ', '\t', '\n', '/'])
                .next()
                .unwrap_or_default()
                .replace('`', "");
            if word.contains('.') { word } else { format!("{schema}.{word}") }
        };
        return Some(rest.split(',').map(name).collect());
    }
    None
}

#[cfg(test)]
mod tests {
    use mysql_async::binlog::BinlogVersion;
    use mysql_async::binlog::events::{FormatDescriptionEvent, GtidEvent};
    use mysql_common::packets::Tag;
    use mysql_common::proto::MySerialize as _;

    use super::*;

    const SERVER: Uuid = [7; 16];

    /// What a MySQL server says of these events, each a type and a body; the position was behind the first five transactions.
    fn said(by: By, events: &[(u8, Vec<u8>)]) -> Vec<Event> {
        let mut from = crate::gtid::GtidSet::default();
        (1..=5).for_each(|number| from.insert(SERVER, number));
        let from = Position::MysqlGtid(from);
        let mut decoder = Decoder::new(Flavour::MySql, by, &from, &Rules::default());
        let description = FormatDescriptionEvent::new(BinlogVersion::Version4);
        for (kind, body) in events {
            let mut bytes = vec![0; 4];
            bytes.push(*kind);
            bytes.extend_from_slice(&1_u32.to_le_bytes());
            bytes.extend_from_slice(&u32::try_from(19 + body.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(&[100, 0, 0, 0, 0, 0]);
            bytes.extend_from_slice(body);
            let event = Logged::read(&description, &bytes[..]).unwrap();
            decoder.push(&event, |_| None).unwrap();
        }
        std::iter::from_fn(|| decoder.pop()).collect()
    }

    fn body(gtid: &GtidEvent) -> Vec<u8> {
        let mut bytes = Vec::new();
        gtid.serialize(&mut bytes);
        bytes
    }

    /// Thread, time, length of the schema's name, error, length of what comes before it, the name.
    fn statement(text: &str) -> Vec<u8> {
        [&[0; 8][..], &[0, 0, 0, 0, 0, 0], text.as_bytes()].concat()
    }

    #[test]
    fn a_transaction_of_mysql_moves_the_position_by_its_identifier() {
        let gtid = body(&GtidEvent::new(SERVER, 6));
        let all = said(By::Gtid, &[(33, gtid), (2, statement("BEGIN")), (16, vec![1; 8])]);
        let [Event::Commit { position, .. }] = &all[..] else { panic!("{all:?}") };
        assert_eq!(position.to_string(), "mysql-gtid:07070707-0707-0707-0707-070707070707:1-6");
    }

    #[test]
    fn a_tagged_identifier_is_taken_for_no_other() {
        let gtid = body(&GtidEvent::new_tagged(SERVER, Tag::new("batch").unwrap(), 6));
        let events = [(42, gtid), (2, statement("BEGIN")), (16, vec![1; 8])];
        let all = said(By::Gtid, &events);
        let [Event::Gap { why }, Event::Commit { position, .. }] = &all[..] else {
            panic!("{all:?}")
        };
        assert!(why.contains("has a tag"), "{why}");
        assert_eq!(position.to_string(), "mysql-gtid:07070707-0707-0707-0707-070707070707:1-5");
        assert!(!said(By::File, &events).iter().any(|event| matches!(event, Event::Gap { .. })));
    }

    #[test]
    fn statements_that_empty_tables_name_them() {
        let tables = |text| emptied("s", text).unwrap_or_default();
        assert_eq!(tables("TRUNCATE TABLE `a`.`t`"), ["a.t"]);
        assert_eq!(tables("truncate t"), ["s.t"]);
        assert_eq!(
            tables("DROP TABLE IF EXISTS `t`,`u` /* generated by server */"),
            ["s.t", "s.u"]
        );
        assert_eq!(tables("DELETE FROM t"), [""; 0]);
    }

    #[test]
    fn of_a_logged_statement_only_keys_remain() {
        assert_eq!(
            comments_of("/* x */ UPDATE t SET a='/* mc:del no */' /* mc:del k l */"),
            "/* mc:del k *//* mc:del l */"
        );
    }
}
