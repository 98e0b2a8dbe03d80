//! Conversions to narrower integers; each name says what becomes of a number that does not fit.

/// `number`, which is below 2^32.
///
/// # Panics
///
/// If it is not.
#[expect(clippy::cast_possible_truncation, reason = "just checked")]
pub(crate) fn to_u32(number: usize) -> u32 {
    assert!(number <= u32::MAX as usize, "{number} exceeds 32 bits");
    number as u32
}

/// `number`, or the greatest that fits.
pub(crate) fn saturating_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The low half of `number`.
#[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
pub(crate) fn low_u32(number: u64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_does_not_fit_is_the_greatest_or_its_low_half() {
        assert_eq!((to_u32(7), saturating_u32(7), low_u32(7)), (7, 7, 7));
        assert_eq!((saturating_u32(1 << 32), low_u32(1 << 32 | 5)), (u32::MAX, 5));
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    #[should_panic(expected = "exceeds 32 bits")]
    fn a_checked_number_that_does_not_fit_stops_the_thread() {
        to_u32(1 << 32);
    }
}
