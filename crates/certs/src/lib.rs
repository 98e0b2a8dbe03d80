//! Reads PEM files for rustls, and builds the configurations of clients.
//!
//! The provider of cryptography is *ring* everywhere, and is always named: rustls picks one
//! automatically only while a program links exactly one.
#![forbid(unsafe_code)]

mod any_name;
mod warning;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use any_name::AnyName;
pub use warning::{Warning, not_after, warnings};

/// The file that cannot be used, and its fault.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It is malformed PEM.
    #[error("{}: {error}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        error: pem::Error,
    },
    /// It holds no certificate.
    #[error("{}: holds no certificate", .0.display())]
    NoCertificate(PathBuf),
    /// It holds no private key.
    #[error("{}: holds no private key in PEM or DER", .0.display())]
    NoKey(PathBuf),
    /// A certificate in it cannot be a trusted issuer.
    #[error("{}: {error}", path.display())]
    Root {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: rustls::Error,
    },
    /// A client's certificate and key do not belong together.
    #[error("{} and {}: {error}", chain.display(), key.display())]
    Pair {
        /// The file of the certificate.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason.
        error: rustls::Error,
    },
    /// A client has a certificate without a key, or a key without a certificate.
    #[error("a certificate and its key go together")]
    HalfAPair,
    /// The provider of cryptography lacks the protocol's versions.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
}

/// The server certificates that a client accepts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Every certificate: the connection is encrypted, the server is not authenticated.
    Any,
    /// Certificates that lead to one of these issuers, regardless of their name.
    Issuers(RootCertStore),
    /// Certificates that lead to one of these issuers and are for the server's name.
    IssuersAndName(RootCertStore),
}

/// The files that secure connections to servers.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct ClientOptions {
    /// The trusted issuers of servers' certificates, in PEM. `None`: every certificate is accepted,
    /// so connections are encrypted and servers are not authenticated.
    pub ca_cert: Option<PathBuf>,
    /// This program's own certificate, for servers that request one, and the chain to its issuer,
    /// in PEM.
    pub chain_cert: Option<PathBuf>,
    /// The private key of the first certificate in `chain_cert`, in PEM or DER.
    pub key: Option<PathBuf>,
}

/// Starts a client's configuration: *ring*, TLS 1.2 and 1.3, and the certificates to accept.
///
/// # Errors
///
/// When the provider lacks the cipher suites of both versions.
pub fn client_builder(
    trust: Trust,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, CertsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(CertsError::Tls)?;
    let verifier = match trust {
        Trust::IssuersAndName(roots) => return Ok(builder.with_root_certificates(roots)),
        Trust::Issuers(roots) => AnyName::issued_by(provider, roots),
        Trust::Any => AnyName::of_any_issuer(provider),
    };
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

/// The configuration of connections to cache servers.
///
/// # Errors
///
/// The file that cannot be used, and the reason.
pub fn client_config(options: &ClientOptions) -> Result<Arc<ClientConfig>, CertsError> {
    let builder = client_builder(match &options.ca_cert {
        Some(path) => Trust::IssuersAndName(roots(path)?),
        None => Trust::Any,
    })?;
    let mut config = match (&options.chain_cert, &options.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(chain), Some(key)) => builder
            .with_client_auth_cert(certificates(chain)?, private_key(key)?)
            .map_err(|error| CertsError::Pair { chain: chain.clone(), key: key.clone(), error })?,
        _ => return Err(CertsError::HalfAPair),
    };
    config.max_fragment_size = Some(RECORD_BYTES);
    if options.chain_cert.is_some() {
        // memcached (1.6.18) names no context for its sessions, so OpenSSL answers the resumption
        // of one that has a client's certificate with an internal error.
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// The longest record that is sent, in bytes. memcached (1.6.18) loses the part of a longer one
/// for which its buffer of 16 KiB has no room.
const RECORD_BYTES: usize = 4096;

/// The certificates in a file, at least one.
///
/// # Errors
///
/// The file, and its fault.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertsError> {
    let bytes = contents(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(CertsError::NoCertificate(path.to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(CertsError::Pem { path: path.to_owned(), error }),
    }
}

/// The private key in a file. Its form is determined by its bytes: like OpenSSL, this reads a
/// PKCS#8 key under the label `RSA PRIVATE KEY`.
///
/// # Errors
///
/// The file, and its fault.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertsError> {
    let bytes = contents(path)?;
    let der = match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(labelled) => labelled.secret_der().to_vec(),
        Err(_) => bytes,
    };
    PrivateKeyDer::try_from(der).map_err(|_| CertsError::NoKey(path.to_owned()))
}

/// The authorities in a file.
///
/// # Errors
///
/// The file, and its fault.
pub fn roots(path: &Path) -> Result<RootCertStore, CertsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| CertsError::Root { path: path.to_owned(), error })?;
    }
    Ok(roots)
}

fn contents(path: &Path) -> Result<Vec<u8>, CertsError> {
    files::read(path, FILE_BYTES_MAX)
        .map_err(|error| CertsError::Io { path: path.to_owned(), error })
}

/// The largest file of certificates or keys, in bytes: a system's authorities need a few hundred
/// kilobytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// `/dev/zero` never ends, and opening a pipe waits; neither is a regular file.
    #[test]
    fn a_file_that_is_not_regular_is_refused() {
        let why = roots(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(why, "/dev/zero: it is not a regular file");
    }

    /// The start of an RSA key in PKCS#8, which identifies its form.
    #[test]
    fn the_format_of_a_key_is_detected_from_its_bytes() {
        let path = std::env::temp_dir().join(format!("holdall-certs-{}.pem", std::process::id()));
        for label in ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"] {
            let body = "MBICAQAwDQYJKoZIhvcNAQEBBQA=";
            let text = format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
            std::fs::write(&path, text).unwrap();
            let key = private_key(&path);
            assert!(matches!(key, Ok(PrivateKeyDer::Pkcs8(_))), "{label}: {key:?}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn unusable_files_are_named() {
        let absent = || Some(PathBuf::from("/nonexistent/file"));
        let wrong = [
            ClientOptions { ca_cert: absent(), ..ClientOptions::default() },
            ClientOptions { chain_cert: absent(), key: absent(), ..ClientOptions::default() },
        ];
        for options in wrong {
            let why = client_config(&options).unwrap_err().to_string();
            assert!(why.starts_with("/nonexistent/file: "), "{why}");
        }
        let half = ClientOptions { chain_cert: absent(), ..ClientOptions::default() };
        assert!(matches!(client_config(&half), Err(CertsError::HalfAPair)));
    }
}
