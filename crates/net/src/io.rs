//! Input and output of a session.
//!
//! Neither owns a buffer. Input is in the worker's read buffer or, when a connection has had to
//! wait, in its unconsumed rest. Output is the worker's scratch, which is empty before and after
//! each connection is served; a connection keeps only the bytes that its socket did not take.
//!
//! ```text
//!     reply -> scratch (shared by the worker) --send--> socket
//!                   \--what the socket did not take--> pending (the connection's own)
//! ```

use std::fmt;
use std::io;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::arrivals::Arrivals;
use crate::conn_id::ConnId;
use crate::conn_id::Token;
use crate::mailbox::{Mailbox, Waker};
#[cfg(feature = "simulation")]
use crate::simulated_socket::SimulatedSocket;
use crate::tls::Tls;

/// Bytes of scratch from which [`Output::is_full`] demands a flush: as many as the kernel takes at
/// once from a server's connection (`TCP_NOTSENT_LOWAT`), so that a multiget's reply of 100 KB is
/// one write. Four writes of a quarter take a third more processor time.
pub const FLUSH_BYTES: usize = 128 * 1024;

/// The maximum input of a session at once, and one more than it may leave unconsumed, in bytes.
pub const INPUT_MAX: usize = 64 * 1024;

/// All bytes that a connection has received and its session has not consumed.
#[derive(Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// Input over `bytes`: for the loop, and for tests of a service without a socket.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The unconsumed bytes. The slice outlives this borrow, so a parsed request may be kept across
    /// [`Self::consume`].
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Marks the first `count` bytes as used.
    ///
    /// # Panics
    ///
    /// Panics when `count` is more than there is.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.bytes = &self.bytes[count..];
    }
}

/// The output of a session.
#[derive(Debug)]
pub struct Output<'a> {
    scratch: &'a mut Vec<u8>,
    target: Target<'a>,
    /// The socket took less than it was given: nothing more is sent in this turn.
    blocked: bool,
    /// The socket failed; all later writes are dropped.
    failed: bool,
    sent: Sent,
}

/// The destination of an [`Output`]'s bytes.
#[derive(Debug)]
enum Target<'a> {
    /// They stay in the scratch buffer, which is never full.
    Memory,
    #[cfg(feature = "simulation")]
    Simulated(&'a mut SimulatedSocket),
    Socket {
        socket: OutputSocket<'a>,
        pending: &'a mut Vec<u8>,
    },
}

/// A connection's socket, and the services for its session.
#[derive(Debug)]
pub(crate) struct OutputSocket<'a> {
    pub(crate) socket: BorrowedFd<'a>,
    pub(crate) arrivals: &'a mut Option<Box<Arrivals>>,
    pub(crate) mailbox: &'a Arc<Mailbox>,
    pub(crate) token: Token,
    /// Set for a connection with TLS.
    pub(crate) sealing: Option<Sealing<'a>>,
}

/// The TLS session that turns output into records.
pub(crate) struct Sealing<'a> {
    pub(crate) tls: &'a mut Tls,
    /// Empty between writes.
    pub(crate) sealed: &'a mut Vec<u8>,
    /// Plain bytes sealed, for the counters.
    pub(crate) uncounted: &'a mut u64,
}

impl fmt::Debug for Sealing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealing")
    }
}

/// Bytes and system calls of one connection's turn, for the counters.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sent {
    /// Bytes that the socket took; with TLS, those of records.
    pub(crate) bytes: u64,
    pub(crate) writes: u64,
}

/// The final state of an [`Output`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) blocked: bool,
    pub(crate) failed: bool,
    pub(crate) sent: Sent,
}

impl<'a> Output<'a> {
    /// An output that only collects into `scratch`, which is never full: for the reply to a
    /// datagram.
    #[must_use]
    pub fn collecting(scratch: &'a mut Vec<u8>) -> Self {
        Self::new(scratch, Target::Memory)
    }

