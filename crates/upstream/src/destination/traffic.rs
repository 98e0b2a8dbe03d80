//! Bytes to and from a server: by its connection, with and without a guard, and by UDP.

use rustix::io::Errno;

use super::{Destination, End, Link};
use crate::counters::{add, get, set};
use crate::datagrams::Datagrams;
use crate::guard::CHUNK_BYTES;
use crate::pipeline::is_plain_get;
use crate::reply_stats::{Failing, ReplyStats, Server};
use crate::request::Request;
use crate::sink::{Sink, Ticket};
use proto::Failure;

/// Maximum bytes reserved for a reply that has only started.
const RESERVED_MAX: usize = 1 << 20;

/// The approximate number of answers in the mean latency.
const LATENCY_SPAN: u64 = 64;

impl Destination {
    /// Sends a get by UDP, if that is possible now. It must not overtake a request that may change
    /// its item, because its client may have sent that one before.
    pub(super) fn ask_by_udp(
        &mut self,
        request: &Request<'_>,
        ticket: Ticket,
        pool: u16,
        now_us: u64,
    ) -> bool {
        if !is_plain_get(request.op)
            || self.asking.waits()
            || self.pipeline.questions().may_change(request.key)
        {
            return false;
        }
        if self.datagrams.is_none() {
            self.datagrams = Datagrams::new(&self.address);
        }
        let Some(datagrams) = self.datagrams.as_mut().filter(|udp| udp.takes(now_us)) else {
            return false;
        };
        add(&self.counters.asked, 1);
        add(&self.counters.udp_asked, 1);
        datagrams.ask(request, ticket, pool, now_us);
        true
    }

    /// Reads received datagrams.
    pub(crate) fn on_datagrams(&mut self, buffer: &mut [u8], now_us: u64, sink: &mut dyn Sink) {
        let Some(mut datagrams) = self.datagrams.take() else { return };
        let limit = self.settings.value_bytes_max;
        let mut stats = ReplyStats::new(server!(self, now_us), sink);
        let (counters, tcp) = (&self.counters, &mut self.pipeline);
        let goes_on = datagrams.receive(buffer, limit, counters, tcp, now_us, &mut stats);
        drop(stats);
        self.datagrams = Some(datagrams);
        if goes_on && let Err(failure) = self.connect(now_us) {
            self.close(End::Connect(failure), now_us, sink);
        }
    }

    /// The socket is writable or readable, or has failed.
    pub(crate) fn on_event(&mut self, buffer: &mut [u8], now_us: u64, sink: &mut dyn Sink) {
        if self.is_connecting() {
            self.on_connected(now_us, sink);
        }
        if matches!(self.link, Link::Up(_)) {
            self.read(buffer, now_us, sink);
        }
    }

    /// Reads available bytes once. The poller reports again if bytes are left.
    fn read(&mut self, buffer: &mut [u8], now_us: u64, sink: &mut dyn Sink) {
        let Link::Up(socket) = &self.link else { return };
        match socket.read(buffer) {
            Ok(0) => self.close(End::Gone, now_us, sink),
            Ok(len) => {
                let received = buffer.get(..len).unwrap_or_default();
                if self.guard.is_none() {
                    self.receive(received, now_us, sink);
                } else {
                    self.receive_guarded(received, now_us, sink);
                }
            }
            Err(Errno::AGAIN) => {}
            Err(errno) => self.close(self.end_by(errno), now_us, sink),
        }
    }

    #[cold]
    fn receive_guarded(&mut self, received: &[u8], now_us: u64, sink: &mut dyn Sink) {
        let Some(guard) = &mut self.guard else { return };
        let was_open = guard.is_open();
        let mut plain = Vec::new();
        let result = guard.receive(received, &mut plain);
        let (is_open, is_ended) = (guard.is_open(), guard.is_ended());
        if let Err(reason) = result {
            if let Link::Up(socket) = &self.link {
                // The alert tells the peer the reason; errors do not matter.
                let _ = socket.send(guard.outgoing());
            }
            // The requests may have been executed, so this must not look like a missing connection.
            let failure = if was_open { Failure::RemoteError } else { Failure::ConnectError };
            return self.close(End::Refused(&reason.to_string(), failure), now_us, sink);
        }
        if is_open && !was_open {
            self.opened(now_us);
        }
        if !plain.is_empty() {
            self.receive(&plain, now_us, sink);
        }
        if is_ended && !matches!(self.link, Link::Closed) {
            self.close(End::Gone, now_us, sink);
        }
    }

