//! Binds the addresses of the options, and reports the resulting ports.

use std::fmt::Write;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use files::Readers;
use net::{Inherited, Listen, ListenAddress, Sockets, TlsMode};
use options::{Endpoint, Options};

use super::Failure;
use crate::log::Log;

/// Adds the sockets that systemd opened for this process to those of a predecessor, which may also
/// have been systemd's. If there are any, they replace the addresses in the options, except that of
/// the metrics.
pub(super) fn activate(
    options: &mut Options,
    inherited: &mut Inherited,
    log: &Log,
) -> Result<(), Failure> {
    let mut activated = net::activated().map_err(|error| Failure::os(error.to_string()))?;
    if let Some(address) = options.metrics {
        inherited.name_metrics(address);
        activated.name_metrics(address);
    }
    inherited.merge(activated);
    let (tcp, udp): (Vec<_>, Vec<_>) = (inherited.tcp().collect(), inherited.udp().collect());
    let unix = inherited.unix().map(Path::to_path_buf);
    if tcp.is_empty() && udp.is_empty() && unix.is_none() {
        return Ok(());
    }
    let endpoint = |address: SocketAddr| Endpoint {
        host: Some(address.ip().to_string()),
        port: address.port(),
        tls: mode_of(address, options),
    };
    (options.tcp, options.udp, options.unix.path) =
        (tcp.into_iter().map(endpoint).collect(), udp.into_iter().map(endpoint).collect(), unix);
    let warning = options.udp_warning().map_err(|why| {
        Failure::usage(format!("systemd's UDP socket cannot be served: {why}"))
            .hint("leave out ListenDatagram=")
    })?;
    if let Some(warning) = warning {
        log.warning(format_args!("systemd's UDP socket: {warning}"));
    }
    Ok(())
}

/// The TLS mode of a systemd socket: the options' mode for the address or the port that it is bound
/// to. A socket that they do not name gets the strictest mode that they name, so that no traffic
/// meant to be encrypted is served in plain text.
fn mode_of(bound: SocketAddr, options: &Options) -> TlsMode {
    let is_bound =
        |endpoint: &&Endpoint| resolve(endpoint).is_ok_and(|addresses| addresses.contains(&bound));
    if let Some(endpoint) = options.tcp.iter().find(is_bound) {
        return endpoint.tls;
    }
    let strictest = |endpoints: &mut dyn Iterator<Item = &Endpoint>| {
        endpoints.map(|endpoint| endpoint.tls).max_by_key(|mode| match mode {
            TlsMode::Plain => 0,
            TlsMode::ServerOnly => 1,
            TlsMode::Standard => 2,
            TlsMode::Mutual => 3,
        })
    };
    let at_port = &mut options.tcp.iter().filter(|endpoint| endpoint.port == bound.port());
    let unnamed = || match &options.tls {
        Some(_) => TlsMode::Standard,
        None => TlsMode::Plain,
    };
    strictest(at_port).or_else(|| strictest(&mut options.tcp.iter())).unwrap_or_else(unnamed)
}

/// Checks the inherited sockets that no address of the options has claimed, and gives them up.
///
/// # Errors
///
/// Fails if one is systemd's: the system would accept clients, which would wait for ever.
pub(super) fn give_up_unclaimed(
    inherited: Inherited,
    sockets: &mut Sockets,
    log: &Log,
) -> Result<(), Failure> {
    if let Some(socket) = inherited.unclaimed_of_systemd() {
        let failure = Failure::os(format!("systemd's socket {socket} cannot be served as well"));
        return Err(failure.hint("a server takes one unix socket, and one socket of each address"));
    }
    sockets.abandon(&inherited);
    for socket in inherited.unclaimed() {
        log.always(format_args!("{socket} is closed: the settings do not name it any more"));
    }
    Ok(())
}

/// Binds TCP and UDP, unless the sockets are inherited. Low ports need rights, so this comes first.
/// Also returns the TLS mode of each TCP listener.
pub(super) fn bind_network(
    options: &Options,
    inherited: &mut Inherited,
) -> Result<(Sockets, Vec<TlsMode>), Failure> {
    let (tcp, modes): (Vec<_>, Vec<_>) = addresses(&options.tcp)?.into_iter().unzip();
    let listen = Listen {
        tcp,
        udp: addresses(&options.udp)?.into_iter().map(|(address, _)| address).collect(),
        unix: None,
        backlog: options.backlog,
        udp_sockets: options.threads,
    };
    let sockets = listen
        .bind_or_inherit(inherited)
        .map_err(|error| failed(&error, &listen.tcp, inherited))?;
    Ok((sockets, modes))
}

