//! Dialects: the commands and meta flags that each kind of server accepts. This is the only list.
//!
//! A server that does not know a command with a data block reads the block as commands. So such a
//! command goes only to a server that has shown on the same connection that it knows it. There are
//! five kinds of servers, each of which accepts the commands of its predecessors:
//!
//! * [`Dialect::Basic`], any server until the probe says more: get, gets, set, add, replace,
//!   append, prepend, cas, incr, decr, delete, touch, version.
//! * [`Dialect::Classic`], one that answers an unknown line with one line, and goes on: gat, gats,
//!   `flush_all`, metaget.
//! * [`Dialect::Meta`], memcached from 1.6.10 on: mg, ms, md, ma, me; expiry times beyond 32 bits
//!   in commands with a block.
//! * [`Dialect::Holdall`], ours, server or proxy: lease-get, lease-set, `flush_prefix`, a delete's
//!   hold-off; the meta flags A, G, H, U.
//! * [`Dialect::Tracing`], ours if it collects spans: the context of a trace (`mn traceparent ..`).
//!
//! # What memcached does with a block that it refuses
//!
//! Tested with 1.6.18. These are read as commands: a block after a storage line with a key of more
//! than 250 bytes or with a NUL, an invalid number or a missing word; a block after `ms` with a key
//! of more than 250 bytes in base64, or with more than 19 words. These are dropped: blocks after
//! any other refused `ms`, and after values that are too large. [`needs`] refuses the former.

use proto::answer::{Answer, MetaCode};
use proto::meta::{LEASES, OPAQUE_BYTES_MAX, TRACEPARENT, WORDS_MAX};
use proto::number::{parse_i64, parse_u32, parse_u64};
use proto::text::{LINE_BYTES_MAX, Words};
use proto::{KEY_BYTES_MAX, base64};

use crate::request::Request;
use proto::Command;

/// A kind of server. Each accepts the commands of its predecessors, and more.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Dialect {
    /// The commands that every server and proxy accepts.
    Basic,
    /// memcached without meta commands, or with those from before 1.6.10.
    Classic,
    /// memcached with meta commands.
    Meta,
    /// Ours.
    Holdall,
    /// Ours, with spans.
    Tracing,
}

/// The probe of a server's dialect. It changes nothing, and contains no block that a server could
/// execute.
///
/// `mn leases` is answered with `MN leases` by us and with `MN` by memcached with meta commands.
/// Servers that accept trace contexts repeat the third word, too. The mode of `ms` does not exist:
/// memcached refuses it and drops the block, which holds a line end. Before 1.6.10 the length was a
/// flag, so such a server reads the block as empty lines and answers each with an error. `version`
/// ends the answers.
pub(crate) const PROBE: &[u8] = b"mn leases traceparent\r\nms k 2 MX\r\n\r\n\r\nversion\r\n";

/// The end of the data block in [`PROBE`].
pub(crate) const PROBE_BLOCK_END: usize = PROBE.len() - b"version\r\n".len();

/// The server's answers to [`PROBE`] so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ProbeAnswers {
    knows_noop: bool,
    knows_leases: bool,
    takes_contexts: bool,
    errors: u32,
}

impl ProbeAnswers {
    /// Processes an answer before that to `version`. Returns false if it cannot answer the probe.
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

    /// The server's dialect.
    pub(crate) fn dialect(self) -> Dialect {
        // The block was dropped if the refused command is the only one answered with an error.
        match (self.knows_noop, self.errors) {
            (true, 1) if self.takes_contexts => Dialect::Tracing,
            (true, 1) if self.knows_leases => Dialect::Holdall,
            (true, 1) => Dialect::Meta,
            _ => Dialect::Classic,
        }
    }
}

/// The minimum dialect of a server that may receive `request` in text.
///
/// # Errors
///
/// The reason why no server can receive it.
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
            // A server that reads 32 bits refuses more, and may read the block as commands.
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

/// Returns true if some server accepts `request` in text.
#[must_use]
pub fn is_sendable(request: &Request<'_>) -> bool {
    needs(request).is_ok()
}

/// Checks that key and value of `request` fit into a packet.
///
/// # Errors
///
/// The reason why no server can receive it.
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

/// Maximum bytes of a value in a packet, whose 32-bit length also counts key and extras.
const VALUE_BYTES_MAX: usize = u32::MAX as usize - 1024;

const BAD_VALUE: &str = "a value is too long for the binary protocol";

const BAD_KEY: &str = "a key has 1 to 250 bytes, and neither spaces nor control characters";

/// Returns true if the key is one word for every parser: no byte ends a word, a line or a string.
#[inline]
fn is_key(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len()) && is_plain(key)
}

#[inline]
fn is_plain(bytes: &[u8]) -> bool {
    !short::any(bytes, |byte| (byte <= b' ') | (byte == 0x7f))
}

/// Maximum number of words in a meta line for memcached, including command and key.
const MEMCACHED_WORDS_MAX: usize = 19;

/// The minimum dialect for a meta command, which also depends on the number of its words.
fn meta(request: &Request<'_>) -> Result<Dialect, &'static str> {
    let key_len =
        if request.base64 { base64::encoded_len(request.key.len()) } else { request.key.len() };
    let fits = (1..=KEY_BYTES_MAX).contains(&key_len);
    if !fits || !request.base64 && !is_plain(request.key) {
        return Err(BAD_KEY);
    }
    // `ms KEY LEN WORDS`, a line end, and the maximum number of digits of a length.
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
    let is_raw_debug = request.op == Command::MetaDebug && !is_plain(request.key);
    if count > MEMCACHED_WORDS_MAX || is_raw_debug {
        needed = Dialect::Holdall;
    }
    Ok(needed)
}

/// Returns true if the server gets no `k`, and the connection adds the key to the reply: memcached
/// writes the key raw if the item was not created with it in base64, and no line can hold this key.
/// (The key of `me` cannot be left out.)
#[inline]
pub(crate) fn adds_key(op: Command, key: &[u8], words: &[u8]) -> bool {
    op.is_meta()
        && op != Command::MetaDebug
        && !is_plain(key)
        && Words::new(words).any(|word| word.first() == Some(&b'k'))
}

/// The minimum dialect for this flag of a meta command: memcached accepts each of its flags with
/// every command. `None`: no server accepts it, or its argument is invalid. No server gets `q`
/// here, since every request is answered.
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

/// The reason why a server with less than `needed` does not receive the command.
pub(crate) fn lacking(request: &Request<'_>, needed: Dialect) -> &'static str {
    match request.op {
        Command::Delete => "the server has no hold-off",
        Command::FlushAll if needed == Dialect::Holdall => "the server has no flush_prefix",
        Command::LeaseGet | Command::LeaseSet => "the server has no leases",
        Command::MetaDebug if needed == Dialect::Holdall && !is_plain(request.key) => {
            "the server may write this key raw in the reply to me"
        }
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

/// Returns true if the connection is in step after this error, because the server has read the
/// whole command, including its data block. `seen` is the server's observed dialect.
pub(crate) fn stays_in_step(op: Command, error: &Answer<'_>, seen: Option<Dialect>) -> bool {
    if !op.has_value() {
        return true;
    }
    match (error, seen) {
        // A server that requires a login answers each line of the block.
        (Answer::ClientError(b"unauthenticated"), _) => false,
        (Answer::ServerError(_), _) => true,
        (Answer::ClientError(_), Some(Dialect::Holdall | Dialect::Tracing)) => true,
        (Answer::ClientError(_), Some(Dialect::Meta)) => op == Command::MetaSet,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
