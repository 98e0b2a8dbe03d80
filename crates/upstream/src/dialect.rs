//! Dialects: the commands and meta flags that each kind of server takes. This is the one list.
//!
//! A server that does not know a command with a data block reads the block as commands, so such a
//! command goes only to a server that was seen to know it on the same connection. Servers are of
//! five kinds, each of which takes what those before it take:
//!
//! * [`Dialect::Basic`], any server until the probe says more: get, gets, set, add, replace,
//!   append, prepend, cas, incr, decr, delete, touch, version.
//! * [`Dialect::Classic`], one that answers an unknown line with one line, and goes on: gat, gats,
//!   `flush_all`, metaget.
//! * [`Dialect::Meta`], memcached from 1.6.10 on: mg, ms, md, ma, me; expiry times beyond 32 bits
//!   in commands with a block.
//! * [`Dialect::Holdall`], ours, server or proxy: lease-get, lease-set, `flush_prefix`, a delete's
//!   hold-off; the meta flags A, G, H, U.
//! * [`Dialect::Tracing`], ours that collects spans: the context of a trace (`mn traceparent ..`).
//!
//! # What memcached does with a block that it refuses
//!
//! Tried with 1.6.18. Read as commands: after a storage line with a key of more than 250 bytes or
//! with a NUL, a number that is none, a missing word; after `ms` with a key of more than 250 bytes
//! in base64, or with more than 19 words. Dropped: after any other `ms` that it refuses, and after
//! values that are too large. [`needs`] refuses the former.

use proto::answer::{Answer, MetaCode};
use proto::meta::{LEASES, OPAQUE_BYTES_MAX, TRACEPARENT, WORDS_MAX};
use proto::number::{parse_i64, parse_u32, parse_u64};
use proto::text::{LINE_BYTES_MAX, Words};
use proto::{KEY_BYTES_MAX, base64};

use crate::request::Request;
use proto::Command;

/// A kind of server. Each takes what those before it take, and more.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Dialect {
    /// What every server and proxy takes.
    Basic,
    /// memcached without meta commands, or with those of before 1.6.10.
    Classic,
    /// memcached with meta commands.
    Meta,
    /// Ours.
    Holdall,
    /// Ours, with spans.
    Tracing,
}

/// Asks a server what it takes; none of it changes anything, and what a server may read as commands
/// is empty.
///
/// `mn leases` is answered with `MN leases` by us and with `MN` by memcached with meta commands.
/// Who takes the contexts of traces repeats the third word, too.
/// The mode of `ms` does not exist: memcached refuses it and drops the block, which holds a line
/// end. Before 1.6.10 the length was a flag, so that the block is read as empty lines, each with an
/// error of its own. `version` ends the answers.
pub(crate) const PROBE: &[u8] = b"mn leases traceparent\r\nms k 2 MX\r\n\r\n\r\nversion\r\n";

/// The end of the data block in [`PROBE`].
pub(crate) const PROBE_BLOCK_END: usize = PROBE.len() - b"version\r\n".len();

/// What a server has said to [`PROBE`] so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Heard {
    knows_noop: bool,
    knows_leases: bool,
    takes_contexts: bool,
    errors: u32,
}

impl Heard {
    /// Takes an answer before that to `version`. False if the probe cannot be answered so.
    pub(crate) fn take(&mut self, answer: &Answer<'_>) -> bool {
        match answer {
            Answer::ClientError(_) | Answer::Error(_) | Answer::ServerError(_) => self.errors += 1,
            Answer::Meta(meta) if meta.code == MetaCode::Mn && *self == Self::default() => {
                self.knows_noop = true;
                let mut words = meta.flags;
                self.knows_leases = words.next() == Some(LEASES);
                self.takes_contexts = self.knows_leases && words.next() == Some(TRACEPARENT);
            }
            _ => return false,
        }
        true
    }

