//! Gets of one server by UDP (section 3.1 of the paper): no connection, no acknowledgement, and no
//! retransmission.
//!
//! ```text
//!     [id 0 1][get a b c]  ->        <-  [id 0 2][VALUE a ...]  [id 1 2][... END]
//! ```
//!
//! A datagram out of order is an error at once; a missing one is an error after a time. The gets of
//! its line fail, which clients that fill caches treat as a miss that must not be filled. If a
//! server reports that it cannot answer by UDP (a reply may be too long), the get goes by TCP.
//! memcached 1.6 answers a line of several keys with several messages of one number, and their
//! count is unknown. Once a server has done so, each datagram asks for only one key.

use std::collections::VecDeque;
use std::io::IoSlice;

use proto::udp::{self, Frame};
use rustix::io::Errno;

use crate::address::Address;
use crate::counters::{Counters, add};
use crate::pipeline::Pipeline;
use crate::request::Request;
use crate::sink::{ReplyObserver, Ticket};
use crate::system::Socket;
use proto::Failure;

/// Maximum bytes of a request, so that it fits into one datagram everywhere.
const REQUEST_BYTES_MAX: usize = 1392;

/// Maximum number of keys in one datagram: the paper's mean, which also limits the burst of
/// answers.
const KEYS_MAX: usize = 24;

/// Maximum number of lines without an answer; the frame distinguishes 65,536.
const LINES_MAX: usize = 16_384;

/// Number of consecutive lost lines after which UDP is considered blocked.
const SILENT_MAX: u32 = 10;

/// Microseconds of TCP use after that.
const PAUSE_US: u64 = 10_000_000;

/// Maximum number of datagrams read at once.
const DATAGRAMS: usize = 256;

/// One request datagram, and the received part of its reply.
#[derive(Debug, Default)]
struct Line {
    pipeline: Pipeline,
    at_us: u64,
    is_sent: bool,
    is_done: bool,
    /// Received datagrams of the reply, and their total number.
    came: u16,
    count: u16,
    input: Vec<u8>,
}

impl Line {
    fn fail(&mut self, failure: Failure, words: &[u8], sink: &mut impl ReplyObserver) {
        self.is_done = true;
        self.pipeline.fail(u64::MAX, failure, failure, words, sink);
    }
}

/// One server's gets by UDP: the outstanding ones, and the datagrams of their replies.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: Socket,
    /// Oldest first, with consecutive ids from `first_id`.
    lines: VecDeque<Line>,
    first_id: u16,
    /// Ended lines, kept for their memory.
    spare: Vec<Line>,
    /// Lines lost since the last answer.
    silent: u32,
    paused_until_us: u64,
    /// The server answers a line with several messages.
    splits_lines: bool,
    /// The poller reports received datagrams.
    pub(crate) is_watched: bool,
}

impl Datagrams {
    /// Opens a separate socket to the server; `None` if that fails.
    pub(crate) fn new(address: &Address) -> Option<Self> {
        Some(Self {
            socket: Socket::datagrams(address).ok()?,
            lines: VecDeque::new(),
            // Random, so that a host that cannot see the request cannot answer it.
            first_id: fastrand::u16(..),
            spare: Vec::new(),
            silent: 0,
            paused_until_us: 0,
            splits_lines: false,
            is_watched: false,
        })
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns true if gets can be sent.
    pub(crate) fn takes(&self, now_us: u64) -> bool {
        now_us >= self.paused_until_us && self.lines.len() < LINES_MAX
    }

    /// Queues a get; the gets of one turn share a datagram.
    pub(crate) fn ask(&mut self, request: &Request<'_>, ticket: Ticket, pool: u16, now_us: u64) {
        let keys_max = if self.splits_lines { 1 } else { KEYS_MAX };
        let joins = self.lines.back().is_some_and(|line| {
            let bytes = line.pipeline.unsent() + request.key.len() + " \r\n".len();
            !line.is_sent
                && line.pipeline.last_op() == Some(request.op)
                && line.pipeline.len() < keys_max
                && bytes <= REQUEST_BYTES_MAX
        });
        if !joins {
            self.lines.push_back(self.spare.pop().unwrap_or_default());
        }
        if let Some(line) = self.lines.back_mut() {
            line.at_us = now_us;
            line.pipeline.ask(request, ticket, pool, now_us);
        }
    }

    /// Sends the queued gets. Datagrams that the system refuses are lost.
    pub(crate) fn flush(
        &mut self,
        counters: &Counters,
        now_us: u64,
        sink: &mut impl ReplyObserver,
    ) {
        let unsent = self.lines.iter().rev().take_while(|line| !line.is_sent).count();
        let first = self.lines.len() - unsent;
        for index in first..self.lines.len() {
            let line = &mut self.lines[index];
            line.is_sent = true;
            // There are fewer lines than ids.
            let id = self.first_id.wrapping_add(u16::try_from(index).unwrap_or(0));
            let head = udp::encode(Frame { request_id: id, sequence: 0, count: 1 });
            let bytes = line.pipeline.outgoing();
            let len = bytes.len();
            let parts = [IoSlice::new(&head), IoSlice::new(bytes)];
            let sent = self.socket.send_datagram(&parts);
            line.pipeline.has_sent(len);
            add(&counters.writes, 1);
            if sent.is_err() {
                self.lose(index, counters, now_us, sink);
            }
        }
        self.forget();
    }

    fn lose(
        &mut self,
        index: usize,
        counters: &Counters,
        now_us: u64,
        sink: &mut impl ReplyObserver,
    ) {
        let Some(line) = self.lines.get_mut(index) else { return };
        add(&counters.udp_lost, line.pipeline.len() as u64);
        line.fail(Failure::Timeout, b"UDP reply lost", sink);
        self.silent += 1;
        if self.silent >= SILENT_MAX {
            self.silent = 0;
            self.paused_until_us = now_us + PAUSE_US;
        }
    }

    /// Reads datagrams. Gets that the server cannot answer by UDP go to `tcp`; returns true if
    /// there are any.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        value_bytes_max: u32,
        counters: &Counters,
        tcp: &mut Pipeline,
        now_us: u64,
        sink: &mut impl ReplyObserver,
    ) -> bool {
        let mut goes_on = false;
        for _ in 0..DATAGRAMS {
            let len = match self.socket.receive_datagram(buffer) {
                Ok(len) => len,
                // An ICMP message reports a refused datagram. Its line is found by the timeout.
                Err(Errno::CONNREFUSED) => continue,
                Err(_) => break,
            };
            let datagram = buffer.get(..len).unwrap_or_default();
            if let Some((frame, payload)) = udp::split(datagram)
                && let Some(index) = self.index(frame.request_id)
            {
                goes_on |=
                    self.take(index, frame, payload, value_bytes_max, counters, tcp, now_us, sink);
            } else {
                add(&counters.udp_late, 1);
            }
        }
        self.forget();
        goes_on
    }

