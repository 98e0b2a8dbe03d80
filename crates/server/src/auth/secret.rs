//! What is kept instead of a password, and how a password is checked against it.
//!
//! One form serves every login. A [`Verifier`] is what SCRAM keeps (RFC 5802): a salt, a count of
//! iterations, and two keys that follow from the password but do not give it back. From it a server
//! can check a password that it is told (PLAIN, the text login) as well as one that it is never
//! told (SCRAM). Its text form is RFC 5803's as PostgreSQL writes it:
//!
//! ```text
//!     SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>       (the last three in base64)
//! ```

use std::fmt;
use std::num::NonZeroU32;

use proto::{KeyBuf, base64};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq;

/// Bytes of the longest key: SHA-256's.
pub(super) const KEY_BYTES: usize = 32;

/// Bytes of a new salt.
pub(super) const SALT_BYTES: usize = 16;

/// Iterations of a new verifier: some milliseconds of work for whoever guesses.
pub(super) const ITERATIONS: NonZeroU32 = NonZeroU32::new(16_384).unwrap();

/// Iterations for a password that stands in the file as it is: RFC 7677's least. More would protect
/// nothing.
pub(super) const ITERATIONS_LEAST: NonZeroU32 = NonZeroU32::new(4096).unwrap();

/// Most iterations that a file may ask for: a second of work.
const ITERATIONS_MAX: u32 = 4_000_000;

/// The hash of a SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha1,
    Sha256,
}

impl Hash {
    /// Bytes of a digest.
    pub(super) const fn len(self) -> usize {
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

    /// The keyed hash of `message`; its first [`Self::len`] bytes count.
    pub(super) fn mac(self, key: &[u8], message: &[u8]) -> Key {
        let tag = hmac::sign(&hmac::Key::new(self.hmac(), key), message);
        Key::of(tag.as_ref())
    }

    /// The hash of `bytes`.
    pub(super) fn of(self, bytes: &[u8]) -> Key {
        Key::of(digest::digest(self.digest(), bytes).as_ref())
    }
}

/// A key or digest, zeros behind a short one. Compared in a time that tells nothing, and never
/// printed.
#[derive(Clone, Copy)]
pub(super) struct Key([u8; KEY_BYTES]);

impl Key {
    fn of(bytes: &[u8]) -> Self {
        let mut key = [0; KEY_BYTES];
        for (to, from) in key.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self(key)
    }

    /// The first `hash.len()` bytes.
    pub(super) fn bytes(&self, hash: Hash) -> &[u8] {
        self.0.get(..hash.len()).unwrap_or_default()
    }

    /// Each byte combined with its counterpart in `other`; a missing one counts as zero.
    pub(super) fn xor(&self, other: &[u8]) -> Self {
        let mut key = self.0;
        for (to, from) in key.iter_mut().zip(other) {
            *to ^= from;
        }
        Self(key)
    }

    /// Whether both are the same, in constant time.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// What SCRAM keeps of a password.
#[derive(Clone, Debug)]
pub(super) struct Verifier {
    pub(super) hash: Hash,
    pub(super) iterations: NonZeroU32,
    pub(super) salt: Box<[u8]>,
    pub(super) stored_key: Key,
    pub(super) server_key: Key,
}

impl Verifier {
    /// Derives it: `iterations` hashes of work.
    pub(super) fn derive(hash: Hash, iterations: NonZeroU32, salt: &[u8], password: &[u8]) -> Self {
        let mut salted = [0; KEY_BYTES];
        let salted = salted.get_mut(..hash.len()).unwrap_or_default();
        pbkdf2::derive(hash.pbkdf2(), iterations, salt, password, salted);
        let client_key = hash.mac(salted, b"Client Key");
        let stored_key = hash.of(client_key.bytes(hash));
        let server_key = hash.mac(salted, b"Server Key");
        Self { hash, iterations, salt: salt.into(), stored_key, server_key }
    }

    /// Whether it was derived from this password. As much work as deriving it, whatever the answer.
    pub(super) fn is_of(&self, password: &[u8]) -> bool {
        let other = Self::derive(self.hash, self.iterations, &self.salt, password);
        self.stored_key.is_same(&other.stored_key)
    }

