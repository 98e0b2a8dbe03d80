//! Keys in lines for people and programs: in the binary protocol and in base64, a key can contain
//! any byte, including line ends and terminal sequences.

use proto::uri;

/// True if `key` can appear in a line unchanged: text without white space and control characters.
pub(crate) fn is_word(key: &[u8]) -> bool {
    let is_plain = |char: char| !char.is_control() && !char.is_whitespace();
    key.iter().all(u8::is_ascii_graphic)
        || str::from_utf8(key).is_ok_and(|text| text.chars().all(is_plain))
}

/// The prefix or user of a rule on one line; `*` for all keys.
pub(crate) fn subject(subject: &[u8]) -> String {
    let mut text = Vec::new();
    append(if subject.is_empty() { b"*" } else { subject }, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Appends `key` unchanged if it can appear in a line, otherwise percent-encoded, as `metadump`
/// writes every key. A key with a `%` is also encoded, so that each line stands for one key.
pub(crate) fn append(key: &[u8], out: &mut Vec<u8>) {
    if is_word(key) && !key.contains(&b'%') {
        out.extend_from_slice(key);
    } else {
        uri::encode(key, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_key_is_written_as_one_word() {
        for (key, want) in [
            (&b"user:1"[..], "user:1"),
            ("schl\u{fc}ssel".as_bytes(), "schl\u{fc}ssel"),
            (b"a b", "a%20b"),
            (b"a%20b", "a%2520b"),
            (b"x\r\nEND", "x%0D%0AEND"),
            (b"\x1b[2J", "%1B%5B2J"),
            (b"\x7f", "%7F"),
            (b"\xff:1", "%FF%3A1"),
            ("\u{9b}2J".as_bytes(), "%C2%9B2J"),
            ("a\u{2028}b".as_bytes(), "a%E2%80%A8b"),
        ] {
            let mut out = Vec::new();
            append(key, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
