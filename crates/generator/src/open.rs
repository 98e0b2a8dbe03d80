//! The open loop: requests are due at scheduled times. If all connections of its server are full, a
//! request waits in a queue, and its latency counts from the time at which it should have been sent
//! (no coordinated omission).
//!
//! Relaxed is enough for `Progress`: a stop that is seen late costs a moment, and `answered` is for
//! display.

use std::sync::atomic::Ordering;

use anyhow::Result;
use rustix::time::Timespec;

use super::due::Schedule;
use super::spec::Arrival;
use super::worker::Worker;

/// The thread does not sleep this close to the next request, because waking takes as long.
const SPIN_NANOS: u64 = 20_000;

impl Worker<'_> {
    /// Sends `rate` requests per second. True if it gave up because too many of them waited.
    pub(super) fn open(&mut self, rate: f64, arrival: Arrival, index: usize) -> Result<bool> {
        let spec = self.run.spec;
        // Threads with even arrivals take turns.
        #[allow(clippy::cast_precision_loss, reason = "few threads")]
        let turn = index as f64 / spec.threads as f64;
        let limit = match spec.requests {
            0 => u64::MAX,
            each => each.saturating_mul(self.conns.len() as u64),
        };
        let mut schedule = Schedule::new(rate, arrival, turn, limit, spec.targets.len());
        let outcome = self.follow(&mut schedule);
        // However the loop ended, due and unsent requests have waited.
        let now = self.now();
        if outcome.is_err() && !self.run.progress.stop.load(Ordering::Relaxed) {
            schedule.fall_due(now.min(self.run.measure.1), &mut self.draw);
        }
        self.give_up(&mut schedule, now);
        outcome
    }

    fn follow(&mut self, schedule: &mut Schedule) -> Result<bool> {
        let mut events = Vec::with_capacity(self.conns.len().clamp(1, 1024));
        let mut dirty = vec![false; self.conns.len()];
        self.last_heard = self.now();
        loop {
            let now = self.now();
            if self.run.progress.stop.load(Ordering::Relaxed) {
                self.give_up(schedule, now);
            } else {
                // Requests due before the end are sent, however late this thread reaches them.
                schedule.fall_due(now.min(self.run.measure.1), &mut self.draw);
            }
            let is_over = self.is_over(now) || schedule.is_at_end();
            if schedule.is_too_much() {
                return Ok(true);
            }
            self.dispatch(schedule, &mut dirty, now)?;
            self.lost(now);
            let is_waiting = self.conns.iter().any(|conn| !conn.waiting.is_empty());
            if is_over && !is_waiting && (schedule.is_empty() || self.is_over(now)) {
                return Ok(false);
            }
            let next = if is_over { now + 100_000_000 } else { schedule.next_at() };
            self.wait(&mut events, Some(&self.pause_until(next)?))?;
            let now = self.now();
            for event in &events {
                self.serve(usize::try_from(event.data.u64())?, event.flags, now)?;
            }
            self.report_progress(now);
            self.check_silence(now, !events.is_empty() || !is_waiting)?;
        }
    }

    /// How long the thread may sleep if the next request is due at `next`.
    fn pause_until(&self, next: u64) -> Result<Timespec> {
        let pause = next.saturating_sub(self.now());
        let pause = if self.has_udp { pause.min(50_000_000) } else { pause };
        let pause =
            if pause < SPIN_NANOS { 0 } else { (pause - SPIN_NANOS / 2).min(1_000_000_000) };
        Ok(Timespec {
            tv_sec: i64::try_from(pause / 1_000_000_000)?,
            tv_nsec: i64::try_from(pause % 1_000_000_000)?,
        })
    }

    /// Distributes each server's waiting requests to its connections with room, in turn.
    fn dispatch(&mut self, schedule: &mut Schedule, dirty: &mut [bool], now: u64) -> Result<()> {
        for server in 0..schedule.backlogs.len() {
            while !schedule.backlogs[server].waiting.is_empty() {
                let Some(at) = self.free(server, schedule.backlogs[server].turn) else { break };
                self.renew(at)?;
                let Some(due) = schedule.take(server) else { break };
                let backlog = &mut schedule.backlogs[server];
                backlog.turn = at + 1;
                let keys = self.draw.keys_after(due.op, due.key);
                self.conns[at].ask(self.run.wire, due.op, keys, due.at, now);
                // The generator caused this delay: nothing older waited, so a connection had been
                // free since the request was due. If a request waited for a reply, the server
                // caused the delay.
                if due.at >= self.run.measure.0 && !backlog.was_waiting {
                    self.record.lag.saturating_record(now.saturating_sub(due.at));
                }
                dirty[at] = true;
            }
        }
        for (at, is_dirty) in dirty.iter_mut().enumerate() {
            if std::mem::take(is_dirty) {
                self.flush(at)?;
            }
        }
        Ok(())
    }

    /// A connection to `server` with room for a request, searched from connection `from` on.
    fn free(&self, server: usize, from: usize) -> Option<usize> {
        // Connections to one server are adjacent.
        let each = self.run.spec.connections;
        let first = server * each;
        (0..each).map(|step| first + (from + step) % each).find(|at| {
            let conn = &self.conns[*at];
            conn.waiting.is_empty()
                || (conn.in_flight() < self.run.spec.pipeline && !self.is_spent(conn))
        })
    }

    /// Unsent requests have waited, too.
    fn give_up(&mut self, schedule: &mut Schedule, now: u64) {
        let begin = self.run.measure.0;
        for due in schedule.take_all().filter(|due| due.at >= begin) {
            self.record.unanswered += 1;
            let waited = now.saturating_sub(due.at);
            self.record.waited(due.op, due.at - begin, waited, 1);
        }
    }
}
