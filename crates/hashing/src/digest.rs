//! The 32-bit hashes of a key that libmemcached (libhashkit) and twemproxy offer under these names.
//!
//! Both programs are written in C with `char`, which is signed on their machines: bytes from 0x80
//! count as negative numbers wherever the C code widens them. Servers of real pools depend on that,
//! so it is kept.

use md5::{Digest, Md5};

use crate::jenkins::jenkins;
use crate::murmur::{murmur2, murmur3};

const FNV64_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV64_PRIME: u64 = 0x0100_0000_01b3;
const FNV32_START: u32 = 0x811c_9dc5;
const FNV32_PRIME: u32 = 0x0100_0193;

/// A hash of a key, under its name in twemproxy's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyHash {
    /// CRC-16 of XMODEM in a register of 32 bits, whose upper half keeps the bits shifted out.
    /// twemproxy only.
    Crc16,
    /// Bits 16 to 30 of the CRC-32, libmemcached's `crc`.
    Crc32,
    /// The whole CRC-32. twemproxy only.
    Crc32a,
    /// FNV-1, 32 bits.
    Fnv1_32,
    /// FNV-1, the low half of 64 bits.
    Fnv1_64,
    /// FNV-1a, 32 bits.
    Fnv1a32,
    /// FNV-1a with the low halves of the constants for 64 bits: not the low half of FNV-1a.
    Fnv1a64,
    /// Paul Hsieh's SuperFastHash. Debian's libmemcached is built without it and gives 1 for every
    /// key.
    Hsieh,
    /// Bob Jenkins's lookup3.
    Jenkins,
    /// The first four bytes of the MD5, little endian.
    Md5,
    /// MurmurHash2, seeded by the length.
    Murmur,
    /// MurmurHash3, seeded by the length. libmemcached only.
    Murmur3,
    /// Bob Jenkins's one-at-a-time; libmemcached's default.
    #[default]
    OneAtATime,
}

impl KeyHash {
    /// All hashes, with their names in configurations.
    pub const ALL: [(&str, Self); 13] = [
        ("crc16", Self::Crc16),
        ("crc32", Self::Crc32),
        ("crc32a", Self::Crc32a),
        ("fnv1_32", Self::Fnv1_32),
        ("fnv1_64", Self::Fnv1_64),
        ("fnv1a_32", Self::Fnv1a32),
        ("fnv1a_64", Self::Fnv1a64),
        ("hsieh", Self::Hsieh),
        ("jenkins", Self::Jenkins),
        ("md5", Self::Md5),
        ("murmur", Self::Murmur),
        ("murmur3", Self::Murmur3),
        ("one_at_a_time", Self::OneAtATime),
    ];

    /// The hash with that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, hash)| hash)
    }

    /// Its name in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, hash)| *hash == self).map_or("", |(name, _)| name)
    }

    /// The hash of the key.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the low half is the hash")]
    pub fn hash(self, key: &[u8]) -> u32 {
        let signed = key.iter().map(|byte| i64::from(byte.cast_signed()).cast_unsigned());
        match self {
            Self::Crc16 => key.iter().fold(0, |crc, byte| crc16_step(crc, *byte)),
            Self::Crc32 => crc32fast::hash(key) >> 16 & 0x7fff,
            Self::Crc32a => crc32fast::hash(key),
            Self::Fnv1_32 => {
                signed.fold(FNV32_START, |hash, byte| hash.wrapping_mul(FNV32_PRIME) ^ byte as u32)
            }
            Self::Fnv1_64 => {
                signed.fold(FNV64_START, |hash, byte| hash.wrapping_mul(FNV64_PRIME) ^ byte) as u32
            }
            Self::Fnv1a32 => signed
                .fold(FNV32_START, |hash, byte| (hash ^ byte as u32).wrapping_mul(FNV32_PRIME)),
            Self::Fnv1a64 => signed.fold(FNV64_START as u32, |hash, byte| {
                (hash ^ byte as u32).wrapping_mul(FNV64_PRIME as u32)
            }),
            Self::Hsieh => hsieh(key),
            Self::Jenkins => jenkins(key),
            Self::Md5 => md5_words(key)[0],
            Self::Murmur => murmur2(key),
            Self::Murmur3 => murmur3(key),
            Self::OneAtATime => {
                let hash = signed.fold(0_u32, |hash, byte| {
                    let hash = hash.wrapping_add(byte as u32);
                    let hash = hash.wrapping_add(hash << 10);
                    hash ^ (hash >> 6)
                });
                let hash = hash.wrapping_add(hash << 3);
                let hash = hash ^ (hash >> 11);
                hash.wrapping_add(hash << 15)
            }
        }
    }
}

/// The MD5 as four words, little endian: four points of a ketama continuum.
pub(crate) fn md5_words(key: &[u8]) -> [u32; 4] {
    let digest: [u8; 16] = Md5::digest(key).into();
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(digest.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// twemproxy's step for one byte. The register is never cut to 16 bits, and a ketama point depends
/// on all 32.
fn crc16_step(crc: u32, byte: u8) -> u32 {
    crc << 8 ^ CRC16[(crc >> 8 & 0xff) as usize ^ usize::from(byte)]
}

/// The CRC-16 of each byte, by the polynomial 0x1021.
#[allow(clippy::cast_possible_truncation, reason = "a byte")]
static CRC16: [u32; 256] = {
    let mut table = [0_u32; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x1_1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn hsieh(key: &[u8]) -> u32 {
    let pair = |low: u8, high: u8| u32::from(u16::from_le_bytes([low, high]));
    let mut hash = 0_u32;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_add(pair(word[0], word[1]));
        hash = (hash << 16) ^ (pair(word[2], word[3]) << 11) ^ hash;
        hash = hash.wrapping_add(hash >> 11);
    }
    match *rest {
        [a, b, c] => {
            hash = hash.wrapping_add(pair(a, b));
            hash ^= hash << 16;
            hash ^= i32::from(c.cast_signed()).cast_unsigned() << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        [a, b] => {
            hash = hash.wrapping_add(pair(a, b));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        [a] => {
            hash = hash.wrapping_add(u32::from(a));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    hash ^= hash << 3;
    hash = hash.wrapping_add(hash >> 5);
    hash ^= hash << 4;
    hash = hash.wrapping_add(hash >> 17);
    hash ^= hash << 25;
    hash.wrapping_add(hash >> 6)
}
