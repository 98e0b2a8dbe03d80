//! The encryption of connections to databases, by the modes that libpq calls `sslmode`.

use std::io;
use std::net::IpAddr;

use serde::Deserialize;
use tokio_rustls::rustls;

/// The encryption of connections, and the certificate that the server must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS if the server supports it. An attacker on the path can prevent it.
    Prefer,
    /// TLS with any certificate.
    Require,
    /// TLS with a certificate of a trusted issuer.
    VerifyCa,
    /// TLS with a certificate of a trusted issuer, for the host's name.
    VerifyFull,
}

impl SslMode {
    /// The mode for a server at `host`: the configured one; by default the server's certificate is
    /// verified, unless the connection stays on this host, according to `nearby`.
    pub(super) fn of(wanted: Option<Self>, host: &str, nearby: Self) -> Self {
        let is_nearby =
            host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        wanted.unwrap_or(if is_nearby { nearby } else { Self::VerifyFull })
    }
}

/// True if a handshake failed for the certificate or its name, which a retry does not change.
pub(super) fn is_bad_certificate(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_servers_are_verified_by_default() {
        use SslMode::{Disable, Prefer, VerifyFull};
        for (host, mode) in [
            ("127.0.0.1", Prefer),
            ("127.9.0.1", Prefer),
            ("::1", Prefer),
            ("localhost", Prefer),
            ("10.0.0.1", VerifyFull),
            ("db.example", VerifyFull),
            ("localhost.example", VerifyFull),
        ] {
            assert_eq!(SslMode::of(None, host, Prefer), mode, "{host}");
            assert_eq!(SslMode::of(Some(Disable), host, Prefer), Disable, "{host}");
        }
    }
}
