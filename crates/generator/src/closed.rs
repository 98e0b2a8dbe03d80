//! The closed loop: a connection sends its next request after an answer. With several servers, the
//! next key selects the connection ([`Clients`]).

use std::os::fd::OwnedFd;

use anyhow::Result;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::clients::Clients;
use super::conn::Conn;
use super::spec::Spec;
use super::wire::Op;
use super::worker::Worker;

/// The poller's number for the ticker; connections are numbered from 0.
const TICK: u64 = u64::MAX;

/// The interval between two ticks, which bounds how late the end of a run, a lost datagram and a
/// silent server are noticed.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Sets in flight on a connection when filling.
const FILL_DEPTH: usize = 32;

impl Worker<'_> {
    pub(super) fn closed(&mut self) -> Result<()> {
        let now = self.now();
        self.last_heard = now;
        let is_shared = self.fill.is_none() && self.run.spec.targets.len() > 1;
        let mut clients = is_shared.then(|| Clients::new(self.run.spec, &self.conns));
        match &mut clients {
            Some(clients) => self.hand_out(clients, now)?,
            None => (0..self.conns.len()).try_for_each(|at| self.refill(at, now))?,
        }
        let mut events = Vec::with_capacity((self.conns.len() + 1).clamp(2, 1024));
        // A timeout for each wait would be set and cleared for each reply, which costs more than a
        // ticking clock.
        let ticker = self.ticker()?;
        loop {
            self.wait(&mut events, None)?;
            let now = self.now();
            let is_over = self.is_over(now);
            for at in self.lost(now) {
                match &mut clients {
                    Some(clients) => clients.freed(at, &self.conns[at], 1),
                    None if is_over => {}
                    None => self.refill(at, now)?,
                }
            }
            let mut has_heard = false;
            for event in &events {
                if event.data.u64() == TICK {
                    // The number of ticks does not matter.
                    let _ = rustix::io::read(&ticker, &mut [0; 8]);
                    continue;
                }
                has_heard = true;
                let at = usize::try_from(event.data.u64())?;
                let before = clients.as_ref().map_or(0, |_| self.conns[at].in_flight());
                self.serve(at, event.flags, now)?;
                match &mut clients {
                    Some(clients) => {
                        let conn = &self.conns[at];
                        clients.freed(at, conn, before - conn.in_flight());
                    }
                    None if is_over => {}
                    None => self.refill(at, now)?,
                }
            }
            if let Some(clients) = clients.as_mut().filter(|_| !is_over) {
                self.hand_out(clients, now)?;
            }
            self.report_progress(now);
            let is_over = is_over || self.fill.is_some() || self.run.spec.requests > 0;
            if is_over && self.conns.iter().all(|conn| conn.waiting.is_empty()) {
                return Ok(());
            }
            self.check_silence(now, has_heard)?;
        }
    }

    /// Sends the clients' requests on the connections without a request.
    fn hand_out(&mut self, clients: &mut Clients, now: u64) -> Result<()> {
        clients.ask(&mut self.draw);
        while let Some(at) = clients.ready() {
            self.renew(at)?;
            let conn = &mut self.conns[at];
            for _ in 0..room(self.run.spec, conn) {
                let Some((op, key)) = clients.take(conn.target) else { break };
                conn.ask(self.run.wire, op, self.draw.keys_after(op, key), now, now);
            }
            self.flush(at)?;
        }
        Ok(())
    }

    /// Wakes the thread periodically, even without a reply.
    fn ticker(&self) -> Result<OwnedFd> {
        let ticker = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let times = Itimerspec { it_interval: INTERVAL, it_value: INTERVAL };
        timerfd_settime(&ticker, TimerfdTimerFlags::empty(), &times)?;
        epoll::add(&self.poller, &ticker, EventData::new_u64(TICK), EventFlags::IN)?;
        Ok(ticker)
    }

    /// Sends the next batch on a connection whose last one is answered: a batch leaves in one
    /// write, whereas one request per reply would usually leave in a separate write.
    fn refill(&mut self, at: usize, now: u64) -> Result<()> {
        if !self.conns[at].waiting.is_empty() {
            return Ok(());
        }
        self.renew(at)?;
        let (conn, spec) = (&mut self.conns[at], self.run.spec);
        if let Some(next) = &mut self.fill {
            let next = &mut next[conn.target];
            for _ in 0..FILL_DEPTH {
                if *next >= spec.keys {
                    break;
                }
                conn.ask(self.run.wire, Op::Set, &[*next], now, now);
                *next += (spec.targets.len() * spec.threads) as u64;
            }
        } else {
            let mut room = room(spec, conn);
            if spec.requests > 0 {
                room = room.min(spec.requests.saturating_sub(conn.asked));
            }
            for _ in 0..room {
                let op = self.draw.op();
                conn.ask(self.run.wire, op, self.draw.keys(op, conn.target), now, now);
            }
        }
        self.flush(at)
    }
}

/// Requests that a connection accepts in one batch.
fn room(spec: &Spec, conn: &Conn) -> u64 {
    let room = spec.pipeline as u64;
    if spec.reconnect > 0 && !conn.transport.is_udp() {
        room.min(spec.reconnect.saturating_sub(conn.requests_since_reconnect()))
    } else {
        room
    }
}
