//! The classic commands: parses lines into requests.

use super::{
    Admin, AdminCommand, Arithmetic, BadRequest, GetLine, Parsed, Request, Store, Words, first_word,
};
use crate::meta::{self, Refusal};
use crate::number::{parse_u32, parse_u64, value_len};
use crate::{DATA_END_BYTES, Error, KEY_BYTES_MAX, KeyBuf, StoreMode, exptime};

/// Reads the command words of get, bget, gets, gat, gats or lease-get from a line that may be
/// incomplete. Also returns their bytes. `None` if the input is another command, or is too short.
#[inline(always)]
#[must_use]
pub fn retrieval(input: &[u8]) -> Option<(GetLine, usize)> {
    match input {
        [b'g', b'e', b't', b' ', ..] => Some((GetLine::new(None, false), 4)),
        // memcached still has this name from its first protocol.
        [b'b', b'g', b'e', b't', b' ', ..] => Some((GetLine::new(None, false), 5)),
        [b'g', b'e', b't', b's', b' ', ..] => Some((GetLine::new(None, true), 5)),
        [b'l', b'e', b'a', b's', b'e', b'-', b'g', b'e', b't', b' ', ..] => {
            Some((GetLine::lease(), LEASE_GET.len()))
        }
        [b'g', b'a', b't', b' ', ..] => get_and_touch(input, 4, false),
        [b'g', b'a', b't', b's', b' ', ..] => get_and_touch(input, 5, true),
        _ => None,
    }
}

const LEASE_GET: &[u8] = b"lease-get";

/// Reads the exptime of gat and gats. `None` if the line ends before it, or it is incomplete: the
/// path of whole lines reports either.
fn get_and_touch(input: &[u8], command_bytes: usize, with_cas: bool) -> Option<(GetLine, usize)> {
    let window = input.get(..=super::LINE_BYTES_MAX).unwrap_or(input);
    let words = window.get(command_bytes..)?;
    let start = words.iter().position(|byte| *byte != b' ')?;
    let word = words.get(start..)?;
    let end = memchr::memchr2(b' ', b'\n', word)?;
    let exptime = word.get(..end)?;
    let exptime = if word.get(end) == Some(&b'\n') {
        exptime.strip_suffix(b"\r").unwrap_or(exptime)
    } else {
        exptime
    };
    if exptime.is_empty() {
        return None;
    }
    let line = exptime::parse(exptime).map_or_else(
        || GetLine::refused(Error::Exptime, with_cas),
        |exptime| GetLine::new(Some(exptime), with_cas),
    );
    Some((line, command_bytes + start + exptime.len()))
}

