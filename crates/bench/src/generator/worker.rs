//! One generator thread: sends at its pace, reads what comes, keeps the record.
//!
//! Times are nanoseconds since the run's start, the same for all threads. The closed loop sends `pipeline` requests on
//! every connection and the next ones when they are answered. The open loop draws the time of each request beforehand; one that finds its connections full
//! waits in a queue, and its latency counts from the time at which it should have left (no coordinated omission).

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::conn::{Conn, Judge};
use super::keys::Keys;
use super::record::{Moment, Record};
use super::spec::{Arrival, Pace, Spec, Target};
use super::transport::Security;
use super::wire::{Op, Wire};

/// What all threads of a run share.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) spec: &'a Spec,
    pub(super) wire: &'a Wire,
    pub(super) security: &'a Security,
    pub(super) started: Instant,
    /// When measuring begins and ends, in nanoseconds since the start.
    pub(super) measure: (u64, u64),
    pub(super) progress: &'a Progress,
}

/// Told while the run goes on.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests answered so far.
    pub answered: AtomicU64,
    /// The last second that any thread has finished.
    pub latest: Mutex<Latest>,
    /// Set to end the run early.
    pub stop: Arc<AtomicBool>,
}

/// What is known so far of the last second.
#[derive(Debug, Default)]
pub struct Latest {
    /// Which second of the measurement.
    at: usize,
    /// Latencies of the threads that have told them.
    latency: Option<Histogram<u32>>,
}

impl Latest {
    /// Adds what a thread saw of second `at`; an older second than the last is of no interest any more.
    fn add(&mut self, at: usize, latency: &Histogram<u32>) {
        match &mut self.latency {
            // Histograms of one shape always add up.
            Some(sum) if self.at == at => sum.add(latency).unwrap_or_default(),
            Some(_) if self.at > at => {}
            _ => (self.at, self.latency) = (at, Some(latency.clone())),
        }
    }

    /// Median and 99th percentile, in microseconds.
    #[must_use]
    pub fn percentiles(&self) -> Option<(u64, u64)> {
        let latency = self.latency.as_ref()?;
        let at = |percentile| latency.value_at_percentile(percentile) / 1000;
        Some((at(50.0), at(99.0)))
    }
}

/// What a thread brought home.
#[derive(Debug)]
pub(super) struct Brought {
    pub(super) record: Record,
    /// Processor time of the thread while measuring, and the time that passed.
    pub(super) cpu: Duration,
    pub(super) elapsed: Duration,
    /// The open loop fell so far behind that it gave up.
    pub(super) is_overloaded: bool,
    pub(super) failure: Option<anyhow::Error>,
}

/// A server that says nothing for so long is dead.
const PATIENCE_NANOS: u64 = 5_000_000_000;

/// A UDP request without a reply for so long has lost a datagram.
const LOSS_NANOS: u64 = 250_000_000;

/// Requests of one thread that wait for a free connection: beyond this the server does not take the rate.
const BACKLOG_MAX: usize = 2_000_000;

/// Sets in flight on a connection when filling.
const FILL_DEPTH: usize = 32;

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// So near to the next request the thread does not sleep, because waking takes as long.
const SPIN_NANOS: u64 = 20_000;

pub(super) struct Worker<'a> {
    run: &'a Run<'a>,
    conns: Vec<Conn>,
    poller: OwnedFd,
    buffer: Vec<u8>,
    keys: Keys,
    rng: SmallRng,
    record: Record,
    drawn: Vec<u64>,
    /// Filling: the next key of each server; `None` while measuring.
    fill: Option<Vec<u64>>,
    last_heard: u64,
    told: u64,
    told_second: usize,
}

/// A request that should have been sent.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: u64,
    op: Op,
}

