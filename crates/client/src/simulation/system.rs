//! The simulated system under the names of the real one: what a thread connects to is the [`Net`] of that thread.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;

use super::net::{Net, SocketId};
use crate::address::Address;

thread_local! {
    static NET: RefCell<Option<Net>> = const { RefCell::new(None) };
}

/// From here on this thread is in `net`.
pub(crate) fn enter(net: Net) {
    NET.set(Some(net));
}

/// The network of this thread.
pub(crate) fn with<T>(work: impl FnOnce(&mut Net) -> T) -> T {
    NET.with_borrow_mut(|net| work(net.as_mut().expect("a network: see `enter`")))
}

/// The time of the simulation; outside of one, the machine's.
pub(crate) fn now() -> Instant {
    NET.with_borrow(|net| net.as_ref().map_or_else(Instant::now, Net::now))
}

#[derive(Debug)]
pub(crate) struct Socket(SocketId);

impl Socket {
    pub(crate) fn connect(address: &Address) -> Result<Self, Errno> {
        with(|net| net.connect(address)).map(Self)
    }

    pub(crate) fn datagrams(address: &Address) -> Result<Self, Errno> {
        with(|net| net.datagrams(address)).map(Self)
    }

    pub(crate) fn connected(&self) -> Result<(), Errno> {
        with(|net| net.connected(self.0))
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        with(|net| net.read(self.0, buffer))
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        with(|net| net.send(self.0, bytes))
    }

    pub(crate) fn receive_datagram(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        with(|net| net.receive_datagram(self.0, buffer))
    }

    pub(crate) fn send_datagram(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        with(|net| net.send_datagram(self.0, &bytes))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The thread's end may have taken the network already.
        let _ = NET.try_with(|net| net.borrow_mut().as_mut().map(|net| net.close(self.0)));
    }
}

/// One that the simulation asks; its descriptor, which others poll, never tells anything.
#[derive(Debug)]
pub(crate) struct Poller {
    number: u32,
    /// What [`Self::watch_fd`] tells; it does so each time, since a loop that was woken for nothing does nothing.
    wake: OnceLock<u64>,
    fd: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { number: with(Net::new_poller), wake: OnceLock::new(), fd })
    }

    pub(crate) fn watch(&self, socket: &Socket, data: u64, output: bool) {
        with(|net| net.watch(socket.0, self.number, data, output));
    }

    pub(crate) fn change(&self, socket: &Socket, data: u64, output: bool) {
        self.watch(socket, data, output);
    }

    pub(crate) fn watch_fd(&self, _fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
        // The first stays.
        let _ = self.wake.set(data);
        Ok(())
    }

    pub(crate) fn take(&self, told: &mut Vec<u64>) {
        told.extend(self.wake.get());
        told.extend(with(|net| net.ready(self.number)));
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
