//! Detects transactions whose end did not come, although each event that came was whole.
//!
//! The library decompresses a transaction of MySQL (`TRANSACTION_PAYLOAD_EVENT`) and delivers its
//! events after it. If it cannot decompress it, it delivers none of them and reports nothing. The
//! server states how many bytes the events have, so the next event shows that some are missing.

use mysql_async::binlog::events::{Event, TransactionPayloadEvent};
use mysql_common::binlog::consts::TransactionPayloadCompressionType;

use super::event_type;

/// Events of the log are missing and must be read again.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfinished {
    /// Events of a compressed transaction did not come.
    #[error("a compressed transaction is damaged: {missing} of its {bytes} bytes did not come")]
    Payload {
        /// The bytes of its events, as the server stated them.
        bytes: u64,
        /// The part of them that did not come.
        missing: u64,
    },
    /// A transaction begins inside another.
    #[error("the end of a transaction is missing: the next one follows")]
    NoEnd,
}

/// The transaction that is being read.
#[derive(Debug, Default)]
pub(super) struct Progress {
    is_begun: bool,
    /// The bytes of the events in the last compressed transaction.
    bytes: u64,
    /// The part of them that is still to come.
    missing: u64,
}

impl Progress {
    /// Takes note of an event before it is decoded.
    pub(super) fn note(&mut self, event: &Event) -> Result<(), Unfinished> {
        let kind = event.header().event_type_raw();
        if self.missing > 0 {
            let size = u64::from(event.header().event_size());
            // An event has at least its header; the library reads smaller ones from zeros.
            if is_never_inside(kind)
                || size < event_type::HEADER_BYTES as u64
                || size > self.missing
            {
                return Err(Unfinished::Payload { bytes: self.bytes, missing: self.missing });
            }
            self.missing -= size;
        }
        match kind {
            event_type::GTID
            | event_type::ANONYMOUS_GTID
            | event_type::GTID_TAGGED
            | event_type::MARIADB_GTID => self.begin(),
            // A server that crashed may leave the start of a transaction at the end of a file. The
            // transaction was rolled back; none continues in the next file.
            event_type::FORMAT_DESCRIPTION => {
                self.end();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    const fn begin(&mut self) -> Result<(), Unfinished> {
        if self.is_begun {
            return Err(Unfinished::NoEnd);
        }
        self.is_begun = true;
        Ok(())
    }

    /// The events of this compressed transaction follow.
    pub(super) fn decompress(&mut self, payload: &TransactionPayloadEvent<'_>) {
        self.bytes = match payload.algorithm() {
            TransactionPayloadCompressionType::NONE => payload.payload_raw().len() as u64,
            TransactionPayloadCompressionType::ZSTD => payload.uncompressed_size(),
        };
        self.missing = self.bytes;
    }

    /// The transaction ended, or its end may be in an event that was not understood.
    pub(super) const fn end(&mut self) {
        self.is_begun = false;
    }
}

/// True for events that MySQL never puts into a compressed transaction.
const fn is_never_inside(kind: u8) -> bool {
    matches!(
        kind,
        event_type::STOP
            | event_type::ROTATE
            | event_type::FORMAT_DESCRIPTION
            | event_type::INCIDENT
            | event_type::HEARTBEAT
            | event_type::HEARTBEAT_V2
            | event_type::GTID
            | event_type::ANONYMOUS_GTID
            | event_type::GTID_TAGGED
            | event_type::PREVIOUS_GTIDS
            | event_type::TRANSACTION_PAYLOAD
    )
}

#[cfg(test)]
mod tests {
    use changes::change::Event as Read;
    use changes::gtid::GtidSet;
    use changes::keys::Rules;
    use changes::position::Position;
    use mysql_async::binlog::BinlogVersion;
    use mysql_async::binlog::events::{FormatDescriptionEvent, GtidEvent};
    use mysql_common::proto::MySerialize;

    use super::super::By;
    use super::super::decode::{Damaged, Decoder};
    use super::super::server::Flavour;
    use super::super::statement::Origin;
    use super::*;

    /// A statement without a schema.
    fn query(text: &str) -> (u8, Vec<u8>) {
        (event_type::QUERY, [&[0; 14][..], text.as_bytes()].concat())
    }

    fn bytes(body: &impl MySerialize) -> Vec<u8> {
        let mut bytes = Vec::new();
        body.serialize(&mut bytes);
        bytes
    }

    fn gtid(number: u64) -> (u8, Vec<u8>) {
        (event_type::GTID, bytes(&GtidEvent::new([7; 16], number)))
    }

    fn xid() -> (u8, Vec<u8>) {
        (16, vec![1; 8])
    }

    /// A compressed transaction whose events have this number of bytes. Its contents do not matter
    /// here: the library decompresses them.
    fn payload(bytes_inside: u64) -> (u8, Vec<u8>) {
        let kind = TransactionPayloadCompressionType::ZSTD;
        (
            event_type::TRANSACTION_PAYLOAD,
            bytes(&TransactionPayloadEvent::new(3, kind, bytes_inside, &b"zst"[..])),
        )
    }

    /// The bytes of these events with their headers.
    fn size(events: &[(u8, Vec<u8>)]) -> u64 {
        events.iter().map(|(_, body)| (event_type::HEADER_BYTES + body.len()) as u64).sum()
    }

    /// The position after these events, or the reason why the log must be read again.
    fn read(events: &[(u8, Vec<u8>)]) -> Result<String, String> {
        let from = Position::MysqlGtid(GtidSet::default());
        let server = Origin { flavour: Flavour::MySql, has_unlogged_cascades: true };
        let mut decoder = Decoder::new(server, By::Gtid, &from, &Rules::default());
        for (kind, body) in events {
            let event = event_type::event(*kind, 100, body);
            decoder.push(&event, |_| None).map_err(|damaged: Damaged| damaged.to_string())?;
        }
        let mut position = String::new();
        while let Some(event) = decoder.pop() {
            match event {
                Read::Commit { position: after, .. } => position = after.to_string(),
                other => panic!("{other:?}"),
            }
        }
        Ok(position)
    }

    #[test]
    fn a_compressed_transaction_whose_events_come_is_read() {
        let inside = [query("BEGIN"), xid()];
        let [begin, end] = inside.clone();
        let events = [gtid(1), payload(size(&inside)), begin, end, gtid(2), query("BEGIN"), xid()];
        let after = read(&events).unwrap();
        assert!(after.ends_with(":1-2"), "{after}");
    }

    #[test]
    fn a_compressed_transaction_whose_events_are_missing_is_damaged() {
        let inside = size(&[query("BEGIN"), xid()]);
        let heartbeat = (event_type::HEARTBEAT, b"log.000001".to_vec());
        for next in [gtid(2), heartbeat] {
            let why = read(&[gtid(1), payload(inside), next]).unwrap_err();
            assert!(why.contains(&format!("{inside} of its {inside} bytes")), "{why}");
        }
        let why = read(&[gtid(1), payload(inside), query("BEGIN"), gtid(2)]).unwrap_err();
        assert!(why.contains("did not come"), "{why}");
    }

    #[test]
    fn a_size_that_no_events_fill_is_damaged() {
        // The library reads the rest as zeros, which look like events without a body.
        let zeros = {
            let description = FormatDescriptionEvent::new(BinlogVersion::Version4);
            Event::read(&description, &[0; event_type::HEADER_BYTES][..]).unwrap()
        };
        let mut progress = Progress::default();
        let kind = TransactionPayloadCompressionType::ZSTD;
        progress.decompress(&TransactionPayloadEvent::new(3, kind, 1 << 46, &b"zst"[..]));
        let damaged = Unfinished::Payload { bytes: 1 << 46, missing: 1 << 46 };
        assert_eq!(progress.note(&zeros), Err(damaged));
    }

    #[test]
    fn a_transaction_inside_another_is_damaged() {
        let why = read(&[gtid(1), query("BEGIN"), gtid(2)]).unwrap_err();
        assert!(why.contains("the end of a transaction is missing"), "{why}");
    }

    #[test]
    fn the_start_of_a_transaction_before_a_crash_is_not_damage() {
        let description = FormatDescriptionEvent::new(BinlogVersion::Version4);
        let file = (event_type::FORMAT_DESCRIPTION, bytes(&description));
        let events = [gtid(1), query("BEGIN"), file, gtid(2), query("BEGIN"), xid()];
        let after = read(&events).unwrap();
        assert!(after.ends_with(":2"), "{after}");
    }
}
