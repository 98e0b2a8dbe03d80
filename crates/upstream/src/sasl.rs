//! The client's side of SASL in packets of the binary protocol: SCRAM-SHA-256 (RFC 5802, RFC 7677)
//! where the server offers it, so that the password is never sent; else PLAIN.
//!
//! ```text
//!     list -> mechanisms        auth PLAIN: name, password -> done
//!                               auth SCRAM: n,,n=name,r=ours -> r=ours+its,s=salt,i=iterations
//!                               step: c=biws,r=ours+its,p=proof -> v=signature    step: nothing -> done
//! ```
//!
//! No socket, no clock; a few thousand hashes of work for each connection. Names and passwords are
//! taken as bytes, without `SASLprep`.

use std::num::NonZeroU32;

use proto::binary::answer::Response;
use proto::binary::opcode::{SASL_AUTH, SASL_LIST, SASL_STEP};
use proto::binary::{Status, request};
use proto::{KeyBuf, base64};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use crate::login::Login;

const PLAIN: &[u8] = b"PLAIN";
const SCRAM: &[u8] = b"SCRAM-SHA-256";

/// Iterations that a server may ask for: some 50 ms of the worker's time.
const ITERATIONS_MAX: u32 = 200_000;

/// Bytes of our part of the nonce.
const NONCE_BYTES: usize = 18;

/// A login under way.
#[derive(Debug)]
pub(crate) struct Sasl {
    login: Login,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The mechanisms are awaited.
    Listing,
    /// The answer to name and password is.
    Plain,
    /// Salt and iterations are, for this first message and this nonce.
    First { bare: String, nonce: String },
    /// The server's signature is, which must be this.
    Final(hmac::Tag),
    /// Its last word is.
    Confirming,
}

/// What comes of a response.
#[derive(Debug)]
pub(crate) enum Step {
    /// The login is accepted.
    Done,
    /// Send this.
    Send(Vec<u8>),
}

impl Sasl {
    /// With what to begin.
    pub(crate) fn new(login: Login) -> (Self, Vec<u8>) {
        (Self { login, stage: Stage::Listing }, packet(SASL_LIST, b"", b""))
    }

    /// Takes the server's next response.
    ///
    /// # Errors
    ///
    /// Why there is no login, for people.
    pub(crate) fn take(&mut self, response: &Response<'_>) -> Result<Step, String> {
        let expected = match self.stage {
            Stage::Listing => SASL_LIST,
            Stage::Plain | Stage::First { .. } => SASL_AUTH,
            Stage::Final(_) | Stage::Confirming => SASL_STEP,
        };
        if response.opcode != expected || response.opaque != 0 {
            return Err("the login is answered by something else".to_owned());
        }
        let status = match (&self.stage, response.status) {
            // A server need not tell; whether it takes a name and a password is seen.
            (Stage::Listing, _) => Status::Ok,
            (_, Some(status @ (Status::Ok | Status::AuthContinue))) => status,
            (_, Some(status)) => return Err(format!("the login is refused: {}", status.text())),
            (_, None) => return Err("the login is refused".to_owned()),
        };
        match (std::mem::replace(&mut self.stage, Stage::Confirming), status) {
            (Stage::Listing, _) => self.begin(response),
            (Stage::First { bare, nonce }, Status::AuthContinue) => {
                self.prove(&bare, &nonce, response.value).ok_or_else(out_of_shape)
            }
            (Stage::Final(signature), _) => {
                let mut buf = KeyBuf::new();
                let said = response.value.strip_prefix(b"v=");
                let said = said.and_then(|said| base64::decode(said, &mut buf));
                if said != Some(signature.as_ref()) {
                    return Err("the server does not know the password".to_owned());
                }
                match status {
                    Status::Ok => Ok(Step::Done),
                    _ => Ok(Step::Send(packet(SASL_STEP, SCRAM, b""))),
                }
            }
            (Stage::Plain | Stage::Confirming, Status::Ok) => Ok(Step::Done),
            _ => Err(out_of_shape()),
        }
    }

    fn begin(&mut self, response: &Response<'_>) -> Result<Step, String> {
        let (user, password) = self.login.parts();
        let has_scram = response.status == Some(Status::Ok)
            && response.value.split(|byte| *byte == b' ').any(|name| name == SCRAM);
        if !has_scram {
            self.stage = Stage::Plain;
            let message = ["\0", user, "\0", password].concat();
            return Ok(Step::Send(packet(SASL_AUTH, PLAIN, message.as_bytes())));
        }
        let mut bytes = [0; NONCE_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| "there is no randomness".to_owned())?;
        let nonce = in_base64(&bytes);
        let bare = format!("n={},r={nonce}", user.replace('=', "=3D").replace(',', "=2C"));
        let message = format!("n,,{bare}");
        self.stage = Stage::First { bare, nonce };
        Ok(Step::Send(packet(SASL_AUTH, SCRAM, message.as_bytes())))
    }

