//! Numbers of binary log event types that the library's `EventType` lacks, or that are compared
//! with a raw header. Sources: MySQL's `binlog_event.h`, MariaDB's `log_event.h`.

#[cfg(test)]
use mysql_async::binlog::{
    BinlogVersion,
    events::{Event, FormatDescriptionEvent},
};

/// Bytes of the header of an event.
pub(super) const HEADER_BYTES: usize = 19;

pub(super) const QUERY: u8 = 2;
pub(super) const STOP: u8 = 3;
pub(super) const ROTATE: u8 = 4;
pub(super) const FORMAT_DESCRIPTION: u8 = 15;
#[cfg(test)]
pub(super) const TABLE_MAP: u8 = 19;
pub(super) const WRITE_ROWS_V1: u8 = 23;
pub(super) const UPDATE_ROWS_V1: u8 = 24;
pub(super) const DELETE_ROWS_V1: u8 = 25;
pub(super) const INCIDENT: u8 = 26;
pub(super) const HEARTBEAT: u8 = 27;
pub(super) const WRITE_ROWS: u8 = 30;
pub(super) const UPDATE_ROWS: u8 = 31;
pub(super) const DELETE_ROWS: u8 = 32;
pub(super) const GTID: u8 = 33;
pub(super) const ANONYMOUS_GTID: u8 = 34;
pub(super) const PREVIOUS_GTIDS: u8 = 35;
/// A whole compressed transaction of MySQL.
pub(super) const TRANSACTION_PAYLOAD: u8 = 40;
/// MySQL's second form of the heartbeat.
pub(super) const HEARTBEAT_V2: u8 = 41;
/// MySQL's second form of the transaction identifier.
pub(super) const GTID_TAGGED: u8 = 42;

// Only MariaDB has these.

/// The text of the statement whose rows follow.
pub(super) const ANNOTATE_ROWS: u8 = 160;
/// The oldest log file that crash recovery of the engine needs.
pub(super) const BINLOG_CHECKPOINT: u8 = 161;
/// The transaction identifier that starts a transaction.
pub(super) const MARIADB_GTID: u8 = 162;
/// The state of replication at the start of a file.
pub(super) const GTID_LIST: u8 = 163;
/// The file is encrypted from here on; the server decrypts what it sends.
pub(super) const START_ENCRYPTION: u8 = 164;
pub(super) const QUERY_COMPRESSED: u8 = 165;
pub(super) const WRITE_ROWS_COMPRESSED_V1: u8 = 166;
pub(super) const UPDATE_ROWS_COMPRESSED_V1: u8 = 167;
pub(super) const DELETE_ROWS_COMPRESSED_V1: u8 = 168;
pub(super) const WRITE_ROWS_COMPRESSED: u8 = 169;
pub(super) const UPDATE_ROWS_COMPRESSED: u8 = 170;
pub(super) const DELETE_ROWS_COMPRESSED: u8 = 171;

/// True for MariaDB's own types that carry no change.
pub(super) const fn is_harmless_of_mariadb(event_type: u8) -> bool {
    matches!(event_type, ANNOTATE_ROWS | BINLOG_CHECKPOINT | GTID_LIST | START_ENCRYPTION)
}

/// An event as a server sends it, which ends at this offset of its file.
#[cfg(test)]
pub(super) fn event(kind: u8, end: u32, body: &[u8]) -> Event {
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
    let (time, server, flags) = ([0; 4], 1_u32.to_le_bytes(), [0; 2]);
    let bytes =
        [&time, &[kind][..], &server, &length.to_le_bytes(), &end.to_le_bytes(), &flags, body];
    Event::read(&FormatDescriptionEvent::new(BinlogVersion::Version4), &bytes.concat()[..]).unwrap()
}
