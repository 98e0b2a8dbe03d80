//! The TLS handshake and login that simulated servers require. They count clients that send
//! anything else first.

use std::io::{Read, Write};
use std::sync::Arc;

use proto::binary::reply::{write_done, write_error, write_value};
use proto::binary::{self, Command, Status};
use proto::text::{self, Parsed};
use proto::{KeyBuf, Wire};
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection};
use testkit::Rng;

use super::lies::{Identifies, Reply};

/// The user with the right to log in.
pub const USER: &str = "app";
/// The password of [`USER`].
pub const PASSWORD: &str = "secret";

/// The requirements at the start of every connection to a server.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Connections start with a TLS handshake.
    pub tls: Option<Arc<ServerConfig>>,
    /// Connections then log in.
    pub has_login: bool,
}

/// The handshake and login of one connection.
#[derive(Debug)]
pub(crate) struct Handshake {
    tls: Option<ServerConnection>,
    /// No login has succeeded yet; nothing else is accepted.
    pub(crate) awaits_login: bool,
}

/// The reply to a first command.
pub(crate) struct LoginReply {
    /// Bytes of the command.
    pub(crate) len: usize,
    pub(crate) reply: Reply,
    /// The command was not a login, or had a wrong password.
    pub(crate) is_wrong: bool,
}

impl Handshake {
    pub(crate) fn new(rules: &Rules) -> Self {
        let session = |config| ServerConnection::new(Arc::clone(config)).expect("a session");
        Self { tls: rules.tls.as_ref().map(session), awaits_login: rules.has_login }
    }

    /// Decrypts bytes that arrive.
    pub(crate) fn open(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let Some(tls) = &mut self.tls else { return Ok(bytes.to_vec()) };
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes).expect("memory");
            let room = tls.process_new_packets()?.plaintext_bytes_to_read();
            let begin = plain.len();
            plain.resize(begin + room, 0);
            tls.reader().read_exact(&mut plain[begin..]).expect("what was told");
        }
        Ok(plain)
    }

    /// Encrypts a reply; with `ends`, the end of the connection as well.
    pub(crate) fn seal(&mut self, plain: Vec<u8>, ends: bool) -> Vec<u8> {
        let Some(tls) = &mut self.tls else { return plain };
        tls.set_buffer_limit(None);
        tls.writer().write_all(&plain).expect("memory");
        if ends {
            tls.send_close_notify();
        }
        let mut bytes = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut bytes).expect("memory");
        }
        bytes
    }

    /// Reads a login, which the server may refuse in any case. `None` while it is incomplete.
    pub(crate) fn login(&mut self, input: &[u8], refuses: bool) -> Option<LoginReply> {
        match Wire::of(*input.first()?) {
            Wire::Binary => self.packet(input, refuses),
            Wire::Text => self.line(input, refuses),
        }
    }

    fn line(&mut self, input: &[u8], refuses: bool) -> Option<LoginReply> {
        let end = input.iter().position(|byte| *byte == b'\n')? + 1;
        let mut key_buf = KeyBuf::default();
        let parsed = text::parse(&input[..end], &mut key_buf);
        let Parsed::Request { request: text::Request::Store(store), .. } = parsed else {
            let reply = Reply::new(Identifies::Nothing, b"CLIENT_ERROR unauthenticated\r\n");
            return Some(LoginReply { len: end, reply, is_wrong: true });
        };
        let data = input.get(end..end + store.len as usize)?;
        let len = end + data.len() + 2;
        if input.len() < len {
            return None;
        }
        let is_right = data == format!("{USER} {PASSWORD}").as_bytes();
        self.awaits_login = !is_right || refuses;
        let words: &[u8] = if self.awaits_login {
            b"CLIENT_ERROR authentication failure\r\n"
        } else {
            b"STORED\r\n"
        };
        Some(LoginReply { len, reply: Reply::new(Identifies::Nothing, words), is_wrong: !is_right })
    }

    /// PLAIN only: tests of SCRAM are elsewhere.
    fn packet(&mut self, input: &[u8], refuses: bool) -> Option<LoginReply> {
        let binary::Parsed::Request { request, consumed } = binary::parse(input) else {
            return None;
        };
        let mut out = Vec::new();
        let mut is_wrong = false;
        match request.command {
            Command::SaslList => {
                write_value(&mut out, &request.header, Status::Ok, 0, b"", b"PLAIN");
            }
            Command::SaslAuth { mechanism: b"PLAIN", data } => {
                is_wrong = data != format!("\0{USER}\0{PASSWORD}").as_bytes();
                self.awaits_login = is_wrong || refuses;
                match self.awaits_login {
                    true => write_error(&mut out, &request.header, Status::AuthFailure),
                    false => write_done(&mut out, &request.header, 0),
                }
            }
            _ => {
                is_wrong = true;
                write_error(&mut out, &request.header, Status::AuthFailure);
            }
        }
        Some(LoginReply { len: consumed, reply: Reply::packet(&out), is_wrong })
    }
}

/// A configuration of one version of TLS, with a self-signed certificate. Lengths on the wire do
/// not vary, so that equal seeds are equal runs.
pub fn tls(rng: &mut Rng) -> Arc<ServerConfig> {
    let seed: Vec<u8> = (0..4).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("32 bytes");
    let key = [b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20", &seed[..]];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.concat()));
    let version = if rng.one_in(2) { &TLS13 } else { &TLS12 };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_no_client_auth();
    Arc::new(builder.with_single_cert(vec![certificate(&pair)], key).expect("a certificate"))
}

/// A self-signed certificate (RFC 5280) without a name.
fn certificate(pair: &Ed25519KeyPair) -> CertificateDer<'static> {
    const NAME: [u8; 2] = [0x30, 0];
    let ed25519 = b"\x30\x05\x06\x03\x2b\x65\x70";
    let bits = |bytes: &[u8]| tagged(0x03, &[&[0], bytes]);
    let lasts = tagged(0x30, &[b"\x17\x0d", b"200101000000Z", b"\x17\x0d", b"490101000000Z"]);
    let public = tagged(0x30, &[ed25519, &bits(pair.public_key().as_ref())]);
    let head = b"\xa0\x03\x02\x01\x02\x02\x01\x01";
    let signed = tagged(0x30, &[head, ed25519, &NAME, &lasts, &NAME, &public]);
    let signature = bits(pair.sign(&signed).as_ref());
    CertificateDer::from(tagged(0x30, &[&signed, ed25519, &signature]))
}

/// A value of DER.
fn tagged(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let [high, low] = u16::try_from(content.len()).expect("nothing long").to_be_bytes();
    let head = match content.len() {
        ..0x80 => vec![tag, low],
        0x80..0x100 => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [head, content].concat()
}
