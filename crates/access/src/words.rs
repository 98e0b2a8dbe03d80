//! The parts of a line of users and of PLAIN's message.

/// User and password of PLAIN's message, `[authzid] NUL user NUL password`, if it is for oneself.
pub(crate) fn plain(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let (authzid, rest) = split(message, 0)?;
    let (name, password) = split(rest, 0)?;
    let is_whole = !name.is_empty() && !password.contains(&0);
    let is_as_oneself = authzid.is_empty() || authzid == name;
    (is_whole && is_as_oneself).then_some((name, password))
}

/// The parts before and after the first `byte`.
pub(crate) fn split(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let (before, rest) = text.split_at_checked(memchr::memchr(byte, text)?)?;
    Some((before, rest.get(1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sasl_plain_is_parsed_completely_or_refused() {
        assert_eq!(plain(b"\0user\0pass"), Some((&b"user"[..], &b"pass"[..])));
        assert_eq!(plain(b"user\0user\0p"), Some((&b"user"[..], &b"p"[..])));
        for bad in [&b""[..], b"user", b"\0user", b"other\0user\0p", b"\0\0p", b"\0u\0p\0q"] {
            assert_eq!(plain(bad), None, "{}", bad.escape_ascii());
        }
    }
}