    /// Output to a simulated connection without pending bytes; `scratch` is empty.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn to_simulated(scratch: &'a mut Vec<u8>, socket: &'a mut SimulatedSocket) -> Self {
        Self::new(scratch, Target::Simulated(socket))
    }

    /// Output to `socket`; `scratch` and `pending` are empty.
    pub(crate) fn to_socket(
        scratch: &'a mut Vec<u8>,
        pending: &'a mut Vec<u8>,
        socket: OutputSocket<'a>,
    ) -> Self {
        Self::new(scratch, Target::Socket { socket, pending })
    }

    fn new(scratch: &'a mut Vec<u8>, target: Target<'a>) -> Self {
        Self { scratch, target, blocked: false, failed: false, sent: Sent::default() }
    }

    /// The buffer for replies. Bytes already in it belong to earlier replies and must not be
    /// changed.
    #[inline]
    pub fn buf(&mut self) -> &mut Vec<u8> {
        self.scratch
    }

    /// True if the session should [`Self::flush`] before it appends another reply. Check it once
    /// per reply, so that the scratch never grows past [`FLUSH_BYTES`] and one reply.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        let is_long = self.scratch.len() >= FLUSH_BYTES;
        is_long && !matches!(self.target, Target::Memory) || self.blocked || self.failed
    }

    /// Sends the appended bytes. True when all have been sent; false when the socket is full or
    /// broken, and then the session returns [`crate::Flow::Blocked`].
    pub fn flush(&mut self) -> bool {
        if matches!(self.target, Target::Memory) {
            return true;
        }
        if self.scratch.is_empty() {
            return !(self.blocked || self.failed);
        }
        let mut scratch = std::mem::take(self.scratch);
        if self.is_sealing() {
            self.send_sealed(&[IoSlice::new(&scratch)], true);
            scratch.clear();
            *self.scratch = scratch;
            return !(self.blocked || self.failed);
        }
        let taken = if self.blocked || self.failed {
            0
        } else {
            self.send(&[IoSlice::new(&scratch)]).unwrap_or(0)
        };
        let pending = match &mut self.target {
            Target::Memory => None,
            #[cfg(feature = "simulation")]
            Target::Simulated(socket) => Some(&mut socket.pending),
            Target::Socket { pending, .. } => Some(&mut **pending),
        };
        if let (Some(pending), false) = (pending, self.failed) {
            self.failed = !try_extend(pending, &scratch[taken..]);
        }
        scratch.clear();
        *self.scratch = scratch;
        !(self.blocked || self.failed)
    }

    /// Sends `slices` straight to the socket, after all bytes appended so far. Returns how many of
    /// their bytes were taken. If not all were, the session keeps the rest, returns
    /// [`crate::Flow::Blocked`] and continues from there when it is served again. `Ok(0)` is "would
    /// block".
    ///
    /// # Errors
    ///
    /// The socket has failed. The session returns any flow; the connection is closed.
    pub fn write_through(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if matches!(self.target, Target::Memory) {
            for slice in slices {
                self.scratch.extend_from_slice(slice);
            }
            return Ok(slices.iter().map(|slice| slice.len()).sum());
        }
        if !self.flush() {
            return if self.failed { Err(Errno::PIPE.into()) } else { Ok(0) };
        }
        if self.is_sealing() {
            let taken = self.send_sealed(slices, false);
            return if self.failed { Err(Errno::PIPE.into()) } else { Ok(taken) };
        }
        self.send(slices)
    }

    fn is_sealing(&self) -> bool {
        matches!(&self.target, Target::Socket { socket, .. } if socket.sealing.is_some())
    }

    /// Seals `slices` and sends them, until the socket is full; with `whole`, also seals and keeps
    /// the rest. Returns how many of their bytes were sealed: they are sent or pending.
    fn send_sealed(&mut self, slices: &[IoSlice<'_>], whole: bool) -> usize {
        let Target::Socket { socket, pending } = &mut self.target else { return 0 };
        let OutputSocket { socket, sealing: Some(sealing), .. } = socket else { return 0 };
        let mut done = 0;
        for part in slices.iter().flat_map(|slice| slice.chunks(FLUSH_BYTES)) {
            if self.failed || self.blocked && !whole {
                break;
            }
            if sealing.tls.seal(part, sealing.sealed).is_err() {
                self.failed = true;
                break;
            }
            done += part.len();
            *sealing.uncounted += part.len() as u64;
            let mut taken = 0;
            if !self.blocked {
                self.sent.writes += 1;
                match send_slices(*socket, &[IoSlice::new(sealing.sealed)]) {
                    Ok(count) => taken = count,
                    Err(_) => self.failed = true,
                }
                self.sent.bytes += taken as u64;
                self.blocked = taken < sealing.sealed.len();
            }
            if !self.failed {
                self.failed = !try_extend(pending, &sealing.sealed[taken..]);
            }
            sealing.sealed.clear();
        }
        sealing.sealed.clear();
        done
    }

    /// A handle by which another thread makes the loop serve this connection again. It has no
    /// effect after the connection has ended. `None` for an output that only collects.
    #[must_use]
    pub fn waker(&self) -> Option<Waker> {
        let Target::Socket { socket, .. } = &self.target else { return None };
        Some(Waker::new(Arc::clone(socket.mailbox), socket.token))
    }

    /// The connection's name. `None` for an output that only collects.
    #[must_use]
    pub fn conn_id(&self) -> Option<ConnId> {
        match &self.target {
            Target::Memory => None,
            #[cfg(feature = "simulation")]
            Target::Simulated(socket) => Some(socket.conn),
            Target::Socket { socket, .. } => Some(ConnId(socket.token)),
        }
    }

    /// Requests arrival times of this connection's input from the kernel. Not for TLS, whose
    /// records are not the session's bytes.
    pub fn stamp_arrivals(&mut self) {
        if let Target::Socket { socket, .. } = &mut self.target
            && socket.sealing.is_none()
            && socket.arrivals.is_none()
        {
            *socket.arrivals = Arrivals::start(socket.socket);
        }
    }

    /// The time at which the kernel received the last segment of the last bytes read, if
    /// [`Self::stamp_arrivals`] requested it before and the kernel has reported it.
    #[must_use]
    pub fn last_arrival(&self) -> Option<SystemTime> {
        let Target::Socket { socket, .. } = &self.target else { return None };
        socket.arrivals.as_ref()?.last()
    }

    /// Ends the turn: sends or keeps the rest.
    pub(crate) fn finish(mut self) -> Outcome {
        self.flush();
        Outcome { blocked: self.blocked, failed: self.failed, sent: self.sent }
    }

    /// One write. Short and refused writes set `blocked`, errors set `failed`.
    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let socket = match &mut self.target {
            Target::Memory => return Ok(0),
            #[cfg(feature = "simulation")]
            Target::Simulated(socket) => {
                let taken = slices.iter().map(|slice| socket.take(slice)).sum();
                self.blocked = taken < wanted;
                return Ok(taken);
            }
            Target::Socket { socket, .. } => socket.socket,
        };
        self.sent.writes += 1;
        match send_slices(socket, slices) {
            Ok(taken) => {
                self.sent.bytes += taken as u64;
                self.blocked = taken < wanted;
                Ok(taken)
            }
            Err(error) => {
                self.failed = true;
                Err(error.into())
            }
        }
    }
}

