//! The other end of a connection, and the listener that accepted it.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;

/// The other end of a connection, or the sender of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the other end; `None` for a unix socket, whose clients have no name.
    pub remote: Option<SocketAddr>,
    /// The listener that accepted it.
    pub listener: Arc<ListenAddress>,
    /// Descriptor number of the connection's socket, or of the socket that received a datagram.
    pub fd: RawFd,
}

/// The address of a listening socket, as bound: an ephemeral port is the real one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP address, and its place in [`crate::Listen::tcp`].
    Tcp(SocketAddr, usize),
    /// A UDP address, and its place in [`crate::Listen::udp`].
    Udp(SocketAddr, usize),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl Peer {
    /// A peer without a real socket, for tests of a service.
    #[must_use]
    pub fn local() -> Self {
        Self { remote: None, listener: Arc::new(ListenAddress::Unix(PathBuf::new())), fd: -1 }
    }
}

impl fmt::Display for ListenAddress {
    /// As in memcached's `stats conns`: `tcp:127.0.0.1:11211`, `tcp6:[::1]:11211`, `unix:/path`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address, _) => write_address(f, "tcp", *address),
            Self::Udp(address, _) => write_address(f, "udp", *address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Peer {
    /// As in memcached's `stats conns`: the remote address, or the path for a unix socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.remote, &*self.listener) {
            (None, listener) => listener.fmt(f),
            (Some(remote), ListenAddress::Udp(..)) => write_address(f, "udp", remote),
            (Some(remote), _) => write_address(f, "tcp", remote),
        }
    }
}

fn write_address(f: &mut fmt::Formatter<'_>, kind: &str, address: SocketAddr) -> fmt::Result {
    let family = if address.is_ipv6() { "6" } else { "" };
    write!(f, "{kind}{family}:{address}")
}
