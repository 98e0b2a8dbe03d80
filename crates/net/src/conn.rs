//! One connection: its socket, its session, and the bytes that could not be handled at once.
//!
//! An idle connection holds no buffer. `input` is the unconsumed rest of its session, `pending` the
//! bytes that its socket did not take; both are freed when empty. The states, and the poller's
//! events for each:
//!
//! ```text
//!     Reading (input) --Yield--> Ready (input, but not looked at) --> Reading
//!     Reading --socket full--> Writing (output) --drained--> Reading
//!     any --Flow::Close, socket full--> Closing (output) --drained--> gone
//!     Reading --Flow::Wait, or the end of input while answers are owed--> Waiting (nothing)
//!     Waiting --named by the service--> Reading
//!     Reading --the server ends, more input in the kernel--> Leaving (input) --its end--> gone
//! ```

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::arrivals::Arrivals;
use crate::conn_id::Token;
use crate::control::{ConnHandle, ConnState};
use crate::io::{
    INPUT_MAX, Input, Outcome, Output, OutputSocket, Sealing, send_slices, try_extend,
};
use crate::mailbox::Mailbox;
use crate::service::{Flow, Service};
use crate::tls::{Broken, Scratch, Tls};
use crate::unsent::Unread;

pub(crate) struct Conn<S> {
    socket: OwnedFd,
    pub(crate) session: S,
    pub(crate) tls: Option<Box<Tls>>,
    /// Set for a session that wants the arrival time of its input.
    arrivals: Option<Box<Arrivals>>,
    /// Unconsumed input starts at `input_start`.
    input: Vec<u8>,
    input_start: usize,
    /// Unsent output starts at `pending_start`.
    pending: Vec<u8>,
    pending_start: usize,
    /// Bytes of the two buffers, and of the kernel's, that were charged to the budget.
    pub(crate) charged: usize,
    pub(crate) unread: Unread,
    /// Bytes of its TLS session that were charged to the budget; 0 before the handshake is done.
    pub(crate) session_charged: isize,
    /// For a TLS connection: the last time when it was at rest.
    pub(crate) rested_ms: u64,
    pub(crate) state: ConnState,
    /// The events that the poller reports.
    pub(crate) interest: epoll::EventFlags,
    /// The input has ended, and answers are due.
    pub(crate) is_at_end: bool,
    /// The time since when its client is known not to have logged in; `None` for others.
    pub(crate) unauthenticated_since_ms: Option<u64>,
    pub(crate) handle: Arc<ConnHandle>,
}

/// The resources that a worker lends to the connection it serves.
pub(crate) struct WorkerResources<'a, S> {
    pub(crate) service: &'a mut S,
    /// [`INPUT_MAX`] bytes.
    pub(crate) read_buffer: &'a mut [u8],
    pub(crate) scratch: &'a mut Vec<u8>,
    pub(crate) mailbox: &'a Arc<Mailbox>,
    pub(crate) tls_scratch: Option<&'a mut Scratch>,
}

/// The outcome of a read of a TLS connection.
pub(crate) enum Received {
    /// The number of plain bytes in the buffer, including earlier ones; true if a handshake was
    /// completed.
    Bytes(usize, bool),
    /// The stream's end, announced or not.
    End,
    /// The session is broken; its alert, if there is one, was sent.
    Broken(Broken),
}

/// The outcome of a connection's turn.
pub(crate) struct Served {
    pub(crate) flow: Flow,
    pub(crate) outcome: Outcome,
}

impl<S> Conn<S> {
    pub(crate) fn new(
        socket: OwnedFd,
        session: S,
        tls: Option<Box<Tls>>,
        handle: Arc<ConnHandle>,
    ) -> Self {
        Self {
            socket,
            session,
            tls,
            arrivals: None,
            input: Vec::new(),
            input_start: 0,
            pending: Vec::new(),
            pending_start: 0,
            charged: 0,
            unread: Unread::default(),
            session_charged: 0,
            rested_ms: 0,
            state: ConnState::Reading,
            interest: epoll::EventFlags::IN,
            is_at_end: false,
            unauthenticated_since_ms: None,
            handle,
        }
    }

