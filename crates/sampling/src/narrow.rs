//! Conversions to narrower integers.
//!
//! A number that the caller has kept in range is checked: out of range, it stops the thread instead
//! of becoming a wrong number. Where the greatest number is the right answer, the name says so.

/// `number`, which is below 2^16.
///
/// # Panics
///
/// If it is not.
#[expect(clippy::cast_possible_truncation, reason = "just checked")]
pub(crate) fn to_u16(number: usize) -> u16 {
    assert!(number <= usize::from(u16::MAX), "{number} exceeds 16 bits");
    number as u16
}

/// `number`, which fits the machine's address space.
///
/// # Panics
///
/// If it does not.
#[allow(clippy::cast_possible_truncation, reason = "just checked")]
pub(crate) fn to_usize(number: u64) -> usize {
    assert!(number <= usize::MAX as u64, "{number} exceeds the address space");
    number as usize
}

/// `number`, or the greatest that fits.
pub(crate) fn saturating_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_numbers_fit() {
        assert_eq!((to_u16(65_535), to_usize(7)), (u16::MAX, 7));
        assert_eq!(saturating_u32(1 << 40), u32::MAX);
    }

    #[test]
    #[should_panic(expected = "exceeds 16 bits")]
    fn a_greater_number_stops_the_thread() {
        to_u16(1 << 16);
    }
}
