//! Reads PEM files for rustls, and builds the configurations of clients.
//!
//! The provider of cryptography is *ring* everywhere, and is always named: rustls itself picks one
//! only while a program links exactly one.
#![forbid(unsafe_code)]

mod any_name;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use any_name::AnyName;

/// The server certificates that a client accepts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Every certificate: the connection is encrypted, the server is not authenticated.
    Any,
    /// Certificates that lead to one of these issuers, whatever their name.
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
    /// This program's own certificate, for servers that ask for one, and those that lead to its
    /// issuer, in PEM.
    pub chain_cert: Option<PathBuf>,
    /// The private key of the first certificate in `chain_cert`, in PEM or DER.
    pub key: Option<PathBuf>,
}

/// Begins a client's configuration: *ring*, TLS 1.2 and 1.3, and the certificates to accept.
///
/// # Errors
///
/// When the provider lacks the cipher suites of both versions.
pub fn client_builder(
    trust: Trust,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
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
pub fn client_config(options: &ClientOptions) -> Result<Arc<ClientConfig>, String> {
    let builder = client_builder(match &options.ca_cert {
        Some(path) => Trust::IssuersAndName(roots(path)?),
        None => Trust::Any,
    })?;
    let mut config = match (&options.chain_cert, &options.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(chain), Some(key)) => builder
            .with_client_auth_cert(certificates(chain)?, private_key(key)?)
            .map_err(|error| format!("{} and {}: {error}", chain.display(), key.display()))?,
        _ => return Err("a certificate and its key go together".to_owned()),
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
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = contents(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(format!("{}: holds no certificate", path.display())),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The private key in a file.
///
/// # Errors
///
/// The file, and its fault.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = contents(path)?;
    if let Ok(key) = PrivateKeyDer::from_pem_slice(&bytes) {
        return Ok(key);
    }
    PrivateKeyDer::try_from(bytes)
        .map_err(|_| format!("{}: holds no private key in PEM or DER", path.display()))
}

/// The authorities in a file.
///
/// # Errors
///
/// The file, and its fault.
pub fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(roots)
}

fn contents(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_named() {
        let absent = || Some(PathBuf::from("/nonexistent/file"));
        let wrong = [
            ClientOptions { ca_cert: absent(), ..ClientOptions::default() },
            ClientOptions { chain_cert: absent(), key: absent(), ..ClientOptions::default() },
        ];
        for options in wrong {
            let why = client_config(&options).unwrap_err();
            assert!(why.starts_with("/nonexistent/file: "), "{why}");
        }
        let half = ClientOptions { chain_cert: absent(), ..ClientOptions::default() };
        assert!(client_config(&half).unwrap_err().contains("go together"));
    }
}
