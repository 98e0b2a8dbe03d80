//! What servers of the simulation want before they listen: TLS, a login. Whoever says something else first is a stranger.

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

use super::lies::{Reply, Tells};

/// Who may come in.
pub const USER: &str = "app";
/// The password of [`USER`].
pub const PASSWORD: &str = "secret";

/// What all connections have to begin with.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Connections begin with a TLS handshake.
    pub tls: Option<Arc<ServerConfig>>,
    /// Connections then log in.
    pub has_login: bool,
}

/// One connection's way in.
#[derive(Debug)]
pub(crate) struct Door {
    tls: Option<ServerConnection>,
    /// It listens to nothing but a login.
    pub(crate) is_shut: bool,
}

/// What somebody said at a door.
pub(crate) struct Said {
    /// Its bytes.
    pub(crate) len: usize,
    pub(crate) reply: Reply,
    /// It was no login, or not the right one.
    pub(crate) is_stranger: bool,
}

impl Door {
    pub(crate) fn new(rules: &Rules) -> Self {
        let session = |config| ServerConnection::new(Arc::clone(config)).expect("a session");
        Self { tls: rules.tls.as_ref().map(session), is_shut: rules.has_login }
    }

    /// What bytes that arrive say.
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

    /// What is sent to say this; with `ends`, that nothing follows as well.
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

    /// Hears a login, which the server may refuse whatever it is; `None`: there is more to come.
    pub(crate) fn hear(&mut self, input: &[u8], refuses: bool) -> Option<Said> {
        match Wire::of(*input.first()?) {
            Wire::Binary => self.packet(input, refuses),
            Wire::Text => self.line(input, refuses),
        }
    }

    fn line(&mut self, input: &[u8], refuses: bool) -> Option<Said> {
        let end = input.iter().position(|byte| *byte == b'\n')? + 1;
        let mut key_buf = KeyBuf::default();
        let parsed = text::parse(&input[..end], &mut key_buf);
        let Parsed::Request { request: text::Request::Store(store), .. } = parsed else {
            let reply = Reply::new(Tells::Nothing, b"CLIENT_ERROR unauthenticated\r\n");
            return Some(Said { len: end, reply, is_stranger: true });
        };
        let data = input.get(end..end + store.len as usize)?;
        let len = end + data.len() + 2;
        if input.len() < len {
            return None;
        }
        let is_right = data == format!("{USER} {PASSWORD}").as_bytes();
        self.is_shut = !is_right || refuses;
        let words: &[u8] =
            if self.is_shut { b"CLIENT_ERROR authentication failure\r\n" } else { b"STORED\r\n" };
        Some(Said { len, reply: Reply::new(Tells::Nothing, words), is_stranger: !is_right })
    }

    /// PLAIN alone: of SCRAM, another's tests show that it fits.
    fn packet(&mut self, input: &[u8], refuses: bool) -> Option<Said> {
        let binary::Parsed::Request { request, consumed } = binary::parse(input) else {
            return None;
        };
        let mut out = Vec::new();
        let mut is_stranger = false;
        match request.command {
            Command::SaslList => {
                write_value(&mut out, &request.header, Status::Ok, 0, b"", b"PLAIN");
            }
            Command::SaslAuth { mechanism: b"PLAIN", data } => {
                is_stranger = data != format!("\0{USER}\0{PASSWORD}").as_bytes();
                self.is_shut = is_stranger || refuses;
                match self.is_shut {
                    true => write_error(&mut out, &request.header, Status::AuthFailure),
                    false => write_done(&mut out, &request.header, 0),
                }
            }
            _ => {
                is_stranger = true;
                write_error(&mut out, &request.header, Status::AuthFailure);
            }
        }
        Some(Said { len: consumed, reply: Reply::packet(&out), is_stranger })
    }
}

/// One version of TLS, with a certificate of its own. The lengths of what is sent do not vary, so that the same seed is the same run.
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

/// Signed by itself, of nobody, for ever (RFC 5280).
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
