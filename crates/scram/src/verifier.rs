//! The verifier, which a server keeps in place of a password.
//!
//! A [`Verifier`] is a salt, a number of iterations, and two keys derived from the password that do
//! not reveal it. With it a server checks a password that it receives (PLAIN, the text login) and
//! one that it never sees (SCRAM). Its text form is RFC 5803's as PostgreSQL writes it:
//!
//! ```text
//!     SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>       (the last three in base64)
//! ```

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::hash::{Hash, Key};
use crate::split;

/// The maximum iterations that a text may demand: a second of work.
const ITERATIONS_MAX: u32 = 4_000_000;

const PREFIX: &[u8] = b"SCRAM-SHA-256$";

/// The values that a server keeps for a password.
#[derive(Clone, Debug)]
pub struct Verifier {
    /// The mechanism's hash.
    pub hash: Hash,
    /// The number of hashes to try one password.
    pub iterations: NonZeroU32,
    /// The salt.
    pub salt: Box<[u8]>,
    /// Checks a client's proof.
    pub stored_key: Key,
    /// Makes the server's signature.
    pub server_key: Key,
}

/// The fault of a verifier's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifierError {
    /// It starts with another mechanism.
    #[error("is not a SCRAM-SHA-256 verifier")]
    Mechanism,
    /// The part with the keys is missing.
    #[error("lacks the second '$'")]
    NoKeys,
    /// The salt is missing.
    #[error("lacks the ':' before the salt")]
    NoSalt,
    /// The second key is missing.
    #[error("lacks the ':' between the keys")]
    NoServerKey,
    /// The iterations are not a number from 1 to 4,000,000.
    #[error("has a bad number of iterations")]
    Iterations,
    /// The salt is empty or not base64.
    #[error("has a salt that is not base64")]
    Salt,
    /// A key is not base64, or not of the hash's length.
    #[error("has a key that is not base64 of 32 bytes")]
    Key,
}

impl Verifier {
    /// Derives the verifier of `password`. Costs `iterations` hashes.
    #[must_use]
    pub fn derive(hash: Hash, iterations: NonZeroU32, salt: &[u8], password: &[u8]) -> Self {
        let (client_key, server_key) = hash.keys(password, salt, iterations);
        Self { hash, iterations, salt: salt.into(), stored_key: hash.of(&client_key), server_key }
    }

    /// True if it was derived from this password. Costs as much as deriving it, regardless of the
    /// answer.
    #[must_use]
    pub fn is_of(&self, password: &[u8]) -> bool {
        let other = Self::derive(self.hash, self.iterations, &self.salt, password);
        self.stored_key == other.stored_key
    }

    /// Reads the text form.
    ///
    /// # Errors
    ///
    /// The text's fault, for the operator.
    pub fn parse(text: &[u8]) -> Result<Self, VerifierError> {
        let hash = Hash::Sha256;
        let rest = text.strip_prefix(PREFIX).ok_or(VerifierError::Mechanism)?;
        let (head, keys) = split(rest, b'$').ok_or(VerifierError::NoKeys)?;
        let (count, salt) = split(head, b':').ok_or(VerifierError::NoSalt)?;
        let (stored, server) = split(keys, b':').ok_or(VerifierError::NoServerKey)?;
        let iterations = iterations(count, ITERATIONS_MAX).ok_or(VerifierError::Iterations)?;
        let salt = STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty());
        let salt = salt.ok_or(VerifierError::Salt)?.into();
        let key = |text| {
            let bytes = STANDARD.decode(text).ok();
            bytes.and_then(|bytes| hash.whole_key(&bytes)).ok_or(VerifierError::Key)
        };
        let (stored_key, server_key) = (key(stored)?, key(server)?);
        Ok(Self { hash, iterations, salt, stored_key, server_key })
    }

    /// True for a text that is meant to be a verifier, not a password.
    #[must_use]
    pub fn looks_like_verifier(text: &[u8]) -> bool {
        text.starts_with(PREFIX)
    }
}

/// A number of iterations from 1 to `max`, in digits only.
pub(crate) fn iterations(digits: &[u8], max: u32) -> Option<NonZeroU32> {
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    let number: NonZeroU32 = str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()?;
    (number.get() <= max).then_some(number)
}

impl fmt::Display for Verifier {
    /// The text form, which only SHA-256 has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| STANDARD.encode(bytes);
        let (iterations, salt) = (self.iterations, text(&self.salt));
        let (stored, server) = (text(self.stored_key.bytes()), text(self.server_key.bytes()));
        write!(f, "SCRAM-SHA-256${iterations}:{salt}${stored}:{server}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();

    /// The salt and iterations are those of RFC 7677, section 3.
    #[test]
    fn a_verifier_round_trips_through_its_text_form() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::derive(Hash::Sha256, ITERATIONS, &salt, b"pencil");
        let text = verifier.to_string();
        assert!(text.starts_with("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"), "{text}");
        let read = Verifier::parse(text.as_bytes()).unwrap();
        assert_eq!(read.to_string(), text);
        assert!(read.is_of(b"pencil") && !read.is_of(b"pencils") && !read.is_of(b""));
    }

    #[test]
    fn a_malformed_verifier_is_refused() {
        let good = Verifier::derive(Hash::Sha256, ITERATIONS, b"salt", b"x").to_string();
        for (from, to, fault) in [
            ("4096:", "0:", VerifierError::Iterations),
            ("4096:", "+4096:", VerifierError::Iterations),
            ("4096:", "4000001:", VerifierError::Iterations),
            ("4096:", "4096", VerifierError::NoSalt),
            ("c2FsdA==$", "c2Fsd$", VerifierError::Salt),
            ("c2FsdA==$", "$", VerifierError::Salt),
            ("c2FsdA==$", "c2FsdA==", VerifierError::NoKeys),
            ("SHA-256", "SHA-512", VerifierError::Mechanism),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good);
            assert_eq!(Verifier::parse(bad.as_bytes()).unwrap_err(), fault, "{bad}");
        }
        let short = good.get(..good.len() - 4).unwrap();
        assert_eq!(Verifier::parse(short.as_bytes()).unwrap_err(), VerifierError::Key);
    }
}
