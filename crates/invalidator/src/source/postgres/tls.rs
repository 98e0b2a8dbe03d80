//! TLS for a connection, by the modes that libpq calls `sslmode`.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::BytesMut;
use certs::Trust;
use postgres_protocol::message::frontend;
use ring::digest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::ServerName;

use super::failure::Failure;
use crate::source::ssl_mode::SslMode;

/// A connection's bytes, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// A stream that is ready for the startup message.
pub(super) struct Secured {
    pub(super) stream: Box<dyn Stream>,
    pub(super) channel: Channel,
    /// True if the server's certificate was verified, so only the server can read the password.
    pub(super) is_verified: bool,
}

impl Secured {
    fn plain(tcp: TcpStream) -> Self {
        Self { stream: Box::new(tcp), channel: Channel::Unbound, is_verified: false }
    }
}

/// The channel that a SCRAM login can be bound to.
pub(super) enum Channel {
    /// No TLS, or a certificate for which no binding is defined.
    Unbound,
    /// `tls-server-end-point` (RFC 5929): a digest of the server's certificate.
    Certificate(Vec<u8>),
}

/// Asks the server for TLS according to `mode`, and does the handshake.
///
/// # Errors
///
/// When TLS is required and the server has none, the certificate is rejected, or `issuers` (PEM;
/// Mozilla's list where it is `None`) cannot be read.
pub(super) async fn secure(
    mut tcp: TcpStream,
    mode: SslMode,
    issuers: Option<&PathBuf>,
    host: &str,
) -> Result<Secured, Failure> {
    if mode == SslMode::Disable {
        return Ok(Secured::plain(tcp));
    }
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    tcp.write_all(&request).await?;
    // One byte and no more: an attacker on the path could have sent the bytes after it, and they
    // would be taken for the server's.
    match tcp.read_u8().await? {
        b'S' => {}
        b'N' if mode == SslMode::Prefer => return Ok(Secured::plain(tcp)),
        b'N' => return Err(Failure::NoTls),
        _ => return Err(Failure::Unexpected("the answer to a request for TLS")),
    }
    let trust = match mode {
        SslMode::VerifyFull => Trust::IssuersAndName(roots(issuers)?),
        SslMode::VerifyCa => Trust::Issuers(roots(issuers)?),
        SslMode::Disable | SslMode::Prefer | SslMode::Require => Trust::Any,
    };
    let config = certs::client_builder(trust)?.with_no_client_auth();
    let name =
        ServerName::try_from(host.to_owned()).map_err(|_| Failure::ServerName(host.to_owned()))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let digest = certificate.and_then(|certificate| end_point(certificate));
    let channel = digest.map_or(Channel::Unbound, Channel::Certificate);
    let is_verified = matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull);
    Ok(Secured { stream: Box::new(stream), channel, is_verified })
}

fn roots(issuers: Option<&PathBuf>) -> Result<RootCertStore, Failure> {
    match issuers {
        Some(file) => Ok(certs::roots(file)?),
        None => Ok(webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()),
    }
}

/// The digest of a certificate by its signature's hash, or by SHA-256 in place of MD5 and SHA-1
/// (RFC 5929, section 4.1). `None` for signatures without one such hash.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    // PKCS #1 (1.2.840.113549.1.1.x) and ECDSA (1.2.840.10045.4.x).
    let algorithm = match signature_algorithm(certificate)? {
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04"
        | b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05"
        | b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b"
        | b"\x2a\x86\x48\xce\x3d\x04\x01"
        | b"\x2a\x86\x48\xce\x3d\x04\x03\x02" => &digest::SHA256,
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c" | b"\x2a\x86\x48\xce\x3d\x04\x03\x03" => {
            &digest::SHA384
        }
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d" | b"\x2a\x86\x48\xce\x3d\x04\x03\x04" => {
            &digest::SHA512
        }
        _ => return None,
    };
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

/// The object identifier of the algorithm that signed a certificate (RFC 5280, section 4.1): a
/// sequence of the signed part, the algorithm and the signature.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    let (parts, _) = der_element(certificate, SEQUENCE)?;
    let (_, behind_signed_part) = der_element(parts, SEQUENCE)?;
    let (algorithm, _) = der_element(behind_signed_part, SEQUENCE)?;
    Some(der_element(algorithm, OBJECT_IDENTIFIER)?.0)
}

/// The contents of the first element in `bytes`, and the bytes after it; `None` if it has another
/// tag or is cut off.
fn der_element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The low bits count the following length bytes; no certificate needs more than three.
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    (found == tag).then(|| rest.split_at_checked(len))?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate's outline: a signed part of 200 bytes, the algorithm, a signature.
    fn outline(algorithm: &[u8]) -> Vec<u8> {
        let mut parts = [&[0x30, 0x81, 200][..], &[0; 200]].concat();
        let len = u8::try_from(algorithm.len()).unwrap();
        parts.extend_from_slice(&[0x30, len + 2, 0x06, len]);
        parts.extend_from_slice(algorithm);
        parts.extend_from_slice(&[0x03, 0x02, 0x00, 0x01]);
        let len = u16::try_from(parts.len()).unwrap().to_be_bytes();
        [&[0x30, 0x82, len[0], len[1]][..], &parts].concat()
    }

    #[test]
    fn channel_binding_uses_the_hash_of_the_signature_algorithm() {
        for (algorithm, len) in [
            (&b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05"[..], Some(32)),
            (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", Some(32)),
            (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", Some(48)),
            (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", Some(64)),
            // Ed25519 signs without a hash.
            (b"\x2b\x65\x70", None),
        ] {
            let certificate = outline(algorithm);
            assert_eq!(signature_algorithm(&certificate), Some(algorithm));
            assert_eq!(end_point(&certificate).map(|digest| digest.len()), len, "{algorithm:?}");
        }
    }

    #[test]
    fn a_damaged_certificate_has_no_algorithm() {
        let certificate = outline(b"\x2a\x86\x48\xce\x3d\x04\x03\x02");
        for len in 0..certificate.len() {
            assert_eq!(signature_algorithm(&certificate[..len]), None);
        }
        assert_eq!(signature_algorithm(b"\x30\x84\xff\xff\xff\xff"), None);
        assert_eq!(signature_algorithm(b"\x31\x00"), None);
    }
}
