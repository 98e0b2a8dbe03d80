//! Reads, serves and writes a connection, with TLS and without.

use rustix::io::Errno;

use super::{GROUP, Worker};
use crate::conn::{Conn, Received, Served, WorkerResources};
use crate::conn_id::Token;
use crate::control::{ConnState, add};
use crate::io::{Outcome, Sent};
use crate::peer::{ListenAddress, Peer};
use crate::service::{CloseReason, Flow, Service};
use crate::tls::{Broken, Tls};

impl<S: Service> Worker<S> {
    /// Handles the events of several connections: all are read before the first is served, so that
    /// the service can prefetch the memory of each while it is busy with the others.
    pub(super) fn on_group(&mut self, group: &mut Vec<Token>) {
        let mut received = [const { None }; GROUP];
        if group.len() > 1 {
            for (place, (&token, received)) in group.iter().zip(&mut received).enumerate() {
                let conn = self.conns.get_mut(token);
                let is_read =
                    |conn: &&mut Conn<_>| conn.state == ConnState::Reading && conn.tls.is_none();
                let Some(conn) = conn.filter(is_read) else { continue };
                let got = conn.read(&mut self.read_buffers[place]);
                if let Ok(Some(len)) = got {
                    self.service.prefetch_lookup(&conn.session, &self.read_buffers[place][..len]);
                }
                *received = Some(got);
            }
            self.service.prefetch_items();
        }
        for (place, (token, received)) in group.drain(..).zip(received).enumerate() {
            match received {
                Some(got) => self.received(token, place, got),
                None => self.on_event(token),
            }
        }
    }

    /// Handles the event of the connection's state.
    fn on_event(&mut self, token: Token) {
        match self.conns.get_mut(token).map(|conn| conn.state) {
            Some(ConnState::Reading) => self.read(token),
            Some(ConnState::Writing | ConnState::Closing) => self.write(token),
            Some(ConnState::Leaving) => self.drop_unread(token),
            // A ready connection is served in the second part of the turn.
            Some(ConnState::Ready) | None => {}
            // The poller was armed for nothing: this is a failed socket.
            Some(ConnState::Waiting) => self.close(token, CloseReason::SocketError),
        }
    }

    pub(super) fn on_ready(&mut self, token: Token) {
        if self.conns.get_mut(token).is_some_and(|conn| conn.state == ConnState::Ready) {
            self.serve_left(token);
        }
    }

    /// Starts a TLS session, if the listener requires one.
    pub(super) fn begin_tls(&self, peer: &Peer) -> Result<Option<Box<Tls>>, rustls::Error> {
        match (&*peer.listener, &self.tls) {
            (ListenAddress::Tcp(_, listener), Some(tls)) => {
                tls.acceptor.session(*listener, self.now_ms)
            }
            _ => Ok(None),
        }
    }

    /// Reads once and serves.
    pub(super) fn read(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        if conn.tls.is_some() {
            return self.read_tls(token);
        }
        let got = conn.read(&mut self.read_buffers[0]);
        self.received(token, 0, got);
    }

