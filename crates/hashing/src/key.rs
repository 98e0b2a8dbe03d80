//! The part of a key that is hashed: behind the routing prefix, before the hash stop, inside the
//! hash tag.

/// mcrouter's hash stop: text after it does not count.
pub const HASH_STOP: &[u8] = b"|#|";

/// A key cut at its routing prefix and its hash stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyParts<'k> {
    /// `/region/cluster/` with its slashes, or nothing.
    pub prefix: &'k [u8],
    /// The key behind the prefix, as sent to a server.
    pub without_prefix: &'k [u8],
    /// The hashed part, before the hash stop.
    pub routing: &'k [u8],
}

impl<'k> KeyParts<'k> {
    /// Cuts a key. A key that starts with a slash but has fewer than three has no prefix.
    #[must_use]
    pub fn new(key: &'k [u8]) -> Self {
        let (prefix, without_prefix) = key.split_at(prefix_bytes(key));
        Self { prefix, without_prefix, routing: before_hash_stop(without_prefix) }
    }
}

/// The length of `/region/cluster/` at the start of the key; 0 without one.
fn prefix_bytes(key: &[u8]) -> usize {
    if key.first() != Some(&b'/') {
        return 0;
    }
    key.iter().enumerate().filter(|(_, byte)| **byte == b'/').nth(2).map_or(0, |(at, _)| at + 1)
}

/// The key up to its first hash stop, or whole.
#[inline]
#[must_use]
pub fn before_hash_stop(key: &[u8]) -> &[u8] {
    // Hardly any key has the stop's first byte. Without an early end, many bytes are compared at
    // once, which is faster than a call for so few.
    let may_stop = key.iter().fold(false, |is_found, byte| is_found | (*byte == HASH_STOP[0]));
    if may_stop { before_stop(key) } else { key }
}

#[inline(never)]
fn before_stop(key: &[u8]) -> &[u8] {
    memchr::memchr_iter(HASH_STOP[0], key)
        .filter_map(|at| key.split_at_checked(at))
        .find(|(_, rest)| rest.starts_with(HASH_STOP))
        .map_or(key, |(before, _)| before)
}

/// The key up to the first `stop`, or whole.
#[must_use]
pub fn before<'k>(key: &'k [u8], stop: &[u8]) -> &'k [u8] {
    memchr::memmem::find(key, stop).and_then(|at| key.get(..at)).unwrap_or(key)
}

/// twemproxy's hash tag: the text between the first opening character and the first closing one
/// behind it, if that is not empty; or the whole key.
#[must_use]
pub fn inside_hash_tag(key: &[u8], [open, close]: [u8; 2]) -> &[u8] {
    let tag = || {
        let start = key.iter().position(|byte| *byte == open)? + 1;
        let rest = key.get(start..)?;
        let end = rest.iter().position(|byte| *byte == close)?;
        rest.get(..end).filter(|tag| !tag.is_empty())
    };
    tag().unwrap_or(key)
}

/// The `tags` of memcached's proxy: as [`inside_hash_tag`], but an empty tag counts, too.
#[must_use]
pub fn inside_tags(key: &[u8], [open, close]: [u8; 2]) -> &[u8] {
    let tagged = || {
        let start = memchr::memchr(open, key)? + 1;
        let rest = key.get(start..)?;
        rest.get(..memchr::memchr(close, rest)?)
    };
    tagged().unwrap_or(key)
}

/// mcrouter's shard id: the text between the first two colons, as in `item:eu12:name`, if its last
/// byte is a digit.
#[must_use]
pub fn shard(key: &[u8]) -> Option<&[u8]> {
    let mut parts = key.splitn(3, |byte| *byte == b':');
    let (_, shard, _) = (parts.next()?, parts.next()?, parts.next()?);
    shard.last().is_some_and(u8::is_ascii_digit).then_some(shard)
}

/// The shard id of `ConstShard`: a number, as in `item:1234:name`.
///
/// `None` if it is no number, or does not fit into a `u32`.
#[must_use]
pub fn shard_id(key: &[u8]) -> Option<u32> {
    shard(key)?.iter().try_fold(0_u32, |number, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn parts(key: &str, prefix: &str, without: &str, routing: &str) {
        let want = KeyParts {
            prefix: prefix.as_bytes(),
            without_prefix: without.as_bytes(),
            routing: routing.as_bytes(),
        };
        assert_eq!(KeyParts::new(key.as_bytes()), want, "{key}");
    }

    #[test]
    fn a_key_is_cut_at_its_prefix_and_its_hash_stop() {
        parts("a", "", "a", "a");
        parts("", "", "", "");
        parts("/a/b/c", "/a/b/", "c", "c");
        parts("/a/b/c/d|#|e|#|f", "/a/b/", "c/d|#|e|#|f", "c/d");
        parts("/a/b", "", "/a/b", "/a/b");
        parts("///", "///", "", "");
        parts("a/b/c/d", "", "a/b/c/d", "a/b/c/d");
        parts("a|#|/b/c/d", "", "a|#|/b/c/d", "a");
        parts("|#|a", "", "|#|a", "");
        parts("a|#", "", "a|#", "a|#");
    }

    #[test]
    fn a_hash_tag_counts_only_if_it_is_closed_and_not_empty() {
        for (key, hashed) in [
            ("user:{17}:name", "17"),
            ("{a}{b}", "a"),
            ("{}x", "{}x"),
            ("}a{b", "}a{b"),
            ("}a{b}", "b"),
            ("{a", "{a"),
            ("{{a}}", "{a"),
        ] {
            let got = inside_hash_tag(key.as_bytes(), *b"{}");
            assert_eq!(got.escape_ascii().to_string(), hashed, "{key}");
        }
        assert_eq!(inside_hash_tag(b"a$b$c", *b"$$"), b"b", "one character for both ends");
    }

    #[test]
    fn a_shard_is_a_text_between_two_colons_that_ends_with_a_digit() {
        let of = |key: &'static str| shard(key.as_bytes()).map(|shard| str::from_utf8(shard));
        for key in ["a:eu1:b", ":eu1:", "a:eu1:b:c"] {
            assert_eq!(of(key), Some(Ok("eu1")), "{key}");
        }
        assert_eq!(of("a:12345678901:b"), Some(Ok("12345678901")));
        for key in ["a:eu:b", "a::b", "a:eu1", "eu1", "a:1x:b"] {
            assert_eq!(of(key), None, "{key}");
        }
    }

    #[test]
    fn a_stop_of_any_length_ends_the_hashed_part() {
        for (key, stop, hashed) in
            [("a/b/c", "/", "a"), ("a||b", "||", "a"), ("||", "||", ""), ("a|b", "||", "a|b")]
        {
            assert_eq!(before(key.as_bytes(), stop.as_bytes()), hashed.as_bytes(), "{key}");
        }
    }

    #[test]
    fn a_shard_id_is_a_number_between_two_colons() {
        for (key, id) in [
            ("a:12:b", Some(12)),
            (":7:", Some(7)),
            ("a:12", None),
            ("a::b", None),
            ("a:1x:b", None),
            ("a:x1:b", None),
            ("a:+1:b", None),
            ("a:4294967295:b", Some(u32::MAX)),
            ("a:4294967296:b", None),
            ("a:99999999999999999999999:b", None),
        ] {
            assert_eq!(shard_id(key.as_bytes()), id, "{key}");
        }
    }
}
