//! Access to sources that require TLS or a login.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::deadline::Timed;

/// The files for sources whose name has `+tls`, and for those that require a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFiles {
    /// The trusted issuers of sources' certificates, in PEM. `None`: those that browsers trust.
    pub ca_cert: Option<PathBuf>,
    /// This program's certificate and those up to its issuer, in PEM.
    pub chain_cert: Option<PathBuf>,
    /// The private key of that certificate, in PEM or DER.
    pub key: Option<PathBuf>,
    /// A file whose first line is `USER:PASSWORD`, for etcd.
    pub login: Option<PathBuf>,
}

/// The content of these files.
#[derive(Clone, Debug)]
pub struct Access {
    tls: Arc<ClientConfig>,
    http: TlsConfig,
    /// User and password, for etcd.
    pub(crate) login: Option<(String, String)>,
}

impl AccessFiles {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// The unusable file, and the reason.
    pub fn read(&self) -> io::Result<Access> {
        let roots = match &self.ca_cert {
            None => webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
            Some(path) => certs::roots(path).map_err(io::Error::other)?,
        };
        let own = match (&self.chain_cert, &self.key) {
            (None, None) => None,
            (Some(chain), Some(key)) => {
                let chain = certs::certificates(chain).map_err(io::Error::other)?;
                Some((chain, certs::private_key(key).map_err(io::Error::other)?))
            }
            _ => return Err(io::Error::other("a certificate and its key belong together")),
        };
        let mut http = TlsConfig::builder();
        if let Some(path) = &self.ca_cert {
            let issuers = certs::certificates(path).map_err(io::Error::other)?;
            let issuers: Vec<_> =
                issuers.iter().map(|issuer| Certificate::from_der(issuer).to_owned()).collect();
            http = http.root_certs(RootCerts::new_with_certs(&issuers));
        }
        if let (Some((chain, _)), Some(path)) = (&own, &self.key) {
            let chain: Vec<_> =
                chain.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
            let key =
                fs::read(path).and_then(|pem| PrivateKey::from_pem(&pem).map_err(io::Error::other));
            http = http.client_cert(Some(ClientCert::new_with_certs(&chain, key?)));
        }
        let login = self.login.as_deref().map(login_in).transpose()?;
        Ok(Access { tls: tls(roots, own)?, http: http.build(), login })
    }
}

type Own =
    (Vec<rustls::pki_types::CertificateDer<'static>>, rustls::pki_types::PrivateKeyDer<'static>);

fn tls(roots: RootCertStore, own: Option<Own>) -> io::Result<Arc<ClientConfig>> {
    let trust = certs::Trust::IssuersAndName(roots);
    let builder = certs::client_builder(trust).map_err(io::Error::other)?;
    Ok(Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, key).map_err(io::Error::other)?
        }
    }))
}

fn login_in(path: &Path) -> io::Result<(String, String)> {
    files::login(path).map_err(|error| {
        let why = format!("{}: {error}", path.display());
        io::Error::new(error.kind(), why)
    })
}

impl Access {
    /// Encrypts a connection to `host`, whose certificate must have that name.
    pub(crate) fn encrypted(
        &self,
        stream: Timed,
        host: &str,
    ) -> io::Result<StreamOwned<ClientConnection, Timed>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection =
            ClientConnection::new(Arc::clone(&self.tls), name).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, stream))
    }

    /// The same for HTTP.
    pub(crate) fn http(&self) -> TlsConfig {
        self.http.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_never_read_from_a_device() {
        let login = Some(PathBuf::from("/dev/zero"));
        let error = AccessFiles { login, ..AccessFiles::default() }.read().unwrap_err();
        assert_eq!(error.to_string(), "/dev/zero: it is not a regular file");
    }
}
