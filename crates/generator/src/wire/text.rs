//! memcached's text and meta commands.

use proto::answer::{Answer, MetaCode, Parsed, parse};

use super::{Piece, Read, push_number};
use crate::keys::KeyNames;

/// Longer values are never generated, so none is read.
const VALUE_BYTES_MAX_U32: u32 = 1 << 20;

pub(super) fn get(names: &KeyNames, keys: &[u64], out: &mut Vec<u8>) {
    out.extend_from_slice(b"get");
    for key in keys {
        out.push(b' ');
        names.write(*key, out);
    }
    out.extend_from_slice(b"\r\n");
}

pub(super) fn meta_get(names: &KeyNames, keys: &[u64], out: &mut Vec<u8>) {
    for key in keys {
        out.extend_from_slice(b"mg ");
        names.write(*key, out);
        out.extend_from_slice(b" v\r\n");
    }
}

pub(super) fn set(names: &KeyNames, key: u64, value: &[u8], ttl: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"set ");
    names.write(key, out);
    out.extend_from_slice(b" 0 ");
    push_number(u64::from(ttl), out);
    out.push(b' ');
    data(value, out);
}

pub(super) fn meta_set(names: &KeyNames, key: u64, value: &[u8], ttl: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ms ");
    names.write(key, out);
    out.push(b' ');
    push_number(value.len() as u64, out);
    if ttl > 0 {
        out.extend_from_slice(b" T");
        push_number(u64::from(ttl), out);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn data(value: &[u8], out: &mut Vec<u8>) {
    push_number(value.len() as u64, out);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn read(bytes: &[u8]) -> Read<'_> {
    let (answer, consumed) = match parse(bytes, VALUE_BYTES_MAX_U32) {
        Parsed::Answer { answer, consumed } => (answer, consumed),
        Parsed::Incomplete { total } => return Read::More(total),
        Parsed::Bad => return Read::Garbage,
    };
    let (piece, counts) = match answer {
        Answer::Value(found) => (Piece::Hit { key: Some(found.key), value: found.value }, false),
        Answer::End => (Piece::Frame, true),
        Answer::Stored => (Piece::Stored, true),
        Answer::Deleted => (Piece::Removed, true),
        Answer::Meta(meta) => match (meta.code, meta.value) {
            (_, Some(value)) => (Piece::Hit { key: None, value }, true),
            (MetaCode::En, None) => (Piece::Miss, true),
            (MetaCode::Hd, None) => (Piece::Stored, true),
            _ => (Piece::Refused(b"not stored"), true),
        },
        Answer::ClientError(words) | Answer::ServerError(words) | Answer::Error(words) => {
            (Piece::Refused(words), true)
        }
        Answer::NotStored | Answer::Exists | Answer::NotFound => {
            (Piece::Refused(b"not stored"), true)
        }
        _ => return Read::Garbage,
    };
    Read::Piece(piece, consumed, counts)
}
