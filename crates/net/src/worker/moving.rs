//! Measures a worker's load, and gives its connections to others; see [`crate::placement`].

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};

use super::Worker;
use crate::conn::Conn;
use crate::conn_id::Token;
use crate::control::{ConnState, add};
use crate::mailbox::Message;
use crate::placement::{Consolidation, Step, WINDOW_MS};
use crate::service::Service;

/// One worker's part in gathering connections.
#[derive(Debug)]
pub(super) struct Consolidator {
    consolidation: Consolidation,
    /// The start of the window, and the thread's processor time at that point.
    since_ms: u64,
    since_cpu_us: u64,
    /// Windows for which it could have joined another.
    calm: u32,
}

impl Consolidator {
    /// Creates it for the calling thread.
    pub(super) fn new(consolidation: Consolidation, now_ms: u64) -> Self {
        Self { consolidation, since_ms: now_ms, since_cpu_us: thread_cpu_us(), calm: 0 }
    }

    /// Thousandths of a processor since the last measurement; `None` within a window.
    fn measure(&mut self, now_ms: u64) -> Option<u32> {
        let passed_ms = now_ms.saturating_sub(self.since_ms);
        if passed_ms < WINDOW_MS {
            return None;
        }
        let cpu_us = thread_cpu_us();
        let permille = cpu_us.saturating_sub(self.since_cpu_us) / passed_ms;
        (self.since_ms, self.since_cpu_us) = (now_ms, cpu_us);
        #[allow(clippy::cast_possible_truncation, reason = "at most 1000")]
        Some(permille.min(1000) as u32)
    }
}

impl<S: Service> Worker<S> {
    /// Once per window: publishes its load, and gives connections away if that is better.
    pub(super) fn consolidate(&mut self) {
        let Some(consolidator) = &mut self.consolidator else { return };
        let Some(load) = consolidator.measure(self.now_ms) else { return };
        self.shared.workers[self.index].load.set(load, self.now_ms);
        if self.draining.is_some() {
            return;
        }
        let loads = self.shared.loads(self.now_ms);
        match consolidator.consolidation.step(&loads, self.index, &mut consolidator.calm) {
            Step::Keep => {}
            Step::Give { to, share } => self.give(to, share),
        }
    }

    /// Gives `share` thousandths of the connections in use to another worker, of those that may
    /// move now.
    fn give(&mut self, to: usize, share: u32) {
        let now_ms = self.now_ms;
        let in_use =
            |conn: &Conn<S::Session>| now_ms.saturating_sub(conn.handle.last_ms()) <= WINDOW_MS;
        let count = self.conns.iter().filter(|(_, conn)| in_use(conn)).count();
        let count = count * share as usize / 1000;
        let going = self.conns.iter().filter(|(_, conn)| in_use(conn) && self.may_go(conn));
        let going: Vec<Token> = going.take(count).map(|(token, _)| token).collect();
        for token in going {
            self.hand_on(token, to);
        }
    }

    /// True if only its socket and its TLS have to be kept.
    fn may_go(&self, conn: &Conn<S::Session>) -> bool {
        conn.state == ConnState::Reading
            && conn.input_len() == 0
            && !conn.is_at_end
            && !self.service.has_pending_replies(&conn.session)
            && self.service.may_move(&conn.session)
    }

    fn hand_on(&mut self, token: Token, to: usize) {
        let Some(conn) = self.take(token) else { return };
        // Only an unregistered descriptor can be refused.
        let removed = epoll::delete(&self.poller, conn.as_fd());
        debug_assert!(removed.is_ok());
        let (socket, session, tls, handle) = conn.into_parts();
        self.service.moved(session);
        // First subtract, then add: exceeding a limit by one for a moment rejects no client. The
        // sum is the same after both, so a waiting acceptor need not be woken. SeqCst like all
        // writes of the count, which the acceptor pairs with `is_waiting`.
        add(&self.own().counters.moved, 1);
        self.own().connections.fetch_sub(1, Ordering::SeqCst);
        let to = &self.shared.workers[to];
        to.connections.fetch_add(1, Ordering::SeqCst);
        to.mailbox.post(Message::Moved(socket, handle.peer.clone(), tls));
    }
}

/// Processor time of this thread, in microseconds.
fn thread_cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let us = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1000);
    u64::try_from(us).unwrap_or(0)
}
