//! The real system.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, send, sendmsg, shutdown, socket_with, sockopt,
};
use rustix::process::{Pid, getpid};
use rustix::time::Timespec;

use crate::address::Address;

/// The present time.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// A socket to a server. It never blocks: calls that cannot proceed return [`Errno::AGAIN`], and no
/// call is interrupted.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// The poller that watches it.
    watcher: OnceLock<Arc<Epoll>>,
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self { fd, watcher: OnceLock::new() }
    }
}

impl Drop for Socket {
    /// A forked child process has copies of the descriptors, so closing this one ends neither the
    /// connection nor its events. The child does nothing here, because both belong to the parent.
    fn drop(&mut self) {
        if let Some(epoll) = self.watcher.get()
            && epoll.owner == getpid()
        {
            // Without kernel memory it is not registered, and it may no longer be connected.
            let _ = epoll::delete(&epoll.fd, &self.fd);
            let _ = shutdown(&self.fd, Shutdown::Both);
        }
    }
}

const SOCKET_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

impl Socket {
    /// Starts to connect; the socket is writable when it has succeeded or failed.
    ///
    /// # Errors
    ///
    /// If it fails at once.
    pub(crate) fn connect(address: &Address) -> Result<Self, Errno> {
        match address {
            Address::Tcp(address) => {
                let family = family_of(address);
                let socket = socket_with(family, SocketType::STREAM, SOCKET_FLAGS, None)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                sockopt::set_socket_keepalive(&socket, true)?;
                begun(connect(&socket, address))?;
                Ok(socket.into())
            }
            Address::Unix(path) => {
                let family = AddressFamily::UNIX;
                let socket = socket_with(family, SocketType::STREAM, SOCKET_FLAGS, None)?;
                begun(connect(&socket, &SocketAddrUnix::new(path)?))?;
                Ok(socket.into())
            }
            Address::NotFound(_) => Err(Errno::HOSTUNREACH),
        }
    }

    /// A socket for datagrams to and from only this address.
    ///
    /// # Errors
    ///
    /// For a socket in the file system, and if no descriptor is available.
    pub(crate) fn datagrams(address: &Address) -> Result<Self, Errno> {
        let Address::Tcp(address) = address else { return Err(Errno::OPNOTSUPP) };
        let socket = socket_with(family_of(address), SocketType::DGRAM, SOCKET_FLAGS, None)?;
        connect(&socket, address)?;
        Ok(socket.into())
    }

    /// The result of connecting, once the socket is writable.
    pub(crate) fn connected(&self) -> Result<(), Errno> {
        sockopt::socket_error(&self.fd)?
    }

    /// Reads received bytes; 0: there will be no more.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut *buffer))
    }

    /// Sends as many bytes as there is room for.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| send(&self.fd, bytes, SEND_FLAGS))
    }

    /// Reads one datagram.
    pub(crate) fn receive_datagram(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| recv(&self.fd, &mut *buffer, RecvFlags::DONTWAIT))
            .map(|(len, _)| len)
    }

    /// Sends one datagram.
    pub(crate) fn send_datagram(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let mut ancillary = SendAncillaryBuffer::default();
        sendmsg(&self.fd, parts, &mut ancillary, SEND_FLAGS).map(drop)
    }
}

fn family_of(address: &std::net::SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// "In progress" is not a failure.
fn begun(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(()),
        other => other,
    }
}

/// Maximum number of events read at once.
const EVENTS: usize = 128;

/// Reports sockets that are readable or have room. A dropped socket leaves it.
#[derive(Debug)]
pub(crate) struct Poller(Arc<Epoll>);

#[derive(Debug)]
struct Epoll {
    fd: OwnedFd,
    /// The process that made it. Children share the watched descriptors.
    owner: Pid,
}

impl Poller {
    /// A poller without sockets.
    ///
    /// # Errors
    ///
    /// If no descriptor is available.
    pub(crate) fn new() -> io::Result<Self> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self(Arc::new(Epoll { fd, owner: getpid() })))
    }

    /// Reports `data` when the socket is readable, and, with `output`, when it has room or cannot
    /// be connected.
    pub(crate) fn watch(&self, socket: &Socket, data: u64, output: bool) {
        // Without kernel memory, the socket never reports an event, and its requests time out.
        let _ = epoll::add(&self.0.fd, &socket.fd, EventData::new_u64(data), flags(output));
        // A socket has one poller.
        let _ = socket.watcher.set(Arc::clone(&self.0));
    }

    /// Changes the watched events of a registered socket.
    pub(crate) fn change(&self, socket: &Socket, data: u64, output: bool) {
        // Changing the flags of a registered descriptor cannot fail.
        let _ = epoll::modify(&self.0.fd, &socket.fd, EventData::new_u64(data), flags(output));
    }

    /// Reports `data` when `fd` is readable.
    ///
    /// # Errors
    ///
    /// If the kernel has no memory for it.
    pub(crate) fn watch_fd(&self, fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0.fd, fd, EventData::new_u64(data), EventFlags::IN)?)
    }

    /// Adds the data of current events to `told`; not all of them, if there are many.
    pub(crate) fn take(&self, told: &mut Vec<u64>) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        // An interrupted wait has found nothing.
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.0.fd, &mut events, Some(&at_once)) else { return };
        told.extend(events.iter().map(|event| event.data.u64()));
    }
}

impl AsFd for Poller {
    /// Readable when [`Self::take`] has events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

fn flags(output: bool) -> EventFlags {
    if output { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// The copy represents a child's: both refer to one socket of the kernel.
    #[test]
    fn a_dropped_socket_is_closed_even_if_a_child_has_a_copy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::connect(&Address::Tcp(listener.local_addr().unwrap())).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let poller = Poller::new().unwrap();
        poller.watch(&socket, 7, true);
        let copy = rustix::io::dup(&socket.fd).unwrap();
        let told = || {
            let mut told = Vec::new();
            poller.take(&mut told);
            told
        };
        assert_eq!(told(), [7], "it has room");
        drop(socket);
        assert_eq!(accepted.read(&mut [0]).unwrap(), 0, "the server sees the end");
        assert_eq!(told(), [] as [u64; 0], "though there is an end to be read");
        drop(copy);
    }
}
