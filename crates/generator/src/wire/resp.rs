//! The serialisation protocol of Redis and Valkey (RESP2), as far as GET, MGET, SET and DEL need
//! it.

use memchr::memchr;
use proto::number::parse_u64;

use super::{Piece, Read, push_number};
use crate::keys::KeyNames;
use crate::sizes::VALUE_BYTES_MAX;

/// The longest line before a value: a type, a number, or the words of an error.
const LINE_BYTES_MAX: usize = 4096;

pub(super) fn get(names: &KeyNames, keys: &[u64], out: &mut Vec<u8>) {
    array(keys.len() + 1, out);
    bulk(if keys.len() == 1 { b"GET" } else { b"MGET" }, out);
    for key in keys {
        named(names, *key, out);
    }
}

pub(super) fn set(names: &KeyNames, key: u64, value: &[u8], ttl: u32, out: &mut Vec<u8>) {
    array(if ttl > 0 { 5 } else { 3 }, out);
    bulk(b"SET", out);
    named(names, key, out);
    bulk(value, out);
    if ttl > 0 {
        bulk(b"EX", out);
        bulk(ttl.to_string().as_bytes(), out);
    }
}

fn array(items: usize, out: &mut Vec<u8>) {
    out.push(b'*');
    push_number(items as u64, out);
    out.extend_from_slice(b"\r\n");
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'$');
    push_number(bytes.len() as u64, out);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn named(names: &KeyNames, key: u64, out: &mut Vec<u8>) {
    // The length precedes the name: it is written after it and then moved.
    let from = out.len();
    names.write(key, out);
    let bytes = out.len() - from;
    out.push(b'$');
    push_number(bytes as u64, out);
    out.extend_from_slice(b"\r\n");
    out[from..].rotate_left(bytes);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn read(bytes: &[u8]) -> Read<'_> {
    let Some(end) = memchr(b'\n', &bytes[..bytes.len().min(LINE_BYTES_MAX)]) else {
        let is_open = bytes.len() < LINE_BYTES_MAX && is_type(bytes.first());
        return if is_open { Read::More(0) } else { Read::Garbage };
    };
    let (Some(line), true) = (bytes[..end].strip_suffix(b"\r"), is_type(bytes.first())) else {
        return Read::Garbage;
    };
    let consumed = end + 1;
    match (line[0], &line[1..]) {
        (b'+', b"OK") => Read::Piece(Piece::Stored, consumed, true),
        (b':', count) if parse_u64(count).is_some() => Read::Piece(Piece::Removed, consumed, true),
        (b'-', words) => Read::Piece(Piece::Refused(words), consumed, true),
        (b'$', b"-1") | (b'_', b"") => Read::Piece(Piece::Miss, consumed, true),
        (b'*', count) if parse_u64(count).is_some() => Read::Piece(Piece::Frame, consumed, false),
        (b'$', number) => {
            let length = parse_u64(number).and_then(|length| usize::try_from(length).ok());
            let Some(length) = length.filter(|length| *length <= VALUE_BYTES_MAX) else {
                return Read::Garbage;
            };
            let total = consumed + length + 2;
            match bytes.get(consumed..total) {
                None => Read::More(total),
                Some(data) if data.ends_with(b"\r\n") => {
                    let value = &data[..length];
                    Read::Piece(Piece::Hit { key: None, value }, total, true)
                }
                Some(_) => Read::Garbage,
            }
        }
        _ => Read::Garbage,
    }
}

/// True if a reply may start with this byte; no byte yet may become one.
fn is_type(first: Option<&u8>) -> bool {
    first.is_none_or(|first| b"+-:$*_".contains(first))
}