    /// Takes the connection apart, for its end or for another worker.
    pub(crate) fn into_parts(self) -> (OwnedFd, S, Option<Box<Tls>>, Arc<ConnHandle>) {
        (self.socket, self.session, self.tls, self.handle)
    }

    /// Bytes held in the two buffers.
    pub(crate) fn buffered(&self) -> usize {
        let tls = self.tls.as_ref().map_or(0, |tls| tls.buffered());
        self.input.capacity() + self.pending.capacity() + tls
    }

    /// Unconsumed input, in bytes.
    pub(crate) fn input_len(&self) -> usize {
        self.input.len() - self.input_start
    }

    pub(crate) fn set_state(&mut self, state: ConnState) {
        if self.state != state {
            self.state = state;
            self.handle.set_state(state);
        }
    }

    /// Reads once, after the rest, into the worker's buffer. Returns the number of bytes that are
    /// there now; `Ok(None)` is the end of the stream.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        let left = self.input_len();
        debug_assert!(left < INPUT_MAX);
        let got = loop {
            let room = &mut buffer[left..];
            let got = match &mut self.arrivals {
                None => rustix::io::read(&self.socket, room),
                Some(arrivals) => arrivals.read(&self.socket, room),
            };
            match got {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        if got == 0 {
            return Ok(None);
        }
        buffer[..left].copy_from_slice(&self.input[self.input_start..]);
        Ok(Some(left + got))
    }

    /// Reads once from a TLS connection, and decrypts after the rest, into the worker's buffer. The
    /// session's own messages to its peer are sent, or kept as pending.
    pub(crate) fn read_tls(
        &mut self,
        buffer: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Received, Errno> {
        let left = self.input_len();
        let Some(tls) = &mut self.tls else { return Ok(Received::End) };
        let got = loop {
            match rustix::io::read(&self.socket, &mut *tls.room(scratch)) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        if got == 0 {
            return Ok(Received::End);
        }
        let opened = tls.open(got, scratch, &mut buffer[left..]);
        let is_ended = tls.is_ended();
        self.send_sealed(scratch)?;
        let opened = match opened {
            Ok(opened) => opened,
            Err(broken) => return Ok(Received::Broken(broken)),
        };
        self.is_at_end |= is_ended;
        buffer[..left].copy_from_slice(&self.input[self.input_start..]);
        Ok(Received::Bytes(left + opened.len, opened.is_new))
    }

    /// Sends the content of `scratch`, and keeps the bytes that the socket does not take.
    fn send_sealed(&mut self, scratch: &mut Scratch) -> Result<(), Errno> {
        if scratch.sealed.is_empty() {
            return Ok(());
        }
        let sent = send_slices(self.socket.as_fd(), &[IoSlice::new(&scratch.sealed)]);
        let kept = sent.map(|taken| try_extend(&mut self.pending, &scratch.sealed[taken..]));
        scratch.sealed.clear();
        if kept? { Ok(()) } else { Err(Errno::NOMEM) }
    }

    /// Keeps these bytes of the worker's read buffer until the peer has taken the pending ones.
    /// False when there is no memory for them.
    #[must_use]
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> bool {
        self.input = Vec::new();
        self.input_start = 0;
        try_extend(&mut self.input, bytes)
    }

    /// True if the kernel holds input that was not read: closing the socket would reset it.
    pub(crate) fn has_unread(&self) -> bool {
        rustix::io::ioctl_fionread(&self.socket).is_ok_and(|bytes| bytes > 0)
    }

    /// Ends the output behind the last reply, and frees the input.
    pub(crate) fn end_output(&mut self, scratch: Option<&mut Scratch>) {
        if let Some(scratch) = scratch {
            self.send_close_notify(scratch);
        }
        // A failed socket is closed at its next event.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        (self.input, self.input_start) = (Vec::new(), 0);
    }

    /// Reads once, and drops the bytes; `Ok(0)` is the end of the stream.
    pub(crate) fn drop_unread(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match rustix::io::read(&self.socket, &mut *buffer) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// Sends the end of the stream to a TLS peer, if its socket takes it at once.
    pub(crate) fn send_close_notify(&mut self, scratch: &mut Scratch) {
        if let Some(tls) = &mut self.tls
            && self.pending.is_empty()
        {
            tls.append_end(&mut scratch.sealed);
            // Otherwise the peer learns it from the socket.
            let _ = self.send_sealed(scratch);
        }
    }

    /// Serves the first `len` bytes of the worker's read buffer, and keeps the unconsumed ones.
    pub(crate) fn serve_read<V>(
        &mut self,
        token: Token,
        len: usize,
        mut resources: WorkerResources<'_, V>,
    ) -> Served
    where
        V: Service<Session = S>,
    {
        let input = &std::mem::take(&mut resources.read_buffer)[..len];
        let (served, left) = self.serve(token, input, resources);
        self.input_start = 0;
        if left == 0 {
            self.input = Vec::new();
            return served;
        }
        self.input.clear();
        let is_kept = try_extend(&mut self.input, &input[len - left..]);
        if is_kept { served } else { Served { flow: Flow::CloseNow, ..served } }
    }

    /// Serves the unconsumed rest, without reading.
    pub(crate) fn serve_left<V>(
        &mut self,
        token: Token,
        resources: WorkerResources<'_, V>,
    ) -> Served
    where
        V: Service<Session = S>,
    {
        let input = std::mem::take(&mut self.input);
        let (served, left) = self.serve(token, &input[self.input_start..], resources);
        self.input_start = 0;
        if left > 0 {
            self.input_start = input.len() - left;
            self.input = input;
        }
        served
    }

    /// Serves these bytes; also returns how many at their end are not consumed.
    fn serve<V>(
        &mut self,
        token: Token,
        bytes: &[u8],
        resources: WorkerResources<'_, V>,
    ) -> (Served, usize)
    where
        V: Service<Session = S>,
    {
        let WorkerResources { service, scratch, mailbox, tls_scratch, .. } = resources;
        let mut input = Input::new(bytes);
        let socket = OutputSocket {
            socket: self.socket.as_fd(),
            arrivals: &mut self.arrivals,
            mailbox,
            token,
            sealing: sealing(&mut self.tls, tls_scratch),
        };
        let mut output = Output::to_socket(scratch, &mut self.pending, socket);
        let flow = service.serve(&mut self.session, &mut input, &mut output);
        let outcome = output.finish();
        (Served { flow, outcome }, input.bytes().len())
    }

    /// Sends pending output. Returns the number of bytes taken; all have been sent if `is_drained`
    /// holds afterwards.
    pub(crate) fn send_pending(&mut self) -> Result<usize, Errno> {
        let left = &self.pending[self.pending_start..];
        if left.is_empty() {
            return Ok(0);
        }
        let taken = send_slices(self.socket.as_fd(), &[IoSlice::new(left)])?;
        self.pending_start += taken;
        if self.pending_start == self.pending.len() {
            self.pending = Vec::new();
            self.pending_start = 0;
        }
        Ok(taken)
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.pending.is_empty()
    }
}

/// The means to seal a TLS connection's output; none for a plain one.
fn sealing<'a>(
    tls: &'a mut Option<Box<Tls>>,
    scratch: Option<&'a mut Scratch>,
) -> Option<Sealing<'a>> {
    let (Some(tls), Some(scratch)) = (tls, scratch) else { return None };
    let Scratch { sealed, uncounted, .. } = scratch;
    Some(Sealing { tls, sealed, uncounted })
}

impl<S> AsFd for Conn<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
