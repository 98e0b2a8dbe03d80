//! Keys in a statement's comments: `UPDATE users SET .. /* mc:del user:7 r:user:7 */`.
//!
//! The statement is tokenized like SQL, so text that looks like a comment inside a string, a quoted
//! name or another comment does not count.

use bytes::Bytes;

use crate::sql::{Token, Tokens, byte, wide_texts};

/// The prefix of a comment that carries keys.
const MARK: &str = "mc:del ";

/// The keys in the comments of a statement, in order, byte for byte as its session wrote them: a
/// session may use another character set than UTF-8, and a cache has bytes.
///
/// The log does not always show whether a backslash was an escape in the session, and which bytes
/// were one character. Where that makes a difference, the keys of all readings count: deleting one
/// too many does no harm.
#[must_use]
pub fn keys(statement: &[u8]) -> Vec<Bytes> {
    let bytes = |key: &str| key.chars().map(byte).collect::<Bytes>();
    let mut keys: Vec<Bytes> = match std::str::from_utf8(statement) {
        Ok(text) => {
            named(text).into_iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect()
        }
        // Each byte as the character with its number. Token and key separators are ASCII, which is
        // the same in both.
        Err(_) => {
            let text: String = statement.iter().map(|byte| char::from(*byte)).collect();
            named(&text).into_iter().map(bytes).collect()
        }
    };
    // The bytes of another character set can also be UTF-8.
    for text in wide_texts(statement) {
        let more = named(&text).into_iter().map(bytes).filter(|key| !keys.contains(key));
        let more: Vec<Bytes> = more.collect();
        keys.extend(more);
    }
    keys
}

/// The keys in the comments of a text.
fn named(statement: &str) -> Vec<&str> {
    let mut keys = read(statement, true);
    if statement.contains('\\') {
        let more: Vec<&str> =
            read(statement, false).into_iter().filter(|key| !keys.contains(key)).collect();
        keys.extend(more);
    }
    keys
}

fn read(statement: &str, escapes: bool) -> Vec<&str> {
    let comments = Tokens::new(statement, escapes).filter_map(|token| match token {
        Token::Comment(comment) => Some(comment),
        _ => None,
    });
    comments.flat_map(keys_of).collect()
}

/// The keys of one comment, if it has the mark.
fn keys_of(comment: &str) -> impl Iterator<Item = &str> {
    comment.trim_start().strip_prefix(MARK).unwrap_or_default().split_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::keys as keys_of_bytes;

    fn keys(text: &str) -> Vec<String> {
        let keys = keys_of_bytes(text.as_bytes()).into_iter();
        keys.map(|key| String::from_utf8(key.into()).unwrap()).collect()
    }

    #[test]
    fn keys_keep_the_bytes_of_the_session() {
        let latin = b"UPDATE t SET a='\xfc' /* \xfc */ /* mc:del k:schl\xfcssel k:plain */ -- \xe9";
        assert_eq!(keys_of_bytes(latin), [&b"k:schl\xfcssel"[..], b"k:plain"]);
        // In a statement with binary data, a key in UTF-8 is unchanged.
        let mixed = "INSERT INTO t VALUES ('x') /* mc:del schlüssel \u{fffd} */".as_bytes();
        let mixed = mixed.iter().map(|byte| if *byte == b'x' { 0xff } else { *byte });
        let mixed: Vec<u8> = mixed.collect();
        assert_eq!(keys_of_bytes(&mixed), ["schlüssel".as_bytes(), "\u{fffd}".as_bytes()]);
        // Spaces of character sets other than ASCII are parts of keys.
        assert_eq!(keys_of_bytes(b"/* mc:del a\xa0b \x85 */"), [&b"a\xa0b"[..], b"\x85"]);
    }

    #[test]
    fn second_bytes_of_characters_end_and_escape_nothing() {
        for statement in [
            // 表 in cp932 and sjis, 功 in big5, a character of gbk and gb18030.
            &b"UPDATE t SET n='it\\'s \x95\\' /* mc:del k */"[..],
            b"UPDATE t SET n='it\\'s \xa5\\' /* mc:del k */",
            b"UPDATE t SET n='it\\'s \xd5\\' /* mc:del k */",
            // チム in cp932.
            b"UPDATE t SET `\x83`\x83\x80`=5 /* mc:del k */",
            // In Shift-JIS, 0xb1 is a whole character.
            b"UPDATE t SET `\xb1`='\x95\\', `\x83`\x83\x80`=5, n='it\\'s' /* mc:del k */",
            // A second byte of a character is not the first one of the next.
            b"UPDATE t SET n='\x95\\', m='it\\'s \x95\x95\\' ' /* mc:del k */",
            // Two characters of gbk, which are also one of UTF-8 and a backtick.
            b"UPDATE t SET `\xe5\xa5\x97``=5 /* mc:del k */",
        ] {
            assert_eq!(keys_of_bytes(statement), ["k"], "{}", statement.escape_ascii());
        }
        let both = b"UPDATE t SET `\x83`=1 /* mc:del \x83`:\x95\\ k */";
        assert_eq!(keys_of_bytes(both), [&b"\x83`:\x95\\"[..], b"k"]);
    }

    #[test]
    fn comments_anywhere_are_found() {
        assert_eq!(keys("UPDATE t SET a=1 /* mc:del k1 k2 */"), ["k1", "k2"]);
        assert_eq!(
            keys("/*mc:del a*/ UPDATE t /* other */ SET a=1 /* mc:del  b\n c */"),
            ["a", "b", "c"]
        );
        assert_eq!(keys("UPDATE t SET a='it''s' /* mc:del k */"), ["k"]);
        assert_eq!(keys(r"UPDATE t SET a='it\'s' /* mc:del k */"), ["k"]);
        assert_eq!(keys("UPDATE t SET a=1 -- don't\n /* mc:del k */"), ["k"]);
        assert_eq!(keys("UPDATE ü SET ä='ö' /* mc:del schlüssel */"), ["schlüssel"]);
    }

    #[test]
    fn keys_are_found_under_either_meaning_of_backslash() {
        assert_eq!(keys(r"UPDATE t SET path='C:\temp\' /* mc:del k */"), ["k"]);
        assert_eq!(keys("UPDATE t SET path='*/*' WHERE id=1 /* mc:del k */"), ["k"]);
        assert_eq!(keys(r"UPDATE t SET a='\'/* mc:del k */'"), ["k"], "in one of two readings");
    }

    #[test]
    fn strings_and_other_comments_contain_no_keys() {
        for text in [
            "UPDATE t SET a='/* mc:del k */'",
            "UPDATE t SET a=\"/* mc:del k */\"",
            "UPDATE `/* mc:del k */` SET a=1",
            "UPDATE t SET a=1 -- /* mc:del k */",
            "UPDATE t SET a=1 # /* mc:del k */",
            "/* x mc:del k */ UPDATE t",
            "/* mc:delete k */",
            "/*",
            "'",
            "/* mc:del",
        ] {
            assert_eq!(keys(text), [""; 0], "{text}");
        }
    }
}
