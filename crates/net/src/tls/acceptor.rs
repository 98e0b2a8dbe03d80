//! Certificates, keys and requirements of a listener's TLS sessions, which a reload replaces as a
//! whole.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use certs::{CertsError, certificates, private_key, roots};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{
    NoServerSessionStorage, UnbufferedServerConnection, VerifierBuilderError, WebPkiClientVerifier,
};

use super::Tls;

/// The time limit of a client's handshake.
pub(crate) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// The certificate that the server requests from a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// No certificate.
    #[default]
    None,
    /// A certificate, if it has one; a bad one is refused.
    Request,
    /// A certificate.
    Require,
}

/// The use of TLS by a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// No TLS.
    Plain,
    /// Requests the certificate of [`TlsOptions::verify`] from clients.
    Standard,
    /// Requests no certificate from clients.
    ServerOnly,
    /// Requires a certificate from clients.
    Mutual,
}

/// The files of certificates, and the requirements for clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// The server's certificate and the chain to its issuer, in PEM.
    pub chain_cert: PathBuf,
    /// Its private key, in PEM or DER.
    pub key: PathBuf,
    /// The issuers of clients' certificates, in PEM.
    pub ca_cert: Option<PathBuf>,
    /// The certificate that the server requests from clients.
    pub verify: Verify,
    /// Only TLS 1.3, without 1.2.
    pub only_tls13: bool,
    /// Suites of TLS 1.2 by OpenSSL's names; `None` means all.
    pub ciphers: Option<Vec<String>>,
    /// Clients may resume sessions where no certificate is requested from them.
    pub resumption: bool,
}

/// The reason why no TLS session can be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error(transparent)]
    Certs(#[from] CertsError),
    /// No authority for clients' certificates is given.
    #[error("clients' certificates are asked for without ssl_ca_cert")]
    NoAuthority,
    /// The authorities cannot be used to verify clients.
    #[error("{}: {error}", path.display())]
    Verifier {
        /// The file of authorities.
        path: PathBuf,
        /// The reason.
        error: VerifierBuilderError,
    },
}

/// Makes the TLS sessions of a server.
pub struct TlsAcceptor {
    options: TlsOptions,
    /// By the listeners' places in [`crate::Listen::tcp`]; others are plain.
    modes: Vec<TlsMode>,
    configs: RwLock<Arc<Configs>>,
    refreshed_at: Mutex<Instant>,
}

struct Configs {
    standard: Arc<ServerConfig>,
    server_only: Arc<ServerConfig>,
    mutual: Option<Arc<ServerConfig>>,
    /// The server's own certificate, and the chain to its issuer.
    chain: Vec<CertificateDer<'static>>,
}

impl TlsAcceptor {
    /// Reads the files. `modes` are those of the TCP listeners, by their places in
    /// [`crate::Listen::tcp`].
    ///
    /// # Errors
    ///
    /// The file that cannot be used, and the reason.
    pub fn open(options: TlsOptions, modes: Vec<TlsMode>) -> Result<Self, TlsError> {
        let configs = RwLock::new(Arc::new(configs(&options, &modes)?));
        Ok(Self { options, modes, configs, refreshed_at: Mutex::new(Instant::now()) })
    }

    /// Reads the files again, for future connections; if they cannot be used, nothing changes.
    ///
    /// # Errors
    ///
    /// The file that cannot be used, and the reason.
    pub fn reload(&self) -> Result<(), TlsError> {
        let configs = Arc::new(configs(&self.options, &self.modes)?);
        *self.configs.write().unwrap_or_else(PoisonError::into_inner) = configs;
        *self.refreshed_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(())
    }

    /// The time for which the present certificates have been in use.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.refreshed_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// The Unix time, in seconds, at which the present certificate expires; 0 if it is unknown.
    #[must_use]
    pub fn not_after(&self) -> u64 {
        let configs = self.configs.read().unwrap_or_else(PoisonError::into_inner);
        configs.chain.first().and_then(certs::not_after).unwrap_or(0)
    }

    /// Faults of the present files that do not prevent their use.
    #[must_use]
    pub fn warnings(&self) -> Vec<certs::Warning> {
        let configs = self.configs.read().unwrap_or_else(PoisonError::into_inner);
        let Some(certificate) = configs.chain.first() else { return Vec::new() };
        let TlsOptions { chain_cert, key, .. } = &self.options;
        certs::warnings(chain_cert, certificate, key, SystemTime::now())
    }

    /// True if connections from the listener with this place in [`crate::Listen::tcp`] use TLS.
    pub(crate) fn is_encrypted(&self, listener: usize) -> bool {
        self.modes.get(listener).is_some_and(|mode| *mode != TlsMode::Plain)
    }

