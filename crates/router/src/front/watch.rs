//! `watch`: connections that receive the requests to servers live.
//!
//! A line for each request to a server, in the form of memcached's `proxyreqs`:
//!
//! ```text
//!     ts=1795279800.123456 gid=7 type=proxy_req elapsed=172 be=10.0.0.1:11211 pool=A cmd=get
//!     key=user%3A17 status=found size=64 one_in=8
//! ```
//!
//! A worker reports about [`PER_SECOND`] requests per second, chosen at random, and the number of
//! requests that each represents. Without watchers, an answer costs one check of a flag.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::Output;
use proto::{reply, uri};
use upstream::{Command, Exchange, Failure, Outcome, Reply};
use watch::hub::{Events, Watchers};

use super::{Front, Session};

/// Approximate number of lines that a worker reports per second.
const PER_SECOND: u32 = 2000;

/// The interval after which the share of reported requests is adjusted.
const WINDOW: Duration = Duration::from_millis(100);

/// One worker's side.
#[derive(Debug)]
pub(super) struct Reporter {
    watchers: Arc<Watchers>,
    is_watched: bool,
    sampler: Sampler,
}

impl Reporter {
    pub(super) fn new(watchers: &Arc<Watchers>) -> Self {
        Self { watchers: Arc::clone(watchers), is_watched: false, sampler: Sampler::new() }
    }

    /// Starts a turn. Returns whether there are watchers, if that has changed.
    pub(super) fn turn(&mut self, now: Instant) -> Option<bool> {
        let is_watched = self.watchers.watched().meets(Events::PROXY_REQUESTS);
        if is_watched {
            self.sampler.turn(now);
        }
        let was_watched = std::mem::replace(&mut self.is_watched, is_watched);
        (is_watched != was_watched).then_some(is_watched)
    }

    /// Reports a request to a server and its result.
    #[cold]
    pub(super) fn exchanged(&mut self, exchange: &Exchange<'_>, reply: &Reply<'_>) {
        let Some(one_in) = self.sampler.take() else { return };
        let Exchange { op, key, pool, server, took_us } = exchange;
        self.watchers.report(Events::PROXY_REQUESTS, |line| {
            // Writing into a vector does not fail.
            let _ = write!(line, "type=proxy_req elapsed={took_us} be={server} pool=");
            uri::encode(pool.as_bytes(), line);
            let _ = write!(line, " cmd={} key=", op.name());
            uri::encode(key, line);
            let _ = write!(line, " status={}", status(*op, reply.outcome));
            if let Some(failure) = reply.outcome.failure() {
                let _ = write!(line, " reason={}", Failure::name(failure));
            }
            let _ = write!(line, " size={} one_in={one_in}", reply.value.len());
        });
    }
}

/// The result in one word.
const fn status(op: Command, outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Deleted | Outcome::OnlyDeleted => "deleted",
        Outcome::Exists => "exists",
        Outcome::Failed(_) => "error",
        Outcome::Found | Outcome::MetaInfo => "found",
        Outcome::Lease => "lease",
        Outcome::Meta(_) if matches!(op, Command::MetaGet | Command::MetaDebug) => {
            if outcome.is_miss() { "not_found" } else { "found" }
        }
        Outcome::Meta(code) => match code.letters() {
            b"HD" | b"VA" => "done",
            b"NS" => "not_stored",
            b"EX" => "exists",
            _ => "not_found",
        },
        Outcome::NotFound => "not_found",
        Outcome::NotStored => "not_stored",
        Outcome::Number | Outcome::Ok | Outcome::Version => "done",
        Outcome::StaleStored => "stale_stored",
        Outcome::Stored => "stored",
        Outcome::Touched => "touched",
    }
}

/// Chooses the requests to report, one in `one_in`: about [`PER_SECOND`] per second at the rate of
/// the last window.
#[derive(Debug)]
struct Sampler {
    one_in: u32,
    began: Option<Instant>,
    /// Requests in this window.
    seen: u32,
    /// xorshift32, in four bytes of the worker: it only spreads the samples.
    random: u32,
}

impl Sampler {
    const fn new() -> Self {
        Self { one_in: 1, began: None, seen: 0, random: 0x9e37_79b9 }
    }

    fn turn(&mut self, now: Instant) {
        let began = *self.began.get_or_insert(now);
        let span = now.saturating_duration_since(began);
        if span >= WINDOW {
            let room = f64::from(PER_SECOND) * span.as_secs_f64();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 2^32")]
            let one_in = (f64::from(self.seen) / room).ceil() as u32;
            (self.one_in, self.began, self.seen) = (one_in.max(1), Some(now), 0);
        }
    }

    /// The number of requests that this one represents; `None` if it is not reported.
    fn take(&mut self) -> Option<u32> {
        self.seen = self.seen.saturating_add(1);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random.is_multiple_of(self.one_in).then_some(self.one_in)
    }
}

impl Front {
    /// `watch`, from a connection that has requested these events.
    pub(super) fn watch(&mut self, session: &mut Session, events: Events, output: &Output<'_>) {
        session.watching = self.shared.watchers.add(events, output.waker()).map(Box::new);
        let answer = match session.watching {
            Some(_) => reply::OK,
            None => b"WATCHER_TOO_MANY log watcher limit reached\r\n",
        };
        self.tell(session.queue, false, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_represents_all_requests() {
        let (mut sampler, mut now) = (Sampler::new(), Instant::now());
        sampler.turn(now);
        let windows = 50;
        let per_window = 20 * PER_SECOND / 10;
        for window in 0..windows {
            let told: Vec<u32> = (0..per_window).filter_map(|_| sampler.take()).collect();
            let stand_for: u32 = told.iter().sum();
            if window > 0 {
                // Always the same numbers: nothing is random.
                assert!(told.len().abs_diff(PER_SECOND as usize / 10) < 60, "{}", told.len());
                assert!(stand_for.abs_diff(per_window) < per_window / 3, "{stand_for}");
            }
            now += WINDOW;
            sampler.turn(now);
        }
        now += WINDOW;
        sampler.turn(now);
        assert_eq!(sampler.take(), Some(1), "after silence every request is reported");
    }
}