    /// Serves the bytes read into one of the buffers.
    fn received(&mut self, token: Token, place: usize, got: Result<Option<usize>, Errno>) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        let before = conn.input_len();
        match got {
            Ok(Some(len)) => {
                let resources = WorkerResources {
                    service: &mut self.service,
                    read_buffer: &mut self.read_buffers[place],
                    scratch: &mut self.scratch,
                    mailbox: &self.shared.workers[self.index].mailbox,
                    tls_scratch: None,
                };
                let served = conn.serve_read(token, len, resources);
                let counters = &self.shared.workers[self.index].counters;
                add(&counters.reads, 1);
                add(&counters.bytes_read, (len - before) as u64);
                add(&counters.bytes_written, served.outcome.sent.bytes);
                self.after(token, &served);
            }
            Ok(None) => self.on_no_bytes(token, None),
            Err(error) => self.on_no_bytes(token, Some(error)),
        }
    }

    /// Handles a read with the end of the stream or an error, including an empty socket.
    fn on_no_bytes(&mut self, token: Token, error: Option<Errno>) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        match error {
            None if self.service.has_pending_replies(&conn.session) => {
                conn.is_at_end = true;
                self.serve_left(token);
            }
            None => self.close(token, CloseReason::Eof),
            Some(Errno::AGAIN) if self.draining.is_some() => self.serve_left(token),
            Some(Errno::AGAIN) => {}
            Some(_) => self.close(token, CloseReason::SocketError),
        }
    }

    /// Reads from a connection with TLS. The bytes may be only a part of a record.
    fn read_tls(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        let Some(tls) = &mut self.tls else { return };
        // A session allocates at each step of its handshake, and cannot handle a failure.
        if self.service.is_short_of_memory() {
            return self.close(token, CloseReason::Service);
        }
        let before = conn.input_len();
        let received = conn.read_tls(&mut tls.plain, &mut tls.scratch);
        let counters = &self.shared.workers[self.index].counters;
        let (len, is_new) = match received {
            Ok(Received::Bytes(len, is_new)) => (len, is_new),
            Ok(Received::Broken(broken)) => return self.on_broken(token, &broken),
            Ok(Received::End) => return self.on_no_bytes(token, None),
            Err(error) => return self.on_no_bytes(token, Some(error)),
        };
        add(&counters.reads, 1);
        add(&counters.bytes_read, (len - before) as u64);
        add(&counters.tls_sessions, u64::from(is_new));
        if is_new {
            tls.charge(conn);
            self.budget.charge(conn.session_charged);
            conn.rested_ms = self.now_ms;
            self.limit_sessions(token);
        }
        let (Some(conn), Some(tls)) = (self.conns.get_mut(token), &mut self.tls) else { return };
        if len > before && conn.is_drained() {
            let resources = WorkerResources {
                service: &mut self.service,
                read_buffer: &mut tls.plain,
                scratch: &mut self.scratch,
                mailbox: &self.shared.workers[self.index].mailbox,
                tls_scratch: Some(&mut tls.scratch),
            };
            let served = conn.serve_read(token, len, resources);
            self.count_sealed();
            return self.after(token, &served);
        }
        // Nothing to serve, or the peer has to take the session's own bytes first.
        if len > before && !conn.keep(&tls.plain[..len]) {
            return self.close(token, CloseReason::Service);
        }
        let blocked = !conn.is_drained();
        let outcome = Outcome { blocked, failed: false, sent: Sent::default() };
        self.after(token, &Served { flow: Flow::NeedInput, outcome });
    }

    #[cold]
    pub(super) fn on_broken(&mut self, token: Token, broken: &Broken) {
        let counters = &self.shared.workers[self.index].counters;
        let counter =
            if broken.in_handshake { &counters.tls_handshake_errors } else { &counters.tls_errors };
        add(counter, 1);
        if let Some(conn) = self.conns.get_mut(token) {
            self.service.tls_failed(&conn.session, &broken.reason);
        }
        self.close(token, CloseReason::Tls);
    }

    pub(super) fn serve_left(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        let resources = WorkerResources {
            service: &mut self.service,
            read_buffer: &mut self.read_buffers[0],
            scratch: &mut self.scratch,
            mailbox: &self.shared.workers[self.index].mailbox,
            tls_scratch: self.tls.as_mut().map(|tls| &mut tls.scratch),
        };
        let served = conn.serve_left(token, resources);
        if conn.tls.is_some() {
            self.count_sealed();
        } else {
            let counters = &self.shared.workers[self.index].counters;
            add(&counters.bytes_written, served.outcome.sent.bytes);
        }
        self.after(token, &served);
    }

    /// Counts the plain bytes that a TLS session has taken. Its records are longer, and received
    /// bytes are counted after decryption, too.
    fn count_sealed(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        let sealed = std::mem::take(&mut tls.scratch.uncounted);
        add(&self.shared.workers[self.index].counters.bytes_written, sealed);
    }

    /// Drops input of a connection that has its last replies; closes it at the end of the input.
    fn drop_unread(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        match conn.drop_unread(&mut self.read_buffers[0]) {
            Ok(0) => self.close(token, CloseReason::Drain),
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(_) => self.close(token, CloseReason::SocketError),
        }
    }

    /// Sends the pending bytes; continues when all have been sent.
    fn write(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        let Ok(taken) = conn.send_pending() else {
            self.close(token, CloseReason::SocketError);
            return;
        };
        let (is_drained, state, is_plain) = (conn.is_drained(), conn.state, conn.tls.is_none());
        if taken > 0 {
            conn.handle.set_last_ms(self.now_ms);
            let counters = &self.shared.workers[self.index].counters;
            add(&counters.writes, 1);
            if is_plain {
                add(&counters.bytes_written, taken as u64);
            }
            self.count_sent(token, taken as u64);
        }
        match state {
            _ if !is_drained => {}
            ConnState::Closing => self.close(token, CloseReason::Service),
            _ => self.serve_left(token),
        }
    }
}
