//! A system that a test simulates, thread by thread.
//!
//! A thread that has called [`enter`] makes its sockets and pollers in that [`Network`] and reads
//! its clock. Every other thread has the real system, so a program that is built with this feature
//! works as without it.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;

use super::real;
use crate::address::Address;

/// The client's end of a simulated connection, or of a path for datagrams.
pub type SocketId = u32;

/// A simulated network, as the thread that entered it calls it. Errors are those of the system
/// calls of the same names.
#[expect(clippy::missing_errors_doc, reason = "each fails as its system call does")]
pub trait Network: Sync {
    /// The simulated time.
    fn now(&self) -> Instant;
    /// Starts to connect.
    fn connect(&self, address: &Address) -> Result<SocketId, Errno>;
    /// A socket for datagrams to and from `address`.
    fn datagrams(&self, address: &Address) -> Result<SocketId, Errno>;
    /// The result of connecting.
    fn connected(&self, socket: SocketId) -> Result<(), Errno>;
    /// Reads bytes that have arrived; 0 at the end.
    fn read(&self, socket: SocketId, buffer: &mut [u8]) -> Result<usize, Errno>;
    /// Sends as many bytes as there is room for.
    fn send(&self, socket: SocketId, bytes: &[u8]) -> Result<usize, Errno>;
    /// Reads one datagram.
    fn receive_datagram(&self, socket: SocketId, buffer: &mut [u8]) -> Result<usize, Errno>;
    /// Sends one datagram.
    fn send_datagram(&self, socket: SocketId, bytes: &[u8]) -> Result<(), Errno>;
    /// Closes a socket. May be called after the thread's locals are destroyed.
    fn close(&self, socket: SocketId);
    /// The number of a new poller.
    fn new_poller(&self) -> u32;
    /// Registers a socket with a poller, or changes its registration.
    fn watch(&self, socket: SocketId, poller: u32, data: u64, output: bool);
    /// The data of the sockets that are ready.
    fn ready(&self, poller: u32) -> Vec<u64>;
}

thread_local! {
    static NETWORK: Cell<Option<&'static dyn Network>> = const { Cell::new(None) };
}

/// Makes `network` the system of this thread.
pub fn enter(network: &'static dyn Network) {
    NETWORK.set(Some(network));
}

/// The time of this thread's network; outside of one, the machine's.
pub(super) fn now() -> Instant {
    NETWORK.get().map_or_else(real::now, Network::now)
}

/// A socket of the system that its thread had when it was made.
#[derive(Debug)]
pub(crate) enum Socket {
    Real(real::Socket),
    Simulated(Simulated),
}

/// A simulated socket, which closes itself.
pub(crate) struct Simulated {
    network: &'static dyn Network,
    id: SocketId,
}

impl std::fmt::Debug for Simulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Simulated").field(&self.id).finish()
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.network.close(self.id);
    }
}

impl Socket {
    pub(crate) fn connect(address: &Address) -> Result<Self, Errno> {
        let Some(network) = NETWORK.get() else {
            return real::Socket::connect(address).map(Self::Real);
        };
        network.connect(address).map(|id| Self::Simulated(Simulated { network, id }))
    }

    pub(crate) fn datagrams(address: &Address) -> Result<Self, Errno> {
        let Some(network) = NETWORK.get() else {
            return real::Socket::datagrams(address).map(Self::Real);
        };
        network.datagrams(address).map(|id| Self::Simulated(Simulated { network, id }))
    }

    pub(crate) fn connected(&self) -> Result<(), Errno> {
        match self {
            Self::Real(socket) => socket.connected(),
            Self::Simulated(Simulated { network, id }) => network.connected(*id),
        }
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Real(socket) => socket.read(buffer),
            Self::Simulated(Simulated { network, id }) => network.read(*id, buffer),
        }
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            Self::Real(socket) => socket.send(bytes),
            Self::Simulated(Simulated { network, id }) => network.send(*id, bytes),
        }
    }

    pub(crate) fn receive_datagram(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Real(socket) => socket.receive_datagram(buffer),
            Self::Simulated(Simulated { network, id }) => network.receive_datagram(*id, buffer),
        }
    }

    pub(crate) fn send_datagram(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        match self {
            Self::Real(socket) => socket.send_datagram(parts),
            Self::Simulated(Simulated { network, id }) => {
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                network.send_datagram(*id, &bytes)
            }
        }
    }
}

/// A poller of the system that its thread had when it was made. It watches sockets of that system
/// only.
#[derive(Debug)]
pub(crate) enum Poller {
    Real(real::Poller),
    Simulated(SimulatedPoller),
}

/// A poller for the simulation. Its descriptor, which others poll, is never readable.
pub(crate) struct SimulatedPoller {
    network: &'static dyn Network,
    number: u32,
    /// The data of [`Poller::watch_fd`], reported each time: a loop that is woken needlessly does
    /// nothing.
    wake: OnceLock<u64>,
    fd: OwnedFd,
}

impl std::fmt::Debug for SimulatedPoller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SimulatedPoller").field(&self.number).finish()
    }
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let Some(network) = NETWORK.get() else { return real::Poller::new().map(Self::Real) };
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (number, wake) = (network.new_poller(), OnceLock::new());
        Ok(Self::Simulated(SimulatedPoller { network, number, wake, fd }))
    }

    pub(crate) fn watch(&self, socket: &Socket, data: u64, output: bool) {
        match (self, socket) {
            (Self::Real(poller), Socket::Real(socket)) => poller.watch(socket, data, output),
            (Self::Simulated(poller), Socket::Simulated(socket)) => {
                poller.network.watch(socket.id, poller.number, data, output);
            }
            _ => unreachable!("a poller and a socket of two systems"),
        }
    }

    pub(crate) fn change(&self, socket: &Socket, data: u64, output: bool) {
        match (self, socket) {
            (Self::Real(poller), Socket::Real(socket)) => poller.change(socket, data, output),
            _ => self.watch(socket, data, output),
        }
    }

    pub(crate) fn watch_fd(&self, fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
        match self {
            Self::Real(poller) => poller.watch_fd(fd, data),
            Self::Simulated(poller) => {
                // The first one stays.
                let _ = poller.wake.set(data);
                Ok(())
            }
        }
    }

    pub(crate) fn take(&self, told: &mut Vec<u64>) {
        match self {
            Self::Real(poller) => poller.take(told),
            Self::Simulated(poller) => {
                told.extend(poller.wake.get());
                told.extend(poller.network.ready(poller.number));
            }
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Real(poller) => poller.as_fd(),
            Self::Simulated(poller) => poller.fd.as_fd(),
        }
    }
}
