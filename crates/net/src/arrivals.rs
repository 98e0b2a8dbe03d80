//! Stamps of arrival, for sessions that request them: the time when the kernel received the last
//! bytes read (`SO_TIMESTAMPING`, the kernel's `Documentation/networking/timestamping.rst`).
//!
//! The kernel starts to stamp in a separate thread, some milliseconds after the request.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::cmsg_space;
use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, Timestamps, recvmsg, setsockopt,
};
use rustix::io::Errno;

/// The stamps of one connection.
#[derive(Debug)]
pub(crate) struct Arrivals {
    last: Option<SystemTime>,
}

impl Arrivals {
    /// Requests stamps from the kernel for future input; `None` if it has none for this socket.
    pub(crate) fn start(socket: impl AsFd) -> Option<Box<Self>> {
        let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE;
        setsockopt(&socket, Timestamping, &flags).ok()?;
        Some(Box::new(Self { last: None }))
    }

    /// When the last segment of the last bytes read arrived; `None` if the kernel did not report
    /// it.
    pub(crate) const fn last(&self) -> Option<SystemTime> {
        self.last
    }

    /// Reads once, with the stamp.
    pub(crate) fn read(&mut self, socket: impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut control = cmsg_space!(Timestamps);
        let fd = socket.as_fd().as_raw_fd();
        let mut parts = [IoSliceMut::new(buffer)];
        let message = recvmsg::<()>(fd, &mut parts, Some(&mut control), MsgFlags::empty())
            .map_err(|error| Errno::from_raw_os_error(error as i32))?;
        self.last = message.cmsgs().ok().and_then(|messages| messages.filter_map(stamp).next());
        Ok(message.bytes)
    }
}

/// The kernel's own stamp among the three of a message; zero means none.
fn stamp(message: ControlMessageOwned) -> Option<SystemTime> {
    let ControlMessageOwned::ScmTimestampsns(stamps) = message else { return None };
    let since = Duration::from(stamps.system);
    (!since.is_zero()).then(|| UNIX_EPOCH + since)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    #[test]
    fn received_data_has_its_arrival_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let mut arrivals = Arrivals::start(&server).unwrap();
        let mut buffer = [0; 8];
        for _ in 0..10_000 {
            let before = SystemTime::now();
            client.write_all(b"abc").unwrap();
            let written = SystemTime::now();
            assert_eq!(arrivals.read(&server, &mut buffer), Ok(3));
            assert_eq!(&buffer[..3], b"abc");
            if let Some(at) = arrivals.last() {
                // The loopback interface delivers within the call that sends.
                assert!((before..=written).contains(&at), "{before:?} {at:?} {written:?}");
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("no stamp came");
    }

    #[test]
    fn a_failed_read_is_the_same_error_as_without_stamps() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut arrivals = Arrivals::start(&server).unwrap();
        assert_eq!(arrivals.read(&server, &mut [0; 8]), Err(Errno::AGAIN));
        drop(client);
        thread::sleep(Duration::from_millis(1));
        assert_eq!(arrivals.last(), None);
    }
}
