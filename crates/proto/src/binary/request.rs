//! Binary requests, written by a client. Writers append to the caller's buffer.

use super::REQUEST_MAGIC;

/// Appends a request's header, extras and key; `value_len` bytes of value must follow. The present
/// item must have this cas unique; 0: none.
pub fn write(
    out: &mut Vec<u8>,
    opcode: u8,
    opaque: u32,
    cas: u64,
    extras: &[u8],
    key: &[u8],
    value_len: u32,
) {
    // These are the client's own lengths: extras of at most 20 bytes, and a key that was checked.
    debug_assert!(extras.len() <= 20 && key.len() <= usize::from(u16::MAX), "a request too wide");
    let extras_len = u8::try_from(extras.len()).unwrap_or_default();
    let key_len = u16::try_from(key.len()).unwrap_or_default();
    let body_len = value_len.saturating_add(u32::from(extras_len) + u32::from(key_len));
    out.extend_from_slice(&[REQUEST_MAGIC, opcode]);
    out.extend_from_slice(&key_len.to_be_bytes());
    out.extend_from_slice(&[extras_len, 0, 0, 0]);
    out.extend_from_slice(&body_len.to_be_bytes());
    out.extend_from_slice(&opaque.to_be_bytes());
    out.extend_from_slice(&cas.to_be_bytes());
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
}
