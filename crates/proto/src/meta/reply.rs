//! Meta replies: a code, then the facts that the request's flags request, in the order of the
//! flags.

use super::{Command, Request};
use crate::number::{write_i64, write_u64};
use crate::words::Words;
use crate::{base64, reply::CRLF};

/// The answer to `mn`.
pub const NOOP: &[u8] = b"MN\r\n";

/// The answer to `mn leases`.
const NOOP_LEASES: &[u8] = b"MN leases\r\n";

/// The answer to `mn leases traceparent`, if contexts are accepted.
const NOOP_TRACEPARENT: &[u8] = b"MN leases traceparent\r\n";

/// The answer to `mn` with these words after it, from a server that accepts trace contexts or not.
#[must_use]
pub fn noop(mut words: Words<'_>, takes_contexts: bool) -> &'static [u8] {
    match (words.next(), words.next()) {
        (Some(super::LEASES), Some(super::TRACEPARENT)) if takes_contexts => NOOP_TRACEPARENT,
        (Some(super::LEASES), _) => NOOP_LEASES,
        _ => NOOP,
    }
}

/// Appends the answer to `mn times`: the nanoseconds of parsing and executing the previous command
/// and of writing its reply, preceded by the time between its arrival and its parsing, if known.
pub fn write_times(out: &mut Vec<u8>, nanoseconds: impl Iterator<Item = u64>) {
    out.extend_from_slice(b"MN times");
    for time in nanoseconds {
        out.push(b' ');
        write_u64(out, time);
    }
    out.extend_from_slice(CRLF);
}

/// A reply code without a value. (With a value, `VA`, it is [`write_value_header`].)
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// `EN`: `mg` missed.
    Miss,
    /// `EX`: the cas unique differs.
    Exists,
    /// `HD`: done, or found.
    Done,
    /// `NF`: not there.
    NotFound,
    /// `NS`: the mode's condition does not hold.
    NotStored,
}

impl Status {
    const fn code(self) -> &'static [u8] {
        match self {
            Self::Miss => b"EN",
            Self::Exists => b"EX",
            Self::Done => b"HD",
            Self::NotFound => b"NF",
            Self::NotStored => b"NS",
        }
    }
}

/// The facts about the item that a reply is about.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ItemFacts {
    /// `c`: its cas unique.
    pub cas: u64,
    /// `f`: its client flags.
    pub flags: u32,
    /// `h`: true if it had been read before this request.
    pub hit_before: bool,
    /// `l`: seconds since it was last read or stored, before this request.
    pub last_access_secs: u64,
    /// `s`: bytes of its value (after `ms`, the final ones).
    pub value_bytes: usize,
    /// `t` before any `T` among the flags: seconds left before this request; `None`: it never
    /// expires.
    pub ttl_secs_before: Option<u64>,
    /// `t` after a `T` among the flags: seconds left now; `None`: it never expires.
    pub ttl_secs: Option<u64>,
    /// It was stored under a base64 key, so it answers `k` in base64 even to a plain request.
    pub key_is_base64: bool,
    /// `Z`: another reader has already won the right to recache it.
    pub win_sent: bool,
    /// `X`: it is stale.
    pub stale: bool,
    /// `W`: this reader has won the right to recache it.
    pub won: bool,
    /// `G` (not memcached's): the token with which this reader may fill it.
    pub lease: Option<u64>,
}

/// True if `q` suppresses this reply: `EN` of mg; the success of the others, which for `ma` may be
/// a value. A value that `mg` found, and an error, are always sent.
#[must_use]
pub const fn is_silent(request: &Request<'_>, status: Status) -> bool {
    request.options.quiet
        && match request.command {
            Command::Get => matches!(status, Status::Miss),
            _ => matches!(status, Status::Done),
        }
}

/// Appends a reply about an item: the code, the return flags, the line end.
pub fn write_item(out: &mut Vec<u8>, request: &Request<'_>, status: Status, facts: &ItemFacts) {
    out.extend_from_slice(status.code());
    write_flags(out, request, facts);
    out.extend_from_slice(CRLF);
}

/// Appends a reply without an item: it can return only the key and the opaque (and, for `ms`, a cas
/// of 0 and the size of the sent value).
pub fn write_status(out: &mut Vec<u8>, request: &Request<'_>, status: Status) {
    out.extend_from_slice(status.code());
    for word in request.flags {
        match word.first() {
            Some(b'k') => write_key(out, request, request.options.base64),
            Some(b'O') => write_word(out, word),
            Some(letter @ (b'c' | b's')) => {
                if let Command::Set { len, .. } = request.command {
                    write_flag(out, *letter, if *letter == b's' { u64::from(len) } else { 0 });
                }
            }
            _ => {}
        }
    }
    out.extend_from_slice(CRLF);
}

/// Appends `VA <bytes>`, the return flags and the line end. The value and `\r\n` must follow.
pub fn write_value_header(
    out: &mut Vec<u8>,
    request: &Request<'_>,
    value_bytes: usize,
    facts: &ItemFacts,
) {
    out.extend_from_slice(b"VA ");
    write_usize(out, value_bytes);
    write_flags(out, request, facts);
    out.extend_from_slice(CRLF);
}

