//! The only parser of decimal numbers.
//!
//! Exact digits only: no `+`, no blanks, no base prefix, no trailing bytes, no wrapping. Leading
//! zeros are digits. Only a signed number may start with `-`. Every protocol here uses these
//! functions, so a number means the same everywhere.

use crate::VALUE_BYTES_MAX;

/// Parses the length of a data block, in bytes. `None` also beyond [`crate::VALUE_BYTES_MAX`].
#[inline]
pub(crate) fn value_len(digits: &[u8]) -> Option<u32> {
    parse_u32(digits).filter(|len| *len <= VALUE_BYTES_MAX)
}

/// Parses an unsigned 64-bit decimal number. `None` if it is empty, contains a byte that is not a
/// digit, or overflows.
#[inline]
#[must_use]
pub fn parse_u64(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut number = 0u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

/// Parses an unsigned 32-bit decimal number, by the rule of [`parse_u64`].
#[inline]
#[must_use]
pub fn parse_u32(digits: &[u8]) -> Option<u32> {
    u32::try_from(parse_u64(digits)?).ok()
}

/// Parses a signed 64-bit decimal number: a [`parse_u64`] number within range, or one after a `-`.
#[inline]
#[must_use]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => 0i64.checked_sub_unsigned(parse_u64(digits)?),
        digits => i64::try_from(parse_u64(digits)?).ok(),
    }
}

/// Appends `number` in decimal.
#[inline]
pub fn write_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends `number` in decimal, with its `-` if it has one.
#[inline]
pub fn write_i64(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_numbers_contain_only_digits() {
        assert_eq!(parse_u64(b"0"), Some(0));
        assert_eq!(parse_u64(b"007"), Some(7));
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"00000000000000000000000000001"), Some(1));
        let refused: [&[u8]; 13] = [
            b"",
            b"+5",
            b"-1",
            b"-0",
            b" 5",
            b"5 ",
            b"5\r",
            b"0x10",
            b"1x",
            b"1.5",
            b"1e3",
            b"18446744073709551616",
            b"184467440737095516150",
        ];
        for text in refused {
            assert_eq!(parse_u64(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn narrower_numbers_do_not_wrap() {
        assert_eq!(parse_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(parse_u32(b"4294967296"), None);
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"9223372036854775808"), None);
    }

    #[test]
    fn signed_numbers_may_begin_with_minus_but_not_plus() {
        assert_eq!(parse_i64(b"-1"), Some(-1));
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        let refused: [&[u8]; 6] = [b"-", b"--1", b"+1", b"- 1", b"-9223372036854775809", b"-1 "];
        for text in refused {
            assert_eq!(parse_i64(text), None, "{}", text.escape_ascii());
        }
    }
}