/// Appends bytes that are kept for one connection; false when there is no memory for them. The
/// connection's rest is exactly this long, so exactly this much is allocated.
#[must_use]
pub(crate) fn try_extend(buffer: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let is_first = buffer.capacity() == 0;
    let asked = if is_first {
        buffer.try_reserve_exact(bytes.len())
    } else {
        buffer.try_reserve(bytes.len())
    };
    if asked.is_ok() {
        buffer.extend_from_slice(bytes);
    }
    asked.is_ok()
}

/// Writes `slices` without raising a signal; 0 when the socket is full.
pub(crate) fn send_slices(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
    loop {
        let sent = match slices {
            [one] => rustix::net::send(socket, one, SendFlags::NOSIGNAL | SendFlags::DONTWAIT),
            many => {
                let mut control = SendAncillaryBuffer::default();
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                rustix::net::sendmsg(socket, many, &mut control, flags)
            }
        };
        match sent {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_only_collects_is_never_full() {
        let mut scratch = Vec::new();
        let mut output = Output::collecting(&mut scratch);
        output.buf().resize(2 * FLUSH_BYTES, b'x');
        assert!(!output.is_full() && output.flush());
        assert_eq!(output.write_through(&[IoSlice::new(b"y")]).unwrap(), 1);
        assert_eq!(scratch.len(), 2 * FLUSH_BYTES + 1);
    }
}