impl<'a> Worker<'a> {
    pub(super) fn new(run: &'a Run<'a>, conns: Vec<Conn>, index: usize) -> Result<Self> {
        let spec = run.spec;
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, conn) in conns.iter().enumerate() {
            epoll::add(
                &poller,
                conn.transport.fd(),
                EventData::new_u64(at as u64),
                EventFlags::IN,
            )?;
        }
        let first = spec.keys / spec.threads.max(1) as u64 * index as u64;
        Ok(Self {
            run,
            conns,
            poller,
            buffer: vec![0; 256 * 1024],
            keys: Keys::new(spec.pattern, spec.keys, first).map_err(anyhow::Error::msg)?,
            rng: SmallRng::seed_from_u64(spec.seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9)),
            record: Record::default(),
            drawn: Vec::with_capacity(spec.multiget),
            fill: None,
            last_heard: 0,
            told: 0,
            told_second: 0,
        })
    }

    /// The worker stores its share of the keys once, and nothing else.
    pub(super) fn filling(mut self, index: usize) -> Self {
        let servers = self.run.spec.targets.len() as u64;
        let first = index as u64 * servers;
        self.fill = Some((0..servers).map(|server| first + server).collect());
        self
    }

    /// Runs to the end or to the first failure; what was seen is kept either way.
    pub(super) fn go(mut self, index: usize) -> Brought {
        // Sleeps of the open loop end when they should, not up to 50 us later.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let begun = cpu_time();
        let outcome = match self.run.spec.pace {
            Pace::Closed => self.closed().map(|()| false),
            Pace::Open { rate, arrival } => {
                #[allow(clippy::cast_precision_loss, reason = "few threads")]
                let each = rate / self.run.spec.threads as f64;
                self.open(each, arrival, index)
            }
        };
        let now = self.now();
        self.count_unanswered(now);
        Brought {
            record: self.record,
            cpu: cpu_time().saturating_sub(begun),
            elapsed: Duration::from_nanos(now),
            is_overloaded: matches!(outcome, Ok(true)),
            failure: outcome.err(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.run.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn is_over(&self, now: u64) -> bool {
        now >= self.run.measure.1 || self.run.progress.stop.load(Ordering::Relaxed)
    }

    fn has_udp(&self) -> bool {
        self.conns.iter().any(|conn| conn.transport.is_udp())
    }

    /// Gives up requests whose datagrams were lost, and tells on which connections.
    fn lost(&mut self, now: u64) -> Vec<usize> {
        let mut freed = Vec::new();
        if !self.run.spec.targets.iter().any(Target::is_udp) {
            return freed;
        }
        for (at, conn) in self.conns.iter_mut().enumerate() {
            if conn.give_up(now, LOSS_NANOS).is_some() {
                self.record.lost += 1;
                freed.push(at);
            }
        }
        freed
    }

    /// Whether a connection has had as many requests as it is to have before it is made anew.
    fn is_spent(&self, conn: &Conn) -> bool {
        let limit = self.run.spec.reconnect;
        limit > 0 && conn.asked_here >= limit && !conn.transport.is_udp()
    }

    /// Makes a connection anew that is spent and on which nothing is waited for.
    fn renew(&mut self, at: usize) -> Result<()> {
        if !self.is_spent(&self.conns[at]) {
            return Ok(());
        }
        let conn = &mut self.conns[at];
        conn.renew(&self.run.spec.targets[conn.target], self.run.security)?;
        let data = EventData::new_u64(at as u64);
        epoll::add(&self.poller, conn.transport.fd(), data, EventFlags::IN)?;
        self.record.connects += 1;
        Ok(())
    }

    /// Whether a connection, or all of a thread in an open loop, has had the requests that it was to have.
    fn is_enough(&self, asked: u64) -> bool {
        let limit = self.run.spec.requests;
        let of = if self.run.spec.pace == Pace::Closed { 1 } else { self.conns.len() as u64 };
        limit > 0 && asked >= limit.saturating_mul(of)
    }

    fn closed(&mut self) -> Result<()> {
        let now = self.now();
        self.last_heard = now;
        for at in 0..self.conns.len() {
            self.refill(at, now)?;
        }
        let mut events = Vec::with_capacity(self.conns.len().clamp(1, 1024));
        let quiet = match self.has_udp() {
            true => Timespec { tv_sec: 0, tv_nsec: 50_000_000 },
            false => Timespec { tv_sec: 1, tv_nsec: 0 },
        };
        loop {
            self.wait(&mut events, &quiet)?;
            let now = self.now();
            let is_over = self.is_over(now);
            for at in self.lost(now) {
                if !is_over {
                    self.refill(at, now)?;
                }
            }
            for event in &events {
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
            self.check_silence(now, !events.is_empty())?;
        }
    }

    /// Sends the next batch on a connection whose last one is answered: a batch leaves in one write, whereas a request for
    /// each reply would mostly leave by itself.
    fn refill(&mut self, at: usize, now: u64) -> Result<()> {
        if !self.conns[at].waiting.is_empty() {
            return Ok(());
        }
        self.renew(at)?;
        let depth = if self.fill.is_some() { FILL_DEPTH } else { self.run.spec.pipeline };
        for _ in 0..depth {
            let conn = &self.conns[at];
            let is_spent = self.is_spent(conn) || self.is_enough(conn.asked);
            if self.fill.is_none() && is_spent {
                break;
            }
            let target = self.conns[at].target;
            let op = match &mut self.fill {
                None => {
                    let op = self.draw_op();
                    self.draw_keys(op, target);
                    op
                }
                Some(next) if next[target] < self.run.spec.keys => {
                    self.drawn.clear();
                    self.drawn.push(next[target]);
                    let spec = self.run.spec;
                    next[target] += (spec.targets.len() * spec.threads) as u64;
                    Op::Set
                }
                Some(_) => break,
            };
            self.conns[at].ask(self.run.wire, op, &self.drawn, now, now);
        }
        self.flush(at)
    }

    fn open(&mut self, rate: f64, arrival: Arrival, index: usize) -> Result<bool> {
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
            let is_over = self.is_over(now) || self.is_enough(drawn);
            #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a run")]
            let clock = now as f64;
            while next <= clock && !is_over && !self.is_enough(drawn) {
                drawn += 1;
                let op = self.draw_op();
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a time"
                )]
                backlog.push_back(Due { at: next as u64, op });
                next += match arrival {
                    Arrival::Fixed => mean,
                    Arrival::Poisson => {
                        let gap: f64 = Exp1.sample(&mut self.rng);
                        gap * mean
                    }
                };
            }
            if backlog.len() > BACKLOG_MAX {
                self.give_up(&backlog, now);
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
            let sleep = if self.has_udp() { sleep.min(50_000_000) } else { sleep };
            let sleep =
                if sleep < SPIN_NANOS { 0 } else { (sleep - SPIN_NANOS / 2).min(1_000_000_000) };
            let timeout = Timespec {
                tv_sec: i64::try_from(sleep / 1_000_000_000)?,
                tv_nsec: i64::try_from(sleep % 1_000_000_000)?,
            };
            self.wait(&mut events, &timeout)?;
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
                conn.waiting.is_empty() || (conn.waiting.len() < limit && !self.is_spent(conn))
            });
            let Some(at) = free else { break };
            self.renew(at)?;
            *round = at + 1;
            backlog.pop_front();
            self.draw_keys(due.op, self.conns[at].target);
            self.conns[at].ask(self.run.wire, due.op, &self.drawn, due.at, now);
            // Late by the generator's own doing: there was a free connection, and nothing older waited.
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

    fn count_unanswered(&mut self, now: u64) {
        let is_open = self.run.spec.pace != Pace::Closed;
        for conn in &self.conns {
            for request in conn.waiting.iter().filter(|r| r.intended >= self.run.measure.0) {
                self.record.unanswered += 1;
                if is_open {
                    let waited = now.saturating_sub(request.intended);
                    self.record.of(request.op).latency.saturating_record(waited);
                }
            }
        }
    }

    fn draw_op(&mut self) -> Op {
        let ratio = self.run.spec.ratio;
        if ratio.sets == 0 {
            return Op::Get;
        }
        let part = self.rng.random_range(0..ratio.sets + ratio.gets);
        if part < ratio.sets { Op::Set } else { Op::Get }
    }

    /// Keys of one server: its numbers are those that leave `target` when divided by the count of servers.
    fn draw_keys(&mut self, op: Op, target: usize) {
        let spec = self.run.spec;
        let (servers, target) = (spec.targets.len() as u64, target as u64);
        let keys = if op == Op::Get { spec.multiget } else { 1 };
        self.drawn.clear();
        for _ in 0..keys {
            let key = self.keys.next(&mut self.rng);
            let own = key - key % servers + target;
            self.drawn.push(if own < spec.keys { own } else { target.min(spec.keys - 1) });
        }
    }

    fn serve(&mut self, at: usize, flags: EventFlags, now: u64) -> Result<()> {
        if flags.contains(EventFlags::OUT) {
            self.flush(at)?;
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return Ok(());
        }
        let spec = self.run.spec;
        let judge = Judge { wire: self.run.wire, protocol: spec.protocol, verify: spec.verify };
        let moment = Moment { now, measure: self.run.measure, is_open: spec.pace != Pace::Closed };
        self.conns[at].receive(&judge, &mut self.buffer, &mut self.record, moment)
    }

    fn flush(&mut self, at: usize) -> Result<()> {
        let conn = &mut self.conns[at];
        let wants_room = !conn.flush()?;
        if wants_room != conn.polls_for_room {
            conn.polls_for_room = wants_room;
            let room = if wants_room { EventFlags::OUT } else { EventFlags::empty() };
            let data = EventData::new_u64(at as u64);
            epoll::modify(&self.poller, conn.transport.fd(), data, EventFlags::IN | room)?;
        }
        Ok(())
    }

    /// Sleeps to the nanosecond, which `epoll_wait` does not: its timeout has milliseconds.
    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: &Timespec) -> Result<()> {
        events.clear();
        if timeout.tv_sec == 0 && timeout.tv_nsec > 0 {
            let mut poller = [PollFd::new(&self.poller, PollFlags::IN)];
            match poll(&mut poller, Some(timeout)) {
                Ok(0) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let spare = rustix::buffer::spare_capacity(events);
        match epoll::wait(
            &self.poller,
            spare,
            Some(if timeout.tv_sec == 0 { &NO_TIME } else { timeout }),
        ) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn check_silence(&mut self, now: u64, has_heard: bool) -> Result<()> {
        if has_heard {
            self.last_heard = now;
        } else if now.saturating_sub(self.last_heard) > PATIENCE_NANOS {
            bail!("no reply for {} seconds", PATIENCE_NANOS / 1_000_000_000);
        }
        Ok(())
    }

    fn tell(&mut self, now: u64) {
        let new = self.record.answered - self.told;
        if new > 0 {
            self.told = self.record.answered;
            self.run.progress.answered.fetch_add(new, Ordering::Relaxed);
        }
        let second = now.saturating_sub(self.run.measure.0) / 1_000_000_000;
        let second = usize::try_from(second).unwrap_or(usize::MAX);
        if second > self.told_second && self.fill.is_none() {
            let last = second - 1;
            self.told_second = second;
            if let (Some(seen), Ok(mut latest)) =
                (self.record.seconds.get(last), self.run.progress.latest.lock())
            {
                latest.add(last, &seen.latency);
            }
        }
    }
}

/// Processor time that this thread has used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
