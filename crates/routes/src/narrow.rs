//! A conversion to 32 bits, where the number is a place in memory.

/// `place` in a list whose entries take memory, of which there is not enough for 2^32.
///
/// # Panics
///
/// If there was, after all.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "just checked")]
pub(crate) fn to_place(place: usize) -> u32 {
    assert!(place <= u32::MAX as usize, "{place} exceeds 32 bits");
    place as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_place_fits() {
        assert_eq!(to_place(0xffff_ffff), u32::MAX);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    #[should_panic(expected = "exceeds 32 bits")]
    fn a_greater_place_stops_the_thread() {
        to_place(1 << 32);
    }
}
