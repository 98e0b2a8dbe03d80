//! One record in a segment, independent of files and clocks.
//!
//! ```text
//!     marker 4 | crc32 4 | body length 4 | number 8 | unix seconds 8 | body        (little endian)
//! ```
//!
//! The checksum covers the bytes after it, and starts with the segment's salt, a random number in
//! its file's name. So bytes in a body that look like a record (a client chooses its keys) are not
//! read as one.

/// Bytes before the body.
pub(crate) const HEAD_BYTES: usize = 28;

/// The longest body, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// The largest number in a file's name or a position. No spool reaches it, and numbers counted from
/// there do not overflow.
pub(crate) const NUMBER_MAX: u64 = u64::MAX / 2;

/// The start of every record: no text starts with these bytes.
pub(crate) const MARKER: [u8; 4] = [0xf5, b'h', b's', b'1'];

/// The contents at the start of some bytes.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Found<'a> {
    /// A record, of `len` bytes in total.
    Whole { number: u64, secs: u64, body: &'a [u8], len: usize },
    /// Possibly the start of a record.
    Short,
    /// No record.
    Bad,
}

/// Appends a record.
///
/// # Panics
///
/// When `body` is longer than [`BODY_BYTES_MAX`], which [`crate::Spool::append`] refuses.
pub(crate) fn write(out: &mut Vec<u8>, salt: u32, number: u64, secs: u64, body: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&MARKER);
    out.extend_from_slice(&[0; 4]);
    let (true, Ok(len)) = (body.len() <= BODY_BYTES_MAX, u32::try_from(body.len())) else {
        panic!("a record of {} bytes was not refused", body.len())
    };
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&secs.to_le_bytes());
    out.extend_from_slice(body);
    let sum = checksum(salt, out.get(start + 8..).unwrap_or_default());
    if let Some(place) = out.get_mut(start + 4..start + 8) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

/// Reads the start of `bytes`.
pub(crate) fn read(bytes: &[u8], salt: u32) -> Found<'_> {
    let marker = bytes.get(..MARKER.len()).unwrap_or(bytes);
    if !MARKER.starts_with(marker) {
        return Found::Bad;
    }
    let (Some(sum), Some(len), Some(number), Some(secs)) =
        (u32_at(bytes, 4), u32_at(bytes, 8), u64_at(bytes, 12), u64_at(bytes, 20))
    else {
        return Found::Short;
    };
    let len = len as usize;
    if len > BODY_BYTES_MAX {
        return Found::Bad;
    }
    let Some(covered) = bytes.get(8..HEAD_BYTES + len) else { return Found::Short };
    if checksum(salt, covered) != sum {
        return Found::Bad;
    }
    let body = covered.get(HEAD_BYTES - 8..).unwrap_or_default();
    Found::Whole { number, secs, body, len: HEAD_BYTES + len }
}

fn checksum(salt: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_or_truncation_is_detected() {
        let mut bytes = Vec::new();
        write(&mut bytes, 7, 1, 2, b"delete k\r\n");
        let whole = Found::Whole { number: 1, secs: 2, body: b"delete k\r\n", len: bytes.len() };
        assert_eq!(read(&bytes, 7), whole);
        assert_eq!(read(&bytes, 8), Found::Bad);
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut], 7), Found::Short, "{cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(read(&changed, 7), Found::Whole { .. }), "{bit}");
        }
    }
}
