//! Compression, marked in client flags. Bits and bytes are the same in Rust and in Python.
//!
//! * [`FLAG_ZSTD`]: one zstd frame.
//! * [`FLAG_LZ4`]: the length before compression in 4 bytes, little-endian, and one LZ4 block.
//!
//! Decompression never exceeds the limit, whatever the header says.

use std::borrow::Cow;
use std::io::Read;

use crate::error::Error;

/// Client flag: the value is a zstd frame.
pub const FLAG_ZSTD: u32 = 1 << 28;

/// Client flag: the value is its length followed by an LZ4 block.
pub const FLAG_LZ4: u32 = 1 << 29;

/// zstd's own default.
const ZSTD_LEVEL: i32 = 3;

/// The compression of values before they are stored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Compression {
    /// No compression.
    #[default]
    Off,
    /// LZ4: fast.
    Lz4,
    /// zstd: small.
    Zstd,
}

/// Compression and its bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codec {
    pub(crate) compression: Compression,
    /// Shorter values are stored uncompressed.
    pub(crate) threshold_bytes: usize,
    /// The maximum length of a value that is read or sent, decompressed.
    pub(crate) value_bytes_max: usize,
}

impl Codec {
    /// The value as sent; it stays uncompressed if compression gains nothing.
    pub(crate) fn pack<'a>(
        &self,
        bytes: Cow<'a, [u8]>,
        flags: u32,
    ) -> Result<(Cow<'a, [u8]>, u32), Error> {
        if bytes.len() > self.value_bytes_max {
            return Err(Error::TooLong(bytes.len()));
        }
        if bytes.len() < self.threshold_bytes {
            return Ok((bytes, flags));
        }
        let (packed, flag) = match self.compression {
            Compression::Off => return Ok((bytes, flags)),
            Compression::Lz4 => (lz4_flex::compress_prepend_size(&bytes), FLAG_LZ4),
            Compression::Zstd => match zstd::bulk::compress(&bytes, ZSTD_LEVEL) {
                Ok(packed) => (packed, FLAG_ZSTD),
                // Without memory for its tables, it stays uncompressed.
                Err(_) => return Ok((bytes, flags)),
            },
        };
        if packed.len() < bytes.len() {
            Ok((Cow::Owned(packed), flags | flag))
        } else {
            Ok((bytes, flags))
        }
    }

    /// The value before [`Self::pack`] in any library, and its flags without those of the
    /// compression.
    pub(crate) fn unpack(&self, bytes: Vec<u8>, flags: u32) -> Result<(Vec<u8>, u32), Error> {
        let rest = flags & !(FLAG_LZ4 | FLAG_ZSTD);
        match flags & (FLAG_LZ4 | FLAG_ZSTD) {
            0 => Ok((bytes, flags)),
            FLAG_LZ4 => Ok((self.unpack_lz4(&bytes)?, rest)),
            FLAG_ZSTD => Ok((self.unpack_zstd(&bytes)?, rest)),
            _ => Err(Error::Undecodable("it is compressed in two ways")),
        }
    }

    fn unpack_lz4(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let damaged = Error::Undecodable("its LZ4 block is damaged");
        let Ok((size, block)) = lz4_flex::block::uncompressed_size(bytes) else {
            return Err(damaged);
        };
        if size > self.value_bytes_max {
            return Err(TOO_LARGE);
        }
        match lz4_flex::decompress(block, size) {
            Ok(unpacked) if unpacked.len() == size => Ok(unpacked),
            Ok(_) | Err(_) => Err(damaged),
        }
    }

    fn unpack_zstd(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let damaged = |_| Error::Undecodable("its zstd frame is damaged");
        let mut unpacked = Vec::new();
        // One byte more than allowed shows that there is more.
        let limit = self.value_bytes_max as u64 + 1;
        let mut decoder = zstd::Decoder::with_buffer(bytes).map_err(damaged)?.single_frame();
        decoder.by_ref().take(limit).read_to_end(&mut unpacked).map_err(damaged)?;
        if unpacked.len() > self.value_bytes_max {
            return Err(TOO_LARGE);
        }
        // An `append` to the compressed item, which would be lost without an error.
        if !decoder.finish().is_empty() {
            return Err(Error::Undecodable("there are bytes after its zstd frame"));
        }
        Ok(unpacked)
    }
}