/// Binds the unix socket, as the user that the server runs as, who then owns it.
pub(super) fn bind_unix(
    options: &Options,
    sockets: &mut Sockets,
    inherited: &mut Inherited,
) -> Result<(), Failure> {
    let Some(path) = options.unix.path.clone() else { return Ok(()) };
    let listen = Listen {
        unix: Some((path, options.unix.mode)),
        backlog: options.backlog,
        ..Listen::default()
    };
    let bound = listen.bind_or_inherit(inherited).map_err(|error| {
        let failure = Failure::os(error.to_string());
        match error.kind() {
            io::ErrorKind::AlreadyExists => failure.hint("remove it, or name another path by -s"),
            io::ErrorKind::AddrInUse => failure.hint("end that server, or name another path by -s"),
            _ => failure,
        }
    })?;
    sockets.append(bound);
    Ok(())
}

/// Writes the bound ports to `MEMCACHED_PORT_FILENAME` in memcached's form, atomically: test suites
/// wait for the file and read it once.
pub(super) fn write_ports(options: &Options, sockets: &Sockets) -> Result<(), Failure> {
    let Some(path) = &options.port_file else { return Ok(()) };
    let mut text = String::new();
    for address in sockets.addresses() {
        let (kind, address) = match &**address {
            ListenAddress::Tcp(address, _) => ("TCP", address),
            ListenAddress::Udp(address, _) => ("UDP", address),
            ListenAddress::Unix(_) => continue,
        };
        let family = if address.is_ipv4() { "INET" } else { "INET6" };
        let _ = writeln!(text, "{kind} {family}: {}", address.port());
    }
    files::put(path, &text, Readers::All)
        .map_err(|error| Failure::os(format!("cannot write {}: {error}", path.display())))
}

fn addresses(endpoints: &[Endpoint]) -> Result<Vec<(SocketAddr, TlsMode)>, Failure> {
    let mut found: Vec<(SocketAddr, TlsMode)> = Vec::new();
    for endpoint in endpoints {
        let mut resolved = resolve(endpoint)?;
        // An address may occur once for each socket type; ports chosen by the system all differ.
        resolved.sort_unstable();
        resolved.dedup();
        resolved.retain(|address| {
            address.port() == 0 || found.iter().all(|(known, _)| known != address)
        });
        found.extend(resolved.into_iter().map(|address| (address, endpoint.tls)));
    }
    Ok(found)
}

/// Every address of a host; every interface of a machine, including IPv6 if available.
fn resolve(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, Failure> {
    let port = endpoint.port;
    let Some(host) = &endpoint.host else {
        let mut every = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
        if has_ipv6() {
            every.push(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
        }
        return Ok(every);
    };
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    match (host.as_str(), port).to_socket_addrs() {
        Ok(addresses) => Ok(addresses.collect()),
        Err(error) => Err(Failure::os(format!("cannot listen on {host}: {error}"))),
    }
}

fn has_ipv6() -> bool {
    std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

fn failed(error: &io::Error, tcp: &[SocketAddr], inherited: &Inherited) -> Failure {
    let overlapping = tcp.iter().find_map(|&wanted| inherited.overlapping(wanted));
    if let Some(old) = overlapping.filter(|_| error.kind() == io::ErrorKind::AddrInUse) {
        return old_address_in_the_way(error, old);
    }
    let failure = Failure::os(error.to_string());
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            failure.hint("another process listens there; -p and -l name another port or address")
        }
        io::ErrorKind::PermissionDenied => {
            failure.hint("a port below 1024 needs root or CAP_NET_BIND_SERVICE")
        }
        _ => failure,
    }
}

/// The server to be replaced listens on `old`, and `error` says which address needs its port.
pub(super) fn old_address_in_the_way(error: &io::Error, old: SocketAddr) -> Failure {
    let message = format!("{error}; the server to be replaced listens on {old}");
    Failure::os(message).hint(
        "a takeover cannot change between all addresses and one of them at the same port: end \
         that server first, and start without --takeover",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Endpoint {
        Endpoint { host: Some(host.to_owned()), port, tls: TlsMode::Plain }
    }

    #[test]
    fn a_duplicate_address_is_bound_once() {
        let twice = [at("127.0.0.1", 11211), at("127.0.0.1", 11211), at("::1", 11211)];
        let want: Vec<SocketAddr> =
            vec!["127.0.0.1:11211".parse().unwrap(), "[::1]:11211".parse().unwrap()];
        let found = addresses(&twice).unwrap().into_iter().map(|(address, _)| address);
        assert_eq!(found.collect::<Vec<_>>(), want);
        assert_eq!(addresses(&[at("127.0.0.1", 0), at("127.0.0.1", 0)]).unwrap().len(), 2);
    }

    #[test]
    fn an_unresolved_name_is_a_system_error() {
        assert_eq!(addresses(&[at("no-such-host.invalid", 1)]).unwrap_err().status, 71);
    }
}