    /// Starts the session of a connection from this listener; `None` when it is plain.
    ///
    /// # Errors
    ///
    /// There can be no session: the connection must not be served.
    pub(crate) fn session(
        &self,
        listener: usize,
        now_ms: u64,
    ) -> Result<Option<Box<Tls>>, rustls::Error> {
        let configs = self.configs.read().unwrap_or_else(PoisonError::into_inner);
        let config = match self.modes.get(listener) {
            Some(TlsMode::Plain) | None => return Ok(None),
            Some(TlsMode::Standard) => Some(&configs.standard),
            Some(TlsMode::ServerOnly) => Some(&configs.server_only),
            Some(TlsMode::Mutual) => configs.mutual.as_ref(),
        };
        let Some(config) = config else {
            return Err(rustls::Error::General("no configuration".to_owned()));
        };
        let patience_ms = u64::try_from(HANDSHAKE_PATIENCE.as_millis()).unwrap_or(u64::MAX);
        let session = UnbufferedServerConnection::new(Arc::clone(config))?;
        Ok(Some(Box::new(Tls::new(session, now_ms + patience_ms))))
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = (&self.options, &self.modes);
        f.debug_tuple("TlsAcceptor").field(&options).finish_non_exhaustive()
    }
}

/// The configurations, from the present files.
fn configs(options: &TlsOptions, modes: &[TlsMode]) -> Result<Configs, TlsError> {
    // Read once: all have the same certificate, even if the files change meanwhile.
    let chain = certificates(&options.chain_cert)?;
    let key = private_key(&options.key)?;
    let config = |verify| config(options, verify, chain.clone(), key.clone_key());
    let wants_mutual = modes.contains(&TlsMode::Mutual);
    let mutual = if wants_mutual { Some(config(Verify::Require)?) } else { None };
    let (standard, server_only) = (config(options.verify)?, config(Verify::None)?);
    Ok(Configs { standard, server_only, mutual, chain })
}

fn config(
    options: &TlsOptions,
    verify: Verify,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(provider(options));
    let versions: &[_] = if options.only_tls13 {
        &[&rustls::version::TLS13]
    } else {
        &[&rustls::version::TLS13, &rustls::version::TLS12]
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(CertsError::Tls)?;
    let path = options.ca_cert.as_deref();
    // A certificate that is optional and that nothing could verify is not requested.
    let asks = verify == Verify::Require || verify == Verify::Request && path.is_some();
    let builder = if asks {
        let path = path.ok_or(TlsError::NoAuthority)?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider);
        let verifier = match verify {
            Verify::Require => verifier,
            Verify::None | Verify::Request => verifier.allow_unauthenticated(),
        };
        let verifier = verifier
            .build()
            .map_err(|error| TlsError::Verifier { path: path.to_owned(), error })?;
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        let (chain, key) = (options.chain_cert.clone(), options.key.clone());
        CertsError::Pair { chain, key, error }
    })?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // A resumption does not verify the client's certificate again, and gives the client a new
    // ticket: an expired certificate would be accepted forever.
    if options.resumption && !asks {
        config.ticketer = ring::Ticketer::new().map_err(CertsError::Tls)?;
    } else {
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// The cryptography, with the wanted suites.
fn provider(options: &TlsOptions) -> CryptoProvider {
    let mut provider = ring::default_provider();
    if let Some(names) = &options.ciphers {
        provider.cipher_suites.retain(|suite| {
            let own = format!("{:?}", suite.suite());
            own.starts_with("TLS13_") || names.iter().any(|name| is_same_suite(name, &own))
        });
    }
    provider
}

/// True if TLS 1.2 has a suite with this OpenSSL name here.
#[must_use]
pub fn knows_suite(name: &str) -> bool {
    let suites = ring::default_provider().cipher_suites;
    suites.iter().any(|suite| is_same_suite(name, &format!("{:?}", suite.suite())))
}

/// `ECDHE-RSA-AES128-GCM-SHA256` is `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`;
/// `ECDHE-RSA-CHACHA20-POLY1305` lacks its hash.
fn is_same_suite(openssl: &str, own: &str) -> bool {
    let plain = |name: &str| {
        let name = name.trim_start_matches("TLS_").replace("_WITH_", "_");
        name.replace(['-', '_'], "").trim_end_matches("POLY1305SHA256").to_owned()
    };
    plain(own) == plain(openssl).trim_end_matches("POLY1305")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openssl_names_of_cipher_suites_are_accepted() {
        for name in [
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES256-GCM-SHA384",
            "ECDHE-RSA-CHACHA20-POLY1305",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
        ] {
            assert!(knows_suite(name), "{name}");
        }
        assert!(!knows_suite("AES128-SHA") && !knows_suite("HIGH") && !knows_suite(""));
    }

    #[test]
    fn a_missing_file_is_named() {
        let options =
            TlsOptions { chain_cert: "/nonexistent/cert".into(), ..TlsOptions::default() };
        let why = TlsAcceptor::open(options, vec![TlsMode::Standard]).unwrap_err().to_string();
        assert!(why.starts_with("/nonexistent/cert: "), "{why}");
    }
}
