//! Looking ahead: the next keys in the input are hashed and their memory is asked for before the first is looked up.
//!
//! A lookup waits for memory twice, for the table's line and for the item's. With several keys at hand (a multiget, or
//! pipelined requests) the waits overlap:
//!
//! ```text
//!     key 1 .. key n: hash, ask for the table line -> all: ask for item lines -> serve key 1 .. key n with these hashes
//! ```
//!
//! The scan is a guess at where keys are, nothing more: a hash is used only for the very bytes it was computed from, so a
//! wrong guess costs time and is never wrong. A lone request is hashed and nothing is asked for.

use engine::{Key, Worker};
use memchr::{memchr, memchr2};
use proto::binary::{HEADER_BYTES, REQUEST_MAGIC};
use proto::{KEY_BYTES_MAX, number};

/// Keys looked ahead at. As many as a core has misses in flight, twice over.
const KEYS_AHEAD: usize = 24;

/// The begin of the most frequent request.
const GET: &[u8] = b"get ";

/// What follows a key in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Following {
    /// More keys, to the end of the line.
    Keys,
    /// Requests.
    Requests,
}

/// A key seen ahead: where it lies, and its hash.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    address: usize,
    len: usize,
    hash: u64,
    /// Its item will be replaced.
    is_stored: bool,
    /// Bytes of the line end after it, if the request is a plain `get` of this key alone; else zero.
    lone_get_end: usize,
}

/// A request `get <key>` seen ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoneGet<'k> {
    pub(crate) key: Key<'k>,
    /// Bytes from the request's begin to the key's end.
    pub(crate) key_end: usize,
    /// Bytes of the whole request.
    pub(crate) len: usize,
}

/// The keys seen ahead and not yet asked for. Valid for one call of `serve`, within which input does not move.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    keys: [Ahead; KEYS_AHEAD],
    len: usize,
    next: usize,
}

impl Batch {
    /// Forgets everything: the input is another.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.len, self.next) = (0, 0);
    }

    /// `bytes` with its hash: the one computed ahead, or a new one, and then the keys in `rest` are looked at, too.
    /// `rest` is the input after this key's request (or, in a multiget, after the key).
    #[inline]
    pub(crate) fn key<'k>(
        &mut self,
        worker: &Worker,
        bytes: &'k [u8],
        rest: &[u8],
        following: Following,
    ) -> Key<'k> {
        if let Some(ahead) = self.keys[..self.len].get(self.next)
            && ahead.address == bytes.as_ptr().addr()
            && ahead.len == bytes.len()
        {
            self.next += 1;
            return Key { bytes, hash: ahead.hash };
        }
        let key = worker.key(bytes);
        self.clear();
        // The shortest request with a key: `mg k`.
        if rest.len() > 4 {
            self.look_ahead(worker, key.hash, rest, following);
        }
        key
    }

    /// The request with which `input` begins, if it is a plain `get` of one key that was seen ahead: it need not be parsed again.
    #[inline]
    pub(crate) fn lone_get<'k>(&mut self, input: &'k [u8]) -> Option<LoneGet<'k>> {
        let ahead = self.keys[..self.len].get(self.next)?;
        let key_end = GET.len() + ahead.len;
        let key = input.get(GET.len()..key_end)?;
        if ahead.lone_get_end == 0 || key.as_ptr().addr() != ahead.address {
            return None;
        }
        self.next += 1;
        let key = Key { bytes: key, hash: ahead.hash };
        Some(LoneGet { key, key_end, len: key_end + ahead.lone_get_end })
    }

    /// Asks for the memory of the keys in `rest`, and of the one that comes before them. While one key is found and hashed, the
    /// table lines of those before it are on their way.
    fn look_ahead(&mut self, worker: &Worker, first: u64, rest: &[u8], following: Following) {
        let section = worker.section();
        section.prefetch_bucket(first);
        let in_keys = following == Following::Keys;
        let mut scan = Scan { rest, in_keys, is_stored: false, lone_get_end: 0 };
        while self.len < KEYS_AHEAD
            && let Some(key) = scan.next()
        {
            let hash = worker.key(key).hash;
            section.prefetch_bucket(hash);
            let address = key.as_ptr().addr();
            let Scan { is_stored, lone_get_end, .. } = scan;
            self.keys[self.len] = Ahead { address, len: key.len(), hash, is_stored, lone_get_end };
            self.len += 1;
        }
        if self.len == 0 {
            return;
        }
        section.prefetch_item(first);
        let ahead = &self.keys[..self.len];
        ahead.iter().for_each(|key| section.prefetch_item(key.hash));
        // The first key is of the same kind as the others, mostly.
        if ahead[0].is_stored {
            section.prefetch_replaced(first);
        }
        let stored = ahead.iter().filter(|key| key.is_stored);
        stored.for_each(|key| section.prefetch_replaced(key.hash));
    }
}

/// Walks over the keys of what follows, as far as it knows the requests.
struct Scan<'b> {
    rest: &'b [u8],
    in_keys: bool,
    /// The last key was that of a storage request.
    is_stored: bool,
    /// Bytes of the line end after the last key, if its request was a plain `get` of it alone; else zero.
    lone_get_end: usize,
}

