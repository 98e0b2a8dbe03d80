//! The open loop: requests are due at times of their own. One that finds its connections full waits
//! in a queue, and its latency counts from the time at which it should have left (no coordinated
//! omission).
//!
//! Relaxed is enough for `Progress`: a stop that is seen late costs a moment, and `answered` is
//! for display.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use anyhow::Result;
use rustix::time::Timespec;

use super::spec::Arrival;
use super::wire::Op;
use super::worker::Worker;

/// A request that should have been sent.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: u64,
    op: Op,
}

/// Requests of one thread that wait for a free connection: beyond this the server does not take the
/// rate.
const BACKLOG_MAX: usize = 2_000_000;

/// So near to the next request the thread does not sleep, because waking takes as long.
const SPIN_NANOS: u64 = 20_000;

impl Worker<'_> {
    pub(super) fn open(&mut self, rate: f64, arrival: Arrival, index: usize) -> Result<bool> {
        let mean = 1e9 / rate;
        // Threads with even arrivals take turns.
        #[allow(clippy::cast_precision_loss, reason = "few threads")]
        let turn = index as f64 / self.run.spec.threads as f64;
        let (mut next, mut drawn) = (mean * turn, 0);
        let (mut backlog, mut round) = (VecDeque::<Due>::new(), 0);
        let mut events = Vec::with_capacity(self.conns.len().clamp(1, 1024));
        let mut dirty = vec![false; self.conns.len()];
        self.last_heard = self.now();
        loop {
            let now = self.now();
            let is_stopped = self.run.progress.stop.load(Ordering::Relaxed);
            let is_over = self.is_over(now) || self.is_enough(drawn);
            #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a run")]
            let clock = now.min(self.run.measure.1) as f64;
            // What was due before the end is sent, however late this thread comes to it.
            while next < clock && !is_stopped && !self.is_enough(drawn) {
                drawn += 1;
                let op = self.draw.op();
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a time"
                )]
                backlog.push_back(Due { at: next as u64, op });
                next += self.draw.pause(mean, arrival);
            }
            let is_too_much = backlog.len() > BACKLOG_MAX;
            if is_too_much || is_stopped {
                self.give_up(&backlog, now);
                backlog.clear();
            }
            if is_too_much {
                return Ok(true);
            }
            self.dispatch(&mut backlog, &mut round, &mut dirty, now)?;
            self.lost(now);
            let is_waiting = self.conns.iter().any(|conn| !conn.waiting.is_empty());
            if is_over && !is_waiting && (backlog.is_empty() || self.is_over(now)) {
                return Ok(false);
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
            let sleep =
                if is_over { 100_000_000 } else { (next as u64).saturating_sub(self.now()) };
            let sleep = if self.has_udp { sleep.min(50_000_000) } else { sleep };
            let sleep =
                if sleep < SPIN_NANOS { 0 } else { (sleep - SPIN_NANOS / 2).min(1_000_000_000) };
            let timeout = Timespec {
                tv_sec: i64::try_from(sleep / 1_000_000_000)?,
                tv_nsec: i64::try_from(sleep % 1_000_000_000)?,
            };
            self.wait(&mut events, Some(&timeout))?;
            let now = self.now();
            for event in &events {
                self.serve(usize::try_from(event.data.u64())?, event.flags, now)?;
            }
            self.tell(now);
            self.check_silence(now, !events.is_empty() || !is_waiting)?;
        }
    }

    /// Gives waiting requests to connections with room, in turn.
    fn dispatch(
        &mut self,
        backlog: &mut VecDeque<Due>,
        round: &mut usize,
        dirty: &mut [bool],
        now: u64,
    ) -> Result<()> {
        let limit = self.run.spec.pipeline;
        while let Some(due) = backlog.front().copied() {
            let conns = self.conns.len();
            let free = (0..conns).map(|step| (*round + step) % conns).find(|at| {
                let conn = &self.conns[*at];
                conn.waiting.is_empty() || (conn.in_flight() < limit && !self.is_spent(conn))
            });
            let Some(at) = free else { break };
            self.renew(at)?;
            *round = at + 1;
            backlog.pop_front();
            let conn = &mut self.conns[at];
            let keys = self.draw.keys(due.op, conn.target);
            conn.ask(self.run.wire, due.op, keys, due.at, now);
            // Late by the generator's own doing: there was a free connection, and nothing older
            // waited.
            if due.at >= self.run.measure.0 && backlog.is_empty() {
                self.record.lag.saturating_record(now.saturating_sub(due.at));
            }
            dirty[at] = true;
        }
        for (at, is_dirty) in dirty.iter_mut().enumerate() {
            if std::mem::take(is_dirty) {
                self.flush(at)?;
            }
        }
        Ok(())
    }

    /// What was never sent waited, too.
    fn give_up(&mut self, backlog: &VecDeque<Due>, now: u64) {
        for due in backlog {
            self.record.unanswered += 1;
            self.record.of(due.op).latency.saturating_record(now.saturating_sub(due.at));
        }
    }

    /// True if the thread's connections have had the requests that they were to have.
    fn is_enough(&self, drawn: u64) -> bool {
        let limit = self.run.spec.requests;
        limit > 0 && drawn >= limit.saturating_mul(self.conns.len() as u64)
    }
}
