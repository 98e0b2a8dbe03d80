//! The server's side of SCRAM (RFC 5802, RFC 7677): a login in which the password is never sent.
//!
//! ```text
//!     client  n,,n=user,r=nonce
//!     server  r=nonce+ours,s=salt,i=iterations
//!     client  c=biws,r=nonce+ours,p=proof
//!     server  v=signature
//!     client  (nothing)
//! ```
//!
//! Sans I/O: bytes in, bytes out, a few hashes of work a step. A user that does not exist gets as
//! far as the proof, with a salt that is always the same, so that nobody learns who exists. There
//! is no channel binding. Names and passwords are taken as bytes: `SASLprep` is the client's
//! business.
//!
//! Written here, over well-kept hashes, because the library there is (rsasl 2.3) answers that a
//! user is unknown, and gives such a user another salt at each try.

use std::sync::Arc;

use proto::{KeyBuf, base64};

use super::secret::{Hash, Verifier, random, split};
use super::users::{User, Users};

/// A login under way.
#[derive(Debug)]
pub(crate) struct Exchange {
    hash: Hash,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The client's first message is awaited.
    First,
    /// Its proof is.
    Final(Box<Proving>),
    /// Its agreement is.
    Confirming(Arc<User>),
}

/// What the proof is judged by.
#[derive(Debug)]
struct Proving {
    /// The client's first message up to its name.
    gs2_header: Vec<u8>,
    /// The two messages so far, as they are signed.
    signed: Vec<u8>,
    nonce: Vec<u8>,
    verifier: Verifier,
    user: Option<Arc<User>>,
}

/// What came of a client's message.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Send this, and go on.
    Challenge(Vec<u8>),
    /// They are who they say.
    Accepted(Arc<User>),
    /// They are not, or do not speak SCRAM.
    Refused,
}

impl Exchange {
    pub(super) const fn new(hash: Hash) -> Self {
        Self { hash, stage: Stage::First }
    }

    /// Takes the client's next message.
    pub(super) fn step(&mut self, users: &Users, message: &[u8]) -> Outcome {
        let next = match std::mem::replace(&mut self.stage, Stage::First) {
            Stage::First => self.first(users, message),
            Stage::Final(proving) => self.prove(&proving, message),
            Stage::Confirming(user) if message.is_empty() => return Outcome::Accepted(user),
            Stage::Confirming(_) => None,
        };
        let Some((stage, challenge)) = next else { return Outcome::Refused };
        self.stage = stage;
        Outcome::Challenge(challenge)
    }

    fn first(&self, users: &Users, message: &[u8]) -> Option<(Stage, Vec<u8>)> {
        let first = ClientFirst::parse(message)?;
        let mut nonce = first.nonce.to_vec();
        base64::encode(&random::<NONCE_BYTES>().ok()?, &mut nonce);
        let (verifier, user) = users.verifier(&first.name, self.hash);
        let mut challenge = [b"r=", nonce.as_slice(), b",s="].concat();
        base64::encode(&verifier.salt, &mut challenge);
        challenge.extend_from_slice(format!(",i={}", verifier.iterations).as_bytes());
        let proving = Proving {
            gs2_header: first.gs2_header.to_vec(),
            signed: [first.bare, b",", &challenge].concat(),
            nonce,
            verifier,
            user,
        };
        Some((Stage::Final(Box::new(proving)), challenge))
    }

    fn prove(&self, proving: &Proving, message: &[u8]) -> Option<(Stage, Vec<u8>)> {
        let hash = self.hash;
        let at = memchr::memmem::rfind(message, b",p=")?;
        let (without_proof, proof) = (message.get(..at)?, message.get(at + 3..)?);
        let (binding, nonce) = split(without_proof, b',')?;
        let mut header = Vec::new();
        base64::encode(&proving.gs2_header, &mut header);
        if binding.strip_prefix(b"c=")? != header || nonce.strip_prefix(b"r=")? != proving.nonce {
            return None;
        }
        let mut buf = KeyBuf::new();
        let proof = base64::decode(proof, &mut buf).filter(|proof| proof.len() == hash.len())?;
        let signed = [&proving.signed, &b","[..], without_proof].concat();
        let verifier = &proving.verifier;
        let signature = hash.mac(verifier.stored_key.bytes(hash), &signed);
        let client_key = signature.xor(proof);
        let is_proven = hash.of(client_key.bytes(hash)).is_same(&verifier.stored_key);
        let user = proving.user.as_ref().filter(|_| is_proven)?;
        let mut answer = b"v=".to_vec();
        let ours = hash.mac(verifier.server_key.bytes(hash), &signed);
        base64::encode(ours.bytes(hash), &mut answer);
        Some((Stage::Confirming(Arc::clone(user)), answer))
    }
}

/// The client's first message.
struct ClientFirst<'m> {
    gs2_header: &'m [u8],
    /// Everything after it.
    bare: &'m [u8],
    name: Vec<u8>,
    nonce: &'m [u8],
}

