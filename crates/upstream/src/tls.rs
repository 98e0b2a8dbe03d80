//! TLS to servers: certificates and names.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use certs::{CertsError, ClientOptions};
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, ClientConnection};
use thiserror::Error;

/// The reason why a session with a server is impossible.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    /// No certificate can have the name.
    #[error(transparent)]
    Name(#[from] InvalidDnsNameError),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// The encryption of connections. All connections share the certificates; a clone is cheap.
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    options: ClientOptions,
    config: RwLock<Arc<ClientConfig>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// The unusable file, and the reason.
    pub fn open(options: ClientOptions) -> Result<Self, CertsError> {
        let config = RwLock::new(certs::client_config(&options)?);
        Ok(Self(Arc::new(Shared { options, config })))
    }

    /// Reads the files again, for future connections. If they are unusable, nothing changes.
    ///
    /// # Errors
    ///
    /// The unusable file, and the reason.
    pub fn reload(&self) -> Result<(), CertsError> {
        let config = certs::client_config(&self.0.options)?;
        *self.0.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// True if a certificate can have this name: a host's name or an address.
    pub fn is_name(name: &str) -> bool {
        ServerName::try_from(name).is_ok()
    }

    /// A session with a server that has this name.
    ///
    /// # Errors
    ///
    /// The name that no certificate can have, or the error in the configuration.
    pub(crate) fn session(&self, name: &str) -> Result<ClientConnection, SessionError> {
        let name = ServerName::try_from(name.to_owned())?;
        let config = Arc::clone(&self.0.config.read().unwrap_or_else(PoisonError::into_inner));
        let mut session = ClientConnection::new(config, name)?;
        // The pipeline limits unsent data.
        session.set_buffer_limit(None);
        Ok(session)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.options).finish()
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.0.options == other.0.options
    }
}

impl Eq for Tls {}
