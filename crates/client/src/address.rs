//! Where a server is, and a socket towards it.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// A server's address.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Address {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    /// As mcrouter writes it: `host:port` or `unix:path`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl Address {
    /// Begins to connect; the socket is writable when it has succeeded or failed.
    ///
    /// # Errors
    ///
    /// When it fails at once.
    pub(crate) fn connect(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match self {
            Self::Tcp(address) => {
                let family =
                    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let socket = socket_with(family, SocketType::STREAM, flags, None)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                sockopt::set_socket_keepalive(&socket, true)?;
                begun(connect(&socket, address))?;
                Ok(socket)
            }
            Self::Unix(path) => {
                let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                begun(connect(&socket, &SocketAddrUnix::new(path)?))?;
                Ok(socket)
            }
        }
    }

    /// A socket for datagrams to and from there alone.
    ///
    /// # Errors
    ///
    /// For a socket in the file system, and when there is no descriptor.
    pub(crate) fn connect_udp(&self) -> Result<OwnedFd, Errno> {
        let Self::Tcp(address) = self else { return Err(Errno::OPNOTSUPP) };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
        connect(&socket, address)?;
        Ok(socket)
    }
}

/// "In progress" is no failure.
fn begun(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(()),
        other => other,
    }
}
