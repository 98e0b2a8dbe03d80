//! The simulated system of each thread: connections go to the [`Net`] that the thread entered.

use std::cell::RefCell;
use std::time::Instant;

use rustix::io::Errno;
use upstream::Address;
use upstream::system::simulated::{self, Network, SocketId};

use super::net::Net;

thread_local! {
    static NET: RefCell<Option<Net>> = const { RefCell::new(None) };
}

/// Puts this thread into `net`.
pub fn enter(net: Net) {
    NET.set(Some(net));
    simulated::enter(&ThreadNet);
}

/// Gives access to the network of this thread.
///
/// # Panics
///
/// In a thread that has not entered one.
pub fn with<T>(work: impl FnOnce(&mut Net) -> T) -> T {
    NET.with_borrow_mut(|net| work(net.as_mut().expect("a network: see `enter`")))
}

/// The simulated time; outside of a simulation, the machine's.
#[must_use]
pub fn now() -> Instant {
    upstream::system::now()
}

/// The network of the calling thread.
struct ThreadNet;

impl Network for ThreadNet {
    fn now(&self) -> Instant {
        with(|net| net.now())
    }

    fn connect(&self, address: &Address) -> Result<SocketId, Errno> {
        with(|net| net.connect(address))
    }

    fn datagrams(&self, address: &Address) -> Result<SocketId, Errno> {
        with(|net| net.datagrams(address))
    }

    fn connected(&self, socket: SocketId) -> Result<(), Errno> {
        with(|net| net.connected(socket))
    }

    fn read(&self, socket: SocketId, buffer: &mut [u8]) -> Result<usize, Errno> {
        with(|net| net.read(socket, buffer))
    }

    fn send(&self, socket: SocketId, bytes: &[u8]) -> Result<usize, Errno> {
        with(|net| net.send(socket, bytes))
    }

    fn receive_datagram(&self, socket: SocketId, buffer: &mut [u8]) -> Result<usize, Errno> {
        with(|net| net.receive_datagram(socket, buffer))
    }

    fn send_datagram(&self, socket: SocketId, bytes: &[u8]) -> Result<(), Errno> {
        with(|net| net.send_datagram(socket, bytes))
    }

    fn close(&self, socket: SocketId) {
        // The end of the thread may have destroyed the network already.
        let _ = NET.try_with(|net| net.borrow_mut().as_mut().map(|net| net.close(socket)));
    }

    fn new_poller(&self) -> u32 {
        with(Net::new_poller)
    }

    fn watch(&self, socket: SocketId, poller: u32, data: u64, output: bool) {
        with(|net| net.watch(socket, poller, data, output));
    }

    fn ready(&self, poller: u32) -> Vec<u64> {
        with(|net| net.ready(poller))
    }
}
