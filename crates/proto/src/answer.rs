//! Parser of text and meta replies, for a client.
//!
//! A server may be broken or hostile, so [`parse`] is as total as the parsers of requests: any
//! bytes give one reply, "incomplete", or "no reply of this protocol". The caller judges if a reply
//! answers its request. If not, it must close the connection, since nothing after it can be
//! trusted.
//!
//! Source: memcached's `doc/protocol.txt`; for `LVALUE`, `STALE_STORED` and `META`, mcrouter's
//! ASCII protocol.

use memchr::memchr;

use crate::number::{parse_u32, parse_u64};
use crate::words::{Words, first_word};
use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// The longest line of a reply, in bytes before its `\n`.
pub const ANSWER_LINE_BYTES_MAX: usize = 4096;

/// The meaning of the bytes so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parsed<'b> {
    /// One reply.
    Answer {
        /// The answer.
        answer: Answer<'b>,
        /// Bytes of the input it took.
        consumed: usize,
    },
    /// No reply of this protocol: close.
    Bad,
    /// The reply is incomplete; 0 bytes means that its length is not known yet.
    Incomplete {
        /// Bytes of the whole reply.
        total: usize,
    },
}

/// One line of a reply, with its data block if it has one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer<'b> {
    /// `CLIENT_ERROR` and its text.
    ClientError(&'b [u8]),
    /// `DELETED`
    Deleted,
    /// `END`
    End,
    /// `ERROR`, with or without a text.
    Error(&'b [u8]),
    /// `EXISTS`
    Exists,
    /// `LVALUE <key> <token> <flags> <bytes>` and the (stale, perhaps empty) value.
    Lease {
        /// The key as the server returns it.
        key: &'b [u8],
        /// The token; 1 is a request to wait.
        token: u64,
        /// Client flags.
        flags: u32,
        /// A stale value, or nothing.
        value: &'b [u8],
    },
    /// A meta reply.
    Meta(Meta<'b>),
    /// `META <key> ...`, the answer to `metaget`: the key, and what follows it.
    MetaInfo {
        /// The key as the server returns it.
        key: &'b [u8],
        /// The facts about the item, which follow the key.
        facts: &'b [u8],
    },
    /// `NOT_FOUND`
    NotFound,
    /// `NOT_STORED`
    NotStored,
    /// A number as the only word on its line.
    Number(u64),
    /// `OK`
    Ok,
    /// `SERVER_ERROR` and its text.
    ServerError(&'b [u8]),
    /// `STALE_STORED`
    StaleStored,
    /// `STORED`
    Stored,
    /// `TOUCHED`
    Touched,
    /// `VALUE <key> <flags> <bytes> [<cas>]` and the value.
    Value(Value<'b>),
    /// `VERSION <text>`
    Version(&'b [u8]),
}

/// A value found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Value<'b> {
    /// The key as the server returns it.
    pub key: &'b [u8],
    /// Client flags.
    pub flags: u32,
    /// The cas unique, in replies to gets and gats.
    pub cas: Option<u64>,
    /// The value.
    pub value: &'b [u8],
}

/// A meta reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Meta<'b> {
    /// The two letters.
    pub code: MetaCode,
    /// The words after the code (after `VA`: after the length).
    pub flags: Words<'b>,
    /// The value, with `VA`.
    pub value: Option<&'b [u8]>,
}

/// The codes of meta replies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetaCode {
    /// `EN`: a miss.
    En,
    /// `EX`: the cas unique differs.
    Ex,
    /// `HD`: done.
    Hd,
    /// `ME`: the reply to `me`.
    Me,
    /// `MN`: the answer to `mn`.
    Mn,
    /// `NF`: not found.
    Nf,
    /// `NS`: not stored.
    Ns,
    /// `VA`: a value.
    Va,
}

impl MetaCode {
    /// The code on the wire.
    #[must_use]
    pub const fn letters(self) -> &'static [u8; 2] {
        match self {
            Self::En => b"EN",
            Self::Ex => b"EX",
            Self::Hd => b"HD",
            Self::Me => b"ME",
            Self::Mn => b"MN",
            Self::Nf => b"NF",
            Self::Ns => b"NS",
            Self::Va => b"VA",
        }
    }
}

/// Reads the first reply of `input`. Values of more than `value_bytes_max` are [`Parsed::Bad`].
#[inline]
#[must_use]
pub fn parse(input: &[u8], value_bytes_max: u32) -> Parsed<'_> {
    // The most frequent lines need no search for their end.
    match input {
        [b'E', b'N', b'D', b'\r', b'\n', ..] => return answer(Answer::End, 5),
        [b'S', b'T', b'O', b'R', b'E', b'D', b'\r', b'\n', ..] => return answer(Answer::Stored, 8),
        [b'V', b'A', b'L', b'U', b'E', b' ', ..] => {
            if let Some(parsed) = plain_value(input, value_bytes_max.min(VALUE_BYTES_MAX)) {
                return parsed;
            }
        }
        _ => {}
    }
    let window = input.get(..=ANSWER_LINE_BYTES_MAX).unwrap_or(input);
    let Some(newline) = memchr(b'\n', window) else {
        let is_too_long = input.len() > ANSWER_LINE_BYTES_MAX;
        return if is_too_long { Parsed::Bad } else { Parsed::Incomplete { total: 0 } };
    };
    let Some(line) = window.get(..newline).and_then(|line| line.strip_suffix(b"\r")) else {
        return Parsed::Bad;
    };
    let limit = value_bytes_max.min(VALUE_BYTES_MAX);
    read_line(input, line, newline + 1, limit).unwrap_or(Parsed::Bad)
}

