//! Addresses to listen on: those of the command line or, if it names none, those of the pools in a
//! twemproxy configuration.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use net::{Listen, ListenAddress};
use routeconf::ast::PoolAddress;
use thiserror::Error;

use crate::options::Options;

/// The configuration's number of each listening socket.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// By the listener's place in [`Listen::tcp`].
    tcp: Vec<u16>,
    unix: u16,
    /// The port that appears in the names of the proxy's folders and files; 0 without one.
    pub(crate) first_port: u16,
}

impl Listeners {
    /// The number of a listening socket; 0 if the configuration does not name it.
    pub(crate) fn of(&self, listener: &ListenAddress) -> u16 {
        match listener {
            ListenAddress::Tcp(_, place) => self.tcp.get(*place).copied().unwrap_or(0),
            ListenAddress::Unix(_) => self.unix,
            ListenAddress::Udp(..) => 0,
        }
    }
}

/// The reason why there is no address to listen on.
#[derive(Debug, Error)]
pub(crate) enum ListenError {
    /// The command line names one address, but this number of pools have their own.
    #[error("{0} pools listen at addresses of their own: leave out -p and --unix-domain-sock")]
    ManyPools(usize),
    #[error("{0}: the name has no address")]
    NoAddress(String),
    #[error("{0}: one unix socket is supported")]
    SecondUnix(String),
    #[error("{0}: two pools listen there")]
    Twice(String),
    #[error("{name}: {error}")]
    Unresolved { name: String, error: io::Error },
}

/// The permission bits of a unix socket without an access mode.
const MODE: u32 = 0o700;

/// The sockets to bind, and their numbers. `named` has the addresses of the configuration's
/// listeners, in their order.
///
/// # Errors
///
/// Names the address that is invalid.
pub(crate) fn listeners(
    options: &Options,
    named: &[PoolAddress],
) -> Result<(Listen, Listeners), ListenError> {
    if options.names_no_address() && !named.is_empty() {
        return by_pools(named);
    }
    if named.len() > 1 {
        return Err(ListenError::ManyPools(named.len()));
    }
    let all = |ports: &[u16]| -> Vec<SocketAddr> {
        let on = |port: &u16| {
            let addresses = options.listen_addresses.iter();
            addresses.map(|address| SocketAddr::new(*address, *port)).collect::<Vec<_>>()
        };
        ports.iter().flat_map(on).collect()
    };
    let tcp = [all(options.plain_ports()), all(&options.ssl_ports)].concat();
    let unix = options.unix_domain_sock.clone().map(|path| (path, MODE));
    let listeners = Listeners { first_port: options.first_port(), ..Listeners::default() };
    Ok((Listen { tcp, unix, backlog: BACKLOG, ..Listen::default() }, listeners))
}

/// Warnings about addresses that other machines can reach without a login, or without encryption.
pub(crate) fn warnings(options: &Options, listen: &Listen) -> Vec<String> {
    let others = |range: &[SocketAddr]| -> Vec<String> {
        let reached = range.iter().filter(|address| !address.ip().to_canonical().is_loopback());
        reached.map(ToString::to_string).collect()
    };
    let is_by_pools = options.names_no_address();
    let plain_count = options.plain_ports().len() * options.listen_addresses.len();
    let plain_count = if is_by_pools { listen.tcp.len() } else { plain_count };
    let (plain, encrypted) = listen.tcp.split_at(plain_count.min(listen.tcp.len()));
    let (plain, encrypted) = (others(plain), others(encrypted));
    let has_logins = options.logins.are_required();
    let mut warnings = Vec::new();
    let open = match (has_logins, options.tls.ssl_require_peer_certs) {
        (true, _) => Vec::new(),
        (false, true) => plain.clone(),
        (false, false) => [&plain[..], &encrypted].concat(),
    };
    if !open.is_empty() {
        warnings.push(format!(
            "warning: listening on {} without authentication: whoever reaches it can read and \
             change everything; --listen-addresses 127.0.0.1 limits it to this machine, -Y and -S \
             ask for a password",
            open.join(", ")
        ));
    }
    if has_logins && !plain.is_empty() {
        warnings.push(format!(
            "warning: listening on {} without TLS: whoever sees the traffic can read it, passwords \
             included; --ssl-port encrypts it",
            plain.join(", ")
        ));
    }
    warnings
}

const BACKLOG: i32 = 1024;

