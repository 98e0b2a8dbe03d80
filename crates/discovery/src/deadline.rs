//! The time limit of a source's whole answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The time by which an answer must be complete. A limit for each read would not suffice: a source
/// that sends single bytes would never reach it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(patience: Duration) -> Self {
        Self(Instant::now() + patience)
    }

    /// The remaining time, which is not zero.
    pub(crate) fn left(self) -> io::Result<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(too_late()) } else { Ok(left) }
    }

    /// The deadline of the first of this number of tries, which share the remaining time.
    pub(crate) fn of_first(self, tries: usize) -> Self {
        let left = self.0.saturating_duration_since(Instant::now());
        Self::after(left / u32::try_from(tries.max(1)).unwrap_or(u32::MAX))
    }
}

fn too_late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "no whole answer in time")
}

/// A connection on which no wait exceeds the deadline.
#[derive(Debug)]
pub(crate) struct Timed {
    stream: TcpStream,
    deadline: Deadline,
}

impl Timed {
    pub(crate) fn connect(address: &SocketAddr, deadline: Deadline) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(address, deadline.left()?)?;
        Ok(Self { stream, deadline })
    }
}

/// The kernel reports a socket's timeout as `WouldBlock`.
fn named(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { too_late() } else { error }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.deadline.left()?))?;
        self.stream.read(buffer).map_err(named)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.deadline.left()?))?;
        self.stream.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
