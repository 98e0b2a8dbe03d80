//! The server's side.
//!
//! A nonexistent user gets as far as the proof, with a verifier that the caller makes up. So a
//! client does not learn which users exist.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::hash::Hash;
use crate::verifier::Verifier;
use crate::{NoRandomness, nonce, split};

/// A login in progress, of a user that the caller describes by a `U`.
#[derive(Debug)]
pub struct Server<U> {
    hash: Hash,
    /// The server's part of the nonce.
    nonce: String,
    stage: Stage<U>,
}

#[derive(Debug)]
enum Stage<U> {
    /// The client's first message is awaited.
    First,
    /// The client's proof is awaited.
    Final(Box<Proving<U>>),
    /// The client's empty last message is awaited.
    Confirming(U),
}

/// The data to check the proof.
#[derive(Debug)]
struct Proving<U> {
    /// The client's first message up to its name.
    gs2_header: Vec<u8>,
    /// The two messages so far, in their signed form.
    signed: Vec<u8>,
    /// Both parts.
    nonce: Vec<u8>,
    verifier: Verifier,
    user: Option<U>,
}

/// The answer to a client's message.
#[derive(Debug)]
pub enum Outcome<U> {
    /// Send this, and continue.
    Challenge(Vec<u8>),
    /// The client knows this user's password.
    Accepted(U),
    /// The client does not, or broke the rules. The login is over.
    Refused,
}

impl<U: Clone> Server<U> {
    /// A login by this hash.
    ///
    /// # Errors
    ///
    /// When the system gives no random numbers.
    pub fn new(hash: Hash) -> Result<Self, NoRandomness> {
        Ok(Self::with_nonce(hash, nonce()?))
    }

    pub(crate) const fn with_nonce(hash: Hash, nonce: String) -> Self {
        Self { hash, nonce, stage: Stage::First }
    }

    /// Takes the client's next message. `look_up` gives the verifier of a name, and the user; for a
    /// name without one it makes a verifier up, always the same, and gives no user.
    pub fn step(
        &mut self,
        message: &[u8],
        look_up: impl FnOnce(&[u8], Hash) -> (Verifier, Option<U>),
    ) -> Outcome<U> {
        let next = match std::mem::replace(&mut self.stage, Stage::First) {
            Stage::First => self.first(message, look_up),
            Stage::Final(proving) => self.prove(*proving, message),
            Stage::Confirming(user) if message.is_empty() => return Outcome::Accepted(user),
            Stage::Confirming(_) => None,
        };
        let Some((stage, challenge)) = next else { return Outcome::Refused };
        self.stage = stage;
        Outcome::Challenge(challenge)
    }

    fn first(
        &self,
        message: &[u8],
        look_up: impl FnOnce(&[u8], Hash) -> (Verifier, Option<U>),
    ) -> Option<(Stage<U>, Vec<u8>)> {
        let first = ClientFirst::parse(message)?;
        let nonce = [first.nonce, self.nonce.as_bytes()].concat();
        let (verifier, user) = look_up(&first.name, self.hash);
        let (salt, iterations) = (STANDARD.encode(&verifier.salt), verifier.iterations);
        let rest = format!(",s={salt},i={iterations}");
        let challenge = [b"r=", nonce.as_slice(), rest.as_bytes()].concat();
        let proving = Proving {
            gs2_header: first.gs2_header.to_vec(),
            signed: [first.bare, b",", &challenge].concat(),
            nonce,
            verifier,
            user,
        };
        Some((Stage::Final(Box::new(proving)), challenge))
    }

    fn prove(&self, proving: Proving<U>, message: &[u8]) -> Option<(Stage<U>, Vec<u8>)> {
        let hash = self.hash;
        let at = memchr::memmem::rfind(message, b",p=")?;
        let (without_proof, proof) = (message.get(..at)?, message.get(at + 3..)?);
        let (binding, nonce) = split(without_proof, b',')?;
        let header = STANDARD.encode(&proving.gs2_header);
        if binding.strip_prefix(b"c=")? != header.as_bytes()
            || nonce.strip_prefix(b"r=")? != proving.nonce
        {
            return None;
        }
        let proof = hash.whole_key(&STANDARD.decode(proof).ok()?)?;
        let signed = [&proving.signed, &b","[..], without_proof].concat();
        let verifier = &proving.verifier;
        let client_key = hash.mac(verifier.stored_key.bytes(), &signed).xor(&proof);
        let is_proven = hash.of(&client_key) == verifier.stored_key;
        let user = proving.user.filter(|_| is_proven)?;
        let signature = STANDARD.encode(hash.mac(verifier.server_key.bytes(), &signed).bytes());
        Some((Stage::Confirming(user), format!("v={signature}").into_bytes()))
    }
}

/// The client's first message.
struct ClientFirst<'m> {
    gs2_header: &'m [u8],
    /// The rest of it.
    bare: &'m [u8],
    name: Vec<u8>,
    nonce: &'m [u8],
}

