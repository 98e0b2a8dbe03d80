//! Ports for servers that are about to be started.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Below the ports that the kernel hands out by itself (from 32768 on), so that no client's port,
/// nor a server's that asked for port 0, takes one between this call and the server's start.
const PORTS: Range<u16> = 15_000..31_000;

/// Claims that a process keeps, each with a file descriptor. The oldest go first: their servers
/// run, or are gone.
const CLAIMS_MAX: usize = 256;

/// A name of the network namespace for each port that was given out: two processes that look for
/// ports at the same time never get the same one.
static CLAIMS: Mutex<VecDeque<UnixListener>> = Mutex::new(VecDeque::new());

/// A loopback port that was free a moment ago; another one at each call, of whichever process.
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
        if claim(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    let range = format!("no port from {} to {} is free", PORTS.start, PORTS.end);
    Err(io::Error::new(io::ErrorKind::AddrInUse, range))
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

    use super::*;

    #[test]
    fn ports_differ_and_lie_below_those_of_clients() {
        let mut ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50);
    }

    #[test]
    fn a_port_that_another_process_has_been_given_is_passed_over() {
        let port = free_port().unwrap();
        assert!(!claim(port), "given out twice");
    }

    #[test]
    fn a_port_in_use_is_passed_over() {
        let hold = |port| {
            // A process that another test starts has a copy of the socket with which the port was
            // tried, until it runs its program.
            let held = (0..100_000).find_map(|_| {
                std::thread::yield_now();
                TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
            });
            held.unwrap()
        };
        let held: Vec<TcpListener> = (0..20).map(|_| hold(free_port().unwrap())).collect();
        let next = free_port().unwrap();
        assert!(held.iter().all(|one| one.local_addr().unwrap().port() != next));
    }
}
