//! Passes bound sockets from one process to the next, so that no client ever finds a closed port.
//!
//! Copies of a descriptor refer to one socket. While any process has one, the kernel keeps
//! accepting connections and datagrams for it, and they wait for the process that serves them.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use socket2::{SockRef, Type};

use crate::peer::ListenAddress;
use crate::sockets::{SocketFile, Sockets, StreamListener};

/// Sockets that another process has bound, not yet claimed by an address of [`crate::Listen`].
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<InheritedSocket>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct InheritedSocket {
    kind: Kind,
    pub(crate) socket: OwnedFd,
    /// True if systemd also listens on it: while no process serves it clients wait, and its file is
    /// systemd's.
    pub(crate) is_systemds: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    Unix(PathBuf),
    Metrics(SocketAddr),
}

/// Starts the description of a socket of systemd.
const OF_SYSTEMD: &str = "systemd ";

impl Inherited {
    /// Adds a socket with this description by [`Sockets::descriptors`].
    ///
    /// # Errors
    ///
    /// There is no such description, or the socket has no address of that kind.
    pub fn add(&mut self, description: &str, socket: OwnedFd) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let bound = || SockRef::from(&socket).local_addr()?.as_socket().ok_or_else(invalid);
        let of_systemd = description.strip_prefix(OF_SYSTEMD);
        let description = of_systemd.unwrap_or(description);
        let kind = match description.split_once(' ').unwrap_or((description, "")) {
            ("tcp", _) => Kind::Tcp(bound()?),
            ("udp", _) => Kind::Udp(bound()?),
            ("unix", path) => Kind::Unix(PathBuf::from(path)),
            ("metrics", _) => Kind::Metrics(bound()?),
            _ => return Err(invalid()),
        };
        self.sockets.push(InheritedSocket { kind, socket, is_systemds: of_systemd.is_some() });
        Ok(())
    }

    /// Adds a socket of systemd by the address that it is bound to.
    ///
    /// # Errors
    ///
    /// The socket has no address.
    pub(crate) fn add_bound(&mut self, socket: OwnedFd) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let bound = SockRef::from(&socket).local_addr()?;
        let is_stream = SockRef::from(&socket).r#type()? == Type::STREAM;
        let kind = match (bound.as_socket(), bound.as_pathname()) {
            (Some(address), _) if is_stream => Kind::Tcp(address),
            (Some(address), _) => Kind::Udp(address),
            (None, Some(path)) => Kind::Unix(path.to_path_buf()),
            (None, None) => return Err(invalid()),
        };
        self.sockets.push(InheritedSocket { kind, socket, is_systemds: true });
        Ok(())
    }

    /// Adds the sockets of `other`. If one is already there, it is the same socket by another way.
    pub fn merge(&mut self, other: Self) {
        for new in other.sockets {
            match self.sockets.iter_mut().find(|known| known.kind == new.kind) {
                Some(known) => known.is_systemds |= new.is_systemds,
                None => self.sockets.push(new),
            }
        }
    }

    /// Makes the TCP socket bound to this address, if there is one, the socket of the metrics.
    pub fn name_metrics(&mut self, address: SocketAddr) {
        let found = self.sockets.iter_mut().find(|socket| socket.kind == Kind::Tcp(address));
        if let Some(socket) = found {
            socket.kind = Kind::Metrics(address);
        }
    }

    /// Addresses of systemd's TCP sockets, in their order.
    pub fn tcp(&self) -> impl Iterator<Item = SocketAddr> {
        self.of_systemd().filter_map(|kind| match kind {
            Kind::Tcp(address) => Some(*address),
            _ => None,
        })
    }

    /// Addresses of systemd's UDP sockets, in their order.
    pub fn udp(&self) -> impl Iterator<Item = SocketAddr> {
        self.of_systemd().filter_map(|kind| match kind {
            Kind::Udp(address) => Some(*address),
            _ => None,
        })
    }

    /// The path of systemd's first unix socket.
    #[must_use]
    pub fn unix(&self) -> Option<&Path> {
        self.of_systemd().find_map(|kind| match kind {
            Kind::Unix(path) => Some(path.as_path()),
            _ => None,
        })
    }

    /// A socket of systemd that no address has claimed, by its address.
    #[must_use]
    pub fn unclaimed_of_systemd(&self) -> Option<String> {
        self.of_systemd().next().map(ToString::to_string)
    }

    /// The addresses of unclaimed sockets.
    #[must_use]
    pub fn unclaimed(&self) -> Vec<String> {
        let mut all: Vec<_> = self.sockets.iter().map(|socket| socket.kind.to_string()).collect();
        // UDP has several sockets for one address.
        all.dedup();
        all
    }

    /// The first unclaimed TCP socket that prevents a bind of `wanted`: it has the same port, and
    /// one of both addresses is the wildcard, which includes the other.
    #[must_use]
    pub fn overlapping(&self, wanted: SocketAddr) -> Option<SocketAddr> {
        self.sockets.iter().find_map(|socket| match socket.kind {
            Kind::Tcp(bound) | Kind::Metrics(bound) => overlap(bound, wanted).then_some(bound),
            Kind::Udp(_) | Kind::Unix(_) => None,
        })
    }

    fn of_systemd(&self) -> impl Iterator<Item = &Kind> {
        self.sockets.iter().filter(|socket| socket.is_systemds).map(|socket| &socket.kind)
    }

    /// Sockets that no address has claimed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// True if every socket was claimed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// The socket for this address, which is one of the wanted addresses `all`. It may have been
    /// the listener of the metrics, unless [`Self::take_metrics`] has claimed it.
    pub(crate) fn take_tcp(
        &mut self,
        wanted: SocketAddr,
        all: &[SocketAddr],
    ) -> Option<InheritedSocket> {
        self.take(|kind| match kind {
            Kind::Tcp(bound) => serves(*bound, wanted, all),
            Kind::Metrics(bound) => *bound == wanted,
            Kind::Udp(_) | Kind::Unix(_) => false,
        })
    }

    pub(crate) fn take_udp(
        &mut self,
        wanted: SocketAddr,
        all: &[SocketAddr],
    ) -> Option<InheritedSocket> {
        self.take(|kind| matches!(kind, Kind::Udp(bound) if serves(*bound, wanted, all)))
    }

    pub(crate) fn take_unix(&mut self, wanted: &Path) -> Option<InheritedSocket> {
        self.take(|kind| matches!(kind, Kind::Unix(path) if path == wanted))
    }

    /// The listener of the metrics, if it is bound to this address.
    pub fn take_metrics(&mut self, wanted: SocketAddr) -> Option<TcpListener> {
        let is_wanted =
            |kind: &Kind| matches!(kind, Kind::Metrics(bound) if serves(*bound, wanted, &[]));
        self.take(is_wanted).map(|found| TcpListener::from(found.socket))
    }

    fn take(&mut self, is_wanted: impl Fn(&Kind) -> bool) -> Option<InheritedSocket> {
        let at = self.sockets.iter().position(|socket| is_wanted(&socket.kind))?;
        Some(self.sockets.remove(at))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => ListenAddress::Tcp(*address, 0).fmt(f),
            Self::Udp(address) => ListenAddress::Udp(*address, 0).fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Metrics(address) => write!(f, "metrics:{address}"),
        }
    }
}

