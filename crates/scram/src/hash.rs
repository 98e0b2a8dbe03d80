//! The hashes of the mechanisms, and the keys derived with them.

use std::fmt;
use std::num::NonZeroU32;

use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq;

/// Bytes of the longest key: SHA-256's.
pub const KEY_BYTES: usize = 32;

/// The hash of a SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SCRAM-SHA-1.
    Sha1,
    /// SCRAM-SHA-256.
    Sha256,
}

impl Hash {
    /// Bytes of a digest.
    const fn len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => KEY_BYTES,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
        }
    }

    /// The keyed hash of `message`.
    #[must_use]
    pub fn mac(self, key: &[u8], message: &[u8]) -> Key {
        self.key(hmac::sign(&hmac::Key::new(self.hmac(), key), message).as_ref())
    }

    /// The hash of `key`.
    pub(crate) fn of(self, key: &Key) -> Key {
        self.key(digest::digest(self.digest(), key.bytes()).as_ref())
    }

    /// The password stretched by `iterations` hashes (`SaltedPassword` of RFC 5802).
    fn salted(self, password: &[u8], salt: &[u8], iterations: NonZeroU32) -> Key {
        let mut bytes = [0; KEY_BYTES];
        let (key, _) = bytes.split_at_mut(self.len());
        pbkdf2::derive(self.pbkdf2(), iterations, salt, password, key);
        Key { bytes, hash: self }
    }

    /// `ClientKey` and `ServerKey` of RFC 5802.
    pub(crate) fn keys(self, password: &[u8], salt: &[u8], iterations: NonZeroU32) -> (Key, Key) {
        let salted = self.salted(password, salt, iterations);
        (self.mac(salted.bytes(), b"Client Key"), self.mac(salted.bytes(), b"Server Key"))
    }

    /// A key of these bytes; missing ones are zeros.
    fn key(self, from: &[u8]) -> Key {
        let mut bytes = [0; KEY_BYTES];
        for (to, from) in bytes.iter_mut().zip(from) {
            *to = *from;
        }
        Key { bytes, hash: self }
    }

    /// A key of these bytes, if their number is that of a digest.
    pub(crate) fn whole_key(self, from: &[u8]) -> Option<Key> {
        (from.len() == self.len()).then(|| self.key(from))
    }
}

/// A key or digest. Compared in constant time, and never printed.
#[derive(Clone, Copy)]
pub struct Key {
    /// Zeros after the digest.
    bytes: [u8; KEY_BYTES],
    hash: Hash,
}

impl Key {
    /// The digest's bytes: 20 or 32, by the hash.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.split_at(self.hash.len()).0
    }

    pub(crate) const fn hash(&self) -> Hash {
        self.hash
    }

    /// Each byte combined with its counterpart in `other`.
    pub(crate) fn xor(&self, other: &Self) -> Self {
        let mut key = *self;
        for (to, from) in key.bytes.iter_mut().zip(other.bytes) {
            *to ^= from;
        }
        key
    }
}

impl PartialEq for Key {
    /// In constant time.
    fn eq(&self, other: &Self) -> bool {
        self.bytes().ct_eq(other.bytes()).into()
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}