    /// The proof that the password is known, from salt and iterations. `None`: they are not in
    /// shape.
    fn prove(&mut self, bare: &str, nonce: &str, challenge: &[u8]) -> Option<Step> {
        let text = std::str::from_utf8(challenge).ok()?;
        let mut fields = text.split(',');
        let whole = fields.next()?.strip_prefix("r=").filter(|whole| whole.starts_with(nonce))?;
        let mut buf = KeyBuf::new();
        let salt = base64::decode(fields.next()?.strip_prefix("s=")?.as_bytes(), &mut buf)?;
        let iterations: NonZeroU32 = fields.next()?.strip_prefix("i=")?.parse().ok()?;
        if iterations.get() > ITERATIONS_MAX {
            return None;
        }
        let (_, password) = self.login.parts();
        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), &mut salted);
        let client_key = mac(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
        let server_key = mac(&salted, b"Server Key");
        let without_proof = format!("c=biws,r={whole}");
        let signed = format!("{bare},{text},{without_proof}");
        let signature = mac(stored_key.as_ref(), signed.as_bytes());
        let proof =
            client_key.as_ref().iter().zip(signature.as_ref()).map(|(one, other)| one ^ other);
        let proof = in_base64(&proof.collect::<Vec<u8>>());
        self.stage = Stage::Final(mac(server_key.as_ref(), signed.as_bytes()));
        let message = format!("{without_proof},p={proof}");
        Some(Step::Send(packet(SASL_STEP, SCRAM, message.as_bytes())))
    }
}

fn out_of_shape() -> String {
    "the login is answered by something out of shape".to_owned()
}

fn mac(key: &[u8], message: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message)
}

fn in_base64(bytes: &[u8]) -> String {
    let mut text = Vec::new();
    base64::encode(bytes, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

fn packet(opcode: u8, mechanism: &[u8], message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
    request::write(&mut out, opcode, 0, 0, b"", mechanism, len);
    out.extend_from_slice(message);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn plain_is_name_and_password() {
        let (mut sasl, first) = Sasl::new(Login::new("app", "a b"));
        assert_eq!(first.get(..2), Some(&[0x80, SASL_LIST][..]));
        let step = sasl.take(&response(SASL_LIST, Status::Ok, b"PLAIN LOGIN")).unwrap();
        assert_eq!(sent(step), b"PLAIN\0app\0a b");
        assert!(matches!(sasl.take(&response(SASL_AUTH, Status::Ok, b"")), Ok(Step::Done)));
    }

    #[test]
    fn a_refusal_says_so() {
        for status in [Status::AuthFailure, Status::UnknownCommand, Status::AuthContinue] {
            let (mut sasl, _) = Sasl::new(Login::new("app", "secret"));
            drop(sasl.take(&response(SASL_LIST, Status::UnknownCommand, b"no")).unwrap());
            let why = sasl.take(&response(SASL_AUTH, status, b"no")).unwrap_err();
            assert!(why.starts_with("the login is ") && !why.contains("secret"), "{why}");
        }
        let (mut sasl, _) = Sasl::new(Login::new("app", "secret"));
        assert!(sasl.take(&response(SASL_AUTH, Status::Ok, b"")).is_err());
    }

    /// RFC 7677's example, but for the nonce, which is ours: salt and iterations are its.
    #[test]
    fn scram_proves_and_wants_proof() {
        let challenge = |first: &[u8]| {
            let text = String::from_utf8(first.to_vec()).unwrap();
            let nonce = text.split(",r=").nth(1).unwrap();
            format!("r={nonce}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
        };
        let begin = || {
            let (mut sasl, _) = Sasl::new(Login::new("us=er,", "pencil"));
            let mechanisms = response(SASL_LIST, Status::Ok, b"SCRAM-SHA-1 SCRAM-SHA-256 PLAIN");
            let first = sent(sasl.take(&mechanisms).unwrap());
            assert!(first.starts_with(b"SCRAM-SHA-256n,,n=us=3Der=2C,r="));
            (sasl, challenge(&first))
        };
        let (mut sasl, text) = begin();
        let step = sasl.take(&response(SASL_AUTH, Status::AuthContinue, text.as_bytes())).unwrap();
        assert!(sent(step).starts_with(b"SCRAM-SHA-256c=biws,r="));
        let Stage::Final(signature) = &sasl.stage else { panic!("{:?}", sasl.stage) };
        let good = format!("v={}", in_base64(signature.as_ref()));
        let step = sasl.take(&response(SASL_STEP, Status::AuthContinue, good.as_bytes())).unwrap();
        assert_eq!(sent(step), b"SCRAM-SHA-256");
        assert!(matches!(sasl.take(&response(SASL_STEP, Status::Ok, b"")), Ok(Step::Done)));
        // Who accepts without a proof of his own is not believed.
        for said in [&b""[..], b"v=", b"v=AAAA", b"e=invalid-proof"] {
            let (mut sasl, text) = begin();
            drop(sasl.take(&response(SASL_AUTH, Status::AuthContinue, text.as_bytes())).unwrap());
            assert!(sasl.take(&response(SASL_STEP, Status::Ok, said)).is_err());
        }
    }

    #[test]
    fn a_challenge_out_of_shape_is_refused() {
        let parts = [
            "r=stranger,s=AAAA,i=4096",
            "r=NONCEx,s=,i=1",
            "r=NONCEx,s=AAAA,i=0",
            "r=NONCEx,s=AAAA,i=200001",
            "m=x,r=NONCEx,s=AAAA,i=1",
            "r=NONCEx",
            "",
        ];
        for part in parts {
            let (mut sasl, _) = Sasl::new(Login::new("user", "pencil"));
            let first = sent(sasl.take(&response(SASL_LIST, Status::Ok, SCRAM)).unwrap());
            let text = String::from_utf8(first).unwrap();
            let said = part.replace("NONCE", text.split(",r=").nth(1).unwrap());
            let step = sasl.take(&response(SASL_AUTH, Status::AuthContinue, said.as_bytes()));
            assert!(step.is_err(), "{part}");
        }
    }
}
