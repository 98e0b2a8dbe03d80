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
        let warn = |warning: Warning<'_>| log.warning(format_args!("{warning}"));
        let (sasl, Sources { users, rights }) = (options.sasl, options.auth.clone());
        let auth = match users {
            Some(users) => Some(Arc::new(Auth::open(Files { users, rights, sasl }, warn)?)),
            None => None,
        };
        let tls = match &options.tls {
            Some(tls) => Some(Arc::new(TlsAcceptor::open(tls.clone(), modes)?)),
            None => None,
        };
        let namespaces = match &options.namespaces {
            Some(path) => {
                let file = NamespacesFile::open(path, auth.is_some());
                Some(file.map_err(|error| ReloadError::Other(error.into()))?)
            }
            None => None,
        };
        Ok(Self { auth, tls, namespaces })
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
        warn: impl Fn(Warning<'_>),
    ) -> Option<Result<(), ReloadError>> {
        match part {
            Part::Settings => None,
            Part::Users => {
                self.auth.as_ref().map(|auth| auth.reload(warn).map_err(ReloadError::from))
            }
            Part::Certificates => {
                self.tls.as_ref().map(|tls| tls.reload().map_err(ReloadError::from))
            }
            Part::Namespaces => self
                .namespaces
                .as_ref()
                .map(|file| file.reload(engine).map_err(|error| ReloadError::Other(error.into()))),
        }
    }
}

/// Warns of addresses that other machines can reach and that accept anyone or can be eavesdropped
/// on.
pub(crate) fn warn_of_open_listeners(
    options: &Options,
    sockets: &Sockets,
    modes: &[TlsMode],
    log: &Log,
) {
    let (mut open, mut plain) = (Vec::new(), Vec::new());
    for address in sockets.addresses() {
        let (at, is_plain) = match &**address {
            ListenAddress::Tcp(at, index) => (at, modes.get(*index) == Some(&TlsMode::Plain)),
            ListenAddress::Udp(at, _) => (at, true),
            ListenAddress::Unix(_) => continue,
        };
        if is_this_machine(at.ip()) {
            continue;
        }
        let demands_certificate = options.tls.as_ref().is_some_and(|tls| {
            let ListenAddress::Tcp(_, index) = **address else { return false };
            let mode = modes.get(index);
            mode == Some(&TlsMode::Mutual)
                || mode == Some(&TlsMode::Standard) && tls.verify == net::Verify::Require
        });
        if options.auth.users.is_none() && !demands_certificate {
            open.push(address.to_string());
        } else if is_plain {
            plain.push(address.to_string());
        }
    }
    if !open.is_empty() {
        log.warning(format_args!(
            "listening on {} without authentication: whoever reaches it can read and change everything; -l 127.0.0.1 \
             limits it to this machine, -Y and -S ask for a password",
            open.join(", ")
        ));
    }
    if !plain.is_empty() {
        log.warning(format_args!(
            "listening on {} without TLS: whoever sees the traffic can read it, passwords included; -Z encrypts it",
            plain.join(", ")
        ));
    }
}

fn is_this_machine(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
    }
}