impl<'m> ClientFirst<'m> {
    fn parse(message: &'m [u8]) -> Option<Self> {
        let (flag, rest) = split(message, b',')?;
        let (authzid, bare) = split(rest, b',')?;
        // `y`: the client could bind to the channel and sees that we cannot, which is so. `p=..`
        // would be a mistake.
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

/// Takes back the escapes of `,` and `=` in a name.
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

/// Bytes of our part of the nonce.
const NONCE_BYTES: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        Users::parse(b"user:pencil\n", None).unwrap()
    }

    /// What a client that knows `password` sends in answer to `challenge`.
    fn prove(hash: Hash, password: &[u8], first_bare: &str, challenge: &[u8]) -> Vec<u8> {
        let text = String::from_utf8(challenge.to_vec()).unwrap();
        let field =
            |name: &str| text.split(',').find_map(|field| field.strip_prefix(name)).unwrap();
        let mut buf = KeyBuf::new();
        let salt = base64::decode(field("s=").as_bytes(), &mut buf).unwrap();
        let iterations = field("i=").parse().unwrap();
        let verifier = Verifier::derive(hash, iterations, salt, password);
        let mut salted = vec![0; hash.len()];
        let algorithm = match hash {
            Hash::Sha1 => ring::pbkdf2::PBKDF2_HMAC_SHA1,
            Hash::Sha256 => ring::pbkdf2::PBKDF2_HMAC_SHA256,
        };
        ring::pbkdf2::derive(algorithm, iterations, salt, password, &mut salted);
        let client_key = hash.mac(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={}", field("r="));
        let signed = format!("{first_bare},{text},{without_proof}");
        let signature = hash.mac(verifier.stored_key.bytes(hash), signed.as_bytes());
        let mut sent = format!("{without_proof},p=").into_bytes();
        base64::encode(client_key.xor(signature.bytes(hash)).bytes(hash), &mut sent);
        sent
    }

    fn log_in(hash: Hash, name: &str, password: &[u8]) -> Outcome {
        let (users, mut exchange) = (users(), Exchange::new(hash));
        let bare = format!("n={name},r=fyko+d2lbbFgONRv9qkxdawL");
        let first = exchange.step(&users, format!("n,,{bare}").as_bytes());
        let Outcome::Challenge(challenge) = first else { panic!("{first:?}") };
        let sent = prove(hash, password, &bare, &challenge);
        match exchange.step(&users, &sent) {
            Outcome::Challenge(answer) => {
                assert!(answer.starts_with(b"v="));
                exchange.step(&users, b"")
            }
            other => other,
        }
    }

    #[test]
    fn who_knows_the_password_is_let_in() {
        for hash in [Hash::Sha1, Hash::Sha256] {
            assert!(matches!(log_in(hash, "user", b"pencil"), Outcome::Accepted(_)));
            assert!(matches!(log_in(hash, "user", b"pencils"), Outcome::Refused));
            assert!(matches!(log_in(hash, "nobody", b"pencil"), Outcome::Refused));
        }
    }

    #[test]
    fn a_message_out_of_shape_is_refused() {
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
            let outcome = Exchange::new(Hash::Sha256).step(&users(), first.as_bytes());
            assert!(matches!(outcome, Outcome::Refused), "{first:?}: {outcome:?}");
        }
        let users = users();
        for second in ["", "c=biws", "c=biws,r=x,p=AAAA", ",p=", "c=eSws,r=x,p=", "p=x,c=biws"] {
            let mut exchange = Exchange::new(Hash::Sha256);
            assert!(matches!(exchange.step(&users, b"n,,n=user,r=x"), Outcome::Challenge(_)));
            let outcome = exchange.step(&users, second.as_bytes());
            assert!(matches!(outcome, Outcome::Refused), "{second:?}");
        }
    }

    /// A proof counts once: what was recorded is of no use with another nonce.
    #[test]
    fn a_recorded_proof_is_refused() {
        let users = users();
        let bare = "n=user,r=same";
        let mut one = Exchange::new(Hash::Sha256);
        let Outcome::Challenge(challenge) = one.step(&users, format!("n,,{bare}").as_bytes())
        else {
            panic!("refused")
        };
        let proof = prove(Hash::Sha256, b"pencil", bare, &challenge);
        let mut other = Exchange::new(Hash::Sha256);
        other.step(&users, format!("n,,{bare}").as_bytes());
        assert!(matches!(other.step(&users, &proof), Outcome::Refused));
        assert!(matches!(one.step(&users, &proof), Outcome::Challenge(_)));
    }

    #[test]
    fn escaped_names_are_read() {
        assert_eq!(unescape(b"a=2Cb=3D").as_deref(), Some(&b"a,b="[..]));
        assert_eq!(unescape(b"a=2c"), None);
    }
}