const fn answer(answer: Answer<'_>, consumed: usize) -> Parsed<'_> {
    Parsed::Answer { answer, consumed }
}

/// Reads a whole line, whose end is at `end`; `END` and `STORED` were read before. `None`: it is no
/// reply.
fn read_line<'b>(input: &'b [u8], line: &'b [u8], end: usize, limit: u32) -> Option<Parsed<'b>> {
    let word_end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (word, rest) = line.split_at_checked(word_end)?;
    let text = rest.get(1..).unwrap_or_default();
    let said = match (word, rest) {
        (b"VALUE", _) => return value(input, rest, end, limit),
        (b"VA", _) => return meta_value(input, rest, end, limit),
        (b"LVALUE", _) => return lease(input, rest, end, limit),
        (b"HD", _) => meta(MetaCode::Hd, rest),
        (b"NS", _) => meta(MetaCode::Ns, rest),
        (b"EX", _) => meta(MetaCode::Ex, rest),
        (b"NF", _) => meta(MetaCode::Nf, rest),
        (b"EN", _) => meta(MetaCode::En, rest),
        (b"ME", _) => meta(MetaCode::Me, rest),
        (b"MN", _) => meta(MetaCode::Mn, rest),
        (b"NOT_STORED", b"") => Answer::NotStored,
        (b"EXISTS", b"") => Answer::Exists,
        (b"NOT_FOUND", b"") => Answer::NotFound,
        (b"DELETED", b"") => Answer::Deleted,
        (b"TOUCHED", b"") => Answer::Touched,
        (b"STALE_STORED", b"") => Answer::StaleStored,
        (b"OK", b"") => Answer::Ok,
        (b"VERSION", _) => Answer::Version(text),
        (b"ERROR", _) => Answer::Error(text),
        (b"CLIENT_ERROR", _) => Answer::ClientError(text),
        (b"SERVER_ERROR", _) => Answer::ServerError(text),
        (b"META", _) => meta_info(text)?,
        // Old servers pad a counter that became shorter with spaces.
        ([b'0'..=b'9', ..], spaces) if spaces.iter().all(|byte| *byte == b' ') => {
            Answer::Number(parse_u64(word)?)
        }
        _ => return None,
    };
    Some(answer(said, end))
}

const fn meta<'b>(code: MetaCode, rest: &'b [u8]) -> Answer<'b> {
    Answer::Meta(Meta { code, flags: Words::new(rest), value: None })
}

fn meta_info(text: &[u8]) -> Option<Answer<'_>> {
    let end = memchr(b' ', text)?;
    let (key, facts) = text.split_at_checked(end)?;
    is_key(key).then_some(Answer::MetaInfo { key, facts: facts.get(1..).unwrap_or_default() })
}

const fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= KEY_BYTES_MAX
}

/// The data block of `len` bytes that starts at `start`, once it is whole, and its end.
#[inline]
fn block(input: &[u8], start: usize, len: u32) -> Option<Block<'_>> {
    let len = usize::try_from(len).ok()?;
    let (value_end, total) = (start.checked_add(len)?, start.checked_add(len)?.checked_add(2)?);
    let Some(data_end) = input.get(value_end..total) else {
        // The received part of the block's end must already be correct.
        let begun = input.get(value_end..).unwrap_or_default();
        return b"\r\n".starts_with(begun).then_some(Block::Incomplete(total));
    };
    let value = input.get(start..value_end)?;
    (data_end == b"\r\n").then_some(Block::Whole(value, total))
}

enum Block<'b> {
    Incomplete(usize),
    Whole(&'b [u8], usize),
}

fn value<'b>(input: &'b [u8], rest: &'b [u8], end: usize, limit: u32) -> Option<Parsed<'b>> {
    let mut words = Words::new(rest);
    let (key, flags, len) = (words.next()?, words.next()?, words.next()?);
    let cas = words.next();
    if !is_key(key) || !words.is_empty() {
        return None;
    }
    let flags = parse_u32(flags)?;
    let len = parse_u32(len).filter(|len| *len <= limit)?;
    let cas = match cas {
        Some(word) => Some(parse_u64(word)?),
        None => None,
    };
    Some(match block(input, end, len)? {
        Block::Incomplete(total) => Parsed::Incomplete { total },
        Block::Whole(value, total) => {
            answer(Answer::Value(Value { key, flags, cas, value }), total)
        }
    })
}

