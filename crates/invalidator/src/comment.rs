//! Keys in a statement's comments: `UPDATE users SET .. /* mc:del user:7 r:user:7 */`.
//!
//! The statement is walked as SQL is read, so that what looks like a comment inside of a string, a
//! quoted name or another comment is none.

/// The prefix of a comment that carries keys.
const MARK: &[u8] = b"mc:del ";

/// The keys that the comments of a statement name, in order.
#[must_use]
pub fn keys(statement: &str) -> Vec<&str> {
    let bytes = statement.as_bytes();
    let mut keys = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        at += match rest {
            [quote @ (b'\'' | b'"' | b'`'), ..] => quoted(rest, *quote),
            [b'/', b'*', ..] => {
                let length = find(&rest[2..], b"*/").unwrap_or(rest.len() - 2);
                keys.extend(keys_of(&statement[at + 2..at + 2 + length]));
                (length + 4).min(rest.len())
            }
            [b'-', b'-', b' ' | b'\t' | b'\n', ..] | [b'#', ..] => {
                rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
            }
            _ => 1,
        };
    }
    keys
}

/// The keys of one comment, if it is ours.
fn keys_of(comment: &str) -> impl Iterator<Item = &str> {
    let comment = comment.trim_start();
    let list = comment.strip_prefix(std::str::from_utf8(MARK).unwrap_or_default());
    list.unwrap_or_default().split_ascii_whitespace()
}

/// The length of a quoted piece in bytes, quotes included.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' if quote != b'`' => at += 2,
            byte if byte == quote => {
                // A doubled quote stands for itself.
                if rest.get(at + 1) != Some(&quote) {
                    return at + 1;
                }
                at += 2;
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn strings_and_other_comments_are_no_keys() {
        for text in [
            "UPDATE t SET a='/* mc:del k */'",
            "UPDATE t SET a=\"/* mc:del k */\"",
            "UPDATE `/* mc:del k */` SET a=1",
            "UPDATE t SET a=1 -- /* mc:del k */",
            "UPDATE t SET a=1 # /* mc:del k */",
            "UPDATE t SET a='\\'/* mc:del k */'",
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
