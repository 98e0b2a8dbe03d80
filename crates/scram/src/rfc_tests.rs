//! The examples of RFC 5802, section 5 (SHA-1), and RFC 7677, section 3 (SHA-256), for both sides.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::{Client, Hash, Outcome, Server, Verifier};

struct Example {
    hash: Hash,
    nonce: &'static str,
    servers_nonce: &'static str,
    salt: &'static str,
    proof: &'static str,
    signature: &'static str,
}

const EXAMPLES: [Example; 2] = [
    Example {
        hash: Hash::Sha1,
        nonce: "fyko+d2lbbFgONRv9qkxdawL",
        servers_nonce: "3rfcNHYJY1ZVvWVs7j",
        salt: "QSXCR+Q6sek8bf92",
        proof: "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        signature: "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    },
    Example {
        hash: Hash::Sha256,
        nonce: "rOprNGfwEbeRWgbNEkqO",
        servers_nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        salt: "W22ZaJ0SNY7soEsUEjb6gQ==",
        proof: "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        signature: "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    },
];

impl Example {
    fn first(&self) -> String {
        format!("n,,n=user,r={}", self.nonce)
    }

    fn challenge(&self) -> String {
        format!("r={}{},s={},i=4096", self.nonce, self.servers_nonce, self.salt)
    }

    fn last(&self) -> String {
        format!("c=biws,r={}{},p={}", self.nonce, self.servers_nonce, self.proof)
    }

    fn answer(&self) -> String {
        format!("v={}", self.signature)
    }
}

#[test]
fn client_messages_match_the_rfc_examples() {
    for example in EXAMPLES {
        let nonce = example.nonce.to_owned();
        let client = Client::with_nonce(example.hash, "user", "pencil", nonce);
        assert_eq!(client.first(), example.first());
        let (last, proven) = client.prove(example.challenge().as_bytes(), 4096).unwrap();
        assert_eq!(last, example.last());
        assert!(proven.is_answered_by(example.answer().as_bytes()));
        // A server that accepts without its own signature does not know the password.
        let other = format!("v={}", example.proof);
        for answer in ["", "v=", "v=AAAA", "e=invalid-proof", other.as_str()] {
            assert!(!proven.is_answered_by(answer.as_bytes()), "{answer}");
        }
    }
}

#[test]
fn server_messages_match_the_rfc_examples() {
    for example in EXAMPLES {
        let salt = STANDARD.decode(example.salt).unwrap();
        let iterations = NonZeroU32::new(4096).unwrap();
        let verifier = Verifier::derive(example.hash, iterations, &salt, b"pencil");
        let look_up = |name: &[u8], hash| {
            assert_eq!((name, hash), (&b"user"[..], example.hash));
            (verifier.clone(), Some("user"))
        };
        let mut server = Server::with_nonce(example.hash, example.servers_nonce.to_owned());
        let mut step = |message: &str| server.step(message.as_bytes(), look_up);
        let Outcome::Challenge(challenge) = step(&example.first()) else { panic!() };
        assert_eq!(challenge, example.challenge().as_bytes());
        let Outcome::Challenge(answer) = step(&example.last()) else { panic!() };
        assert_eq!(answer, example.answer().as_bytes());
        assert!(matches!(step(""), Outcome::Accepted("user")));
    }
}