fn by_pools(named: &[PoolAddress]) -> Result<(Listen, Listeners), ListenError> {
    let mut listen = Listen { backlog: BACKLOG, ..Listen::default() };
    let mut listeners = Listeners::default();
    for (listener, PoolAddress { address: name, mode }) in (0..).zip(named) {
        if name.starts_with('/') {
            let unix = (PathBuf::from(name), mode.unwrap_or(MODE));
            if listen.unix.replace(unix).is_some() {
                return Err(ListenError::SecondUnix(name.clone()));
            }
            listeners.unix = listener;
            continue;
        }
        let addresses = name.to_socket_addrs();
        let mut addresses =
            addresses.map_err(|error| ListenError::Unresolved { name: name.clone(), error })?;
        let address = addresses.next().ok_or_else(|| ListenError::NoAddress(name.clone()))?;
        if listen.tcp.contains(&address) {
            return Err(ListenError::Twice(name.clone()));
        }
        listen.tcp.push(address);
        listeners.tcp.push(listener);
    }
    listeners.first_port = listen.tcp.first().map_or(0, SocketAddr::port);
    Ok((listen, listeners))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Parser;

    fn listening(words: &[&str], named: &[&str]) -> Result<(Listen, Listeners), ListenError> {
        let options = Options::try_parse_from(["route"].iter().chain(words)).unwrap();
        let named = named.iter().map(|address| {
            let mode = address.starts_with("/run").then_some(0o666);
            PoolAddress { address: (*address).to_owned(), mode }
        });
        listeners(&options, &named.collect::<Vec<_>>())
    }

    #[test]
    fn an_exposed_address_causes_a_warning() {
        let warned = |words: &[&str], named: &[&str]| {
            let options = Options::try_parse_from(["route"].iter().chain(words)).unwrap();
            let (listen, _) = listening(words, named).unwrap();
            let texts = warnings(&options, &listen);
            let of = |text: &str| {
                let found = texts.iter().find(|warning| warning.contains(text));
                found.map(|text| text.split(' ').nth(3).unwrap().to_owned())
            };
            (of("without authentication"), of("without TLS"))
        };
        let at = |address: &str| Some(address.to_owned());
        let everywhere = ["--listen-addresses", "0.0.0.0", "-p", "1"];
        let tls = ["--listen-addresses", "10.0.0.5,::1", "--ssl-port", "2"];
        for (words, named, want) in [
            (&[][..], &[][..], (None, None)),
            (&["--listen-addresses", "127.0.0.2,::1,::ffff:127.0.0.1"], &[], (None, None)),
            (&everywhere, &[], (at("0.0.0.0:1"), None)),
            (&[&everywhere[..], &["-Y", "users"]].concat(), &[], (None, at("0.0.0.0:1"))),
            (&tls, &[], (at("10.0.0.5:2"), None)),
            (&[&tls[..], &["--ssl-require-peer-certs"]].concat(), &[], (None, None)),
            (&[&tls[..], &["-S"]].concat(), &[], (None, None)),
            (&[], &["0.0.0.0:22121", "127.0.0.1:22122"], (at("0.0.0.0:22121"), None)),
        ] {
            assert_eq!(warned(words, named), want, "{words:?} {named:?}");
        }
    }

    #[test]
    fn pools_listen_at_their_addresses_unless_flags_override_them() {
        let named = ["127.0.0.1:22121", "/run/pool.sock", "[::1]:22122"];
        let (listen, listeners) = listening(&[], &named).unwrap();
        let addresses: Vec<SocketAddr> =
            vec!["127.0.0.1:22121".parse().unwrap(), "[::1]:22122".parse().unwrap()];
        assert_eq!(listeners.first_port, addresses[0].port(), "proxies share no files");
        assert_eq!((listen.tcp, listeners.tcp, listeners.unix), (addresses, vec![0, 2], 1));
        assert_eq!(listen.unix, Some((PathBuf::from("/run/pool.sock"), 0o666)));
        let (listen, _) = listening(&[], &["/tmp/pool.sock"]).unwrap();
        assert_eq!(listen.unix, Some((PathBuf::from("/tmp/pool.sock"), 0o700)));
        let (listen, listeners) = listening(&["-p", "5001"], &named[..1]).unwrap();
        assert_eq!((listen.tcp[0].port(), listeners.tcp.len()), (5001, 0));
        assert_eq!(listeners.first_port, 5001);
        assert_eq!(listening(&[], &[]).unwrap().0.tcp[0].port(), 5000);
        for (words, named) in [
            (&["-p", "5001"][..], &named[..]),
            (&[], &["127.0.0.1:1", "127.0.0.1:1"]),
            (&[], &["/a", "/b"]),
            (&[], &["nonsense"]),
        ] {
            assert!(listening(words, named).is_err(), "{words:?} {named:?}");
        }
    }
}
