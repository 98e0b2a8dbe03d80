//! The client's side of SASL in packets of the binary protocol: SCRAM-SHA-256 (RFC 5802, RFC 7677)
//! if the server offers it, so that the password is never sent; else PLAIN.
//!
//! ```text
//!     list -> mechanisms        auth PLAIN: name, password -> done
//!                               auth SCRAM: n,,n=name,r=ours -> r=ours+its,s=salt,i=iterations
//!                               step: c=biws,r=ours+its,p=proof -> v=signature
//!                               step: nothing -> done
//! ```
//!
//! It uses no socket and no clock. Each connection costs a few thousand hashes.

use proto::binary::answer::Response;
use proto::binary::opcode::{SASL_AUTH, SASL_LIST, SASL_STEP};
use proto::binary::{Status, request};
use scram::{Client, ClientError, Hash, NoRandomness, Proven};
use thiserror::Error;

use crate::login::Login;
use narrow::to_u32;

const PLAIN: &[u8] = b"PLAIN";
const SCRAM: &[u8] = b"SCRAM-SHA-256";

/// Maximum number of iterations that a server may request: some 50 ms of the worker's time.
const ITERATIONS_MAX: u32 = 200_000;

/// An ongoing login.
#[derive(Debug)]
pub(crate) struct Sasl {
    login: Login,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Waits for the mechanisms.
    Listing,
    /// Waits for the answer to name and password.
    Plain,
    /// Waits for salt and iterations.
    First(Client),
    /// Waits for the server's signature.
    Final(Proven),
    /// Waits for the server's last message.
    Confirming,
}

/// The result of a response.
#[derive(Debug)]
pub(crate) enum Step {
    /// The login is accepted.
    Done,
    /// Send these bytes.
    Send(Vec<u8>),
}

/// The reason why there is no login.
#[derive(Debug, Error)]
pub(crate) enum SaslError {
    #[error("the login is answered wrongly: {0}")]
    Challenge(#[from] ClientError),
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    #[error("the login is answered by something out of shape")]
    OutOfShape,
    #[error("the login is refused")]
    Refused,
    #[error("the login is refused: {}", .0.text())]
    RefusedWith(Status),
    #[error("the login is answered by something else")]
    Unasked,
    #[error("the server does not know the password")]
    Unproven,
}

impl Sasl {
    /// Creates the login and its first packet.
    pub(crate) fn new(login: Login) -> (Self, Vec<u8>) {
        (Self { login, stage: Stage::Listing }, packet(SASL_LIST, b"", b""))
    }

    /// Takes the server's next response.
    ///
    /// # Errors
    ///
    /// The reason why there is no login.
    pub(crate) fn take(&mut self, response: &Response<'_>) -> Result<Step, SaslError> {
        let expected = match self.stage {
            Stage::Listing => SASL_LIST,
            Stage::Plain | Stage::First(_) => SASL_AUTH,
            Stage::Final(_) | Stage::Confirming => SASL_STEP,
        };
        if response.opcode != expected || response.opaque != 0 {
            return Err(SaslError::Unasked);
        }
        let status = match (&self.stage, response.status) {
            // A server need not list them; the login shows whether it accepts name and password.
            (Stage::Listing, _) => Status::Ok,
            (_, Some(status @ (Status::Ok | Status::AuthContinue))) => status,
            (_, Some(status)) => return Err(SaslError::RefusedWith(status)),
            (_, None) => return Err(SaslError::Refused),
        };
        match (std::mem::replace(&mut self.stage, Stage::Confirming), status) {
            (Stage::Listing, _) => self.begin(response),
            (Stage::First(client), Status::AuthContinue) => {
                let (proof, proven) = client.prove(response.value, ITERATIONS_MAX)?;
                self.stage = Stage::Final(proven);
                Ok(Step::Send(packet(SASL_STEP, SCRAM, proof.as_bytes())))
            }
            (Stage::Final(proven), _) => {
                if !proven.is_answered_by(response.value) {
                    return Err(SaslError::Unproven);
                }
                match status {
                    Status::Ok => Ok(Step::Done),
                    _ => Ok(Step::Send(packet(SASL_STEP, SCRAM, b""))),
                }
            }
            (Stage::Plain | Stage::Confirming, Status::Ok) => Ok(Step::Done),
            _ => Err(SaslError::OutOfShape),
        }
    }

