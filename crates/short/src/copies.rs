//! Copies of short strings by their first and last bytes.
#![allow(unsafe_code, reason = "on the list")]

use crate::SHORT_MAX;
use std::mem::MaybeUninit;

/// Appends `bytes` to `out`.
#[inline(always)]
pub fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len());
    copy(&mut out.spare_capacity_mut()[..bytes.len()], bytes);
    // SAFETY: these bytes were just written behind the length, within the capacity.
    unsafe { out.set_len(out.len() + bytes.len()) };
}

/// Fills `to` with `bytes`.
///
/// # Panics
///
/// When they have not the same length.
#[inline(always)]
pub fn copy(to: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    assert_eq!(to.len(), bytes.len(), "a copy has the length of its room");
    match bytes.len() {
        0 => {}
        1 => copy_ends::<1>(to, bytes),
        2..=3 => copy_ends::<2>(to, bytes),
        4..=7 => copy_ends::<4>(to, bytes),
        8..=16 => copy_ends::<8>(to, bytes),
        17..=32 => copy_ends::<16>(to, bytes),
        33..=64 => copy_ends::<32>(to, bytes),
        65..=128 => copy_ends::<64>(to, bytes),
        129..=SHORT_MAX => copy_ends::<128>(to, bytes),
        _ => {
            to.write_copy_of_slice(bytes);
        }
    }
}

/// Copies the first and the last `N` bytes, which are all if there are at most twice as many.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    let last = bytes.len() - N;
    to[..N].write_copy_of_slice(&bytes[..N]);
    to[last..].write_copy_of_slice(&bytes[last..]);
}