impl<'m> ClientFirst<'m> {
    fn parse(message: &'m [u8]) -> Option<Self> {
        let (flag, rest) = split(message, b',')?;
        let (authzid, bare) = split(rest, b',')?;
        // `y`: the client could bind to the channel and sees that the server cannot, which is
        // correct. `p=..` would be an error.
        if !matches!(flag, b"n" | b"y") {
            return None;
        }
        let gs2_header = message.get(..message.len() - bare.len())?;
        let (name, rest) = split(bare, b',')?;
        let name = unescape(name.strip_prefix(b"n=")?)?;
        let nonce = split(rest, b',').map_or(rest, |(nonce, _)| nonce).strip_prefix(b"r=")?;
        let is_as_oneself = authzid.is_empty() || unescape(authzid.strip_prefix(b"a=")?)? == name;
        let is_printable = nonce.iter().all(u8::is_ascii_graphic);
        let is_whole = !name.is_empty() && !nonce.is_empty() && is_printable && is_as_oneself;
        is_whole.then_some(Self { gs2_header, bare, name, nonce })
    }
}

/// Removes the escapes of `,` and `=` in a name.
fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        plain.push(match (byte, after) {
            (b'=', [b'2', b'C', ..]) => b',',
            (b'=', [b'3', b'D', ..]) => b'=',
            (b'=', _) => return None,
            _ => byte,
        });
        if byte == b'=' {
            rest = rest.get(2..)?;
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::Client;

    const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();

    /// The password of `user` is `pencil`; others do not exist.
    fn look_up(name: &[u8], hash: Hash) -> (Verifier, Option<()>) {
        let verifier = Verifier::derive(hash, ITERATIONS, b"salt", b"pencil");
        (verifier, (name == b"user").then_some(()))
    }

    fn server(hash: Hash) -> Server<()> {
        Server::new(hash).unwrap()
    }

    fn log_in(hash: Hash, name: &str, password: &str) -> Outcome<()> {
        let (mut server, client) = (server(hash), Client::new(hash, name, password).unwrap());
        let first = server.step(client.first().as_bytes(), look_up);
        let Outcome::Challenge(challenge) = first else { panic!("{first:?}") };
        let (proof, proven) = client.prove(&challenge, 4096).unwrap();
        match server.step(proof.as_bytes(), look_up) {
            Outcome::Challenge(answer) => {
                assert!(proven.is_answered_by(&answer));
                server.step(b"", look_up)
            }
            other => other,
        }
    }

    #[test]
    fn only_the_correct_password_is_accepted() {
        for hash in [Hash::Sha1, Hash::Sha256] {
            assert!(matches!(log_in(hash, "user", "pencil"), Outcome::Accepted(())));
            assert!(matches!(log_in(hash, "user", "pencils"), Outcome::Refused));
            assert!(matches!(log_in(hash, "nobody", "pencil"), Outcome::Refused));
        }
    }

    #[test]
    fn a_malformed_message_is_refused() {
        for first in [
            "",
            "n",
            "n,",
            "n,,",
            "n,,n=user",
            "n,,n=user,",
            "n,,n=user,r=",
            "n,,n=,r=x",
            "p=tls-unique,,n=user,r=x",
            "n,a=other,n=user,r=x",
            "n,,n=us=er,r=x",
            "n,,m=1,n=user,r=x",
            "n,,n=user,r=x\u{7f}",
        ] {
            let outcome = server(Hash::Sha256).step(first.as_bytes(), look_up);
            assert!(matches!(outcome, Outcome::Refused), "{first:?}: {outcome:?}");
        }
        for second in ["", "c=biws", "c=biws,r=x,p=AAAA", ",p=", "c=eSws,r=x,p=", "p=x,c=biws"] {
            let mut server = server(Hash::Sha256);
            let first = server.step(b"n,,n=user,r=x", look_up);
            assert!(matches!(first, Outcome::Challenge(_)));
            let outcome = server.step(second.as_bytes(), look_up);
            assert!(matches!(outcome, Outcome::Refused), "{second:?}");
        }
    }

    /// A proof counts once: with another nonce a recorded one is useless.
    #[test]
    fn a_replayed_proof_is_refused() {
        let client = Client::new(Hash::Sha256, "user", "pencil").unwrap();
        let first = client.first();
        let (mut one, mut other) = (server(Hash::Sha256), server(Hash::Sha256));
        let Outcome::Challenge(challenge) = one.step(first.as_bytes(), look_up) else { panic!() };
        let (proof, _) = client.prove(&challenge, 4096).unwrap();
        other.step(first.as_bytes(), look_up);
        assert!(matches!(other.step(proof.as_bytes(), look_up), Outcome::Refused));
        assert!(matches!(one.step(proof.as_bytes(), look_up), Outcome::Challenge(_)));
    }

    #[test]
    fn escaped_names_are_decoded() {
        assert_eq!(unescape(b"a=2Cb=3D").as_deref(), Some(&b"a,b="[..]));
        assert_eq!(unescape(b"a=2c"), None);
    }
}