/// True if a bound address is the wanted one. If any port was wanted, any port matches except those
/// that are wanted by number, since these may use another mode.
fn serves(bound: SocketAddr, wanted: SocketAddr, all: &[SocketAddr]) -> bool {
    let is_any = wanted.port() == 0 && bound.ip() == wanted.ip();
    bound == wanted || is_any && !all.contains(&bound)
}

/// True if these different addresses of one family exclude each other.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && one.ip().is_unspecified() != other.ip().is_unspecified()
}

impl Sockets {
    /// Copies of all sockets, which stay open when these are no longer served.
    ///
    /// # Errors
    ///
    /// There are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let streams = self.streams.iter().map(StreamListener::try_clone);
        let group = |(address, group): &(Arc<ListenAddress>, Vec<UdpSocket>)| {
            let sockets = group.iter().map(UdpSocket::try_clone);
            Ok((Arc::clone(address), sockets.collect::<io::Result<_>>()?))
        };
        Ok(Self {
            streams: streams.collect::<io::Result<_>>()?,
            datagrams: self.datagrams.iter().map(group).collect::<io::Result<_>>()?,
            systemds: self.systemds.clone(),
            abandoned: self.abandoned.clone(),
            metrics: self.metrics.as_ref().map(TcpListener::try_clone).transpose()?,
        })
    }

    /// Every socket, with a description for [`Inherited::add`].
    pub fn descriptors(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        let streams = self.streams.iter().map(|listener| (&*listener.address, listener.as_fd()));
        let datagrams = self.datagrams.iter().flat_map(|(address, group)| {
            group.iter().map(move |socket| (&**address, socket.as_fd()))
        });
        let metrics = self.metrics.iter().map(|socket| ("metrics".to_owned(), socket.as_fd()));
        let served = streams.chain(datagrams).map(|(address, socket)| {
            let is_systemds = self.systemds.iter().any(|one| **one == *address);
            let owner = if is_systemds { OF_SYSTEMD } else { "" };
            let description = match address {
                ListenAddress::Tcp(..) => format!("{owner}tcp"),
                ListenAddress::Udp(..) => format!("{owner}udp"),
                ListenAddress::Unix(path) => format!("{owner}unix {}", path.display()),
            };
            (description, socket)
        });
        served.chain(metrics)
    }

    /// Keeps the files of unix sockets when the last copy of these sockets is dropped: another
    /// process owns them now.
    pub fn leave_files(&self) {
        self.streams.iter().for_each(|listener| listener.leave_file(true));
    }

    /// Takes the files of inherited unix sockets, which the other process has left, and removes the
    /// [abandoned](Self::abandon) ones.
    pub fn claim_files(&self) {
        self.streams.iter().for_each(|listener| listener.leave_file(false));
        self.abandoned.iter().for_each(|file| file.remove());
    }

    /// Nobody serves the unclaimed sockets any more: [`Self::claim_files`] removes the files of
    /// unix ones, except systemd's.
    pub fn abandon(&mut self, unclaimed: &Inherited) {
        for InheritedSocket { kind, is_systemds, .. } in &unclaimed.sockets {
            if let (Kind::Unix(path), false) = (kind, is_systemds)
                && path.is_absolute()
                && fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
                && let Ok(file) = SocketFile::at(path, 0)
            {
                file.leave(true);
                self.abandoned.push(Arc::new(file));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::Listen;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    fn listen(unix: &Path) -> Listen {
        Listen {
            tcp: vec!["127.0.0.1:0".parse().unwrap()],
            udp: vec!["127.0.0.1:0".parse().unwrap()],
            unix: Some((unix.to_owned(), 0o700)),
            backlog: 16,
            udp_sockets: 2,
        }
    }

    /// A port that is named keeps its place in the list, which determines its mode, regardless of
    /// the entries before it.
    #[test]
    fn a_named_port_keeps_its_place_among_ephemeral_ones() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let old = Listen { tcp: vec![any, any], backlog: 16, ..Listen::default() };
        let old = old.bind().unwrap();
        let ports = |sockets: &Sockets| -> Vec<u16> {
            let address = |address: &Arc<ListenAddress>| match **address {
                ListenAddress::Tcp(address, _) => address.port(),
                _ => unreachable!("TCP alone"),
            };
            sockets.addresses().map(address).collect()
        };
        let [first, second] = ports(&old)[..] else { unreachable!("two were bound") };
        let named = SocketAddr::from(([127, 0, 0, 1], first));
        let new = Listen { tcp: vec![any, named], backlog: 16, ..Listen::default() };
        let new = new.bind_or_inherit(&mut inherit(&old)).unwrap();
        assert_eq!(ports(&new), [second, first]);
    }

    fn inherit(sockets: &Sockets) -> Inherited {
        let mut inherited = Inherited::default();
        for (description, socket) in sockets.descriptors() {
            inherited.add(&description, socket.try_clone_to_owned().unwrap()).unwrap();
        }
        inherited
    }

    /// A connection made before the sockets changed hands is accepted after it.
    #[test]
    fn waiting_clients_are_served_after_a_handover() {
        let path = std::env::temp_dir().join(format!("net-inherit-{}", std::process::id()));
        let mut old = listen(&path).bind().unwrap();
        let addresses: Vec<_> = old.addresses().cloned().collect();
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = metrics.local_addr().unwrap();
        old.keep_metrics(Some(metrics));
        let mut inherited = inherit(&old);
        assert_eq!(inherited.len(), 5);
        assert!(inherited.take_metrics("127.0.0.2:0".parse().unwrap()).is_none());
        let kept = inherited.take_metrics(at).unwrap();
        assert_eq!(kept.local_addr().unwrap(), at);
        let ListenAddress::Tcp(tcp, _) = *addresses[0] else { panic!("{addresses:?}") };
        let mut waiting = TcpStream::connect(tcp).unwrap();
        let waiting_unix = UnixStream::connect(&path).unwrap();
        old.leave_files();
        drop(old);
        let new = listen(&path).bind_or_inherit(&mut inherited).unwrap();
        assert!(inherited.is_empty());
        new.claim_files();
        assert_eq!(new.addresses().cloned().collect::<Vec<_>>(), addresses);
        let listener = TcpListener::from(new.streams[0].as_fd().try_clone_to_owned().unwrap());
        listener.accept().unwrap().0.write_all(b"x").unwrap();
        waiting.read_exact(&mut [0]).unwrap();
        drop(waiting_unix);
        let copy = new.try_clone().unwrap();
        drop(new);
        assert!(path.exists(), "a copy still needs it");
        drop(copy);
        assert!(!path.exists());
    }

    /// The file has the mode that systemd gave it, stays when the last copy is gone, and the next
    /// process knows its owner.
    #[test]
    fn a_systemd_socket_is_still_systemds_after_handovers() {
        let path = std::env::temp_dir().join(format!("net-systemds-{}", std::process::id()));
        let kept = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut inherited = Inherited::default();
        inherited.add_bound(kept.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions();
        let before = mode(&path);
        for _ in 0..2 {
            assert_eq!(inherited.unix(), Some(path.as_path()));
            let listen = Listen { unix: Some((path.clone(), 0o600)), ..Listen::default() };
            let sockets = listen.bind_or_inherit(&mut inherited).unwrap();
            assert!(inherited.is_empty());
            sockets.set_modes().unwrap();
            sockets.claim_files();
            inherited = inherit(&sockets);
        }
        let mut merged = inherit(&listen(&path.with_extension("own")).bind().unwrap());
        merged.merge(inherited);
        assert_eq!((merged.len(), merged.tcp().count(), merged.udp().count()), (5, 0, 0));
        assert_eq!(merged.unclaimed_of_systemd(), Some(format!("unix:{}", path.display())));
        assert_eq!((mode(&path), merged.unclaimed().len()), (before, 4));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_socket_that_nobody_wants_stays_unclaimed() {
        let path = std::env::temp_dir().join(format!("net-unclaimed-{}", std::process::id()));
        let old = listen(&path).bind().unwrap();
        let mut inherited = inherit(&old);
        let tcp = vec!["127.0.0.2:0".parse().unwrap()];
        let new = Listen { tcp, backlog: 16, ..Listen::default() };
        new.bind_or_inherit(&mut inherited).unwrap();
        assert_eq!(inherited.len(), 4);
        assert!(inherited.add("pipe", inherited_one(&old)).is_err());
    }

    /// Until the new process serves, the old one may serve again.
    #[test]
    fn the_file_of_an_abandoned_unix_socket_is_removed_when_files_are_claimed() {
        let path = std::env::temp_dir().join(format!("net-abandoned-{}", std::process::id()));
        let old = listen(&path).bind().unwrap();
        let mut new = Sockets::default();
        new.abandon(&inherit(&old));
        old.leave_files();
        drop(new.try_clone().unwrap());
        assert!(path.exists());
        new.claim_files();
        assert!(!path.exists());
        let kept = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut of_systemd = Inherited::default();
        of_systemd.add_bound(kept.into()).unwrap();
        new.abandon(&of_systemd);
        new.claim_files();
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn clients_get_the_old_address_of_the_metrics() {
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = metrics.local_addr().unwrap();
        let mut inherited = Inherited::default();
        inherited.add("metrics", metrics.into()).unwrap();
        let new = Listen { tcp: vec![at], backlog: 16, ..Listen::default() };
        let new = new.bind_or_inherit(&mut inherited).unwrap();
        assert_eq!((new.streams.len(), inherited.len()), (1, 0));
        let socket = SockRef::from(&new.streams[0]);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
    }

    #[test]
    fn an_inherited_address_is_in_the_way_of_the_wildcard_at_its_port() {
        let path = std::env::temp_dir().join(format!("net-overlap-{}", std::process::id()));
        let old = Listen { unix: None, ..listen(&path) }.bind().unwrap();
        let mut inherited = inherit(&old);
        let ListenAddress::Tcp(bound, _) = *old.streams[0].address else { unreachable!("TCP") };
        let wanted = SocketAddr::from(([0, 0, 0, 0], bound.port()));
        let new = Listen { tcp: vec![wanted], backlog: 16, ..Listen::default() };
        let error = new.bind_or_inherit(&mut inherited).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(inherited.overlapping(wanted), Some(bound));
    }

    #[test]
    fn the_wildcard_overlaps_with_an_address_of_the_same_family_and_port() {
        for (one, other, want) in [
            ("0.0.0.0:5", "127.0.0.1:5", true),
            ("[::]:5", "[::1]:5", true),
            ("0.0.0.0:5", "127.0.0.1:6", false),
            ("0.0.0.0:5", "0.0.0.0:5", false),
            ("127.0.0.1:5", "127.0.0.2:5", false),
            ("127.0.0.1:5", "[::]:5", false),
        ] {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!((overlap(one, other), overlap(other, one)), (want, want), "{one}, {other}");
        }
    }

    /// Like systemd's, which belongs to another user than the server.
    #[test]
    fn a_udp_socket_without_port_sharing_is_used_alone() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = udp.local_addr().unwrap();
        let mut inherited = Inherited::default();
        inherited.add_bound(udp.into()).unwrap();
        let listen = Listen { udp: vec![address], udp_sockets: 3, ..Listen::default() };
        let sockets = listen.bind_or_inherit(&mut inherited).unwrap();
        assert_eq!((sockets.datagrams.len(), sockets.datagrams[0].1.len()), (1, 1));
        assert!(inherited.is_empty());
        assert_eq!(listen.bind().unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    /// As systemd passes them: without a description.
    #[test]
    fn a_socket_is_identified_by_its_bound_address() {
        let path = std::env::temp_dir().join(format!("net-bound-{}", std::process::id()));
        let local = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (clients, operators) = (local(), local());
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let at = |listener: &TcpListener| listener.local_addr().unwrap();
        let (clients_at, operators_at, udp_at) =
            (at(&clients), at(&operators), udp.local_addr().unwrap());
        let mut inherited = Inherited::default();
        let all: [OwnedFd; 4] = [clients.into(), operators.into(), udp.into(), unix.into()];
        all.into_iter().for_each(|socket| inherited.add_bound(socket).unwrap());
        assert_eq!(inherited.tcp().collect::<Vec<_>>(), [clients_at, operators_at]);
        inherited.name_metrics(operators_at);
        assert_eq!(inherited.tcp().collect::<Vec<_>>(), [clients_at]);
        assert_eq!(inherited.udp().collect::<Vec<_>>(), [udp_at]);
        assert_eq!(inherited.unix(), Some(path.as_path()));
        assert_eq!(at(&inherited.take_metrics(operators_at).unwrap()), operators_at);
    }

    fn inherited_one(sockets: &Sockets) -> OwnedFd {
        sockets.descriptors().next().unwrap().1.try_clone_to_owned().unwrap()
    }
}