    fn receive(&mut self, received: &[u8], now_us: u64, sink: &mut dyn Sink) {
        if !self.input.is_empty() && self.input.try_reserve(received.len()).is_err() {
            // Without memory for the reply, the connection is closed.
            return self.close(End::Gone, now_us, sink);
        }
        let asked = self.pipeline.len();
        let mut stats = ReplyStats::new(server!(self, now_us), sink);
        let limit = self.settings.value_bytes_max;
        let oldest_us = self.pipeline.oldest_us();
        let result = if self.input.is_empty() {
            self.pipeline.receive(received, limit, &mut stats).map(|(used, total)| {
                let rest = received.get(used..).unwrap_or_default();
                if !rest.is_empty() {
                    // The announced length may be wrong. The received part is short; for more,
                    // there may be no memory yet.
                    let _ = self.input.try_reserve(total.min(RESERVED_MAX).max(rest.len()));
                    self.input.extend_from_slice(rest);
                }
            })
        } else {
            self.input.extend_from_slice(received);
            self.pipeline.receive(&self.input, limit, &mut stats).map(|(used, _)| {
                if used == self.input.len() {
                    self.input = Vec::new();
                } else if used > 0 {
                    self.input.drain(..used);
                }
            })
        };
        if stats.probe_answered {
            self.probe = None;
        }
        drop(stats);
        if let Some(asked_us) = oldest_us {
            let sample_ns = now_us.saturating_sub(asked_us).saturating_mul(1000);
            let mean_ns = get(&self.counters.latency_ns);
            let mean_ns = mean_ns - mean_ns / LATENCY_SPAN + sample_ns / LATENCY_SPAN;
            set(&self.counters.latency_ns, mean_ns);
        }
        set(&self.counters.pending, self.pipeline.len() as u64);
        if !self.ejections.is_empty() && self.pipeline.len() < asked {
            self.tell_answer();
        }
        match result {
            Ok(()) if self.takes.is_none() => self.go_on(now_us),
            Ok(()) => {}
            Err(broken) => self.close(End::Broken(broken), now_us, sink),
        }
    }

    /// Sends pending bytes. Returns true if the socket accepted fewer.
    pub(crate) fn flush(&mut self, now_us: u64, sink: &mut dyn Sink) -> bool {
        let is_blocked = self.send(now_us, sink);
        let asked = get(&self.counters.asked);
        if self.pipeline.unsent() == 0 {
            self.left = asked;
        }
        set(&self.counters.unsent, asked.wrapping_sub(self.left));
        is_blocked
    }

    fn send(&mut self, now_us: u64, sink: &mut dyn Sink) -> bool {
        self.is_dirty = false;
        self.asking.tell_refused(&self.counters, sink);
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.flush(
                &self.counters,
                now_us,
                &mut Failing { sink: &mut *sink, server: server!(self, now_us) },
            );
        }
        if self.guard.is_some() {
            return self.flush_guarded(now_us, sink);
        }
        let Link::Up(socket) = &self.link else { return false };
        loop {
            let bytes = self.pipeline.outgoing();
            if bytes.is_empty() {
                return false;
            }
            let len = bytes.len();
            match socket.send(bytes) {
                Ok(taken) => {
                    add(&self.counters.writes, 1);
                    self.pipeline.has_sent(taken);
                    if taken < len {
                        add(&self.counters.partial_writes, 1);
                        return true;
                    }
                }
                Err(Errno::AGAIN) => return true,
                Err(errno) => {
                    self.close(self.end_by(errno), now_us, sink);
                    return false;
                }
            }
        }
    }

    /// Sends pending bytes through the guard, which is dropped when it has no more work.
    #[cold]
    fn flush_guarded(&mut self, now_us: u64, sink: &mut dyn Sink) -> bool {
        let Link::Up(socket) = &self.link else { return false };
        while let Some(guard) = &mut self.guard {
            let bytes = guard.outgoing();
            if bytes.is_empty() {
                let plain = self.pipeline.outgoing();
                let plain = plain.get(..CHUNK_BYTES).unwrap_or(plain);
                if guard.is_done() {
                    self.guard = None;
                    return self.send(now_us, sink);
                }
                if !guard.is_open() || plain.is_empty() {
                    return false;
                }
                guard.send(plain);
                let taken = plain.len();
                self.pipeline.has_sent(taken);
                continue;
            }
            match socket.send(bytes) {
                Ok(taken) => {
                    add(&self.counters.writes, 1);
                    guard.has_sent(taken);
                }
                Err(Errno::AGAIN) => return true,
                Err(errno) => {
                    self.close(self.end_by(errno), now_us, sink);
                    return false;
                }
            }
        }
        false
    }
}
