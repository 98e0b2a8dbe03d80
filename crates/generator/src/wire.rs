//! Requests as bytes, and replies as values, in four protocols.
//!
//! A request is written from key numbers, so no key or value is stored: both follow from the
//! number. Replies are read as [`Piece`]s; an invalid reply ends the connection, because the server
//! then does not do the measured work.

mod binary;
mod resp;
mod text;

use super::keys::KeyNames;
use super::scatter::scatter;
use super::sizes::{VALUE_BYTES_MAX, ValueSize};
use super::spec::{Protocol, Spec};
use crate::number::fits;

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fetch one or several keys.
    Get,
    /// Store one key.
    Set,
}

/// One item of a server's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'b> {
    /// A value, with its key if the reply names it.
    Hit {
        /// The key in the reply.
        key: Option<&'b [u8]>,
        /// The value.
        value: &'b [u8],
    },
    /// A key is missing.
    Miss,
    /// A key was removed.
    Removed,
    /// A value was stored.
    Stored,
    /// The request was refused, with this text.
    Refused(&'b [u8]),
    /// No item: the frame around other pieces.
    Frame,
}

/// The state of a reply after its bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read<'b> {
    /// One piece, its bytes, and whether it is one of the replies that the request waits for.
    Piece(Piece<'b>, usize, bool),
    /// Incomplete: the total bytes, as far as known (0: unknown).
    More(usize),
    /// Not a reply of this protocol.
    Garbage,
}

/// Writes requests and reads replies.
#[derive(Clone, Debug)]
pub struct Wire {
    pub(super) protocol: Protocol,
    names: KeyNames,
    sizes: ValueSize,
    ttl: u32,
    pool: Vec<u8>,
    /// True if values are compared with the stored ones.
    pub(super) verify: bool,
    pub(super) expected_hit: Option<ExpectedHit>,
}

/// The reply to a get of one existing key, if it has the same shape for every key: then its bytes
/// only need to be compared.
#[derive(Clone, Debug)]
pub(super) struct ExpectedHit {
    /// The offset of the bytes between key and value.
    middle_at: usize,
    /// Those bytes as a little-endian number, and which of its bits are theirs.
    middle: u128,
    mask: u128,
    /// Bytes of the whole reply.
    pub(super) total: usize,
}

const HEAD: &[u8] = b"VALUE ";
const TAIL: &[u8] = b"\r\nEND\r\n";

impl ExpectedHit {
    /// The expected hit of this load, if its replies have one shape.
    fn of(spec: &Spec, names: &KeyNames) -> Option<Self> {
        let ValueSize::Fixed(bytes) = spec.value_size else { return None };
        let is_plain = spec.protocol == Protocol::Text && spec.multiget == 1 && !spec.verify;
        let middle_at = HEAD.len() + names.one_length()?;
        let words = format!(" 0 {bytes}\r\n").into_bytes();
        let total = middle_at + words.len() + bytes + TAIL.len();
        let (mut middle, mut mask) = ([0; 16], [0; 16]);
        // The rest must be long enough to be compared as a whole number: a value of three bytes is.
        if !is_plain || words.len() > middle.len() || total - middle_at < middle.len() {
            return None;
        }
        middle[..words.len()].copy_from_slice(&words);
        mask[..words.len()].fill(0xff);
        let [middle, mask] = [middle, mask].map(u128::from_le_bytes);
        Some(Self { middle_at, middle, mask, total })
    }

    /// True if the first bytes are such a reply. Others are parsed.
    #[inline]
    pub(super) fn is_first_of(&self, bytes: &[u8]) -> bool {
        let Some(reply) = bytes.get(..self.total) else { return false };
        let Some(middle) = reply[self.middle_at..].first_chunk() else { return false };
        u128::from_le_bytes(*middle) & self.mask == self.middle
            && reply.starts_with(HEAD)
            && reply.ends_with(TAIL)
    }
}

/// Number of pool offsets at which different values start.
const POOL_PLACES: usize = 1 << 16;

