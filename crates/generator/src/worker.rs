//! One generator thread: sends requests on time, reads replies, keeps the record.
//!
//! Times are nanoseconds since the run's start, the same for all threads. The
//! [closed](super::closed) and the [open](super::open) loop decide when requests are sent.
//!
//! Relaxed is enough for `Progress`: a stop that is seen late costs a moment, and `answered` is
//! for display.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::Timespec;

use super::conn::Conn;
use super::draw::Draw;
use super::record::{Moment, Record};
use super::security::Security;
use super::spec::{Pace, Spec, Target};
use super::wire::Wire;
use crate::number::{fits, nanos};

/// The state that all threads of a run share.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) spec: &'a Spec,
    pub(super) wire: &'a Wire,
    pub(super) security: &'a Security,
    pub(super) started: Instant,
    /// Start and end of the measurement, in nanoseconds since the start.
    pub(super) measure: (u64, u64),
    pub(super) progress: &'a Progress,
}

/// Reported during the run.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests answered so far.
    pub answered: AtomicU64,
    /// The last second that any thread has finished.
    pub latest: Mutex<Latest>,
    /// Set to end the run early.
    pub stop: Arc<AtomicBool>,
}

/// The figures of the current second.
#[derive(Debug, Default)]
pub struct Latest {
    /// The number of the second in the measurement.
    at: usize,
    /// Latencies of the threads that reported them.
    latency: Option<Histogram<u32>>,
}

