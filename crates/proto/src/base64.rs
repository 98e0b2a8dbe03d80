//! Base64 (RFC 4648, with padding) of meta keys.

use crate::KeyBuf;

/// Decodes `text` into `buf` and returns the bytes. `None` if the text is not base64, is empty, or
/// is longer than a key may be.
#[must_use]
pub fn decode<'b>(text: &[u8], buf: &'b mut KeyBuf) -> Option<&'b [u8]> {
    if text.is_empty() || text.len() > crate::KEY_BYTES_MAX || !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let (mut bits, mut bit_count, mut len) = (0u32, 0u32, 0usize);
    for digit in digits {
        bits = (bits << 6) | u32::from(value_of(*digit)?);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            let [.., byte] = (bits >> bit_count).to_be_bytes();
            *buf.bytes.get_mut(len)? = byte;
            len += 1;
        }
    }
    buf.bytes.get(..len)
}

/// Bytes of the base64 of `len` bytes.
#[must_use]
pub const fn encoded_len(len: usize) -> usize {
    len.div_ceil(3) * 4
}

/// Appends the base64 of `bytes`.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let (bits, digit_count) = match *group {
            [a, b, c] => (u32::from_be_bytes([0, a, b, c]), 4),
            [a, b] => (u32::from_be_bytes([0, a, b, 0]), 3),
            [a] => (u32::from_be_bytes([0, a, 0, 0]), 2),
            _ => continue,
        };
        let digits = [18, 12, 6, 0].map(|shift| digit_of(bits >> shift));
        out.extend(digits.iter().take(digit_count));
        out.extend(std::iter::repeat_n(b'=', 4 - digit_count));
    }
}

const fn value_of(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// The digit for the low six bits.
fn digit_of(bits: u32) -> u8 {
    let [.., low] = (bits & 0x3f).to_be_bytes();
    match low {
        0..=25 => b'A' + low,
        26..=51 => b'a' + (low - 26),
        52..=61 => b'0' + (low - 52),
        62 => b'+',
        _ => b'/',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &[u8]) -> Option<Vec<u8>> {
        decode(text, &mut KeyBuf::new()).map(<[u8]>::to_vec)
    }

    /// RFC 4648, section 10.
    #[test]
    fn the_vectors_of_the_rfc() {
        let vectors: [(&[u8], &[u8]); 6] = [
            (b"f", b"Zg=="),
            (b"fo", b"Zm8="),
            (b"foo", b"Zm9v"),
            (b"foob", b"Zm9vYg=="),
            (b"fooba", b"Zm9vYmE="),
            (b"foobar", b"Zm9vYmFy"),
        ];
        for (bytes, text) in vectors {
            let mut out = Vec::new();
            encode(bytes, &mut out);
            assert_eq!(out, text);
            assert_eq!(decoded(text).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn every_byte_survives() {
        let bytes: Vec<u8> = (0..=255).collect();
        for key in bytes.chunks(186).chain(bytes.windows(7)) {
            let mut text = Vec::new();
            encode(key, &mut text);
            assert_eq!(decoded(&text).as_deref(), Some(key));
        }
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        let refused: [&[u8]; 10] =
            [b"", b"=", b"==", b"====", b"A", b"AA", b"AAA", b"A===", b"A-_A", b"AA=A"];
        for text in refused {
            assert_eq!(decoded(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn the_encoded_text_is_limited_to_a_keys_length() {
        assert_eq!(decoded(&[b'A'; 248]).map(|key| key.len()), Some(186));
        assert_eq!(decoded(&[b'A'; 252]), None);
    }
}