/// Reads a whole line, without its end, that used `consumed` bytes of the input.
pub(super) fn line<'b>(line: &'b [u8], consumed: usize, key_buf: &'b mut KeyBuf) -> Parsed<'b> {
    if line.len() < LINE_BYTES_MIN {
        return bad(Error::Format, consumed);
    }
    // A line that starts with a space has an empty first word, which is no command.
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (command, arguments) = line.split_at_checked(end).unwrap_or_default();
    let words = Words::new(arguments);
    match command {
        b"set" => store(StoreMode::Set, false, words, consumed),
        b"mg" | b"ms" | b"md" | b"ma" | b"me" | b"mn" => {
            match meta::parse(command, words, key_buf) {
                Ok(meta) => request(Request::Meta(meta), consumed),
                // A quiet meta command still receives its errors.
                Err(Refusal { error, swallow }) => {
                    let is_unframed = command == b"ms" && swallow == 0;
                    let silent = false;
                    Parsed::Bad(BadRequest { error, consumed, swallow, silent, is_unframed })
                }
            }
        }
        b"add" => store(StoreMode::Add, false, words, consumed),
        b"replace" => store(StoreMode::Replace, false, words, consumed),
        b"append" => store(StoreMode::Append, false, words, consumed),
        b"prepend" => store(StoreMode::Prepend, false, words, consumed),
        b"cas" => store(StoreMode::Set, true, words, consumed),
        b"delete" => delete(words, consumed),
        b"incr" => arithmetic(false, words, consumed),
        b"decr" => arithmetic(true, words, consumed),
        b"touch" => touch(words, consumed),
        // With a key, these do not reach this line.
        b"bget" | b"get" | b"gets" | b"gat" | b"gats" | LEASE_GET => bad(Error::Format, consumed),
        b"lease-set" => lease_set(words, consumed),
        b"flush_all" => flush_all(words, consumed),
        b"flush_prefix" => flush_prefix(words, consumed),
        b"version" => request(Request::Version, consumed),
        b"quit" => request(Request::Quit, consumed),
        b"cache_memlimit" => admin(AdminCommand::CacheMemlimit, words, consumed),
        b"extstore" => admin(AdminCommand::Extstore, words, consumed),
        b"lru" => admin(AdminCommand::Lru, words, consumed),
        b"lru_crawler" => admin(AdminCommand::LruCrawler, words, consumed),
        b"refresh_certs" => admin(AdminCommand::RefreshCerts, words, consumed),
        b"shutdown" => admin(AdminCommand::Shutdown, words, consumed),
        b"slabs" => admin(AdminCommand::Slabs, words, consumed),
        b"stats" => admin(AdminCommand::Stats, words, consumed),
        b"verbosity" => admin(AdminCommand::Verbosity, words, consumed),
        b"watch" => admin(AdminCommand::Watch, words, consumed),
        _ => match words.split_last() {
            Some((_, last)) if last.starts_with(b"HTTP/") => Parsed::Http,
            _ => bad(Error::Command, consumed),
        },
    }
}

/// The shortest line that can be a command: `mn`.
const LINE_BYTES_MIN: usize = 2;

pub(super) const fn request(request: Request<'_>, consumed: usize) -> Parsed<'_> {
    Parsed::Request { request, consumed }
}

/// A refusal that noreply does not silence: the line does not have the form of a command.
const fn bad<'b>(error: Error, consumed: usize) -> Parsed<'b> {
    let (swallow, silent, is_unframed) = (0, false, false);
    Parsed::Bad(BadRequest { error, consumed, swallow, silent, is_unframed })
}

/// A refusal of a storage line without a length.
const fn unframed<'b>(consumed: usize) -> Parsed<'b> {
    let (error, swallow, silent, is_unframed) = (Error::Format, 0, false, true);
    Parsed::Bad(BadRequest { error, consumed, swallow, silent, is_unframed })
}

/// A refusal of a line with all its words.
const fn refused<'b>(error: Error, consumed: usize, noreply: bool) -> Parsed<'b> {
    let (swallow, silent, is_unframed) = (0, noreply, false);
    Parsed::Bad(BadRequest { error, consumed, swallow, silent, is_unframed })
}

/// Splits off a last `noreply`. It counts only as the very last word, and there even in place of a
/// key.
#[inline]
fn noreply(words: Words<'_>) -> (Words<'_>, bool) {
    match words.split_last() {
        Some((before, b"noreply")) => (before, true),
        _ => (words, false),
    }
}

/// Reads a `set` line in the form of nearly all clients: a key and three short numbers, one space
/// before each; returns also the bytes of the line. `None` for any other form or command, which
/// [`super::parse`] judges.
#[inline(always)]
#[must_use]
pub fn plain_set(input: &[u8]) -> Option<(Store<'_>, usize)> {
    let words = input.strip_prefix(b"set ")?;
    let key = first_word(words.get(..KEY_BYTES_MAX + 2).unwrap_or(words))?;
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return None;
    }
    let (flags, rest) = short_number(words.get(key.len()..)?)?;
    let (exptime, rest) = short_number(rest)?;
    let (len, rest) = short_number(rest)?;
    let ([b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..]) = rest else { return None };
    let exptime = i64::from(exptime);
    let mode = StoreMode::Set;
    let store = Store { mode, key, flags, exptime, len, cas: None, lease: None, noreply: false };
    Some((store, input.len() - rest.len()))
}

