//! Ports for servers that start next.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// Below the ports that the kernel assigns (from 32768 on), so that no client's port, nor that of a
/// server with port 0, takes one between this call and the server's start.
const PORTS: Range<u16> = 15_000..31_000;

/// The maximum number of claims of a process, each with a file descriptor. The oldest go first:
/// their servers run, or have ended.
const CLAIMS_MAX: usize = 256;

/// A name in the network namespace for each assigned port: two processes that look for ports at the
/// same time never get the same one.
static CLAIMS: Mutex<VecDeque<UnixListener>> = Mutex::new(VecDeque::new());

/// A loopback port that was free a moment ago; another one at each call, in any process.
///
/// # Errors
///
/// `AddrInUse` when no port of the range is free.
pub fn free_port() -> io::Result<u16> {
    // Relaxed: only the number counts, no other data depends on it.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = process::id().wrapping_mul(139);
    for _ in PORTS {
        let turn = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(13));
        let port =
            PORTS.start + u16::try_from(turn % u32::from(PORTS.end - PORTS.start)).unwrap_or(0);
        if claim(port) && can_be_bound(port) {
            return Ok(port);
        }
    }
    let range = format!("no port from {} to {} is free", PORTS.start, PORTS.end);
    Err(io::Error::new(io::ErrorKind::AddrInUse, range))
}

/// `true` if a server could listen on the port now.
///
/// The socket never listens. A child that another thread starts at this moment has a copy of it
/// until it runs its program: if the socket listened, the child would accept in the server's place
/// and keep it from the port. With `SO_REUSEADDR` a bound socket does not hinder a server.
fn can_be_bound(port: u16) -> bool {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let tried = || {
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)
    };
    tried().is_ok()
}

/// Takes the name of a port, unless another process has it.
fn claim(port: u16) -> bool {
    let name = format!("holdall-port-{port}");
    let bound =
        SocketAddr::from_abstract_name(name).and_then(|address| UnixListener::bind_addr(&address));
    let Ok(listener) = bound else { return false };
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    if claims.len() == CLAIMS_MAX {
        claims.pop_front();
    }
    claims.push_back(listener);
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

    use std::net::{TcpListener, TcpStream};
    use std::process::Command;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    #[test]
    fn ports_are_distinct_and_below_the_ephemeral_range() {
        let mut ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50);
    }

    #[test]
    fn a_port_claimed_by_another_process_is_skipped() {
        let port = free_port().unwrap();
        assert!(!claim(port), "given out twice");
    }

    #[test]
    fn a_port_in_use_is_skipped() {
        let hold = || TcpListener::bind((Ipv4Addr::LOCALHOST, free_port().unwrap())).unwrap();
        let held: Vec<TcpListener> = (0..20).map(|_| hold()).collect();
        for one in &held {
            let port = one.local_addr().unwrap().port();
            assert!(!can_be_bound(port), "{port} is listened on");
        }
    }

    /// Each child has a copy of every socket of this process until it runs its program.
    #[test]
    fn a_free_port_stays_unused_while_children_start() {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: the flag guards no data.
                while !done.load(Ordering::Relaxed) {
                    Command::new("true").status().unwrap();
                }
            });
            let refused = (0..2000).all(|_| {
                let address = (Ipv4Addr::LOCALHOST, free_port().unwrap());
                TcpStream::connect(address).is_err() && TcpListener::bind(address).is_ok()
            });
            done.store(true, Ordering::Relaxed);
            assert!(refused, "a copy of the socket listens");
        });
    }
}
