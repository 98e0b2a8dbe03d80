//! Keys as `metadump` and watchers print them: all bytes except RFC 3986's unreserved characters as
//! `%XX`.

/// Appends `bytes`, percent-encoded in upper case hexadecimal.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            _ => out.extend([b'%', hex_digit(byte >> 4), hex_digit(byte & 0xf)]),
        }
    }
}

const fn hex_digit(nibble: u8) -> u8 {
    match nibble {
        0..=9 => b'0' + nibble,
        _ => b'A' - 10 + nibble,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreserved_characters_are_not_escaped() {
        let mut out = Vec::new();
        encode(b"aZ09-._~ %/\x00\n\xff", &mut out);
        assert_eq!(out, b"aZ09-._~%20%25%2F%00%0A%FF");
    }
}
