//! Binds TCP addresses, a unix socket and UDP addresses, before the threads start, so that a server
//! may bind low ports and then give up its rights.

use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::peer::ListenAddress;
use crate::socket_handover::Inherited;
use crate::sockets::{SocketFile, Sockets, StreamListener};

/// Bytes of replies that wait in the kernel for a client's window, for each connection
/// (`TCP_NOTSENT_LOWAT`). Without a limit, the kernel holds up to 4 MB for a client that does not
/// read. Bytes in transit to a reading client do not count, so its throughput is unaffected.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// The addresses to listen on.
#[derive(Clone, Debug, Default)]
pub struct Listen {
    /// TCP addresses; port 0 takes any free one. An IPv6 address takes no IPv4 connections.
    pub tcp: Vec<SocketAddr>,
    /// UDP addresses.
    pub udp: Vec<SocketAddr>,
    /// A unix socket: its path and its permission bits.
    pub unix: Option<(PathBuf, u32)>,
    /// The maximum number of connections in the kernel before they are accepted.
    pub backlog: i32,
    /// UDP sockets for each address, one per worker; the kernel distributes the senders over them.
    pub udp_sockets: usize,
}

impl Listen {
    /// Binds every address and listens on the stream ones.
    ///
    /// # Errors
    ///
    /// Names the first address that cannot be bound. A unix socket's path is taken over only from a
    /// socket without a listener; anything else there is [`io::ErrorKind::AlreadyExists`] if it is
    /// no socket, and [`io::ErrorKind::AddrInUse`].
    pub fn bind(&self) -> io::Result<Sockets> {
        self.bind_or_inherit(&mut Inherited::default())
    }

    /// Binds every address that has no inherited socket, and takes the inherited socket for the
    /// others. The other process owns the file of an inherited unix socket until
    /// [`Sockets::claim_files`], and its permissions stay until [`Sockets::set_modes`]. The file of
    /// a socket of systemd stays unchanged.
    ///
    /// # Errors
    ///
    /// Those of [`Self::bind`].
    pub fn bind_or_inherit(&self, inherited: &mut Inherited) -> io::Result<Sockets> {
        let mut sockets = Sockets::default();
        for (index, &address) in self.tcp.iter().enumerate() {
            let found = inherited.take_tcp(address, &self.tcp);
            let is_systemds = found.as_ref().is_some_and(|found| found.is_systemds);
            let listener = match found {
                Some(found) => self.inherit_tcp(found.socket.into(), address, index),
                None => self.bind_tcp(address, index),
            };
            let listener = listener.map_err(|e| named("tcp", &address, &e))?;
            sockets.systemds.extend(is_systemds.then(|| Arc::clone(&listener.address)));
            sockets.streams.push(listener);
        }
        if let Some((path, mode)) = &self.unix {
            let found = inherited.take_unix(path);
            let is_systemds = found.as_ref().is_some_and(|found| found.is_systemds);
            let listener = match found {
                Some(found) if is_systemds => self.inherit_unix(found.socket.into(), path, None),
                // No client can reach a socket whose file was removed.
                Some(found) if path.exists() => SocketFile::at(path, *mode).and_then(|file| {
                    let listener = self.inherit_unix(found.socket.into(), path, Some(file))?;
                    listener.leave_file(true);
                    Ok(listener)
                }),
                _ => self.bind_unix(path, *mode),
            };
            let listener = listener.map_err(|e| named("unix", &path.display(), &e))?;
            sockets.systemds.extend(is_systemds.then(|| Arc::clone(&listener.address)));
            sockets.streams.push(listener);
        }
        for (index, &address) in self.udp.iter().enumerate() {
            let group = self.bind_udp(address, index, inherited);
            let group = group.map_err(|e| named("udp", &address, &e))?;
            sockets.systemds.extend(group.is_systemds.then(|| Arc::clone(&group.address)));
            sockets.datagrams.push((group.address, group.sockets));
        }
        Ok(sockets)
    }

    fn inherit_tcp(
        &self,
        socket: Socket,
        wanted: SocketAddr,
        index: usize,
    ) -> io::Result<StreamListener> {
        // It already listens; this changes how many may wait. It may have been the listener of the
        // metrics, without these options.
        socket.listen(self.backlog)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_keepalive(true)?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        let address = Arc::new(ListenAddress::Tcp(local_address(&socket, wanted)?, index));
        Ok(StreamListener::new(address, socket.into(), None))
    }

    fn inherit_unix(
        &self,
        socket: Socket,
        path: &Path,
        file: Option<SocketFile>,
    ) -> io::Result<StreamListener> {
        socket.listen(self.backlog)?;
        let address = Arc::new(ListenAddress::Unix(path.to_path_buf()));
        Ok(StreamListener::new(address, socket.into(), file.map(Arc::new)))
    }

    fn bind_tcp(&self, address: SocketAddr, index: usize) -> io::Result<StreamListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        // Linux passes these on to the accepted sockets.
        socket.set_tcp_nodelay(true)?;
        socket.set_keepalive(true)?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(self.backlog)?;
        let bound = local_address(&socket, address)?;
        let address = Arc::new(ListenAddress::Tcp(bound, index));
        Ok(StreamListener::new(address, socket.into(), None))
    }

    fn bind_unix(&self, path: &Path, mode: u32) -> io::Result<StreamListener> {
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // No client can connect before `listen`, so permissions are never wrong.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        self.inherit_unix(socket, path, Some(SocketFile::at(path, mode)?))
    }

    fn bind_udp(
        &self,
        address: SocketAddr,
        index: usize,
        inherited: &mut Inherited,
    ) -> io::Result<UdpGroup> {
        let mut bound = address;
        let mut group = Vec::new();
        let mut is_systemds = false;
        // All of them, even more than there are workers: the kernel distributes the senders over
        // all.
        while let Some(found) = inherited.take_udp(bound, &self.udp) {
            bound = local_address(&SockRef::from(&found.socket), bound)?;
            is_systemds |= found.is_systemds;
            group.push(found.socket.into());
        }
        let is_inherited = !group.is_empty();
        for _ in group.len()..self.udp_sockets.max(1) {
            let socket = match one_of_group(bound) {
                // The kernel shares a port among sockets of one user that allow it. Sockets of
                // another user, or that do not allow it, serve alone.
                Err(error) if is_inherited && error.kind() == io::ErrorKind::AddrInUse => break,
                other => other?,
            };
            bound = local_address(&SockRef::from(&socket), bound)?;
            group.push(socket);
        }
        let address = Arc::new(ListenAddress::Udp(bound, index));
        Ok(UdpGroup { address, sockets: group, is_systemds })
    }
}

/// The UDP sockets of one address.
struct UdpGroup {
    address: Arc<ListenAddress>,
    sockets: Vec<UdpSocket>,
    /// True if systemd opened one of them.
    is_systemds: bool,
}

/// A UDP socket that shares its port with others.
fn one_of_group(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Removes a socket file of a server that has ended, but no other file.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "exists and is not a socket"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens on it")),
    }
}

fn local_address(socket: &Socket, wanted: SocketAddr) -> io::Result<SocketAddr> {
    Ok(socket.local_addr()?.as_socket().unwrap_or(wanted))
}

fn named(kind: &str, address: &dyn std::fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {kind} {address}: {error}"))
}
