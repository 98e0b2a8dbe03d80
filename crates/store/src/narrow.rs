//! Conversions to narrower integers, where a law of the store keeps the number in range.
//!
//! Each caller names its law in a comment. A number out of range is a broken law, so it stops the
//! thread instead of becoming a wrong number.

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

/// `number`, which fits the machine's address space.
///
/// # Panics
///
/// If it does not.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "just checked")]
pub(crate) fn to_usize(number: u64) -> usize {
    assert!(number <= usize::MAX as u64, "{number} exceeds the address space");
    number as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_number_fits() {
        assert_eq!(to_u32(u32::MAX as usize), u32::MAX);
        assert_eq!(to_usize(7), 7);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    #[should_panic(expected = "exceeds 32 bits")]
    fn a_greater_number_stops_the_thread() {
        to_u32(1 << 32);
    }
}
