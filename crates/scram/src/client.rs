//! The client's side.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::hash::{Hash, Key};
use crate::{NoRandomness, nonce, verifier};

/// A login in progress, whose first message is [`Client::first`].
pub struct Client {
    hash: Hash,
    password: Box<[u8]>,
    /// The first message after its header.
    bare: String,
    nonce: String,
}

/// The signature that the server's answer to the proof must have.
#[derive(Clone, Debug)]
pub struct Proven {
    signature: Key,
}

/// The fault of a server's challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// It is not `r=..,s=..,i=..`.
    #[error("the challenge is malformed")]
    Malformed,
    /// The nonce does not start with the client's: the challenge answers another message.
    #[error("the challenge has another nonce")]
    Nonce,
    /// The iterations are missing, not a number, or more than allowed.
    #[error("the challenge has a bad number of iterations")]
    Iterations,
}

impl Client {
    /// Starts a login.
    ///
    /// # Errors
    ///
    /// When the system gives no random numbers.
    pub fn new(hash: Hash, user: &str, password: &str) -> Result<Self, NoRandomness> {
        Ok(Self::with_nonce(hash, user, password, nonce()?))
    }

    pub(crate) fn with_nonce(hash: Hash, user: &str, password: &str, nonce: String) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={user},r={nonce}");
        Self { hash, password: password.as_bytes().into(), bare, nonce }
    }

    /// The first message.
    #[must_use]
    pub fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Answers the server's challenge. Returns the proof to send, and the check of the server's
    /// answer to it. Costs as many hashes as the challenge demands, up to `iterations_max`.
    ///
    /// # Errors
    ///
    /// The challenge's fault.
    pub fn prove(
        self,
        challenge: &[u8],
        iterations_max: u32,
    ) -> Result<(String, Proven), ClientError> {
        let challenge = str::from_utf8(challenge).map_err(|_| ClientError::Malformed)?;
        let mut fields = challenge.split(',');
        let mut field = |name| {
            let field = fields.next().and_then(|field| field.strip_prefix(name));
            field.ok_or(ClientError::Malformed)
        };
        let (nonce, salt, iterations) = (field("r=")?, field("s=")?, field("i=")?);
        if !nonce.starts_with(&self.nonce) {
            return Err(ClientError::Nonce);
        }
        let salt = STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty());
        let salt = salt.ok_or(ClientError::Malformed)?;
        let iterations = verifier::iterations(iterations.as_bytes(), iterations_max);
        let iterations = iterations.ok_or(ClientError::Iterations)?;

        let hash = self.hash;
        let (client_key, server_key) = hash.keys(&self.password, &salt, iterations);
        // `biws` is the header `n,,` in base64.
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{challenge},{without_proof}", self.bare);
        let signature = hash.mac(hash.of(&client_key).bytes(), signed.as_bytes());
        let proof = STANDARD.encode(client_key.xor(&signature).bytes());
        let signature = hash.mac(server_key.bytes(), signed.as_bytes());
        Ok((format!("{without_proof},p={proof}"), Proven { signature }))
    }
}

impl Proven {
    /// True if the server's answer shows that it also knows the password.
    #[must_use]
    pub fn is_answered_by(&self, answer: &[u8]) -> bool {
        let said = answer.strip_prefix(b"v=").and_then(|said| STANDARD.decode(said).ok());
        let said = said.and_then(|said| self.signature.hash().whole_key(&said));
        said.is_some_and(|said| said == self.signature)
    }
}

impl fmt::Debug for Client {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("hash", &self.hash).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client::new(Hash::Sha256, "us=er,", "pencil").unwrap()
    }

    #[test]
    fn names_are_escaped_and_nonces_are_unique() {
        let first = client().first();
        assert!(first.starts_with("n,,n=us=3Der=2C,r="), "{first}");
        assert_ne!(first, client().first());
    }

    #[test]
    fn a_malformed_challenge_is_refused() {
        for (challenge, fault) in [
            ("r=another,s=AAAA,i=4096", ClientError::Nonce),
            ("r=NONCEx,s=,i=1", ClientError::Malformed),
            ("r=NONCEx,s=AAAA,i=0", ClientError::Iterations),
            ("r=NONCEx,s=AAAA,i=+1", ClientError::Iterations),
            ("r=NONCEx,s=AAAA,i=200001", ClientError::Iterations),
            ("m=x,r=NONCEx,s=AAAA,i=1", ClientError::Malformed),
            ("r=NONCEx", ClientError::Malformed),
            ("", ClientError::Malformed),
        ] {
            let client = client();
            let challenge = challenge.replace("NONCE", &client.nonce);
            assert_eq!(client.prove(challenge.as_bytes(), 200_000).unwrap_err(), fault);
        }
    }
}
