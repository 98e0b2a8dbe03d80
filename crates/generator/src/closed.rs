//! The closed loop: a connection asks again when it was answered.

use std::os::fd::OwnedFd;

use anyhow::Result;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::wire::Op;
use super::worker::Worker;

/// What the poller calls the ticker; connections are numbered from 0.
const TICK: u64 = u64::MAX;

/// Between two ticks: the end of a run, a lost datagram and a silent server are seen so soon.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Sets in flight on a connection when filling.
const FILL_DEPTH: usize = 32;

impl Worker<'_> {
    pub(super) fn closed(&mut self) -> Result<()> {
        let now = self.now();
        self.last_heard = now;
        for at in 0..self.conns.len() {
            self.refill(at, now)?;
        }
        let mut events = Vec::with_capacity((self.conns.len() + 1).clamp(2, 1024));
        // A timeout of each wait would be set and cleared for each reply, which costs more than a
        // clock that ticks.
        let ticker = self.ticker()?;
        loop {
            self.wait(&mut events, None)?;
            let now = self.now();
            let is_over = self.is_over(now);
            for at in self.lost(now) {
                if !is_over {
                    self.refill(at, now)?;
                }
            }
            let mut has_heard = false;
            for event in &events {
                if event.data.u64() == TICK {
                    // How often it has ticked is of no interest.
                    let _ = rustix::io::read(&ticker, &mut [0; 8]);
                    continue;
                }
                has_heard = true;
                let at = usize::try_from(event.data.u64())?;
                self.serve(at, event.flags, now)?;
                if !is_over {
                    self.refill(at, now)?;
                }
            }
            self.tell(now);
            let is_over = is_over || self.fill.is_some() || self.run.spec.requests > 0;
            if is_over && self.conns.iter().all(|conn| conn.waiting.is_empty()) {
                return Ok(());
            }
            self.check_silence(now, has_heard)?;
        }
    }

    /// Wakes the thread now and then, also when no reply comes.
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
    /// write, whereas a request for each reply would mostly leave by itself.
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
            let mut room = spec.pipeline as u64;
            if spec.requests > 0 {
                room = room.min(spec.requests.saturating_sub(conn.asked));
            }
            if spec.reconnect > 0 && !conn.transport.is_udp() {
                room = room.min(spec.reconnect.saturating_sub(conn.asked_here()));
            }
            for _ in 0..room {
                let op = self.draw.op();
                conn.ask(self.run.wire, op, self.draw.keys(op, conn.target), now, now);
            }
        }
        self.flush(at)
    }
}
