//! A raw TCP connection: sends exactly the given bytes, reads with a deadline, hides nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};

/// The default time that a read waits before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A connection whose bytes the test chooses.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    /// Read from the socket and not yet requested.
    got: Vec<u8>,
}

/// The reason why a reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The awaited bytes came.
    Found,
    /// The peer closed the connection in order.
    Closed,
    /// The peer reset the connection; bytes it sent before may be lost.
    Reset,
    /// The time has passed.
    TimedOut,
}

impl Wire {
    /// Connects, without delay of small segments.
    #[must_use]
    pub fn connect(addr: SocketAddr) -> Self {
        Self::try_connect(addr).unwrap_or_else(|error| panic!("connect to {addr}: {error}"))
    }

    /// Connects, or returns the error.
    ///
    /// # Errors
    ///
    /// The system's: refused, no more files, timed out after five seconds.
    pub fn try_connect(addr: SocketAddr) -> std::io::Result<Self> {
        Self::try_connect_within(addr, Duration::from_secs(5))
    }

    /// Connects within `limit`, or returns the error.
    ///
    /// # Errors
    ///
    /// The system's: refused, no more files, timed out.
    pub fn try_connect_within(addr: SocketAddr, limit: Duration) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, limit)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, got: Vec::new() })
    }

    /// This end's address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.stream.local_addr().expect("the address of a connected socket")
    }

    /// Connects from an address of this machine, such as another one of 127.0.0.0/8.
    #[must_use]
    pub fn connect_from(from: Ipv4Addr, addr: SocketAddr) -> Self {
        let connect = || {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
            rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
            rustix::net::connect(&socket, &addr)?;
            let stream = TcpStream::from(socket);
            stream.set_nodelay(true)?;
            std::io::Result::Ok(Self { stream, got: Vec::new() })
        };
        connect().unwrap_or_else(|error| panic!("connect from {from} to {addr}: {error}"))
    }

    /// Connects with a receive buffer of about `bytes`, so that a peer that is not read is soon
    /// blocked.
    #[must_use]
    pub fn connect_narrow(addr: SocketAddr, bytes: usize) -> Self {
        let wire = Self::connect(addr);
        rustix::net::sockopt::set_socket_recv_buffer_size(&wire.stream, bytes).unwrap();
        wire
    }

    /// The socket itself.
    #[must_use]
    pub const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends all of `bytes`; panics when the peer is gone.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes)
            .unwrap_or_else(|error| panic!("send of {} bytes: {error}", bytes.len()));
    }

    /// Sends all of `bytes`, or returns the error.
    ///
    /// # Errors
    ///
    /// The system's, usually that the peer closed.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.set_write_timeout(Some(PATIENCE))?;
        self.stream.write_all(bytes)
    }

    /// Sends as much of `bytes` as the socket accepts within `limit`, and returns the number.
    pub fn send_for(&mut self, bytes: &[u8], limit: Duration) -> usize {
        let deadline = Instant::now() + limit;
        let mut sent = 0;
        while sent < bytes.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.stream.set_write_timeout(Some(left)).unwrap();
            match self.stream.write(&bytes[sent..]) {
                Ok(0) => break,
                Ok(n) => sent += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        sent
    }

    /// Sends `bytes` in pieces that end at each of `cuts` (ascending), with a pause after each
    /// piece, so that the peer reads them separately.
    ///
    /// # Errors
    ///
    /// The system's, usually that the peer closed.
    pub fn send_cut(
        &mut self,
        bytes: &[u8],
        cuts: &[usize],
        pause: Duration,
    ) -> std::io::Result<()> {
        let mut from = 0;
        for &cut in cuts.iter().filter(|&&cut| cut < bytes.len()) {
            if cut > from {
                self.try_send(&bytes[from..cut])?;
                from = cut;
                if !pause.is_zero() {
                    thread::sleep(pause);
                }
            }
        }
        self.try_send(&bytes[from..])
    }

    /// Closes the sending side.
    pub fn finish_sending(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads exactly `len` bytes.
    pub fn read_exact(&mut self, len: usize) -> Vec<u8> {
        let end = self.fill(PATIENCE, |got| got.len() >= len);
        assert_eq!(end, End::Found, "wanted {len} bytes, got {}", show(&self.got));
        self.got.drain(..len).collect()
    }

    /// Reads `len` bytes, or fewer if the connection or the time ends.
    pub fn read_some_exact(&mut self, len: usize, limit: Duration) -> (Vec<u8>, End) {
        let end = self.fill(limit, |got| got.len() >= len);
        (self.got.drain(..len.min(self.got.len())).collect(), end)
    }

    /// Reads one line; the result does not contain its CRLF.
    pub fn line(&mut self) -> String {
        let bytes = self.read_until(b"\r\n");
        String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
    }

    /// Reads up to and including the first `mark`.
    pub fn read_until(&mut self, mark: &[u8]) -> Vec<u8> {
        let (bytes, end) = self.read_until_or_end(mark, PATIENCE);
        assert_eq!(end, End::Found, "wanted {}, got {}", show(mark), show(&bytes));
        bytes
    }

    /// Reads up to and including the first `mark`, or until the connection or the time ends.
    pub fn read_until_or_end(&mut self, mark: &[u8], limit: Duration) -> (Vec<u8>, End) {
        let mut from = 0;
        let end = self.fill(limit, |got| match find(&got[from..], mark) {
            Some(_) => true,
            None => {
                from = got.len().saturating_sub(mark.len());
                false
            }
        });
        let until = match end {
            End::Found => {
                find(&self.got[from..], mark).map_or(self.got.len(), |at| from + at + mark.len())
            }
            _ => self.got.len(),
        };
        (self.got.drain(..until).collect(), end)
    }

    /// Reads everything until the peer closes; the time limit ends a reading that would never end.
    pub fn read_to_end(&mut self, limit: Duration) -> (Vec<u8>, End) {
        let end = self.fill(limit, |_| false);
        (std::mem::take(&mut self.got), end)
    }

    /// Returns the bytes that arrive within `limit`.
    pub fn read_for(&mut self, limit: Duration) -> Vec<u8> {
        self.read_to_end(limit).0
    }

    /// Reads about `len` bytes in pieces of at most `piece`, with a pause after each; they stay
    /// available.
    pub fn trickle(&mut self, piece: usize, pause: Duration, len: usize) {
        let mut buffer = vec![0; piece];
        let mut taken = 0;
        self.stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        while taken < len {
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(n) => {
                    self.got.extend_from_slice(&buffer[..n]);
                    taken += n;
                }
            }
            thread::sleep(pause);
        }
    }

    /// Sends `request` and asserts that the reply is `reply` to the byte.
    #[track_caller]
    pub fn expect(&mut self, request: &[u8], reply: &[u8]) {
        self.send(request);
        let end = self.fill(PATIENCE, |got| got.len() >= reply.len());
        let got: Vec<u8> = self.got.drain(..reply.len().min(self.got.len())).collect();
        assert_eq!(show(&got), show(reply), "for {} ({end:?})", show(request));
    }

    /// Asserts that there is no unread data from the peer.
    #[track_caller]
    pub fn assert_quiet(&mut self, wait: Duration) {
        let end = self.fill(wait, |got| !got.is_empty());
        assert_eq!(
            (show(&self.got), end),
            (String::new(), End::TimedOut),
            "more than was asked for"
        );
    }

    /// Reads until `done` returns true, the connection ends, or the time has passed.
    fn fill(&mut self, limit: Duration, mut done: impl FnMut(&[u8]) -> bool) -> End {
        let deadline = Instant::now() + limit;
        let mut piece = Vec::new();
        loop {
            if done(&self.got) {
                return End::Found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return End::TimedOut;
            }
            self.stream.set_read_timeout(Some(left)).unwrap();
            // Allocated only when the socket is read: earlier bytes answer most calls.
            piece.resize(32 * 1024, 0);
            match self.stream.read(&mut piece) {
                Ok(0) => return End::Closed,
                Ok(n) => self.got.extend_from_slice(&piece[..n]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return End::TimedOut,
                    ErrorKind::Interrupted => {}
                    _ => return End::Reset,
                },
            }
        }
    }
}

