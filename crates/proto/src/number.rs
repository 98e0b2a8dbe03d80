//! The one parser of decimal numbers, and the looser rule for stored values that are counted up and down.
//!
//! Exact digits only: no `+`, no blanks, no base prefix, nothing left over, no wrapping. Leading zeros are digits.
//! Only a signed number may begin with `-`. Every protocol here uses these functions, so a number means the same
//! everywhere.

/// Parses an unsigned 64-bit decimal number. `None` if it is empty, has any byte that is no digit, or overflows.
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

/// Reads a stored value as a counter, by `strtoull`'s rules as memcached applies them.
///
/// White space and one `+` may come first; the number ends at the end of the value or at white space, and what
/// follows that is ignored (so a value padded with spaces counts). At most 20 bytes long. `None` for anything
/// else: empty, negative, fractional, hexadecimal, over 2^64-1.
#[must_use]
pub fn parse_stored(value: &[u8]) -> Option<u64> {
    if value.len() > STORED_BYTES_MAX {
        return None;
    }
    let unpadded = value.trim_ascii_start();
    let digits = unpadded.strip_prefix(b"+").unwrap_or(unpadded);
    let end = digits.iter().position(|byte| is_space(*byte)).unwrap_or(digits.len());
    parse_u64(digits.get(..end)?)
}

/// The longest value that counts as a number: the digits of 2^64-1.
pub const STORED_BYTES_MAX: usize = 20;

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

/// `isspace` of the C locale: `u8::is_ascii_whitespace` leaves out the vertical tab.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}