    fn begin(&mut self, response: &Response<'_>) -> Result<Step, SaslError> {
        let (user, password) = self.login.parts();
        let has_scram = response.status == Some(Status::Ok)
            && response.value.split(|byte| *byte == b' ').any(|name| name == SCRAM);
        if !has_scram {
            self.stage = Stage::Plain;
            let message = ["\0", user, "\0", password].concat();
            return Ok(Step::Send(packet(SASL_AUTH, PLAIN, message.as_bytes())));
        }
        let client = Client::new(Hash::Sha256, user, password)?;
        let first = client.first();
        self.stage = Stage::First(client);
        Ok(Step::Send(packet(SASL_AUTH, SCRAM, first.as_bytes())))
    }
}

fn packet(opcode: u8, mechanism: &[u8], message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // A message of SCRAM: a name, random bytes and a proof.
    let len = to_u32(message.len());
    request::write(&mut out, opcode, 0, 0, b"", mechanism, len);
    out.extend_from_slice(message);
    out
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use scram::{Outcome, Verifier};

    use super::*;

    const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();

    fn response(opcode: u8, status: Status, value: &[u8]) -> Response<'_> {
        let (opaque, cas, extras, key): (_, _, &[u8], &[u8]) = (0, 0, b"", b"");
        Response { opcode, status: Some(status), opaque, cas, extras, key, value }
    }

    fn sent(step: Step) -> Vec<u8> {
        match step {
            Step::Send(packet) => packet.get(24..).unwrap_or_default().to_vec(),
            Step::Done => panic!("done"),
        }
    }

    #[test]
    fn plain_sends_name_and_password() {
        let (mut sasl, first) = Sasl::new(Login::new("app", "a b"));
        assert_eq!(first.get(..2), Some(&[0x80, SASL_LIST][..]));
        let step = sasl.take(&response(SASL_LIST, Status::Ok, b"PLAIN LOGIN")).unwrap();
        assert_eq!(sent(step), b"PLAIN\0app\0a b");
        assert!(matches!(sasl.take(&response(SASL_AUTH, Status::Ok, b"")), Ok(Step::Done)));
    }

    #[test]
    fn a_refused_login_is_reported() {
        for status in [Status::AuthFailure, Status::UnknownCommand, Status::AuthContinue] {
            let (mut sasl, _) = Sasl::new(Login::new("app", "secret"));
            drop(sasl.take(&response(SASL_LIST, Status::UnknownCommand, b"no")).unwrap());
            let why = sasl.take(&response(SASL_AUTH, status, b"no")).unwrap_err().to_string();
            assert!(why.starts_with("the login is ") && !why.contains("secret"), "{why}");
        }
        let (mut sasl, _) = Sasl::new(Login::new("app", "secret"));
        assert!(sasl.take(&response(SASL_AUTH, Status::Ok, b"")).is_err());
    }

    #[test]
    fn scram_authenticates_both_sides() {
        let salt = b"salt of 16 bytes";
        let verifier = Verifier::derive(Hash::Sha256, ITERATIONS, salt, b"pencil");
        let look_up = |name: &[u8], _: Hash| (verifier.clone(), Some(name.to_vec()));
        // Up to the packet with the proof; also returns the server's side of the login.
        let prove = || {
            let (mut sasl, _) = Sasl::new(Login::new("us=er,", "pencil"));
            let mechanisms = response(SASL_LIST, Status::Ok, b"SCRAM-SHA-1 SCRAM-SHA-256 PLAIN");
            let first = sent(sasl.take(&mechanisms).unwrap());
            let first = first.strip_prefix(SCRAM).unwrap();
            let mut server = scram::Server::new(Hash::Sha256).unwrap();
            let Outcome::Challenge(text) = server.step(first, look_up) else { panic!() };
            let answer = response(SASL_AUTH, Status::AuthContinue, &text);
            let proof = sent(sasl.take(&answer).unwrap());
            (sasl, server, proof.strip_prefix(SCRAM).unwrap().to_vec())
        };
        let (mut sasl, mut server, proof) = prove();
        let Outcome::Challenge(good) = server.step(&proof, look_up) else { panic!() };
        let step = sasl.take(&response(SASL_STEP, Status::AuthContinue, &good)).unwrap();
        assert_eq!(sent(step), SCRAM);
        assert!(matches!(server.step(b"", look_up), Outcome::Accepted(name) if name == b"us=er,"));
        assert!(matches!(sasl.take(&response(SASL_STEP, Status::Ok, b"")), Ok(Step::Done)));
        // A server that accepts without proving itself is not trusted.
        for said in [&b""[..], b"v=", b"v=AAAA", b"e=invalid-proof"] {
            let (mut sasl, ..) = prove();
            assert!(sasl.take(&response(SASL_STEP, Status::Ok, said)).is_err());
        }
    }

    #[test]
    fn a_malformed_challenge_is_refused() {
        for iterations in ["4096", "200001"] {
            let (mut sasl, _) = Sasl::new(Login::new("user", "pencil"));
            let first = sent(sasl.take(&response(SASL_LIST, Status::Ok, SCRAM)).unwrap());
            let text = String::from_utf8(first).unwrap();
            let nonce = text.split(",r=").nth(1).unwrap();
            let said = format!("r={nonce}x,s=AAAA,i={iterations}");
            let step = sasl.take(&response(SASL_AUTH, Status::AuthContinue, said.as_bytes()));
            assert_eq!(step.is_ok(), iterations == "4096", "{step:?}");
        }
    }
}