    /// What the server takes.
    pub(crate) fn dialect(self) -> Dialect {
        // The block was dropped if the refused command is the only one that was answered with an
        // error.
        match (self.knows_noop, self.errors) {
            (true, 1) if self.takes_contexts => Dialect::Tracing,
            (true, 1) if self.knows_leases => Dialect::Holdall,
            (true, 1) => Dialect::Meta,
            _ => Dialect::Classic,
        }
    }
}

/// The least that a server must be seen to take to be sent `request` in text.
///
/// # Errors
///
/// Why it is not sent to any server.
#[inline(always)]
pub(crate) fn needs(request: &Request<'_>) -> Result<Dialect, &'static str> {
    let needed = match request.op {
        Command::Decr | Command::Get | Command::Gets | Command::Incr | Command::Touch => {
            Dialect::Basic
        }
        Command::Add
        | Command::Append
        | Command::Cas
        | Command::Prepend
        | Command::Replace
        | Command::Set => {
            // Who reads 32 bits refuses more, and may read the block as commands.
            let is_short = i32::try_from(request.exptime).is_ok();
            if is_short { Dialect::Basic } else { Dialect::Meta }
        }
        Command::Delete if request.exptime <= 0 => Dialect::Basic,
        Command::Delete | Command::LeaseGet | Command::LeaseSet => Dialect::Holdall,
        Command::Gat | Command::Gats | Command::MetaInfo => Dialect::Classic,
        Command::FlushAll if request.key.is_empty() => return Ok(Dialect::Classic),
        Command::FlushAll => Dialect::Holdall,
        Command::MetaArithmetic
        | Command::MetaDebug
        | Command::MetaDelete
        | Command::MetaGet
        | Command::MetaSet => {
            return meta(request);
        }
        Command::Version => return Ok(Dialect::Basic),
    };
    if is_key(request.key) { Ok(needed) } else { Err(BAD_KEY) }
}

/// True if some server takes `request` in text.
#[must_use]
pub fn is_sendable(request: &Request<'_>) -> bool {
    needs(request).is_ok()
}

/// Whether key and value of `request` fit into a packet.
///
/// # Errors
///
/// Why it is not sent to any server.
pub(crate) fn fits_packet(request: &Request<'_>) -> Result<(), &'static str> {
    let has_key = !matches!(request.op, Command::FlushAll | Command::Version);
    let fits = request.key.len() <= KEY_BYTES_MAX && !(has_key && request.key.is_empty());
    let is_short = request.value.len() <= VALUE_BYTES_MAX;
    if !fits {
        Err(BAD_KEY)
    } else if is_short {
        Ok(())
    } else {
        Err(BAD_VALUE)
    }
}

/// Bytes of a value that fit into a packet, whose length has 32 bits and counts key and extras,
/// too.
const VALUE_BYTES_MAX: usize = u32::MAX as usize - 1024;

const BAD_VALUE: &str = "a value is too long for the binary protocol";

const BAD_KEY: &str = "a key has 1 to 250 bytes, and neither spaces nor control characters";

/// One word for every parser: no byte of it ends a word, a line or a string.
#[inline]
fn is_key(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len()) && is_plain(key)
}

#[inline]
fn is_plain(bytes: &[u8]) -> bool {
    !short::any(bytes, |byte| (byte <= b' ') | (byte == 0x7f))
}

/// Words of a meta line that memcached takes, command and key included.
const MEMCACHED_WORDS_MAX: usize = 19;

/// The least dialect that a meta command needs. The number of its words counts, too.
fn meta(request: &Request<'_>) -> Result<Dialect, &'static str> {
    let key_len =
        if request.base64 { base64::encoded_len(request.key.len()) } else { request.key.len() };
    let fits = (1..=KEY_BYTES_MAX).contains(&key_len);
    if !fits || !request.base64 && !is_plain(request.key) {
        return Err(BAD_KEY);
    }
    // `ms KEY LEN WORDS`, a line end, and the most digits that a length has.
    if b"ms    4294967295\r\n".len() + key_len + request.words.len() > LINE_BYTES_MAX {
        return Err("the line is too long");
    }
    let mut needed = Dialect::Meta;
    let mut count = if request.op == Command::MetaSet { 3 } else { 2 };
    for word in Words::new(request.words) {
        needed = needed.max(flag(word).ok_or("no server takes one of these meta flags")?);
        count += 1;
    }
    if count > WORDS_MAX {
        return Err("too many meta flags");
    }
    if count > MEMCACHED_WORDS_MAX || may_tell_raw_key(request) {
        needed = Dialect::Holdall;
    }
    Ok(needed)
}

/// Whether memcached may answer with a key that no line can hold: it writes it raw where an item
/// was not created with it in base64.
fn may_tell_raw_key(request: &Request<'_>) -> bool {
    let asks = request.op == Command::MetaDebug
        || Words::new(request.words).any(|word| word.first() == Some(&b'k'));
    request.base64 && asks && !is_plain(request.key)
}

/// Who takes this flag of a meta command: memcached takes each of its flags with every command.
/// `None`: nobody, or it has an argument that it cannot have. `q` is nobody's here, since every
/// request is answered.
fn flag(word: &[u8]) -> Option<Dialect> {
    let (letter, argument) = word.split_first()?;
    let (dialect, is_right) = match letter {
        b'b' | b'c' | b'f' | b'h' | b'k' | b'l' | b's' | b't' | b'u' | b'v' | b'x' | b'I'
        | b'L' | b'P' => (Dialect::Meta, true),
        b'C' | b'D' | b'E' | b'J' => (Dialect::Meta, parse_u64(argument).is_some()),
        b'F' => (Dialect::Meta, parse_u32(argument).is_some()),
        b'N' | b'R' | b'T' => (Dialect::Meta, parse_i64(argument).is_some()),
        b'M' => (Dialect::Meta, !argument.is_empty()),
        b'O' => (Dialect::Meta, argument.len() <= OPAQUE_BYTES_MAX),
        b'A' | b'U' => (Dialect::Holdall, true),
        b'G' => (Dialect::Holdall, argument.is_empty() || parse_u64(argument).is_some()),
        b'H' => (Dialect::Holdall, parse_u32(argument).is_some()),
        _ => return None,
    };
    (is_right && is_plain(argument)).then_some(dialect)
}

/// Why a server that takes less than `needed` is not sent the command.
pub(crate) fn lacking(op: Command, needed: Dialect) -> &'static str {
    match op {
        Command::Delete => "the server has no hold-off",
        Command::FlushAll if needed == Dialect::Holdall => "the server has no flush_prefix",
        Command::LeaseGet | Command::LeaseSet => "the server has no leases",
        Command::MetaArithmetic
        | Command::MetaDebug
        | Command::MetaDelete
        | Command::MetaGet
        | Command::MetaSet => match needed {
            Dialect::Holdall => "the server lacks one of these meta flags",
            _ => "the server has no meta commands",
        },
        Command::Add
        | Command::Append
        | Command::Cas
        | Command::Prepend
        | Command::Replace
        | Command::Set => "the server may not take an expiry time of more than 32 bits",
        Command::Decr
        | Command::FlushAll
        | Command::Gat
        | Command::Gats
        | Command::Get
        | Command::Gets
        | Command::Incr
        | Command::MetaInfo
        | Command::Touch
        | Command::Version => "the server does not know the command",
    }
}

/// Whether the connection is in step behind this error: the server has read all of the command, its
/// data block too. `seen` is what the server was seen to take.
pub(crate) fn stays_in_step(op: Command, error: &Answer<'_>, seen: Option<Dialect>) -> bool {
    if !op.has_value() {
        return true;
    }
    match (error, seen) {
        // A server that wants a login answers each line of the block.
        (Answer::ClientError(b"unauthenticated"), _) => false,
        (Answer::ServerError(_), _) => true,
        (Answer::ClientError(_), Some(Dialect::Holdall | Dialect::Tracing)) => true,
        (Answer::ClientError(_), Some(Dialect::Meta)) => op == Command::MetaSet,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
