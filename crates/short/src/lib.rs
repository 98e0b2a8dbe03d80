//! Compares and copies of short byte strings without a call of the C library.
//!
//! The length of a key or a small value is known only to the running program, so the compiler calls
//! `memcmp` and `memcpy`. Those of musl, which a static binary has, work byte by byte, or by
//! `rep movsq`: comparing a key of 16 bytes takes more than a hundred instructions. Here, lengths
//! have classes: a string of 8 to 16 bytes is read as its first eight and its last eight, which may
//! overlap, and so on to 256 bytes. The C library handles longer strings.
//!
//! [`any`] searches a string for a byte that it most likely lacks, [`first_up_to`] for the end of a
//! word.
#![deny(unsafe_code)]

mod blocks;
mod copies;

pub use blocks::{any, first_up_to};
pub use copies::{Parts, Room, append, append_parts, copy};

/// The longest string that is compared or copied without a call, in bytes.
const SHORT_MAX: usize = 256;

/// `true` if two strings have the same bytes.
#[inline(always)]
#[must_use]
pub fn equal(one: &[u8], other: &[u8]) -> bool {
    let len = one.len();
    if len != other.len() {
        return false;
    }
    match len {
        0 => true,
        1..=3 => [0, len / 2, len - 1].into_iter().all(|at| one[at] == other[at]),
        4..=7 => ends(one).map(u32::from_ne_bytes) == ends(other).map(u32::from_ne_bytes),
        8..=16 => ends(one).map(u64::from_ne_bytes) == ends(other).map(u64::from_ne_bytes),
        17..=32 => {
            let [first, last] = ends(one).map(u128::from_ne_bytes);
            let [other_first, other_last] = ends(other).map(u128::from_ne_bytes);
            (first ^ other_first) | (last ^ other_last) == 0
        }
        33..=SHORT_MAX => blocks_equal(one, other),
        _ => one == other,
    }
}

/// `true` if two strings of one length, at least 16, have the same bytes.
#[inline(never)]
fn blocks_equal(one: &[u8], other: &[u8]) -> bool {
    let same = |(one, other): (&[u8; 16], &[u8; 16])| {
        u128::from_ne_bytes(*one) ^ u128::from_ne_bytes(*other) == 0
    };
    let (blocks, others) = (one.as_chunks().0, other.as_chunks().0);
    blocks.iter().zip(others).all(same)
        && one.last_chunk().zip(other.last_chunk()).is_some_and(same)
}

/// The first and the last `N` bytes, which overlap in a string of fewer than twice as many. The
/// string has at least `N`.
#[inline(always)]
fn ends<const N: usize>(bytes: &[u8]) -> [[u8; N]; 2] {
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => [*first, *last],
        _ => unreachable!("a string of {} bytes has no {N}", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Past the last class by the length of a block.
    const LENGTHS: std::ops::Range<usize> = 0..SHORT_MAX + 20;

    fn string(len: usize) -> Vec<u8> {
        (1..=250).cycle().take(len).collect()
    }

    #[test]
    fn a_string_equals_its_copy() {
        for len in LENGTHS {
            assert!(equal(&string(len), &string(len)), "{len}");
        }
    }

    #[test]
    fn strings_differing_in_one_byte_are_unequal() {
        for len in LENGTHS {
            for at in 0..len {
                let mut other = string(len);
                other[at] ^= 0x80;
                assert!(!equal(&string(len), &other), "byte {at} of {len}");
            }
        }
    }

    #[test]
    fn strings_of_different_lengths_are_unequal() {
        for len in LENGTHS {
            assert!(!equal(&string(len), &string(len + 1)), "{len}");
            assert!(!equal(&string(len + 1), &string(len)), "{len}");
        }
    }

    #[test]
    fn append_keeps_the_existing_content() {
        for len in LENGTHS {
            let mut out = b"VALUE ".to_vec();
            append(&mut out, &string(len));
            append(&mut out, b"\r\n");
            assert_eq!(out, [b"VALUE ".as_slice(), &string(len), b"\r\n"].concat(), "{len}");
        }
    }

    /// Parts of which one is too long, and which continue after that.
    struct TooLong;

    impl Parts for TooLong {
        fn put(self, room: &mut Room<'_>) {
            let put = std::panic::AssertUnwindSafe(|| room.put(b"too long"));
            assert!(std::panic::catch_unwind(put).is_err());
            room.put(b"fits");
        }
    }

    #[test]
    fn an_overlong_part_uses_no_space() {
        let mut out = b"a".to_vec();
        append_parts(&mut out, 5, TooLong);
        assert_eq!(out, b"afits");
    }
}
