//! Copies of short strings by their first and last bytes.
#![allow(unsafe_code, reason = "on the list")]

use crate::SHORT_MAX;
use std::mem::MaybeUninit;

/// Appends `bytes` to `out`.
#[inline(always)]
pub fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    append_parts(out, bytes.len(), bytes);
}

/// Bytes that are appended as one, part by part.
///
/// For types with an `#[inline(always)]` method, which a closure could not have.
pub trait Parts {
    /// Puts them.
    fn put(self, room: &mut Room<'_>);
}

impl Parts for &[u8] {
    #[inline(always)]
    fn put(self, room: &mut Room<'_>) {
        room.put(self);
    }
}

/// Appends `parts`, which have at most `bytes_max` bytes. That is cheaper than one by one: there is
/// one check for room, and one new length.
///
/// # Panics
///
/// If there are more bytes.
#[inline(always)]
pub fn append_parts(out: &mut Vec<u8>, bytes_max: usize, parts: impl Parts) {
    out.reserve(bytes_max);
    let mut room = Room { free: &mut out.spare_capacity_mut()[..bytes_max] };
    parts.put(&mut room);
    let written = bytes_max - room.free.len();
    // SAFETY: a room becomes smaller by what was written to its front and by nothing else, and no
    // other can take its place, since that has another lifetime. So these bytes were written,
    // behind the length and within the capacity.
    unsafe { out.set_len(out.len() + written) };
}

/// Room behind a vector, which is filled from its front.
#[derive(Debug)]
pub struct Room<'r> {
    free: &'r mut [MaybeUninit<u8>],
}

impl Room<'_> {
    /// Puts `bytes` behind the bytes put before.
    ///
    /// # Panics
    ///
    /// If there is no room for them.
    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) {
        let Some(to) = self.free.split_off_mut(..bytes.len()) else { panic!("no room for a part") };
        // This does not panic, so the bytes that leave the room are written.
        copy(to, bytes);
    }
}

/// Fills `to` with `bytes`.
///
/// # Panics
///
/// If they differ in length.
#[inline(always)]
pub fn copy(to: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    assert_eq!(to.len(), bytes.len(), "a copy has the length of its room");
    // Checked in this order, a key or value of eight bytes and more waits for few comparisons.
    match bytes.len() {
        0..8 => copy_few(to, bytes),
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

/// Copies fewer than eight bytes.
#[inline(always)]
fn copy_few(to: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    match bytes.len() {
        4.. => copy_ends::<4>(to, bytes),
        2.. => copy_ends::<2>(to, bytes),
        1 => copy_ends::<1>(to, bytes),
        0 => {}
    }
}

/// Copies the first and the last `N` bytes, which are all if there are at most twice as many.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    let last = bytes.len() - N;
    to[..N].write_copy_of_slice(&bytes[..N]);
    to[last..].write_copy_of_slice(&bytes[last..]);
}
