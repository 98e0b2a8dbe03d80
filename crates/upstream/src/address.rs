//! The address of a server.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A server's address.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Address {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
    /// `host:port` of a host that was not found. Connecting to it fails at once.
    NotFound(String),
}

impl fmt::Display for Address {
    /// mcrouter's form: `host:port` or `unix:path`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::NotFound(name) => f.write_str(name),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}
