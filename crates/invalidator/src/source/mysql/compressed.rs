//! Decompresses MariaDB's compressed events (`log_bin_compress=1`) into plain ones.
//!
//! `mysql_common` knows none of their types and returns "no data", as for harmless events. Layout,
//! from MariaDB's `log_event.h`: the plain event's fixed part, then one byte (0x80, algorithm in
//! bits 4-6, count of length bytes in bits 0-2), the length of the plain rest (big endian), and the
//! rest as a zlib stream.

use std::io::{self, Read as _};

use flate2::read::ZlibDecoder;
use mysql_async::binlog::events::Event;

use super::event_type;

/// The layout of the fixed part that precedes the compressed one.
enum Fixed {
    Query,
    /// With or without a second bitmap of columns.
    Rows {
        is_update: bool,
        has_extra: bool,
    },
}

/// The largest decompressed event, in bytes: MariaDB's limit of a packet.
const PLAIN_BYTES_MAX: u64 = 1 << 30;

/// Decompresses an event; none if its type is not a compressed one.
pub(super) fn plain(event: &Event) -> io::Result<Option<Event>> {
    let rows = |is_update, has_extra| Fixed::Rows { is_update, has_extra };
    let (kind, fixed) = match event.header().event_type_raw() {
        event_type::QUERY_COMPRESSED => (event_type::QUERY, Fixed::Query),
        event_type::WRITE_ROWS_COMPRESSED_V1 => (event_type::WRITE_ROWS_V1, rows(false, false)),
        event_type::UPDATE_ROWS_COMPRESSED_V1 => (event_type::UPDATE_ROWS_V1, rows(true, false)),
        event_type::DELETE_ROWS_COMPRESSED_V1 => (event_type::DELETE_ROWS_V1, rows(false, false)),
        event_type::WRITE_ROWS_COMPRESSED => (event_type::WRITE_ROWS, rows(false, true)),
        event_type::UPDATE_ROWS_COMPRESSED => (event_type::UPDATE_ROWS, rows(true, true)),
        event_type::DELETE_ROWS_COMPRESSED => (event_type::DELETE_ROWS, rows(false, true)),
        _ => return Ok(None),
    };
    let data = event.data();
    let length =
        fixed_length(data, &fixed).ok_or_else(|| invalid("its fixed part is cut short"))?;
    let (head, tail) = data.split_at(length);
    let mut body = head.to_vec();
    inflate(tail, &mut body)?;
    build(event, kind, &body).map(Some)
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a compressed event: {why}"))
}

/// Bytes before the compressed part; none if `data` is too short.
fn fixed_length(data: &[u8], fixed: &Fixed) -> Option<usize> {
    let length = match fixed {
        Fixed::Query => {
            let schema = usize::from(*data.get(8)?);
            let status = usize::from(u16::from_le_bytes([*data.get(11)?, *data.get(12)?]));
            13 + status + schema + 1
        }
        Fixed::Rows { is_update, has_extra } => {
            let mut at = 8;
            if *has_extra {
                at += usize::from(u16::from_le_bytes([*data.get(8)?, *data.get(9)?]));
            }
            let (columns, bytes) = length_encoded(data.get(at..)?)?;
            let bitmaps = if *is_update { 2 } else { 1 };
            at + bytes + bitmaps * columns.div_ceil(8)
        }
    };
    (length <= data.len()).then_some(length)
}

/// A length-encoded number, and its size in bytes.
fn length_encoded(data: &[u8]) -> Option<(usize, usize)> {
    let take = |count: usize| {
        let bytes = data.get(1..=count)?;
        let number =
            bytes.iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte));
        Some((number, count + 1))
    };
    match data.first()? {
        small @ 0..=250 => Some((usize::from(*small), 1)),
        252 => take(2),
        253 => take(3),
        _ => None,
    }
}

fn inflate(tail: &[u8], body: &mut Vec<u8>) -> io::Result<()> {
    let (&mark, rest) = tail.split_first().ok_or_else(|| invalid("nothing is in it"))?;
    if mark & 0x80 == 0 || (mark & 0x70) >> 4 != 0 {
        return Err(invalid("its algorithm is unknown"));
    }
    let count = usize::from(mark & 0x07);
    if !(1..=4).contains(&count) || rest.len() < count {
        return Err(invalid("its length is cut short"));
    }
    let (length, packed) = rest.split_at(count);
    let length = length.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    if length > PLAIN_BYTES_MAX {
        return Err(invalid("it is too large"));
    }
    let before = body.len() as u64;
    ZlibDecoder::new(packed).take(length + 1).read_to_end(body)?;
    if body.len() as u64 - before != length {
        return Err(invalid("its length is wrong"));
    }
    Ok(())
}

/// An event of this type and body, with the rest of the header unchanged.
fn build(event: &Event, kind: u8, body: &[u8]) -> io::Result<Event> {
    let header = event.header();
    let has_checksum = event.checksum().is_some();
    let size = 19 + body.len() + if has_checksum { 4 } else { 0 };
    let size = u32::try_from(size).map_err(|_| invalid("it is too large"))?;
    let mut bytes = Vec::with_capacity(body.len() + 23);
    bytes.extend_from_slice(&header.timestamp().to_le_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(&header.server_id().to_le_bytes());
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(&header.log_pos().to_le_bytes());
    bytes.extend_from_slice(&header.flags_raw().to_le_bytes());
    bytes.extend_from_slice(body);
    if has_checksum {
        // The compressed event's checksum was compared; this one is not.
        bytes.extend_from_slice(&[0; 4]);
    }
    Event::read(event.fde(), bytes.as_slice())
}