    /// The waiting line with this id.
    fn index(&self, id: u16) -> Option<usize> {
        let index = usize::from(id.wrapping_sub(self.first_id));
        self.lines.get(index).filter(|line| line.is_sent && !line.is_done).map(|_| index)
    }

    /// Processes one datagram. Returns true if its line now goes by TCP.
    fn take(
        &mut self,
        index: usize,
        frame: Frame,
        payload: &[u8],
        value_bytes_max: u32,
        counters: &Counters,
        tcp: &mut Pipeline,
        now_us: u64,
        sink: &mut impl ReplyObserver,
    ) -> bool {
        let line = &mut self.lines[index];
        let is_next = frame.sequence == line.came && (line.came == 0 || frame.count == line.count);
        if !is_next || frame.sequence >= frame.count {
            add(&counters.udp_reordered, line.pipeline.len() as u64);
            line.fail(Failure::RemoteError, b"UDP reply out of order", sink);
            return false;
        }
        self.silent = 0;
        (line.came, line.count) = (frame.sequence + 1, frame.count);
        let is_last = line.came == line.count;
        if !is_last || !line.input.is_empty() {
            line.input.extend_from_slice(payload);
            if !is_last {
                return false;
            }
        }
        let whole = if line.input.is_empty() { payload } else { &line.input };
        if whole.starts_with(b"SERVER_ERROR") {
            line.is_done = true;
            line.pipeline.ask_again(tcp, now_us);
            return true;
        }
        let received = line.pipeline.receive(whole, value_bytes_max, sink);
        line.is_done = true;
        if received != Ok((whole.len(), 0)) {
            add(&counters.broken, 1);
            line.fail(Failure::RemoteError, b"Bad reply from the server", sink);
            return false;
        }
        let is_part = line.pipeline.ask_again(tcp, now_us);
        self.splits_lines |= is_part;
        is_part
    }

    /// Returns true if lines wait for their replies.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.lines.is_empty()
    }

    /// The time at which the oldest line is lost if no reply comes.
    pub(crate) fn due_us(&self, timeout_us: u64) -> Option<u64> {
        self.lines.front().map(|line| line.at_us.saturating_add(timeout_us))
    }

    /// Fails lines that have waited too long.
    pub(crate) fn on_due(
        &mut self,
        timeout_us: u64,
        counters: &Counters,
        now_us: u64,
        sink: &mut impl ReplyObserver,
    ) {
        for index in 0..self.lines.len() {
            let line = &self.lines[index];
            if line.at_us.saturating_add(timeout_us) > now_us {
                break;
            }
            if !line.is_done {
                self.lose(index, counters, now_us, sink);
            }
        }
        self.forget();
    }

    /// Fails everything, because the server is no longer used.
    pub(crate) fn end(&mut self, sink: &mut impl ReplyObserver) {
        for mut line in self.lines.drain(..) {
            line.fail(Failure::RemoteError, b"Connection closed", sink);
        }
    }

    /// Drops ended lines from the front.
    fn forget(&mut self) {
        while self.lines.front().is_some_and(|line| line.is_done) {
            let Some(mut line) = self.lines.pop_front() else { return };
            self.first_id = self.first_id.wrapping_add(1);
            let is_small = line.input.capacity() <= SPARE_BYTES;
            if self.spare.len() < SPARE_MAX && is_small && line.pipeline.is_empty() {
                line.input.clear();
                let Line { pipeline, input, .. } = line;
                self.spare.push(Line { pipeline, input, ..Line::default() });
            }
        }
    }
}

/// Maximum number of kept ended lines, and of the bytes that each may keep.
const SPARE_MAX: usize = 32;
const SPARE_BYTES: usize = 64 * 1024;
