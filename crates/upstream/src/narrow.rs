//! Conversions to narrower integers, where a law of this crate keeps the number in range.
//!
//! Each caller names its law in a comment. A number out of range is a broken law, so it stops the
//! thread instead of becoming a wrong number.

/// `number`, which is below 2^8.
///
/// # Panics
///
/// If it is not.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "just checked")]
pub(crate) fn to_u8(number: usize) -> u8 {
    assert!(number <= usize::from(u8::MAX), "{number} exceeds 8 bits");
    number as u8
}

/// `number`, which is below 2^16.
///
/// # Panics
///
/// If it is not.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "just checked")]
pub(crate) fn to_u16(number: usize) -> u16 {
    assert!(number <= usize::from(u16::MAX), "{number} exceeds 16 bits");
    number as u16
}

/// `number`, which is below 2^32.
///
/// # Panics
///
/// If it is not.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "just checked")]
pub(crate) fn to_u32(number: usize) -> u32 {
    assert!(number <= u32::MAX as usize, "{number} exceeds 32 bits");
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_numbers_fit() {
        assert_eq!(to_u8(0xff), u8::MAX);
        assert_eq!(to_u16(0xffff), u16::MAX);
        assert_eq!(to_u32(0xffff_ffff), u32::MAX);
    }

    #[test]
    #[should_panic(expected = "exceeds 8 bits")]
    fn a_greater_number_stops_the_thread() {
        to_u8(256);
    }
}