impl<'b> Scan<'b> {
    fn next(&mut self) -> Option<&'b [u8]> {
        self.lone_get_end = 0;
        loop {
            if !self.in_keys {
                return self.next_request();
            }
            match self.rest {
                [b' ', rest @ ..] => self.rest = rest,
                [b'\r', b'\n', rest @ ..] | [b'\n', rest @ ..] => {
                    (self.rest, self.in_keys) = (rest, false);
                }
                _ => return self.word(),
            }
        }
    }

    /// The word that the rest begins with.
    fn word(&mut self) -> Option<&'b [u8]> {
        let end = memchr2(b' ', b'\n', self.rest.get(..KEY_BYTES_MAX + 2).unwrap_or(self.rest))?;
        let (word, rest) = self.rest.split_at(end);
        let word = word.strip_suffix(b"\r").unwrap_or(word);
        self.rest = rest;
        (!word.is_empty() && word.len() <= KEY_BYTES_MAX).then_some(word)
    }

    fn next_request(&mut self) -> Option<&'b [u8]> {
        let (skip, kind) = match self.rest {
            [b'g', b'e', b't', b' ', ..] => (GET.len(), Kind::Get),
            [b'g', b'e', b't', b's', b' ', ..] => (5, Kind::Keys),
            [b'm', b'g' | b'd' | b'a', b' ', ..] => (3, Kind::Line),
            [b'm', b's', b' ', ..] => (3, Kind::Value(0)),
            [b's', b'e', b't', b' ', ..] | [b'a', b'd', b'd', b' ', ..] => (4, Kind::Value(2)),
            [b'i' | b'd', b'n' | b'e', b'c', b'r', b' ', ..] => (5, Kind::Line),
            [b't', b'o', b'u', b'c', b'h', b' ', ..] => (6, Kind::Line),
            [b'd', b'e', b'l', b'e', b't', b'e', b' ', ..] => (7, Kind::Line),
            [REQUEST_MAGIC, ..] => return self.binary(),
            _ => return None,
        };
        self.rest = &self.rest[skip..];
        let key = self.word()?;
        self.is_stored = matches!(kind, Kind::Value(_));
        match kind {
            Kind::Get => self.after_get(key),
            Kind::Keys => self.in_keys = true,
            Kind::Line => self.rest = &self.rest[memchr(b'\n', self.rest)? + 1..],
            Kind::Value(skipped_words) => self.skip_value(skipped_words),
        }
        Some(key)
    }

    /// After the first key of a `get`: the end of its line, or more keys.
    fn after_get(&mut self, key: &[u8]) {
        if let [b'\n', after @ ..] = self.rest {
            // A `\r` before the newline belongs to neither.
            let key_end = key.as_ptr().addr() + key.len();
            self.lone_get_end = after.as_ptr().addr() - key_end;
            self.rest = after;
        } else {
            self.in_keys = true;
        }
    }

    /// Skips the rest of a storage line, whose length is the word after `skipped_words`, and its data block.
    fn skip_value(&mut self, skipped_words: usize) {
        let rest = std::mem::take(&mut self.rest);
        let Some(end) = memchr(b'\n', rest) else { return };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        let len = proto::text::Words::new(line).nth(skipped_words).and_then(number::parse_u32);
        let Some(len) = len.and_then(|len| usize::try_from(len).ok()) else { return };
        self.rest = rest.get(end + 1 + len + 2..).unwrap_or_default();
    }

    /// The key of a binary request that has one.
    fn binary(&mut self) -> Option<&'b [u8]> {
        let header: &[u8; HEADER_BYTES] = self.rest.first_chunk()?;
        let key_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let extras_len = usize::from(header[4]);
        let body_len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let body_len = usize::try_from(body_len).ok()?;
        let key = self.rest.get(HEADER_BYTES + extras_len..)?.get(..key_len)?;
        self.rest = self.rest.get(HEADER_BYTES + body_len..).unwrap_or_default();
        (1..=KEY_BYTES_MAX).contains(&key_len).then_some(key)
    }
}

/// How the rest of a request is skipped.
enum Kind {
    Get,
    Keys,
    Line,
    /// A data block follows, whose length stands after so many more words.
    Value(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(input: &[u8], in_keys: bool) -> Vec<String> {
        let mut scan = Scan { rest: input, in_keys, is_stored: false, lone_get_end: 0 };
        std::iter::from_fn(|| scan.next().map(|key| key.escape_ascii().to_string())).collect()
    }

    #[test]
    fn keys_of_pipelined_requests_are_seen_ahead() {
        let input =
            b"get a b\r\nset c 0 0 5\r\nget x\r\nmg d v\r\nms e 3 T9\r\nabc\r\ndelete f\r\n";
        assert_eq!(keys(input, false), ["a", "b", "c", "d", "e", "f"]);
        assert_eq!(keys(b" y  z\r\nincr g 1\r\n", true), ["y", "z", "g"]);
    }

    #[test]
    fn a_plain_get_of_one_key_is_known_as_such() {
        let lone_ends = |input: &[u8]| {
            let mut scan = Scan { rest: input, in_keys: false, is_stored: false, lone_get_end: 0 };
            let next = || scan.next().map(|_| scan.lone_get_end);
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        assert_eq!(lone_ends(b"get a\r\nget b\nget c d\r\nget e\r"), [2, 1, 0, 0]);
        assert_eq!(lone_ends(b"gets a\r\nget b \r\nget c\r\n"), [0, 0, 2]);
    }

    #[test]
    fn what_is_not_known_or_not_whole_ends_the_scan() {
        assert_eq!(keys(b"get a\r\nstats\r\nget b\r\n", false), ["a"]);
        assert_eq!(keys(b"get a b", true), ["get", "a"]);
        assert!(keys(b"set k 0 0 x\r\nget a\r\n", false).len() == 1);
        assert!(keys(b"", false).is_empty());
        assert!(keys(&[REQUEST_MAGIC; 30], false).is_empty());
    }
}
