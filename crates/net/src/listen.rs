//! Binding: TCP addresses, a unix socket, UDP addresses. Done before the threads start, so that a server may bind low
//! ports and then give up its rights.

use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::peer::ListenAddress;

/// What to listen on.
#[derive(Clone, Debug, Default)]
pub struct Listen {
    /// TCP addresses; port 0 takes any free one. An IPv6 address takes no IPv4 connections.
    pub tcp: Vec<SocketAddr>,
    /// UDP addresses.
    pub udp: Vec<SocketAddr>,
    /// A unix socket: its path and its permission bits.
    pub unix: Option<(PathBuf, u32)>,
    /// Connections the kernel may hold before they are accepted.
    pub backlog: i32,
    /// UDP sockets for each address, one a worker; the kernel spreads the senders over them.
    pub udp_sockets: usize,
}

/// Bound sockets, not yet served.
#[derive(Debug, Default)]
pub struct Sockets {
    pub(crate) streams: Vec<StreamListener>,
    /// For each address, one socket for each worker.
    pub(crate) datagrams: Vec<(Arc<ListenAddress>, Vec<UdpSocket>)>,
}

/// One listening stream socket.
#[derive(Debug)]
pub(crate) struct StreamListener {
    pub(crate) address: Arc<ListenAddress>,
    socket: OwnedFd,
    /// Device and inode of the unix socket's file, which is removed when the listener ends if it is still this one.
    file: Option<(u64, u64)>,
}

impl Listen {
    /// Binds every address and listens on the stream ones.
    ///
    /// # Errors
    ///
    /// The first address that cannot be bound, named in the message. A unix socket's path is taken over only from a
    /// socket on which nobody listens; anything else there is [`io::ErrorKind::AddrInUse`].
    pub fn bind(&self) -> io::Result<Sockets> {
        let mut sockets = Sockets::default();
        for (index, &address) in self.tcp.iter().enumerate() {
            let listener = self.bind_tcp(address, index).map_err(|e| named("tcp", &address, &e))?;
            sockets.streams.push(listener);
        }
        if let Some((path, mode)) = &self.unix {
            let listener = self.bind_unix(path, *mode);
            sockets.streams.push(listener.map_err(|e| named("unix", &path.display(), &e))?);
        }
        for (index, &address) in self.udp.iter().enumerate() {
            let group = self.bind_udp(address, index).map_err(|e| named("udp", &address, &e))?;
            sockets.datagrams.push(group);
        }
        Ok(sockets)
    }

    fn bind_tcp(&self, address: SocketAddr, index: usize) -> io::Result<StreamListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        // Linux hands these down to the accepted sockets.
        socket.set_tcp_nodelay(true)?;
        socket.set_keepalive(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(self.backlog)?;
        let bound = local_address(&socket, address)?;
        let address = Arc::new(ListenAddress::Tcp(bound, index));
        Ok(StreamListener { address, socket: socket.into(), file: None })
    }

    fn bind_unix(&self, path: &Path, mode: u32) -> io::Result<StreamListener> {
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // Nobody can connect before `listen`, so there is no moment with wrong permissions.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        let file = fs::metadata(path)?;
        socket.listen(self.backlog)?;
        let address = Arc::new(ListenAddress::Unix(path.to_path_buf()));
        Ok(StreamListener { address, socket: socket.into(), file: Some((file.dev(), file.ino())) })
    }

    fn bind_udp(
        &self,
        address: SocketAddr,
        index: usize,
    ) -> io::Result<(Arc<ListenAddress>, Vec<UdpSocket>)> {
        let mut bound = address;
        let mut group = Vec::new();
        for _ in 0..self.udp_sockets.max(1) {
            let socket = Socket::new(Domain::for_address(bound), Type::DGRAM, Some(Protocol::UDP))?;
            if bound.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.set_reuse_port(true)?;
            socket.set_nonblocking(true)?;
            socket.bind(&bound.into())?;
            bound = local_address(&socket, bound)?;
            group.push(socket.into());
        }
        Ok((Arc::new(ListenAddress::Udp(bound, index)), group))
    }
}

impl Sockets {
    /// Adds what was bound later: a unix socket, once the rights that low ports need are given up.
    pub fn append(&mut self, other: Self) {
        self.streams.extend(other.streams);
        self.datagrams.extend(other.datagrams);
    }

    /// Every address, as bound: TCP first, then the unix socket, then UDP.
    pub fn addresses(&self) -> impl Iterator<Item = &Arc<ListenAddress>> {
        let streams = self.streams.iter().map(|listener| &listener.address);
        streams.chain(self.datagrams.iter().map(|(address, _)| address))
    }
}

impl AsFd for StreamListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for StreamListener {
    fn drop(&mut self) {
        let (ListenAddress::Unix(path), Some(file)) = (&*self.address, self.file) else { return };
        if fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == file) {
            // A file that cannot be removed is stale at the next start, and removed then.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a socket file left by a server that has ended; leaves everything else alone.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "exists and is not a socket"));
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
