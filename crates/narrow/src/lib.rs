//! Conversions to narrower integers; each name gives the treatment of a number that does not fit.
//!
//! If a law of the caller keeps the number in range, the caller names the law in a comment. A
//! number out of range is a broken law, so it stops the thread instead of becoming a wrong number.
#![forbid(unsafe_code)]

/// `number`, which is below 2^8.
///
/// # Panics
///
/// If it is not.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "just checked")]
pub fn to_u8(number: usize) -> u8 {
    assert!(number <= usize::from(u8::MAX), "{number} exceeds 8 bits");
    number as u8
}

/// `number`, which is below 2^16.
///
/// # Panics
///
/// If it is not.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "just checked")]
pub fn to_u16(number: usize) -> u16 {
    assert!(number <= usize::from(u16::MAX), "{number} exceeds 16 bits");
    number as u16
}

/// `number`, which is below 2^32.
///
/// # Panics
///
/// If it is not.
#[inline]
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "just checked")]
pub fn to_u32(number: usize) -> u32 {
    assert!(number <= u32::MAX as usize, "{number} exceeds 32 bits");
    number as u32
}

/// `number`, which fits the machine's address space.
///
/// # Panics
///
/// If it does not.
#[inline]
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "just checked")]
pub fn to_usize(number: u64) -> usize {
    assert!(number <= usize::MAX as u64, "{number} exceeds the address space");
    number as usize
}

/// `number`, or the maximum if it does not fit.
#[inline]
#[must_use]
pub fn saturating_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The low half of `number`.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
pub fn low_u32(number: u64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_numbers_fit() {
        assert_eq!((to_u8(0xff), to_u16(0xffff)), (u8::MAX, u16::MAX));
        assert_eq!((to_u32(0xffff_ffff), to_usize(7)), (u32::MAX, 7));
        assert_eq!((saturating_u32(7), low_u32(7)), (7, 7));
    }

    #[test]
    fn overflow_saturates_or_truncates() {
        assert_eq!((saturating_u32(1 << 32), low_u32(1 << 32 | 5)), (u32::MAX, 5));
    }

    #[test]
    #[should_panic(expected = "exceeds 8 bits")]
    fn a_byte_that_does_not_fit_stops_the_thread() {
        let _ = to_u8(1 << 8);
    }

    #[test]
    #[should_panic(expected = "exceeds 16 bits")]
    fn a_half_word_that_does_not_fit_stops_the_thread() {
        let _ = to_u16(1 << 16);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    #[should_panic(expected = "exceeds 32 bits")]
    fn a_word_that_does_not_fit_stops_the_thread() {
        let _ = to_u32(1 << 32);
    }
}