    /// Reads the text form.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for the operator.
    pub(super) fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let rest = text.strip_prefix(PREFIX).ok_or("is not a SCRAM-SHA-256 verifier")?;
        let (head, keys) = split(rest, b'$').ok_or("lacks the second '$'")?;
        let (count, salt) = split(head, b':').ok_or("lacks the ':' before the salt")?;
        let (stored, server) = split(keys, b':').ok_or("lacks the ':' between the keys")?;
        let count = proto::number::parse_u32(count).filter(|count| *count <= ITERATIONS_MAX);
        let iterations = count.and_then(NonZeroU32::new).ok_or("has a bad number of iterations")?;
        let mut buf = KeyBuf::new();
        let salt = base64::decode(salt, &mut buf).ok_or("has a salt that is not base64")?.into();
        let key = |text| {
            let mut buf = KeyBuf::new();
            let bytes = base64::decode(text, &mut buf).filter(|bytes| bytes.len() == KEY_BYTES);
            bytes.map(Key::of).ok_or("has a key that is not base64 of 32 bytes")
        };
        let (stored_key, server_key) = (key(stored)?, key(server)?);
        Ok(Self { hash: Hash::Sha256, iterations, salt, stored_key, server_key })
    }

    /// Whether a password in a file is meant to be one.
    pub(super) fn is_meant(text: &[u8]) -> bool {
        text.starts_with(PREFIX)
    }
}

impl fmt::Display for Verifier {
    /// The text form, if the hash is SHA-256.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| {
            let mut out = Vec::new();
            base64::encode(bytes, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        };
        let (salt, iterations) = (text(&self.salt), self.iterations);
        let stored = text(self.stored_key.bytes(self.hash));
        let server = text(self.server_key.bytes(self.hash));
        write!(f, "SCRAM-SHA-256${iterations}:{salt}${stored}:{server}")
    }
}

/// A line for the users file: `user` with the verifier of `password`, under a new salt.
///
/// # Errors
///
/// A name or password that cannot be; a system that gives no random numbers.
pub fn users_line(user: &str, password: &[u8]) -> Result<String, String> {
    if user.is_empty() || user.contains([':', '#']) || user.contains(char::is_whitespace) {
        return Err("a user's name is not empty and has no space, ':' or '#' in it".to_owned());
    }
    if password.is_empty() {
        return Err("the password is empty".to_owned());
    }
    let salt: [u8; SALT_BYTES] = random()?;
    Ok(format!("{user}:{}", Verifier::derive(Hash::Sha256, ITERATIONS, &salt, password)))
}

/// Unpredictable bytes.
///
/// # Errors
///
/// When the system gives none.
pub(super) fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "the system gives no random numbers".to_owned())?;
    Ok(bytes)
}

/// The parts before and after the first `byte`.
pub(super) fn split(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let (before, rest) = text.split_at_checked(memchr::memchr(byte, text)?)?;
    Some((before, rest.get(1..)?))
}

const PREFIX: &[u8] = b"SCRAM-SHA-256$";

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677 section 3: its salt and iterations, and the keys that follow.
    #[test]
    fn a_verifier_survives_its_text_form() {
        let mut buf = KeyBuf::new();
        let salt = base64::decode(b"W22ZaJ0SNY7soEsUEjb6gQ==", &mut buf).unwrap();
        let verifier = Verifier::derive(Hash::Sha256, ITERATIONS_LEAST, salt, b"pencil");
        let text = verifier.to_string();
        assert!(text.starts_with("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"), "{text}");
        let read = Verifier::parse(text.as_bytes()).unwrap();
        assert_eq!(read.to_string(), text);
        assert!(read.is_of(b"pencil") && !read.is_of(b"pencils") && !read.is_of(b""));
    }

    #[test]
    fn a_malformed_verifier_is_refused() {
        let good = Verifier::derive(Hash::Sha256, ITERATIONS_LEAST, b"salt", b"x").to_string();
        for (from, to) in
            [("4096:", "0:"), ("4096:", "4000001:"), ("4096:", "4096"), ("c2FsdA==$", "c2Fsd$")]
        {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good);
            assert!(Verifier::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let short = good.get(..good.len() - 4).unwrap();
        assert!(Verifier::parse(short.as_bytes()).is_err());
    }

    #[test]
    fn two_lines_for_one_password_differ() {
        let line = || users_line("me", b"secret").unwrap();
        assert_ne!(line(), line());
        assert!(line().starts_with("me:SCRAM-SHA-256$16384:"));
    }
}