const TOO_LARGE: Error = Error::Undecodable("it is larger than allowed when it is decompressed");

#[cfg(test)]
mod tests {
    use super::*;

    fn codec(compression: Compression, value_bytes_max: usize) -> Codec {
        Codec { compression, threshold_bytes: 100, value_bytes_max }
    }

    #[test]
    fn packed_values_are_unpacked_under_any_setting() {
        let long: Vec<u8> = (0..50_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let reader = codec(Compression::Off, 1 << 20);
        for compression in [Compression::Lz4, Compression::Zstd] {
            let (packed, flags) =
                codec(compression, 1 << 20).pack(Cow::Borrowed(&long), 5).unwrap();
            assert!(packed.len() < long.len() / 2, "{compression:?}: {}", packed.len());
            assert_eq!(flags & 0xffff, 5);
            assert_eq!(reader.unpack(packed.into_owned(), flags), Ok((long.clone(), 5)));
        }
    }

    #[test]
    fn short_and_random_values_stay_as_they_are() {
        let noise = (0..250u32).map(|n| n.wrapping_mul(2_654_435_761).rotate_left(n % 32));
        let noise: Vec<u8> = noise.flat_map(u32::to_le_bytes).collect();
        for compression in [Compression::Lz4, Compression::Zstd] {
            let codec = codec(compression, 1 << 20);
            assert_eq!(codec.pack(Cow::Borrowed(b"short"), 1).unwrap().1, 1);
            let (packed, flags) = codec.pack(Cow::Borrowed(&noise), 1).unwrap();
            assert!(packed.len() <= noise.len());
            assert_eq!(codec.unpack(packed.into_owned(), flags).unwrap().0, noise);
        }
    }

    #[test]
    fn a_bomb_is_not_unpacked() {
        let zeros = vec![0; 1_000_000];
        for compression in [Compression::Lz4, Compression::Zstd] {
            let (packed, flags) =
                codec(compression, 1 << 20).pack(Cow::Borrowed(&zeros), 0).unwrap();
            let refused = codec(compression, 999_999).unpack(packed.to_vec(), flags);
            assert_eq!(refused, Err(TOO_LARGE));
            assert!(codec(compression, 1_000_000).unpack(packed.into_owned(), flags).is_ok());
        }
        // A length that only the header claims.
        let lie = [u32::MAX.to_le_bytes().as_slice(), b"\x00"].concat();
        assert_eq!(codec(Compression::Off, 1 << 30).unpack(lie, FLAG_LZ4), Err(TOO_LARGE));
    }

    #[test]
    fn damage_is_an_error() {
        let codec = codec(Compression::Off, 1 << 20);
        let text = b"the same words, the same words, the same words".repeat(9);
        let whole = zstd::bulk::compress(&text, 3).unwrap();
        for len in 0..whole.len() {
            assert!(codec.unpack(whole[..len].to_vec(), FLAG_ZSTD).is_err(), "{len}");
        }
        let whole = lz4_flex::compress_prepend_size(&text);
        for len in 0..whole.len() {
            assert!(codec.unpack(whole[..len].to_vec(), FLAG_LZ4).is_err(), "{len}");
        }
        assert!(codec.unpack(b"x".to_vec(), FLAG_LZ4 | FLAG_ZSTD).is_err());
    }

    #[test]
    fn bytes_added_to_a_compressed_value_are_an_error() {
        let text = b"the same words, the same words, the same words".repeat(9);
        let reader = codec(Compression::Off, 1 << 20);
        for compression in [Compression::Lz4, Compression::Zstd] {
            let (packed, flags) =
                codec(compression, 1 << 20).pack(Cow::Borrowed(&text), 0).unwrap();
            for more in [&b"tail"[..], b"\0", &packed] {
                for bytes in [[&packed, more].concat(), [more, &packed].concat()] {
                    let read = reader.unpack(bytes, flags);
                    assert!(read.is_err(), "{compression:?}, {}", more.escape_ascii());
                }
            }
        }
    }
}