/// The facts in the reply to `me`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DebugFacts {
    /// Seconds left; `None`: it never expires.
    pub ttl_secs: Option<u64>,
    /// Seconds since it was last read or stored.
    pub last_access_secs: u64,
    /// Its cas unique.
    pub cas: u64,
    /// True if it has been read since it was stored.
    pub fetched: bool,
    /// Its size class.
    pub class: u64,
    /// Its bytes in memory, including the header.
    pub item_bytes: usize,
    /// It was stored under a base64 key, and is therefore shown in base64.
    pub key_is_base64: bool,
}

/// Appends the answer to `me`: `ME <key> exp=.. la=.. cas=.. fetch=.. cls=.. size=..`. On a miss
/// `me` answers [`Status::Miss`].
///
/// The key is in base64 if it came or was stored in base64.
pub fn write_debug(out: &mut Vec<u8>, request: &Request<'_>, facts: &DebugFacts) {
    out.extend_from_slice(b"ME ");
    if request.options.base64 || facts.key_is_base64 {
        base64::encode(request.key, out);
    } else {
        short::append(out, request.key);
    }
    out.extend_from_slice(b" exp=");
    write_ttl(out, facts.ttl_secs);
    out.extend_from_slice(b" la=");
    write_u64(out, facts.last_access_secs);
    out.extend_from_slice(b" cas=");
    write_u64(out, facts.cas);
    out.extend_from_slice(if facts.fetched { b" fetch=yes cls=" } else { b" fetch=no cls=" });
    write_u64(out, facts.class);
    out.extend_from_slice(b" size=");
    write_usize(out, facts.item_bytes);
    out.extend_from_slice(CRLF);
}

fn write_flags(out: &mut Vec<u8>, request: &Request<'_>, facts: &ItemFacts) {
    let mut ttl = facts.ttl_secs_before;
    for word in request.flags {
        let Some(letter) = word.first() else { continue };
        match letter {
            b'T' => ttl = facts.ttl_secs,
            b'O' => write_word(out, word),
            b'k' => write_key(out, request, facts.key_is_base64 || request.options.base64),
            letter if !returns(request.command, *letter) => {}
            b'c' => write_flag(out, b'c', facts.cas),
            b'f' => write_flag(out, b'f', u64::from(facts.flags)),
            b'h' => write_flag(out, b'h', u64::from(facts.hit_before)),
            b'l' => write_flag(out, b'l', facts.last_access_secs),
            b's' => {
                out.extend_from_slice(b" s");
                write_usize(out, facts.value_bytes);
            }
            b't' => {
                out.extend_from_slice(b" t");
                write_ttl(out, ttl);
            }
            _ => {}
        }
    }
    for (holds, mark) in [(facts.win_sent, b" Z"), (facts.stale, b" X"), (facts.won, b" W")] {
        if holds {
            out.extend_from_slice(mark);
        }
    }
    if let Some(token) = facts.lease {
        write_flag(out, b'G', token);
    }
}

/// True if the reply of success contains this fact about the item: `c f h l s t`. A flag counts by
/// its first letter, regardless of the rest.
#[must_use]
pub fn returns_fact(request: &Request<'_>, letter: u8) -> bool {
    let is_asked = |word: &[u8]| word.first() == Some(&letter);
    returns(request.command, letter) && request.flags.into_iter().any(is_asked)
}

/// True if the command returns this fact; all return the key and the opaque.
const fn returns(command: Command, letter: u8) -> bool {
    match command {
        Command::Get => matches!(letter, b'c' | b'f' | b'h' | b'l' | b's' | b't'),
        Command::Set { .. } => matches!(letter, b'c' | b's'),
        Command::Arithmetic { .. } => matches!(letter, b'c' | b't'),
        Command::Debug | Command::Delete | Command::NoOp => false,
    }
}

fn write_flag(out: &mut Vec<u8>, letter: u8, number: u64) {
    out.extend_from_slice(&[b' ', letter]);
    write_u64(out, number);
}

fn write_word(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b' ');
    short::append(out, word);
}

/// ` k<key>`, in base64 followed by ` b`.
fn write_key(out: &mut Vec<u8>, request: &Request<'_>, in_base64: bool) {
    out.extend_from_slice(b" k");
    if in_base64 {
        base64::encode(request.key, out);
        out.extend_from_slice(b" b");
    } else {
        short::append(out, request.key);
    }
}

fn write_ttl(out: &mut Vec<u8>, ttl_secs: Option<u64>) {
    match ttl_secs {
        Some(secs) => write_u64(out, secs),
        None => write_i64(out, -1),
    }
}

fn write_usize(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_op_reports_supported_features() {
        let answers: [(&[u8], &[u8], &[u8]); 5] = [
            (b"", b"MN\r\n", b"MN\r\n"),
            (b" times", b"MN\r\n", b"MN\r\n"),
            (b" leases", b"MN leases\r\n", b"MN leases\r\n"),
            (b" leases traceparent", b"MN leases traceparent\r\n", b"MN leases\r\n"),
            (b" leases other", b"MN leases\r\n", b"MN leases\r\n"),
        ];
        for (words, with_contexts, without) in answers {
            assert_eq!(noop(Words::new(words), true), with_contexts);
            assert_eq!(noop(Words::new(words), false), without);
        }
    }

    #[test]
    fn a_times_reply_lists_all_times() {
        let mut out = Vec::new();
        write_times(&mut out, [0, 12, u64::MAX].into_iter());
        write_times(&mut out, std::iter::empty());
        assert_eq!(out, b"MN times 0 12 18446744073709551615\r\nMN times\r\n");
    }
}
