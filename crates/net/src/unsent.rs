//! Output of a socket that the kernel keeps until the peer takes it.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// A connection's replies in the kernel.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// Bytes that the client had not taken at the last check.
    pub(crate) bytes: usize,
    /// Bytes sent since then.
    pub(crate) sent: u64,
    /// The last check that found no bytes left, or that all bytes of the one before had been taken.
    since_ms: u64,
    /// Its worker has to query the kernel.
    pub(crate) is_listed: bool,
}

impl Unread {
    /// The time since when the client has left bytes in the kernel that it could have taken; `None`
    /// when none are known to be there.
    pub(crate) fn since_ms(&self) -> Option<u64> {
        (self.bytes > 0).then_some(self.since_ms)
    }

    /// Notes that the kernel keeps this many bytes now.
    pub(crate) fn see(&mut self, kept: usize, now_ms: u64) {
        let taken = (self.bytes as u64 + self.sent).saturating_sub(kept as u64);
        if kept == 0 || taken >= self.bytes as u64 {
            self.since_ms = now_ms;
        }
        (self.bytes, self.sent) = (kept, 0);
    }
}

/// `SIOCOUTQ` of tcp(7) and unix(7), on x86-64 and arm64.
const SIOCOUTQ: Opcode = 0x5411;

/// Bytes that the peer of this socket has not taken: sent and not acknowledged, or not sent.
///
/// # Errors
///
/// Those of ioctl(2), for example for a descriptor that is not a connected socket.
pub(crate) fn kept_by_kernel(socket: BorrowedFd<'_>) -> Result<usize, Errno> {
    // SAFETY: the number is that of a request, and the int is the type that it writes: so say
    // tcp(7) and unix(7), and ioctl_tty(2) of terminals.
    let request = unsafe { Getter::<SIOCOUTQ, c_int>::new() };
    // SAFETY: the kernel writes into the request's own int, or refuses a descriptor of another
    // kind. Nothing else changes.
    let bytes = unsafe { ioctl(socket, request)? };
    Ok(usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn unread_bytes_count_until_the_peer_reads_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        assert_eq!(kept_by_kernel(socket.as_fd()), Ok(0));
        socket.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(count) = socket.write(&[b'x'; 100_000]) {
            sent += count;
        }
        let kept = kept_by_kernel(socket.as_fd()).unwrap();
        assert!((1..=sent).contains(&kept), "{kept} of {sent}");
        peer.read_exact(&mut vec![0; sent]).unwrap();
        while kept_by_kernel(socket.as_fd()).unwrap() > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn reading_the_earlier_bytes_restarts_the_time() {
        let mut unread = Unread { sent: 1000, ..Unread::default() };
        unread.see(600, 10);
        assert_eq!(unread.since_ms(), Some(10));
        unread.sent = 5000;
        unread.see(5000, 20);
        assert_eq!(unread.since_ms(), Some(20), "the 600 were taken");
        unread.see(4999, 30);
        assert_eq!(unread.since_ms(), Some(20), "one byte is little");
        unread.see(0, 40);
        assert_eq!(unread.since_ms(), None);
    }
}
