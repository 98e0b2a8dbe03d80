//! Walks over the keys in the following input, as far as the requests are known.
//!
//! The positions of keys are only a guess: see `lookahead`, which uses it.

use memchr::memchr;
use proto::binary::{HEADER_BYTES, REQUEST_MAGIC};
use proto::text::{first_word, plain_set};
use proto::{KEY_BYTES_MAX, number};

/// The start of the most frequent request.
pub(super) const GET: &[u8] = b"get ";

/// The walk.
#[derive(Debug)]
pub(super) struct Scan<'b> {
    pub(super) rest: &'b [u8],
    /// In a retrieval line, between keys.
    pub(super) in_keys: bool,
}

/// The type of the request to which a key belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Seen {
    /// A request for the key, or a change of it.
    #[default]
    Key,
    /// A plain `get` of only this key, whose line ends `end` bytes after it.
    LoneGet { end: usize },
    /// A plain `set`; `head` is the length of its line.
    Set { flags: u32, exptime: u32, len: u32, head: usize },
    /// Another store of the key.
    Stored,
}

impl<'b> Scan<'b> {
    /// The next key. The type of its request is written to `seen`, in its place: a copy of several
    /// fields that were just written waits for the writes.
    #[inline(always)]
    pub(super) fn next(&mut self, seen: &mut Seen) -> Option<&'b [u8]> {
        loop {
            match self.rest {
                _ if !self.in_keys => return self.next_request(seen),
                // The most frequent case.
                [b' ', first, ..] if *first > b' ' => {
                    self.rest = &self.rest[1..];
                    break;
                }
                [b' ', rest @ ..] => self.rest = rest,
                [b'\r', b'\n', rest @ ..] | [b'\n', rest @ ..] => {
                    (self.rest, self.in_keys) = (rest, false);
                }
                _ => break,
            }
        }
        *seen = Seen::Key;
        self.word()
    }

    /// The first word of the rest.
    #[inline]
    fn word(&mut self) -> Option<&'b [u8]> {
        let word = first_word(self.rest.get(..KEY_BYTES_MAX + 2).unwrap_or(self.rest))?;
        self.rest = &self.rest[word.len()..];
        (!word.is_empty() && word.len() <= KEY_BYTES_MAX).then_some(word)
    }

    #[inline(always)]
    fn next_request(&mut self, seen: &mut Seen) -> Option<&'b [u8]> {
        match self.rest {
            [b'g', b'e', b't', b' ', rest @ ..] => {
                self.rest = rest;
                let key = self.word()?;
                *seen = self.after_get();
                Some(key)
            }
            [b's', b'e', b't', b' ', ..] => self.set(seen),
            _ => self.other(seen),
        }
    }

    /// After the first key of a `get`: the end of its line, or more keys.
    #[inline]
    fn after_get(&mut self) -> Seen {
        let (end, rest) = match self.rest {
            [b'\r', b'\n', rest @ ..] => (2, rest),
            [b'\n', rest @ ..] => (1, rest),
            _ => {
                self.in_keys = true;
                return Seen::Key;
            }
        };
        self.rest = rest;
        Seen::LoneGet { end }
    }

    fn set(&mut self, seen: &mut Seen) -> Option<&'b [u8]> {
        let Some((store, head)) = plain_set(self.rest) else {
            self.rest = &self.rest[GET.len()..];
            let key = self.word()?;
            self.skip_value(2);
            *seen = Seen::Stored;
            return Some(key);
        };
        let len = store.len;
        self.rest = self.rest.get(head + len as usize + 2..).unwrap_or_default();
        // A plain set's exptime is a short number.
        let exptime = u32::try_from(store.exptime).ok()?;
        *seen = Seen::Set { flags: store.flags, exptime, len, head };
        Some(store.key)
    }

    fn other(&mut self, seen: &mut Seen) -> Option<&'b [u8]> {
        *seen = Seen::Key;
        let (skip, kind) = match self.rest {
            [b'g', b'e', b't', b's', b' ', ..] => (5, Kind::Keys),
            [b'm', b'g' | b'd' | b'a', b' ', ..] => (3, Kind::Line),
            [b'm', b's', b' ', ..] => (3, Kind::Value(0)),
            [b'a', b'd', b'd', b' ', ..] => (4, Kind::Value(2)),
            [b'i' | b'd', b'n' | b'e', b'c', b'r', b' ', ..] => (5, Kind::Line),
            [b't', b'o', b'u', b'c', b'h', b' ', ..] => (6, Kind::Line),
            [b'd', b'e', b'l', b'e', b't', b'e', b' ', ..] => (7, Kind::Line),
            [REQUEST_MAGIC, ..] => return self.binary(),
            _ => return None,
        };
        self.rest = &self.rest[skip..];
        let key = self.word()?;
        match kind {
            Kind::Keys => self.in_keys = true,
            // A line without an end in the input is the last one.
            Kind::Line => {
                let end = memchr(b'\n', self.rest).map_or(self.rest.len(), |end| end + 1);
                self.rest = &self.rest[end..];
            }
            Kind::Value(skipped_words) => {
                self.skip_value(skipped_words);
                *seen = Seen::Stored;
            }
        }
        Some(key)
    }

    /// Skips the rest of a storage line, whose length is the word after `skipped_words`, and its
    /// data block.
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

/// The rest of a request, to be skipped.
enum Kind {
    Keys,
    Line,
    /// A data block follows, whose length is after this number of further words.
    Value(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(input: &[u8], in_keys: bool) -> Vec<String> {
        let mut scan = Scan { rest: input, in_keys };
        let mut seen = Seen::Key;
        std::iter::from_fn(|| scan.next(&mut seen).map(|key| key.escape_ascii().to_string()))
            .collect()
    }

    #[test]
    fn keys_of_pipelined_requests_are_found_ahead() {
        let input =
            b"get a b\r\nset c 0 0 5\r\nget x\r\nmg d v\r\nms e 3 T9\r\nabc\r\ndelete f\r\n";
        assert_eq!(keys(input, false), ["a", "b", "c", "d", "e", "f"]);
        assert_eq!(keys(b" y  z\r\nincr g 1\r\n", true), ["y", "z", "g"]);
    }

    #[test]
    fn plain_requests_are_recognized() {
        let seen = |input: &[u8]| {
            let mut scan = Scan { rest: input, in_keys: false };
            let mut seen = Seen::Key;
            std::iter::from_fn(|| scan.next(&mut seen).map(|_| seen)).collect::<Vec<_>>()
        };
        let lone = |end| Seen::LoneGet { end };
        assert_eq!(
            seen(b"get a\r\nget b\nget c d\r\nget e\r"),
            [lone(2), lone(1), Seen::Key, Seen::Key]
        );
        assert_eq!(seen(b"gets a\r\nget b \r\nget c\r\n"), [Seen::Key, Seen::Key, lone(2)]);
        let set = Seen::Set { flags: 7, exptime: 8, len: 1, head: 13 };
        let input = b"set k 7 8 1\r\nv\r\nset k 7 -1 1\r\nv\r\nget a\r\n";
        assert_eq!(seen(input), [set, Seen::Stored, lone(2)]);
    }

    #[test]
    fn unknown_or_incomplete_requests_end_the_scan() {
        assert_eq!(keys(b"get a\r\nstats\r\nget b\r\n", false), ["a"]);
        assert_eq!(keys(b"get a b", true), ["get", "a"]);
        assert!(keys(b"set k 0 0 x\r\nget a\r\n", false).len() == 1);
        assert!(keys(b"", false).is_empty());
        assert!(keys(&[REQUEST_MAGIC; 30], false).is_empty());
    }
}
