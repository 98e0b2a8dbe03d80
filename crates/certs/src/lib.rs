//! Files in PEM to what rustls takes: certificates, keys, whom to trust; and how a client connects.
//!
//! The provider of cryptography is always named, since a program may have more than one.
#![forbid(unsafe_code)]

mod trusting;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use trusting::Trusting;

/// How connections to servers are secured.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct ClientOptions {
    /// Who may have issued servers' certificates, in PEM. `None`: whatever a server shows is
    /// believed, and only who listens on the way is kept out.
    pub ca_cert: Option<PathBuf>,
    /// This program's own certificate, for servers that ask for one, and those that lead to its
    /// issuer, in PEM.
    pub chain_cert: Option<PathBuf>,
    /// Its private key, in PEM or DER.
    pub key: Option<PathBuf>,
}

/// What connections are made with.
///
/// # Errors
///
/// Which file cannot be used, and why.
pub fn client_config(options: &ClientOptions) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let builder = match &options.ca_cert {
        Some(path) => builder.with_root_certificates(roots(path)?),
        None => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Trusting::new(provider)))
        }
    };
    let mut config = match (&options.chain_cert, &options.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(chain), Some(key)) => builder
            .with_client_auth_cert(certificates(chain)?, private_key(key)?)
            .map_err(|error| format!("{} and {}: {error}", chain.display(), key.display()))?,
        _ => return Err("a certificate and its key go together".to_owned()),
    };
    config.max_fragment_size = Some(RECORD_BYTES);
    if options.chain_cert.is_some() {
        // memcached (1.6.18) names no context for its sessions, so OpenSSL ends one with a
        // certificate that is taken up again by an internal error.
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// The longest record that is sent, in bytes: memcached (1.6.18) forgets what it has no room for in
/// its buffer of 16 KiB.
const RECORD_BYTES: usize = 4096;

/// The certificates in a file, at least one.
///
/// # Errors
///
/// The file, and what is wrong with it.
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
/// The file, and what is wrong with it.
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
/// The file, and what is wrong with it.
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
