//! The meta protocol: `mg ms md ma me mn`, a key, and flags of one letter, some with an argument.
//!
//! A request's flags are read once into [`Options`]. The words are also kept, since the reply
//! returns facts in the order of the flags: see [`reply`].
//!
//! Source: memcached's `doc/protocol.txt`, "Meta Commands", and the running 1.6.45 where the two
//! differ.

mod options;
pub mod reply;

pub use options::Options;

use crate::number::value_len;
use crate::words::Words;
use crate::{DATA_END_BYTES, Error, KEY_BYTES_MAX, KeyBuf, StoreMode, base64};

/// The longest opaque token, in bytes.
pub const OPAQUE_BYTES_MAX: usize = 32;

/// The word after `mn` with which a client checks for leases and all other extensions of holdall.
pub const LEASES: &[u8] = b"leases";

/// The word after `mn` that announces the W3C trace context of the next command; after `mn leases`,
/// the query for servers that take one.
pub const TRACEPARENT: &[u8] = b"traceparent";

/// The context that `mn` with these words announces, if any, unchecked.
#[must_use]
pub fn announced_context(mut words: Words<'_>) -> Option<&[u8]> {
    if words.next()? == TRACEPARENT { words.next() } else { None }
}

/// The word after `mn` that requests the times of the next command, and returns those of the
/// previous one.
pub const TIMES: &[u8] = b"times";

/// True if `mn` with these words requests times.
#[must_use]
pub fn asks_for_times(mut words: Words<'_>) -> bool {
    words.next() == Some(TIMES)
}

/// The maximum number of words on a meta line, including command and key.
pub const WORDS_MAX: usize = 20;

/// A meta request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request<'b> {
    /// The command.
    pub command: Command,
    /// The key, decoded if it came as base64; 1 to 250 bytes. Empty for `mn`.
    pub key: &'b [u8],
    /// The flags.
    pub options: Options<'b>,
    /// The flag words in their order.
    pub flags: Words<'b>,
}

/// The meta commands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command {
    /// `ma`
    Arithmetic {
        /// `MD` rather than `MI`.
        decrement: bool,
    },
    /// `me`
    Debug,
    /// `md`
    Delete,
    /// `mg`
    Get,
    /// `mn`
    NoOp,
    /// `ms`
    Set {
        /// From the `M` flag.
        mode: StoreMode,
        /// Bytes in the data block that follows, without its `\r\n`; at most
        /// [`crate::VALUE_BYTES_MAX`].
        len: u32,
    },
}

/// A refused meta request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) error: Error,
    /// Bytes after the line to read and drop: the data block with its `\r\n`.
    pub(crate) swallow: u64,
}

/// Reads the words after a meta command.
#[inline]
pub(crate) fn parse<'b>(
    command: &[u8],
    mut words: Words<'b>,
    key_buf: &'b mut KeyBuf,
) -> Result<Request<'b>, Refusal> {
    if command == b"mn" {
        let options = Options::default();
        return Ok(Request { command: Command::NoOp, key: b"", options, flags: words });
    }
    let misshapen = Refusal { error: Error::Format, swallow: 0 };
    let word_count = 1 + words.count();
    let key = words.next().ok_or(misshapen)?;
    let (command, swallow) = match command {
        b"mg" => (Command::Get, 0),
        b"md" => (Command::Delete, 0),
        b"ma" => (Command::Arithmetic { decrement: false }, 0),
        b"me" => (Command::Debug, 0),
        _ => {
            let len = words.next().and_then(value_len).ok_or(misshapen)?;
            (Command::Set { mode: StoreMode::Set, len }, u64::from(len) + DATA_END_BYTES)
        }
    };
    judge(command, key, words, word_count, key_buf).map_err(|error| Refusal { error, swallow })
}

fn judge<'b>(
    command: Command,
    key: &'b [u8],
    flags: Words<'b>,
    word_count: usize,
    key_buf: &'b mut KeyBuf,
) -> Result<Request<'b>, Error> {
    let is_arithmetic = matches!(command, Command::Arithmetic { .. });
    let flaw = |error| if is_arithmetic { arithmetic_flaw(error) } else { error };
    if word_count > WORDS_MAX {
        return Err(Error::ManyFlags);
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(flaw(Error::Format));
    }
    let (options, mode) = Options::parse(flags).map_err(flaw)?;
    let key = if options.base64 {
        base64::decode(key, key_buf).ok_or_else(|| flaw(Error::DecodingKey))?
    } else {
        key
    };
    let command = with_mode(command, mode)?;
    Ok(Request { command, key, options, flags })
}

/// `ma` has one error for all faults of its key or flags, except for an opaque that is too long.
const fn arithmetic_flaw(error: Error) -> Error {
    match error {
        Error::OpaqueTooLong => error,
        _ => Error::ArithmeticFlag,
    }
}

/// Applies the `M` flag's argument, of which only the first letter counts. Other commands ignore
/// it.
fn with_mode(command: Command, mode: Option<&[u8]>) -> Result<Command, Error> {
    let Some(mode) = mode else {
        return Ok(command);
    };
    match command {
        Command::Set { len, .. } => {
            let mode = match mode.first() {
                Some(b'A') => StoreMode::Append,
                Some(b'E') => StoreMode::Add,
                Some(b'P') => StoreMode::Prepend,
                Some(b'R') => StoreMode::Replace,
                Some(b'S') => StoreMode::Set,
                _ => return Err(Error::StoreModeUnknown),
            };
            Ok(Command::Set { mode, len })
        }
        Command::Arithmetic { .. } => match mode.first() {
            Some(b'I' | b'+') => Ok(Command::Arithmetic { decrement: false }),
            Some(b'D' | b'-') => Ok(Command::Arithmetic { decrement: true }),
            _ => Err(Error::ArithmeticMode),
        },
        Command::Debug | Command::Delete | Command::Get | Command::NoOp => Ok(command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_op_can_announce_a_trace_context() {
        let announced = |words: &'static [u8]| announced_context(Words::new(words));
        assert_eq!(announced(b" traceparent 00-12-34-01 more"), Some(&b"00-12-34-01"[..]));
        for words in [&b""[..], b" traceparent", b" times 00-12-34-01", b" x traceparent 1"] {
            assert_eq!(announced(words), None, "{}", words.escape_ascii());
        }
    }

    #[test]
    fn a_no_op_can_request_times() {
        let asks = |words: &'static [u8]| asks_for_times(Words::new(words));
        assert!(asks(b" times") && asks(b" times more"));
        assert!(!asks(b"") && !asks(b" traceparent times") && !asks(b" time"));
    }
}
