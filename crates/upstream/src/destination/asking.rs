//! The probe of a server's dialect, and the requests that wait for its outcome.
//!
//! ```text
//!     Unasked --a request that needs more--> Waiting --nothing outstanding--> Asking
//!     Asking --answers--> Known
//!     Asking --hangs up--> (next connection) Waiting --> Greeting --answers--> Asking
//! ```
//!
//! The probe is sent when nothing else is outstanding. Requests that arrive in the meantime wait
//! behind it, in order. So a server that closes the connection after the probe (as twemproxy does)
//! loses no request: the waiting ones are sent on the next connection, behind another probe. A
//! server that is restarted at that moment answers that probe.
//!
//! A forwarder whose server is down also closes the connection, after any request. So the next
//! probe follows a get, which every server answers. A server that answers the get, but closes after
//! [`PROBES_MAX`] consecutive probes, lacks the probed commands: it gets the commands that every
//! server knows, and for a time no probe.
//!
//! Silence is not an answer. Requests that wait for the probe of a paused server fail like all
//! others, and the next connection starts with another probe.

use std::collections::VecDeque;

use super::{Destination, End};
use crate::counters::{Counters, add};
use crate::dialect::{self, Dialect};
use crate::pipeline::Broken;
use crate::reply::Reply;
use crate::reply_stats::{Server, record_wait};
use crate::request::{OwnedRequest, Request};
use crate::settings::Protocol;
use crate::sink::{PROBE, Sink, Ticket};
use proto::{Command, Failure};

/// Microseconds without probes for a server that closes connections after them.
const MUTE_US: u64 = 60_000_000;

/// Consecutive probes after which a server may close before it is not probed for [`MUTE_US`].
const PROBES_MAX: u32 = 2;

/// A request that every server answers: a get of a key that no client uses.
const GREETING: Request<'_> = Request::new(Command::Get, b"holdall-question");

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Stage {
    /// No request needed more than every server accepts.
    #[default]
    Unasked,
    /// The probe is sent once everything before it is answered.
    Waiting,
    /// The server closed after the last probe. This one is sent once it has answered the greeting.
    Greeting,
    /// The probe is sent.
    Asking,
    /// The server's dialect.
    Known(Dialect),
}

#[derive(Debug)]
struct Parked {
    request: OwnedRequest,
    ticket: Ticket,
    pool: u16,
    at_us: u64,
}

/// The stage of the probe, and the requests that wait for it.
#[derive(Debug, Default)]
pub(super) struct Asking {
    stage: Stage,
    parked: VecDeque<Parked>,
    parked_bytes: usize,
    /// Requests that are not sent, and the reasons.
    refused: Vec<(Ticket, &'static str)>,
    /// Consecutive probes after which it closed the connection.
    hang_ups: u32,
    /// It closed after too many, and is not probed before this time.
    mute_until_us: u64,
    /// It refused a command that it should accept: the probe comes first on every connection.
    asks_first: bool,
}

impl Asking {
    /// Returns true if `pending_max` requests, or `bytes_max` bytes of them, wait.
    pub(super) fn is_full(&self, pending_max: usize, bytes_max: usize) -> bool {
        self.parked.len() >= pending_max || self.parked_bytes >= bytes_max
    }

    pub(super) fn waits(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Records the end of the connection. Returns true if the server closed it as its answer to the
    /// probe, so that only the probe is lost.
    pub(super) fn closed(&mut self, end: End<'_>, now_us: u64) -> bool {
        let stage = std::mem::take(&mut self.stage);
        self.asks_first |= end == End::Broken(Broken::Cut) && !matches!(stage, Stage::Known(_));
        let hangs_up = stage == Stage::Asking && matches!(end, End::Broken(_) | End::Gone);
        if hangs_up {
            self.hang_ups = self.hang_ups.saturating_add(1);
            if self.hang_ups >= PROBES_MAX {
                self.mute_until_us = now_us.saturating_add(MUTE_US);
            }
        }
        hangs_up
    }

    /// Returns true if the dialect is unknown, and the server has not closed after too many probes.
    pub(super) fn may_ask(&self) -> bool {
        self.stage == Stage::Unasked && self.hang_ups < PROBES_MAX
    }

    fn is_mute(&self, now_us: u64) -> bool {
        now_us < self.mute_until_us
    }

    fn park(&mut self, request: &Request<'_>, ticket: Ticket, pool: u16, at_us: u64) {
        let request = request.to_owned();
        self.parked_bytes += request.bytes();
        self.parked.push_back(Parked { request, ticket, pool, at_us });
    }

    fn take_parked(&mut self) -> VecDeque<Parked> {
        self.parked_bytes = 0;
        std::mem::take(&mut self.parked)
    }

    /// Fails the requests that are not sent.
    #[inline]
    pub(super) fn tell_refused(&mut self, counters: &Counters, sink: &mut dyn Sink) {
        if !self.refused.is_empty() {
            for (ticket, why) in self.refused.drain(..) {
                add(&counters.failed, 1);
                sink.answer(ticket, &Reply::refused(why));
            }
        }
    }
}

impl Destination {
    /// The dialect that is sent at once on a new connection.
    pub(super) fn takes_first(&self) -> Option<Dialect> {
        match self.settings.protocol {
            Protocol::Binary => Some(Dialect::Holdall),
            Protocol::Text if self.asking.asks_first => None,
            Protocol::Text => Some(Dialect::Basic),
        }
    }

