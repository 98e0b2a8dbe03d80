//! Searches that compare sixteen bytes at once.
#![allow(unsafe_code, reason = "on the list")]

use crate::ends;

/// Bytes that one instruction compares.
const BLOCK: usize = 16;

/// `true` if `is_sought` holds for a byte. It should be one or two comparisons, which the compiler
/// applies to sixteen bytes at once.
#[inline(always)]
#[must_use]
pub fn any(bytes: &[u8], is_sought: impl Fn(u8) -> bool) -> bool {
    let is_in = |block: &[u8; BLOCK]| {
        block.iter().fold(false, |is_found, byte| is_found | is_sought(*byte))
    };
    let (blocks, rest) = bytes.as_chunks();
    for block in blocks {
        if is_in(block) {
            return true;
        }
    }
    match bytes.last_chunk() {
        // It overlaps the previous block.
        Some(last) => !rest.is_empty() && is_in(last),
        None => rest.iter().any(|byte| is_sought(*byte)),
    }
}

/// The index of the first byte that is `limit` or less; `limit` is ASCII.
#[inline(always)]
#[must_use]
pub fn first_up_to(limit: u8, bytes: &[u8]) -> Option<usize> {
    debug_assert!(limit.is_ascii());
    let (blocks, rest) = bytes.as_chunks();
    for (number, block) in blocks.iter().enumerate() {
        if let Some(place) = place_in(limit, block) {
            return Some(number * BLOCK + place);
        }
    }
    if rest.is_empty() { None } else { first_behind_blocks(limit, bytes) }
}

/// The same, if none is in the blocks and some bytes follow them.
#[inline(never)]
fn first_behind_blocks(limit: u8, bytes: &[u8]) -> Option<usize> {
    let (start, last) = match bytes.last_chunk() {
        // It overlaps the previous block.
        Some(last) => (bytes.len() - BLOCK, *last),
        None => (0, padded(bytes)),
    };
    place_in(limit, &last).map(|place| start + place).filter(|place| *place < bytes.len())
}

/// Fewer than sixteen bytes, followed by zeros.
#[inline(always)]
fn padded(bytes: &[u8]) -> [u8; BLOCK] {
    let len = bytes.len();
    // Overlapping bytes are the same.
    let bits = match len {
        0 => 0,
        1..=3 => {
            let of = |at: usize| u64::from(bytes[at]) << (8 * at);
            u128::from(of(0) | of(len / 2) | of(len - 1))
        }
        4..=7 => {
            let [first, last] = ends(bytes).map(u32::from_le_bytes).map(u64::from);
            u128::from(first | last << (8 * (len - 4)))
        }
        _ => {
            let [first, last] = ends(bytes).map(u64::from_le_bytes).map(u128::from);
            first | last << (8 * (len - 8))
        }
    };
    bits.to_le_bytes()
}

/// The index in one block.
#[inline(always)]
fn place_in(limit: u8, block: &[u8; BLOCK]) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has SSE2.
    let place = unsafe { sse2::place_in(limit, block) };
    #[cfg(not(target_arch = "x86_64"))]
    let place = anywhere::place_in(limit, block);
    place
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use super::BLOCK;
    use crate::ends;
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8,
    };

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn place_in(limit: u8, block: &[u8; BLOCK]) -> Option<usize> {
        let [low, high] = ends(block).map(i64::from_le_bytes);
        let bytes = _mm_set_epi64x(high, low);
        let least = _mm_min_epu8(bytes, _mm_set1_epi8(limit.cast_signed()));
        // One bit per byte.
        let found = _mm_movemask_epi8(_mm_cmpeq_epi8(least, bytes));
        (found != 0).then(|| found.trailing_zeros() as usize)
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod anywhere {
    use super::BLOCK;

    pub(super) fn place_in(limit: u8, block: &[u8; BLOCK]) -> Option<usize> {
        const EACH: u128 = u128::from_le_bytes([1; BLOCK]);
        let bytes = u128::from_le_bytes(*block);
        // A borrow passes only from a byte that is one itself, so the lowest is right.
        let found = bytes.wrapping_sub(EACH * (u128::from(limit) + 1)) & !bytes & (EACH * 0x80);
        (found != 0).then(|| found.trailing_zeros() as usize / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Miri takes minutes for all cases.
    const STEP: usize = if cfg!(miri) { 7 } else { 1 };

    #[test]
    fn a_byte_is_found_at_every_position() {
        for len in (0..100).step_by(STEP) {
            let string: Vec<u8> = (1..=250).cycle().take(len).collect();
            assert!(!any(&string, |byte| (byte == 0) | (byte > 250)), "{len}");
            for at in 0..len {
                let mut other = string.clone();
                other[at] = 251;
                assert!(any(&other, |byte| (byte == 0) | (byte > 250)), "byte {at} of {len}");
            }
        }
    }

    #[test]
    fn the_first_of_several_bytes_is_found() {
        for limit in [0, b'\n', b' ', 0x7f] {
            for len in (0..60).step_by(STEP) {
                let mut string: Vec<u8> = (limit + 1..=255).cycle().take(len).collect();
                assert_eq!(first_up_to(limit, &string), None, "{len}");
                for at in (0..len).rev() {
                    string[at] = [limit, 0][at % 2];
                    assert_eq!(first_up_to(limit, &string), Some(at), "{len}");
                }
            }
        }
    }

    /// Both ways find the same index on each processor.
    #[test]
    fn the_simd_and_portable_searches_agree() {
        for bits in (0..1_u32 << BLOCK).step_by(STEP.pow(3)) {
            let other = [b'!', b'"', 0x80, 0xff][bits as usize % 4];
            let byte = |at: usize| if bits >> at & 1 == 1 { [b' ', 0][at % 2] } else { other };
            let block: [u8; BLOCK] = std::array::from_fn(byte);
            let expected = (0..BLOCK).find(|at| bits >> at & 1 == 1);
            assert_eq!(place_in(b' ', &block), expected, "{block:?}");
            assert_eq!(anywhere::place_in(b' ', &block), expected, "{block:?}");
        }
    }
}