impl Latest {
    /// Adds a thread's figures for second `at`; seconds before the last are ignored.
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

/// The outcome of a thread.
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

/// A server without a reply for this time counts as dead.
const PATIENCE_NANOS: u64 = 5_000_000_000;

/// A UDP request without a reply for this time has lost a datagram.
const LOSS_NANOS: u64 = 250_000_000;

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

pub(super) struct Worker<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) conns: Vec<Conn>,
    pub(super) poller: OwnedFd,
    buffer: Vec<u8>,
    pub(super) draw: Draw,
    pub(super) record: Record,
    /// Filling: the next key of each server; `None` while measuring.
    pub(super) fill: Option<Vec<u64>>,
    pub(super) has_udp: bool,
    pub(super) last_heard: u64,
    told: u64,
    told_second: usize,
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
        Ok(Self {
            run,
            conns,
            poller,
            buffer: vec![0; 256 * 1024],
            draw: Draw::new(spec, index)?,
            record: Record::default(),
            fill: None,
            has_udp: spec.targets.iter().any(Target::is_udp),
            last_heard: 0,
            told: 0,
            told_second: 0,
        })
    }

    /// The worker stores only its share of the keys, once.
    pub(super) fn filling(mut self, index: usize) -> Self {
        let servers = self.run.spec.targets.len() as u64;
        let first = index as u64 * servers;
        self.fill = Some((0..servers).map(|server| first + server).collect());
        self
    }

    /// Runs to the end or to the first failure; the results are kept in both cases.
    pub(super) fn go(mut self, index: usize) -> Brought {
        // Sleeps of the open loop end on time, not up to 50 us later.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        if let Err(error) = self.bind(index) {
            return self.brought(cpu_time(), Err(error));
        }
        let begun = cpu_time();
        let outcome = match self.run.spec.pace {
            Pace::Closed => self.closed().map(|()| false),
            Pace::Open { rate, arrival } => {
                #[allow(clippy::cast_precision_loss, reason = "few threads")]
                let each = rate / self.run.spec.threads as f64;
                self.open(each, arrival, index)
            }
        };
        self.brought(begun, outcome)
    }

    fn brought(mut self, begun: Duration, outcome: Result<bool>) -> Brought {
        let now = self.now();
        self.record.settle();
        self.count_unanswered(now);
        Brought {
            record: self.record,
            cpu: cpu_time().saturating_sub(begun),
            elapsed: Duration::from_nanos(now),
            is_overloaded: matches!(outcome, Ok(true)),
            failure: outcome.err(),
        }
    }

    /// Binds the thread to its processor.
    fn bind(&self, index: usize) -> Result<()> {
        let Some(processor) = self.run.spec.pin.iter().cycle().nth(index) else { return Ok(()) };
        let mut only = CpuSet::new();
        if *processor < CpuSet::MAX_CPU {
            only.set(*processor);
        }
        sched_setaffinity(None, &only).with_context(|| format!("processor {processor}"))
    }

    pub(super) fn now(&self) -> u64 {
        nanos(self.run.started.elapsed())
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.run.measure.1 || self.run.progress.stop.load(Ordering::Relaxed)
    }

    /// Gives up requests whose datagrams were lost, and returns their connections.
    pub(super) fn lost(&mut self, now: u64) -> Vec<usize> {
        let mut freed = Vec::new();
        if !self.has_udp {
            return freed;
        }
        let is_open = self.run.spec.pace != Pace::Closed;
        for (at, conn) in self.conns.iter_mut().enumerate() {
            if let Some(request) = conn.give_up(now, LOSS_NANOS) {
                // As the requests of an open loop that are answered: by their due time.
                let is_counted = !is_open || request.intended >= self.run.measure.0;
                self.record.lost += u64::from(is_counted);
                freed.push(at);
            }
        }
        freed
    }

    /// True if a connection has had its number of requests before a reconnect.
    pub(super) fn is_spent(&self, conn: &Conn) -> bool {
        let limit = self.run.spec.reconnect;
        limit > 0 && conn.requests_since_reconnect() >= limit && !conn.transport.is_udp()
    }

    /// Reconnects a spent connection without outstanding replies.
    pub(super) fn renew(&mut self, at: usize) -> Result<()> {
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

    fn count_unanswered(&mut self, now: u64) {
        let is_open = self.run.spec.pace != Pace::Closed;
        let begin = self.run.measure.0;
        for conn in &self.conns {
            // A closed loop that waits since the warm-up sends nothing in the measurement.
            for request in conn.waiting.iter().filter(|r| !is_open || r.intended >= begin) {
                self.record.unanswered += u64::from(request.count);
                if is_open {
                    let into = request.intended - begin;
                    let waited = now.saturating_sub(request.intended);
                    self.record.waited(request.op, into, waited, request.count);
                }
            }
        }
    }

    pub(super) fn serve(&mut self, at: usize, flags: EventFlags, now: u64) -> Result<()> {
        if flags.contains(EventFlags::OUT) {
            self.flush(at)?;
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return Ok(());
        }
        let spec = self.run.spec;
        let moment = Moment { now, measure: self.run.measure, is_open: spec.pace != Pace::Closed };
        self.conns[at].receive(self.run.wire, &mut self.buffer, &mut self.record, moment)
    }

    pub(super) fn flush(&mut self, at: usize) -> Result<()> {
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

    /// Sleeps with nanosecond precision; the timeout of `epoll_wait` has only milliseconds. Without
    /// a timeout, waits for an event.
    pub(super) fn wait(
        &self,
        events: &mut Vec<epoll::Event>,
        timeout: Option<&Timespec>,
    ) -> Result<()> {
        events.clear();
        if let Some(timeout) = timeout.filter(|timeout| timeout.tv_sec > 0 || timeout.tv_nsec > 0) {
            let mut poller = [PollFd::new(&self.poller, PollFlags::IN)];
            match poll(&mut poller, Some(timeout)) {
                Ok(0) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let spare = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.poller, spare, timeout.map(|_| &NO_TIME)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn check_silence(&mut self, now: u64, has_heard: bool) -> Result<()> {
        if has_heard {
            self.last_heard = now;
        } else if now.saturating_sub(self.last_heard) > PATIENCE_NANOS {
            bail!("no reply for {} seconds", PATIENCE_NANOS / 1_000_000_000);
        }
        Ok(())
    }

    /// Counts the turn's results after each turn, and reports them as progress.
    pub(super) fn report_progress(&mut self, now: u64) {
        self.record.settle();
        let new = self.record.answered - self.told;
        if new > 0 {
            self.told = self.record.answered;
            self.run.progress.answered.fetch_add(new, Ordering::Relaxed);
        }
        let second: usize = fits(now.saturating_sub(self.run.measure.0) / 1_000_000_000);
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