impl Wire {
    /// The wire format for `spec`.
    #[must_use]
    pub fn new(spec: &Spec) -> Self {
        let longest = match &spec.value_size {
            ValueSize::Fixed(bytes) | ValueSize::Range(_, bytes) => *bytes,
            ValueSize::List(list) => list.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0),
            ValueSize::Etc => VALUE_BYTES_MAX,
        };
        let words = (POOL_PLACES + longest).div_ceil(8) as u64;
        let pool = (0..words).flat_map(|word| scatter(word).to_le_bytes()).collect();
        let names =
            KeyNames::new(&spec.key_prefix, spec.keys, spec.key_size).beginning_at(spec.first_key);
        Self {
            protocol: spec.protocol,
            expected_hit: ExpectedHit::of(spec, &names),
            names,
            sizes: spec.value_size.clone(),
            ttl: spec.ttl,
            pool,
            verify: spec.verify,
        }
    }

    /// The value of a key, which is always the same.
    #[inline]
    #[must_use]
    pub fn value(&self, key: u64) -> &[u8] {
        let from = usize::try_from(scatter(key) % POOL_PLACES as u64).unwrap_or(0);
        &self.pool[from..from + self.sizes.of_key(key)]
    }

    /// Appends the key's name.
    pub fn name(&self, key: u64, out: &mut Vec<u8>) {
        self.names.write(key, out);
    }

    /// Appends a get of at least one key of `keys`; returns the number of its replies.
    #[inline]
    pub fn get(&self, keys: &[u64], out: &mut Vec<u8>) -> u32 {
        let each = fits(keys.len());
        match self.protocol {
            Protocol::Text => {
                text::get(&self.names, keys, out);
                1
            }
            Protocol::Meta => {
                text::meta_get(&self.names, keys, out);
                each
            }
            Protocol::Binary => {
                binary::get(&self.names, keys, out);
                1
            }
            Protocol::Resp => {
                resp::get(&self.names, keys, out);
                each
            }
        }
    }

    /// Appends a set of `key`; it has one reply.
    #[inline]
    pub fn set(&self, key: u64, out: &mut Vec<u8>) {
        let value = self.value(key);
        match self.protocol {
            Protocol::Text => text::set(&self.names, key, value, self.ttl, out),
            Protocol::Meta => text::meta_set(&self.names, key, value, self.ttl, out),
            Protocol::Binary => binary::set(&self.names, key, value, self.ttl, out),
            Protocol::Resp => resp::set(&self.names, key, value, self.ttl, out),
        }
    }

    /// The first piece of a reply to `op`.
    #[inline]
    #[must_use]
    pub fn read<'b>(&self, op: Op, bytes: &'b [u8]) -> Read<'b> {
        read(self.protocol, op, bytes)
    }
}

/// The first piece of a reply to `op` in a protocol.
#[inline]
#[must_use]
pub fn read(protocol: Protocol, op: Op, bytes: &[u8]) -> Read<'_> {
    match protocol {
        Protocol::Text | Protocol::Meta => text::read(bytes),
        Protocol::Binary => binary::read(op, bytes),
        Protocol::Resp => resp::read(bytes),
    }
}