/// The offset of the first `mark` in `bytes`.
#[must_use]
pub fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}

/// Bytes as text for a message: escaped, and cut in the middle when long.
#[must_use]
pub fn show(bytes: &[u8]) -> String {
    const WHOLE: usize = 600;
    if bytes.len() <= WHOLE {
        return bytes.escape_ascii().to_string();
    }
    let (head, tail) = (&bytes[..WHOLE / 2], &bytes[bytes.len() - WHOLE / 2..]);
    format!("{} ...{} bytes... {}", head.escape_ascii(), bytes.len() - WHOLE, tail.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Wire::connect(listener.local_addr().unwrap());
        (wire, listener.accept().unwrap().0)
    }

    #[test]
    fn reads_stop_at_the_requested_place() {
        let (mut wire, mut peer) = pair();
        peer.write_all(b"ab\r\ncdEND\r\nrest").unwrap();
        assert_eq!(wire.line(), "ab");
        assert_eq!(wire.read_exact(2), b"cd");
        assert_eq!(wire.read_until(b"END\r\n"), b"END\r\n");
        drop(peer);
        assert_eq!(wire.read_to_end(PATIENCE), (b"rest".to_vec(), End::Closed));
    }

    #[test]
    #[should_panic(expected = "more than was asked for")]
    fn an_unexpected_byte_is_detected() {
        let (mut wire, mut peer) = pair();
        peer.write_all(b"x").unwrap();
        wire.assert_quiet(Duration::from_millis(200));
    }

    #[test]
    fn a_split_mark_is_found() {
        let (mut wire, mut peer) = pair();
        let writer = thread::spawn(move || {
            peer.write_all(b"xxEN").unwrap();
            thread::sleep(Duration::from_millis(50));
            peer.write_all(b"D\r\ny").unwrap();
        });
        assert_eq!(wire.read_until(b"END\r\n"), b"xxEND\r\n");
        writer.join().unwrap();
    }
}
