//! Reloads the files of users, rights, certificates and namespaces, and warns of listeners open to
//! everybody.

use std::net::IpAddr;
use std::sync::Arc;

use access::{Auth, Files, ReloadError, Warning};
use net::{ListenAddress, Sockets, TlsAcceptor, TlsMode};
use options::{Options, Sources};

use crate::log::Log;
use crate::namespaces::NamespacesFile;
use crate::reloads::Part;

/// Users and rights, TLS settings, and namespaces; each is `None` if it was not configured.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(crate) auth: Option<Arc<Auth>>,
    pub(crate) tls: Option<Arc<TlsAcceptor>>,
    pub(crate) namespaces: Option<Arc<NamespacesFile>>,
}

impl Entry {
    /// Reads the files, with the present rights of the process. `modes` are those of the TCP
    /// listeners.
    ///
    /// # Errors
    ///
    /// Returns the file that cannot be used, and the reason.
    pub(crate) fn open(
        options: &Options,
        modes: Vec<TlsMode>,
        log: &Log,
    ) -> Result<Self, ReloadError> {
        let warn = |warning: String| log.warning(format_args!("{warning}"));
        Ok(Self {
            auth: Self::open_users(options, warn)?,
            tls: Self::open_tls(options, modes, warn)?,
            namespaces: Self::open_namespaces(options)?,
        })
    }

    /// Users and rights.
    pub(crate) fn open_users(
        options: &Options,
        warn: impl Fn(String),
    ) -> Result<Option<Arc<Auth>>, ReloadError> {
        let (sasl, Sources { users, rights }) = (options.sasl, options.auth.clone());
        let Some(users) = users else { return Ok(None) };
        Ok(Some(Arc::new(Auth::open(Files { users, rights, sasl }, as_text(warn))?)))
    }

    /// Certificates, for TCP listeners with these modes.
    pub(crate) fn open_tls(
        options: &Options,
        modes: Vec<TlsMode>,
        warn: impl Fn(String),
    ) -> Result<Option<Arc<TlsAcceptor>>, ReloadError> {
        let Some(tls) = options.tls.clone() else { return Ok(None) };
        let acceptor = TlsAcceptor::open(tls, modes)?;
        acceptor.warnings().iter().for_each(|warning| warn(warning.to_string()));
        Ok(Some(Arc::new(acceptor)))
    }

    /// Namespaces.
    pub(crate) fn open_namespaces(
        options: &Options,
    ) -> Result<Option<Arc<NamespacesFile>>, ReloadError> {
        let Some(path) = &options.namespaces else { return Ok(None) };
        let file = NamespacesFile::open(path, options.auth.users.is_some());
        Ok(Some(file.map_err(|error| ReloadError::Other(error.into()))?))
    }

    /// `true` if there are files to read again.
    pub(crate) fn can_reload(&self) -> bool {
        self.auth.is_some() || self.tls.is_some() || self.namespaces.is_some()
    }

    /// Reads the files of a part again, if there are any. Files that cannot be used leave the
    /// earlier contents in force. `warn` gets the faults that do not prevent their use.
    pub(crate) fn reload(
        &self,
        part: Part,
        engine: &engine::Shared,
        warn: impl Fn(String),
    ) -> Option<Result<(), ReloadError>> {
        match part {
            Part::Settings => None,
            Part::Users => {
                self.auth.as_ref().map(|auth| auth.reload(as_text(warn)).map_err(ReloadError::from))
            }
            Part::Certificates => self.tls.as_ref().map(|tls| {
                tls.reload()?;
                tls.warnings().iter().for_each(|warning| warn(warning.to_string()));
                Ok(())
            }),
            Part::Namespaces => self
                .namespaces
                .as_ref()
                .map(|file| file.reload(engine).map_err(|error| ReloadError::Other(error.into()))),
        }
    }
}

fn as_text(warn: impl Fn(String)) -> impl Fn(Warning<'_>) {
    move |warning| warn(warning.to_string())
}

/// Warns of addresses that other machines can reach and that accept anyone or can be eavesdropped
/// on.
pub(crate) fn warn_of_open_listeners(
    options: &Options,
    sockets: &Sockets,
    modes: &[TlsMode],
    log: &Log,
) {
    let addresses = sockets.addresses().map(|address| &**address);
    let warnings = open_listeners(options, addresses, modes);
    warnings.iter().for_each(|warning| log.warning(format_args!("{warning}")));
}

/// The warnings about those of these addresses. `modes` are those of the TCP listeners.
pub(crate) fn open_listeners<'a>(
    options: &Options,
    addresses: impl Iterator<Item = &'a ListenAddress>,
    modes: &[TlsMode],
) -> Vec<String> {
    let (mut open, mut plain) = (Vec::new(), Vec::new());
    for address in addresses {
        let (at, mode) = match address {
            ListenAddress::Tcp(at, index) => (at, modes.get(*index).copied()),
            ListenAddress::Udp(at, _) => (at, None),
            ListenAddress::Unix(_) => continue,
        };
        if is_this_machine(at.ip()) {
            continue;
        }
        let is_plain = matches!(address, ListenAddress::Udp(..)) || mode == Some(TlsMode::Plain);
        let demands_certificate = options.tls.as_ref().is_some_and(|tls| {
            mode == Some(TlsMode::Mutual)
                || mode == Some(TlsMode::Standard) && tls.verify == net::Verify::Require
        });
        if options.auth.users.is_none() && !demands_certificate {
            open.push(address.to_string());
        } else if is_plain {
            plain.push(address.to_string());
        }
    }
    let mut warnings = Vec::new();
    if !open.is_empty() {
        warnings.push(format!(
            "listening on {} without authentication: whoever reaches it can read and change everything; -l 127.0.0.1 \
             limits it to this machine, -Y and -S ask for a password",
            open.join(", ")
        ));
    }
    if !plain.is_empty() {
        warnings.push(format!(
            "listening on {} without TLS: whoever sees the traffic can read it, passwords included; -Z encrypts it",
            plain.join(", ")
        ));
    }
    warnings
}

fn is_this_machine(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
    }
}
