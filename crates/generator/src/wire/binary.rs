//! memcached's binary protocol.

use super::{Op, Piece, Read};
use crate::keys::KeyNames;
use crate::number::fits;
use crate::sizes::VALUE_BYTES_MAX;

const REQUEST: u8 = 0x80;
const RESPONSE: u8 = 0x81;
const GET: u8 = 0x00;
const SET: u8 = 0x01;
const NOOP: u8 = 0x0a;
const GETKQ: u8 = 0x0d;
const HEADER_BYTES: usize = 24;
const NOT_FOUND: u16 = 1;

pub(super) fn get(names: &KeyNames, keys: &[u64], out: &mut Vec<u8>) {
    if let [key] = keys {
        request(GET, names, *key, &[], &[], out);
        return;
    }
    for key in keys {
        request(GETKQ, names, *key, &[], &[], out);
    }
    let mut noop = [0; HEADER_BYTES];
    (noop[0], noop[1]) = (REQUEST, NOOP);
    out.extend_from_slice(&noop);
}

pub(super) fn set(names: &KeyNames, key: u64, value: &[u8], ttl: u32, out: &mut Vec<u8>) {
    let mut extras = [0; 8];
    extras[4..].copy_from_slice(&ttl.to_be_bytes());
    request(SET, names, key, &extras, value, out);
}

fn request(opcode: u8, names: &KeyNames, key: u64, extras: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.resize(from + HEADER_BYTES, 0);
    out.extend_from_slice(extras);
    names.write(key, out);
    let key_bytes = out.len() - from - HEADER_BYTES - extras.len();
    out.extend_from_slice(value);
    let body: u32 = fits(out.len() - from - HEADER_BYTES);
    let header = &mut out[from..from + HEADER_BYTES];
    (header[0], header[1]) = (REQUEST, opcode);
    let key_bytes: u16 = fits(key_bytes);
    header[2..4].copy_from_slice(&key_bytes.to_be_bytes());
    header[4] = fits(extras.len());
    header[8..12].copy_from_slice(&body.to_be_bytes());
}

pub(super) fn read(op: Op, bytes: &[u8]) -> Read<'_> {
    if bytes.first().is_some_and(|first| *first != RESPONSE) {
        return Read::Garbage;
    }
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Read::More(HEADER_BYTES);
    };
    let key_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let extras = usize::from(header[4]);
    let status = u16::from_be_bytes([header[6], header[7]]);
    let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    let Ok(body) = usize::try_from(body) else { return Read::Garbage };
    if body > VALUE_BYTES_MAX + 4096 || extras + key_bytes > body {
        return Read::Garbage;
    }
    let total = HEADER_BYTES + body;
    if bytes.len() < total {
        return Read::More(total);
    }
    let key = &bytes[HEADER_BYTES + extras..][..key_bytes];
    let value = &bytes[HEADER_BYTES + extras + key_bytes..total];
    let (piece, counts) = match (op, header[1], status) {
        (Op::Get, GET, 0) => (Piece::Hit { key: None, value }, true),
        (Op::Get, GETKQ, 0) => (Piece::Hit { key: Some(key), value }, false),
        (Op::Get, GET, NOT_FOUND) => (Piece::Miss, true),
        (Op::Get, NOOP, 0) => (Piece::Frame, true),
        (Op::Set, SET, 0) => (Piece::Stored, true),
        (Op::Get, GETKQ, _) => (Piece::Refused(value), false),
        (Op::Get, GET, _) | (Op::Set, SET, _) => (Piece::Refused(value), true),
        _ => return Read::Garbage,
    };
    Read::Piece(piece, total, counts)
}