    /// Handles a request that is not sent at once: it is sent anyway, waits, or is refused.
    #[cold]
    pub(super) fn ask_aside(
        &mut self,
        needed: Result<Dialect, &'static str>,
        request: &Request<'_>,
        ticket: Ticket,
        pool: u16,
        at_us: u64,
        now_us: u64,
    ) {
        if self.settings.protocol == Protocol::Binary {
            return match dialect::fits_packet(request) {
                Ok(()) => self.send_on(request, ticket, pool, at_us),
                Err(why) => self.asking.refused.push((ticket, why)),
            };
        }
        match (needed, self.asking.stage) {
            (Err(why), _) => self.asking.refused.push((ticket, why)),
            (Ok(_), Stage::Unasked) if self.asking.is_mute(now_us) => {
                self.ask_or_refuse(Dialect::Basic, request, ticket, pool, at_us);
            }
            (Ok(_), Stage::Known(seen)) => {
                self.ask_or_refuse(seen, request, ticket, pool, at_us);
            }
            (Ok(_), Stage::Unasked) => {
                (self.asking.stage, self.takes) = (Stage::Waiting, None);
                self.asking.park(request, ticket, pool, at_us);
                self.go_on(now_us);
            }
            (Ok(_), Stage::Waiting | Stage::Greeting | Stage::Asking) => {
                self.asking.park(request, ticket, pool, at_us);
            }
        }
    }

    /// Sends a request to a server with this dialect, or refuses it.
    fn ask_or_refuse(
        &mut self,
        takes: Dialect,
        request: &Request<'_>,
        ticket: Ticket,
        pool: u16,
        at_us: u64,
    ) {
        match dialect::needs(request) {
            Ok(needed) if needed <= takes => self.send_on(request, ticket, pool, at_us),
            Ok(needed) => {
                let why = dialect::lacking(request, needed);
                self.asking.refused.push((ticket, why));
            }
            Err(why) => self.asking.refused.push((ticket, why)),
        }
    }

    /// Sends the probe if nothing is outstanding; if it is answered, sends the waiting requests.
    #[cold]
    pub(super) fn go_on(&mut self, now_us: u64) {
        match (self.asking.stage, self.pipeline.seen()) {
            (Stage::Waiting | Stage::Greeting, _) if self.pipeline.is_empty() => {
                // It has the remaining time of the oldest request that waits for it.
                let at_us = self.asking.parked.front().map_or(now_us, |parked| parked.at_us);
                let greets = self.asking.stage == Stage::Waiting && self.asking.hang_ups > 0;
                self.asking.stage = if greets {
                    self.pipeline.ask(&GREETING, PROBE, 0, at_us);
                    Stage::Greeting
                } else {
                    self.pipeline.probe(at_us);
                    Stage::Asking
                };
            }
            (Stage::Asking, Some(seen)) => {
                (self.asking.stage, self.takes) = (Stage::Known(seen), Some(seen));
                self.asking.hang_ups = 0;
                for Parked { request, ticket, pool, at_us } in self.asking.take_parked() {
                    self.ask_or_refuse(seen, &request.get(), ticket, pool, at_us);
                }
            }
            _ => {}
        }
    }

    /// Fails the waiting requests after the end of the connection: those before a time with one
    /// failure, later ones with another. Without a failure, the server has closed after the probe,
    /// and they are sent on another connection.
    pub(super) fn let_go(
        &mut self,
        failure: Option<(u64, Failure, Failure, &[u8])>,
        now_us: u64,
        sink: &mut dyn Sink,
    ) {
        let parked = self.asking.take_parked();
        let failure = match failure {
            Some(failure) => Err(failure),
            None => self.connect(now_us).map_err(|failure| (0, failure, failure, &b""[..])),
        };
        let Err((late_us, late, other, words)) = failure else {
            for Parked { request, ticket, pool, at_us } in parked {
                let request = request.get();
                self.ask_aside(dialect::needs(&request), &request, ticket, pool, at_us, now_us);
            }
            return self.asking.tell_refused(&self.counters, sink);
        };
        for Parked { ticket, pool, at_us, .. } in parked {
            add(&self.counters.failed, 1);
            let failure = if at_us <= late_us { late } else { other };
            let reply = Reply::failed(failure, words);
            record_wait(&server!(self, now_us), pool, at_us, &reply);
            sink.answer(ticket, &reply);
        }
    }
}
