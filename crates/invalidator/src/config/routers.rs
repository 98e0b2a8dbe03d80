//! The table `[routers]` of the configuration: TLS and the login towards routers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use certs::{CertsError, Trust};
use serde::Deserialize;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::fault::{ConfigError, Fault};
use crate::network;
use crate::source::ssl_mode::SslMode;

/// The table as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Routers {
    #[serde(default = "verify_full")]
    sslmode: SslMode,
    #[serde(default)]
    sslrootcert: Option<PathBuf>,
    #[serde(default)]
    sslcert: Option<PathBuf>,
    #[serde(default)]
    sslkey: Option<PathBuf>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    password_file: Option<PathBuf>,
}

/// If the file has the table, TLS is verified, whatever the address.
const fn verify_full() -> SslMode {
    SslMode::VerifyFull
}

impl Routers {
    pub(super) fn values(&self) -> Result<(), Fault> {
        if self.sslmode == SslMode::Prefer {
            return Err(Fault::PreferOfRouters);
        }
        if self.sslcert.is_some() != self.sslkey.is_some() {
            return Err(Fault::RoutersNeed("sslcert", "sslkey"));
        }
        if self.user.is_some() != self.password_file.is_some() {
            return Err(Fault::RoutersNeed("user", "password_file"));
        }
        Ok(())
    }

    /// The connection settings for routers, with the files that they name.
    pub(super) fn network(&self) -> Result<network::Routers, ConfigError> {
        let tls = self.tls().map_err(|error| {
            ConfigError::new(Path::new("[routers]"), Fault::Certs(Box::new(error)))
        })?;
        let login = match (&self.user, &self.password_file) {
            (Some(user), Some(path)) => {
                let text = fs::read_to_string(path);
                let text = text.map_err(|error| ConfigError::new(path, error))?;
                Some((user.as_str(), text.trim_end_matches(['\r', '\n']).to_owned()))
            }
            _ => None,
        };
        let login = login.as_ref().map(|(user, password)| (*user, password.as_str()));
        Ok(network::Routers::new(tls, login))
    }

    fn tls(&self) -> Result<Option<Arc<ClientConfig>>, CertsError> {
        let trust = match self.sslmode {
            SslMode::Disable => return Ok(None),
            SslMode::Prefer | SslMode::Require => Trust::Any,
            SslMode::VerifyCa => Trust::Issuers(self.issuers()?),
            SslMode::VerifyFull => Trust::IssuersAndName(self.issuers()?),
        };
        let builder = certs::client_builder(trust)?;
        let config = match (&self.sslcert, &self.sslkey) {
            (Some(chain), Some(key)) => builder
                .with_client_auth_cert(certs::certificates(chain)?, certs::private_key(key)?)
                .map_err(|error| CertsError::Pair {
                    chain: chain.clone(),
                    key: key.clone(),
                    error,
                })?,
            _ => builder.with_no_client_auth(),
        };
        Ok(Some(Arc::new(config)))
    }

    fn issuers(&self) -> Result<RootCertStore, CertsError> {
        match &self.sslrootcert {
            Some(file) => certs::roots(file),
            None => Ok(webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()),
        }
    }
}
