//! Base64 (RFC 4648, with padding) of meta keys.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use crate::KeyBuf;

/// As memcached reads it: bits after the last byte may have any value.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Decodes `text` into `buf` and returns the bytes. `None` if the text is not base64, is empty, or
/// is longer than a key may be.
#[must_use]
pub fn decode<'b>(text: &[u8], buf: &'b mut KeyBuf) -> Option<&'b [u8]> {
    if text.is_empty() || text.len() > crate::KEY_BYTES_MAX {
        return None;
    }
    let len = ENGINE.decode_slice(text, &mut buf.bytes).ok()?;
    buf.bytes.get(..len)
}

/// Bytes of the base64 of `len` bytes.
#[must_use]
pub const fn encoded_len(len: usize) -> usize {
    len.div_ceil(3) * 4
}

/// Appends the base64 of `bytes`.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.resize(from + encoded_len(bytes.len()), 0);
    let written = ENGINE.encode_slice(bytes, out.get_mut(from..).unwrap_or_default());
    debug_assert_eq!(written, Ok(encoded_len(bytes.len())), "there is room for it");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &[u8]) -> Option<Vec<u8>> {
        decode(text, &mut KeyBuf::new()).map(<[u8]>::to_vec)
    }

    /// RFC 4648, section 10.
    #[test]
    fn rfc_4648_test_vectors() {
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
    fn every_byte_value_round_trips() {
        let bytes: Vec<u8> = (0..=255).collect();
        for key in bytes.chunks(186).chain(bytes.windows(7)) {
            let mut text = Vec::new();
            encode(key, &mut text);
            assert_eq!(decoded(&text).as_deref(), Some(key));
        }
    }

    /// memcached also reads them.
    #[test]
    fn trailing_bits_are_ignored() {
        assert_eq!(decoded(b"Zh==").as_deref(), Some(&b"f"[..]));
        assert_eq!(decoded(b"Zm9=").as_deref(), Some(&b"fo"[..]));
    }

    #[test]
    fn invalid_base64_is_refused() {
        let refused: [&[u8]; 10] =
            [b"", b"=", b"==", b"====", b"A", b"AA", b"AAA", b"A===", b"A-_A", b"AA=A"];
        for text in refused {
            assert_eq!(decoded(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn encoded_text_is_limited_to_the_key_length() {
        assert_eq!(decoded(&[b'A'; 248]).map(|key| key.len()), Some(186));
        assert_eq!(decoded(&[b'A'; 252]), None);
    }
}