/// Appends a decimal number.
fn push_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    fn wire(protocol: Protocol) -> Wire {
        Wire::new(&Spec { protocol, ttl: 60, ..Spec::default() })
    }

    fn written(wire: &Wire, keys: &[u64]) -> String {
        let mut out = Vec::new();
        wire.get(keys, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn gets_are_encoded_in_each_protocol() {
        assert_eq!(
            written(&wire(Protocol::Text), &[1, 2]),
            "get key:000000000001 key:000000000002\r\n"
        );
        assert_eq!(
            written(&wire(Protocol::Meta), &[1, 2]),
            "mg key:000000000001 v\r\nmg key:000000000002 v\r\n"
        );
        assert_eq!(
            written(&wire(Protocol::Resp), &[1, 2]),
            "*3\r\n$4\r\nMGET\r\n$16\r\nkey:000000000001\r\n$16\r\nkey:000000000002\r\n"
        );
        assert_eq!(
            written(&wire(Protocol::Resp), &[1]),
            "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000001\r\n"
        );
    }

    #[test]
    fn split_replies_are_parsed() {
        let cases: [(Protocol, Op, &[u8], Piece<'_>, bool); 11] = [
            (
                Protocol::Text,
                Op::Get,
                b"VALUE k 0 3\r\nabc\r\n",
                Piece::Hit { key: Some(b"k"), value: b"abc" },
                false,
            ),
            (Protocol::Text, Op::Get, b"END\r\n", Piece::Frame, true),
            (Protocol::Text, Op::Set, b"STORED\r\n", Piece::Stored, true),
            (Protocol::Text, Op::Set, b"SERVER_ERROR full\r\n", Piece::Refused(b"full"), true),
            (
                Protocol::Meta,
                Op::Get,
                b"VA 3\r\nabc\r\n",
                Piece::Hit { key: None, value: b"abc" },
                true,
            ),
            (Protocol::Meta, Op::Get, b"EN\r\n", Piece::Miss, true),
            (Protocol::Meta, Op::Set, b"HD\r\n", Piece::Stored, true),
            (
                Protocol::Resp,
                Op::Get,
                b"$3\r\nabc\r\n",
                Piece::Hit { key: None, value: b"abc" },
                true,
            ),
            (Protocol::Resp, Op::Get, b"$-1\r\n", Piece::Miss, true),
            (Protocol::Resp, Op::Get, b"*2\r\n", Piece::Frame, false),
            (Protocol::Resp, Op::Set, b"+OK\r\n", Piece::Stored, true),
        ];
        for (protocol, op, bytes, piece, counts) in cases {
            let wire = wire(protocol);
            assert_eq!(wire.read(op, bytes), Read::Piece(piece, bytes.len(), counts), "{protocol}");
            for cut in 0..bytes.len() {
                let read = wire.read(op, &bytes[..cut]);
                assert!(matches!(read, Read::More(_)), "{protocol} {cut}: {read:?}");
            }
        }
    }

    #[test]
    fn an_expected_reply_is_recognized_by_its_bytes() {
        let spec = Spec { value_size: ValueSize::Fixed(3), ..Spec::default() };
        let hit = Wire::new(&spec).expected_hit.unwrap();
        let reply = b"VALUE key:000000000001 0 3\r\nabc\r\nEND\r\n";
        assert_eq!(hit.total, reply.len());
        assert!(hit.is_first_of(reply) && hit.is_first_of(&[&reply[..], b"more"].concat()));
        assert!(!hit.is_first_of(&reply[..reply.len() - 1]));
        for wrong in [
            &b"VALUE key:000000000001 1 3\r\nabc\r\nEND\r\n"[..],
            b"VALUE key:000000000001 0 4\r\nabcd\r\nEND\r\n",
            b"VALUE key:000000000001 0 3\r\nabc\r\nEXD\r\n",
            b"END\r\nEND\r\nEND\r\nEND\r\nEND\r\nEND\r\nEND\r\nEND\r\n",
        ] {
            assert!(!hit.is_first_of(wrong), "{}", wrong.escape_ascii());
        }
        for spec in [
            Spec { verify: true, ..spec.clone() },
            Spec { multiget: 2, ..spec.clone() },
            Spec { value_size: ValueSize::Etc, ..spec.clone() },
            Spec { key_size: crate::sizes::KeySize::Etc, ..spec.clone() },
            Spec { protocol: Protocol::Meta, ..spec },
        ] {
            assert!(Wire::new(&spec).expected_hit.is_none());
        }
    }

    #[test]
    fn garbage_is_no_reply() {
        for protocol in [Protocol::Text, Protocol::Meta, Protocol::Resp] {
            for bytes in [&b"hello\r\n"[..], b"VALUE k 0\r\n", b"$12x\r\n", b"VA -1\r\n"] {
                assert_eq!(wire(protocol).read(Op::Get, bytes), Read::Garbage, "{protocol}");
            }
        }
        assert_eq!(wire(Protocol::Binary).read(Op::Get, &[b'E'; 24]), Read::Garbage);
    }

    #[test]
    fn a_binary_exchange_is_understood() {
        let wire = wire(Protocol::Binary);
        let mut out = Vec::new();
        wire.get(&[1, 2], &mut out);
        assert_eq!(out.len(), 24 + 16 + 24 + 16 + 24, "two quiet gets and a noop");
        assert_eq!((out[1], out[41], out[81]), (0x0d, 0x0d, 0x0a));
        let mut hit = [0u8; 24].to_vec();
        (hit[0], hit[1], hit[4], hit[11], hit[3]) = (0x81, 0x0d, 4, 4 + 1 + 2, 1);
        hit.extend_from_slice(b"\0\0\0\0kab");
        let piece = Piece::Hit { key: Some(b"k"), value: b"ab" };
        assert_eq!(wire.read(Op::Get, &hit), Read::Piece(piece, hit.len(), false));
    }
}