/// A value in the usual form, one space between words and no cas unique, in one pass. `None`: the
/// general path reads it.
#[inline]
fn plain_value(input: &[u8], limit: u32) -> Option<Parsed<'_>> {
    let text = input.get(b"VALUE ".len()..)?;
    let key = first_word(text.get(..=KEY_BYTES_MAX).unwrap_or(text)).filter(|key| is_key(key))?;
    let rest = text.get(key.len()..)?.strip_prefix(b" ")?;
    let (flags, rest) = leading_u32(rest)?;
    let (len, rest) = leading_u32(rest.strip_prefix(b" ")?)?;
    let data = rest.strip_prefix(b"\r\n")?;
    if len > limit {
        return None;
    }
    Some(match block(input, input.len() - data.len(), len)? {
        Block::Incomplete(total) => Parsed::Incomplete { total },
        Block::Whole(value, total) => {
            answer(Answer::Value(Value { key, flags, cas: None, value }), total)
        }
    })
}

/// The number of at most nine digits, hence a `u32`, at the start of `text`, and the rest.
#[inline(always)]
fn leading_u32(text: &[u8]) -> Option<(u32, &[u8])> {
    let (mut number, mut rest) = (0, text);
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        if text.len() - rest.len() == 9 {
            return None;
        }
        number = number * 10 + u32::from(digit - b'0');
        rest = after;
    }
    (rest.len() < text.len()).then_some((number, rest))
}

fn lease<'b>(input: &'b [u8], rest: &'b [u8], end: usize, limit: u32) -> Option<Parsed<'b>> {
    let mut words = Words::new(rest);
    let (key, token, flags, len) = (words.next()?, words.next()?, words.next()?, words.next()?);
    if !is_key(key) || !words.is_empty() {
        return None;
    }
    let (token, flags) = (parse_u64(token)?, parse_u32(flags)?);
    let len = parse_u32(len).filter(|len| *len <= limit)?;
    Some(match block(input, end, len)? {
        Block::Incomplete(total) => Parsed::Incomplete { total },
        Block::Whole(value, total) => answer(Answer::Lease { key, token, flags, value }, total),
    })
}

fn meta_value<'b>(input: &'b [u8], rest: &'b [u8], end: usize, limit: u32) -> Option<Parsed<'b>> {
    let words = rest.strip_prefix(b" ")?;
    let len_end = memchr(b' ', words).unwrap_or(words.len());
    let (len, flags) = words.split_at_checked(len_end)?;
    let len = parse_u32(len).filter(|len| *len <= limit)?;
    Some(match block(input, end, len)? {
        Block::Incomplete(total) => Parsed::Incomplete { total },
        Block::Whole(value, total) => {
            let meta = Meta { code: MetaCode::Va, flags: Words::new(flags), value: Some(value) };
            answer(Answer::Meta(meta), total)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pieces of lines, correct and wrong, in any order.
    fn line() -> impl Strategy<Value = Vec<u8>> {
        let pieces: [&[u8]; 10] = [
            b" ",
            b"k",
            b"0",
            b"3",
            b"999999999",
            b"4294967295",
            b"\r\n",
            b"\n",
            b"abc\r\n",
            b"END\r\n",
        ];
        let piece = proptest::sample::select(pieces.to_vec());
        prop_oneof![
            proptest::collection::vec(piece.clone(), 0..9).prop_map(|pieces| pieces.concat()),
            proptest::collection::vec(piece, 0..4).prop_map(|pieces| [
                b"k 0 3\r\nabc",
                &pieces.concat()[..]
            ]
            .concat()),
        ]
    }

    #[test]
    fn canonical_value_lines_take_the_fast_path() {
        for line in ["VALUE k 7 1\r\nx\r\n", "VALUE k 999999999 1\r\nx\r\n"] {
            assert!(plain_value(line.as_bytes(), 1).is_some(), "{line}");
        }
        for line in ["VALUE k 1000000000 1\r\nx\r\n", "VALUE k 7 1 9\r\nx\r\n"] {
            assert_eq!(plain_value(line.as_bytes(), 1), None, "{line}");
        }
    }

    #[test]
    fn short_numbers_end_at_the_first_non_digit() {
        assert_eq!(leading_u32(b"120 5"), Some((120, &b" 5"[..])));
        assert_eq!(leading_u32(b"0"), Some((0, &b""[..])));
        assert_eq!(leading_u32(b"999999999\r"), Some((999_999_999, &b"\r"[..])));
        assert_eq!(leading_u32(b"1000000000"), None);
        assert_eq!(leading_u32(b" 1"), None);
    }

    proptest! {
        #[test]
        fn the_fast_path_and_the_general_parser_agree(rest in line(), limit in prop_oneof![Just(2_u32), Just(1 << 20)]) {
            let input = [b"VALUE ", &rest[..]].concat();
            if let Some(quick) = plain_value(&input, limit) {
                let end = memchr(b'\n', &input).map_or(input.len(), |at| at + 1);
                let line = input.get(..end).and_then(|line| line.strip_suffix(b"\r\n"));
                prop_assert_eq!(Some(quick), line.and_then(|line| read_line(&input, line, end, limit)));
            }
        }
    }
}