/// A number of one to nine digits after one space, and the rest.
#[inline(always)]
fn short_number(text: &[u8]) -> Option<(u32, &[u8])> {
    // Mostly flags and expiry times.
    if let [b' ', digit @ b'0'..=b'9', b' ', ..] = text {
        return Some((u32::from(digit - b'0'), text.get(2..)?));
    }
    let [b' ', rest @ ..] = text else { return None };
    let (mut number, mut rest, mut digits) = (0, rest, 0);
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        if digits == 9 {
            return None;
        }
        number = number * 10 + u32::from(digit - b'0');
        (rest, digits) = (after, digits + 1);
    }
    (digits > 0).then_some((number, rest))
}

fn store(mode: StoreMode, compares: bool, mut words: Words<'_>, consumed: usize) -> Parsed<'_> {
    let all = words;
    let (Some(key), Some(flags), Some(exptime), Some(len)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return unframed(consumed);
    };
    let unique = if compares { words.next() } else { None };
    // With nothing after the numbers, the last word can be noreply only if one of them is invalid.
    let noreply = (!words.is_empty() || unique.is_some()) && noreply(all).1;
    let Some(len) = value_len(len) else {
        return unframed(consumed);
    };
    let cas = unique.and_then(parse_u64);
    let (Some(flags), Some(exptime)) = (parse_u32(flags), exptime::parse(exptime)) else {
        return refused_with_data(consumed, len, noreply);
    };
    if key.len() > KEY_BYTES_MAX || compares && cas.is_none() {
        return refused_with_data(consumed, len, noreply);
    }
    let store = Store { mode, key, flags, exptime, len, cas, lease: None, noreply };
    request(Request::Store(store), consumed)
}

/// `lease-set <key> <token> <flags> <exptime> <bytes> [noreply]`, as mcrouter writes it.
fn lease_set(mut words: Words<'_>, consumed: usize) -> Parsed<'_> {
    let (Some(key), Some(token), Some(flags), Some(exptime), Some(len)) =
        (words.next(), words.next(), words.next(), words.next(), words.next())
    else {
        return unframed(consumed);
    };
    let noreply = noreply(words).1;
    let Some(len) = value_len(len) else {
        return unframed(consumed);
    };
    let (Some(token), Some(flags), Some(exptime)) =
        (parse_u64(token), parse_u32(flags), exptime::parse(exptime))
    else {
        return refused_with_data(consumed, len, noreply);
    };
    if key.len() > KEY_BYTES_MAX {
        return refused_with_data(consumed, len, noreply);
    }
    let (mode, lease) = (StoreMode::Set, Some(token));
    let store = Store { mode, key, flags, exptime, len, cas: None, lease, noreply };
    request(Request::Store(store), consumed)
}

const fn refused_with_data<'b>(consumed: usize, len: u32, noreply: bool) -> Parsed<'b> {
    let (error, swallow) = (Error::Format, len as u64 + DATA_END_BYTES);
    let (silent, is_unframed) = (noreply, false);
    Parsed::Bad(BadRequest { error, consumed, swallow, silent, is_unframed })
}

/// Before `noreply`: the client wants an error for a delete that a proxy keeps for later. Not
/// memcached's.
const EXECUTED: &[u8] = b"executed";

fn delete(words: Words<'_>, consumed: usize) -> Parsed<'_> {
    let (_, noreply) = noreply(words);
    let mut words = words;
    let Some(key) = words.next() else {
        return bad(Error::Format, consumed);
    };
    // Old clients send a number. Any other word is an error.
    let (mut rest, _) = self::noreply(words);
    let mut tells_kept = false;
    if let Some((others, EXECUTED)) = rest.split_last() {
        (rest, tells_kept) = (others, true);
    }
    let secs = rest.next().map_or(Some(0), parse_u32);
    let Some(secs) = secs.filter(|_| rest.is_empty() && key.len() <= KEY_BYTES_MAX) else {
        return refused(Error::Format, consumed, noreply);
    };
    request(Request::Delete { key, secs, tells_kept, noreply }, consumed)
}

fn arithmetic(decrement: bool, mut words: Words<'_>, consumed: usize) -> Parsed<'_> {
    let (_, noreply) = noreply(words);
    let (Some(key), Some(delta)) = (words.next(), words.next()) else {
        return bad(Error::Format, consumed);
    };
    if key.len() > KEY_BYTES_MAX {
        return refused(Error::Format, consumed, noreply);
    }
    let Some(delta) = parse_u64(delta) else {
        return refused(Error::Delta, consumed, noreply);
    };
    request(Request::Arithmetic(Arithmetic { key, decrement, delta, noreply }), consumed)
}

fn touch(mut words: Words<'_>, consumed: usize) -> Parsed<'_> {
    let (_, noreply) = noreply(words);
    let (Some(key), Some(exptime)) = (words.next(), words.next()) else {
        return bad(Error::Format, consumed);
    };
    if key.len() > KEY_BYTES_MAX {
        return refused(Error::Format, consumed, noreply);
    }
    let Some(exptime) = exptime::parse(exptime) else {
        return refused(Error::Exptime, consumed, noreply);
    };
    request(Request::Touch { key, exptime, noreply }, consumed)
}

fn flush_all(words: Words<'_>, consumed: usize) -> Parsed<'_> {
    let (mut words, noreply) = noreply(words);
    let exptime = match words.next().map(exptime::parse) {
        None => None,
        Some(Some(exptime)) => Some(exptime),
        Some(None) => return refused(Error::Exptime, consumed, noreply),
    };
    request(Request::FlushAll { exptime, noreply }, consumed)
}

fn flush_prefix(words: Words<'_>, consumed: usize) -> Parsed<'_> {
    let (mut words, noreply) = noreply(words);
    let Some(prefix) = words.next() else {
        return bad(Error::Format, consumed);
    };
    if prefix.len() > KEY_BYTES_MAX || !words.is_empty() {
        return refused(Error::Format, consumed, noreply);
    }
    request(Request::FlushPrefix { prefix, noreply }, consumed)
}

fn admin(command: AdminCommand, words: Words<'_>, consumed: usize) -> Parsed<'_> {
    // stats has no noreply: there the word is a nonexistent group, as libmemcached's own check
    // expects.
    let (words, noreply) =
        if command == AdminCommand::Stats { (words, false) } else { noreply(words) };
    request(Request::Admin(Admin { command, words, noreply }), consumed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The short path must give the same answer as the long one, wherever it answers.
    #[test]
    fn the_fast_path_and_the_general_parser_agree_on_sets() {
        let lines: [&[u8]; 12] = [
            b"set k 0 0 1\r\n",
            b"set k 999999999 999999999 999999999\n",
            b"set k 9999999999 0 1\r\n",
            b"set k 0 4294967296 1\r\n",
            b"set k 0 0 1 noreply\r\n",
            b"set k  0 0 1\r\n",
            b"set k 0 0 1 \r\n",
            b"set k -1 0 1\r\n",
            b"set k 0 0\r\n",
            b"set k\r 00 007 01\r\n",
            b"set  0 0 1\r\n",
            b"set k 0 0 \r\n",
        ];
        for whole in lines {
            if let Some((plain, consumed)) = plain_set(whole) {
                let mut key_buf = KeyBuf::new();
                let text = whole.strip_suffix(b"\n").unwrap_or(whole);
                let text = text.strip_suffix(b"\r").unwrap_or(text);
                let long = line(text, whole.len(), &mut key_buf);
                assert_eq!(
                    request(Request::Store(plain), consumed),
                    long,
                    "{}",
                    whole.escape_ascii()
                );
            }
        }
        assert!(plain_set(lines[0]).is_some() && plain_set(lines[1]).is_some());
        assert!(plain_set(lines[9]).is_some());
        assert!(plain_set(lines[2]).is_none() && plain_set(lines[4]).is_none());
        assert!(plain_set(lines[8]).is_none() && plain_set(b"set k 0 0 1").is_none());
        let with_key = |len| [b"set ", &vec![b'k'; len][..], b" 0 0 1\r\n"].concat();
        assert!(plain_set(&with_key(KEY_BYTES_MAX)).is_some());
        assert_eq!(plain_set(&with_key(KEY_BYTES_MAX + 1)), None);
    }
}
