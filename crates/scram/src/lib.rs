//! Both sides of SCRAM (RFC 5802, RFC 7677): a login in which the password is never sent.
//!
//! ```text
//!     client  n,,n=user,r=nonce
//!     server  r=nonce+more,s=salt,i=iterations
//!     client  c=biws,r=nonce+more,p=proof
//!     server  v=signature
//!     client  (nothing)
//! ```
//!
//! Bytes in, bytes out; each step costs at most a few thousand hashes. There is no channel binding.
//! Names and passwords are taken as bytes: the client's user must apply `SASLprep`.
//!
//! rsasl 2.3, the existing library, shows a client that a user is unknown, and gives such a user
//! another salt at each try.
#![forbid(unsafe_code)]

mod client;
mod hash;
mod server;
mod verifier;

#[cfg(test)]
mod rfc_tests;

pub use client::{Client, ClientError, Proven};
pub use hash::{Hash, KEY_BYTES, Key};
pub use server::{Outcome, Server};
pub use verifier::{Verifier, VerifierError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes of each side's part of the nonce, before base64.
const NONCE_BYTES: usize = 18;

/// The system gave no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers")]
pub struct NoRandomness;

/// Unpredictable bytes.
///
/// # Errors
///
/// Fails when the system gives none.
pub fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

fn nonce() -> Result<String, NoRandomness> {
    Ok(STANDARD.encode(random::<NONCE_BYTES>()?))
}

/// The parts before and after the first `byte`.
fn split(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let (before, rest) = text.split_at_checked(memchr::memchr(byte, text)?)?;
    Some((before, rest.get(1..)?))
}
