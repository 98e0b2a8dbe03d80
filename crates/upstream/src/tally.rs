//! Answers of one server on their way to who asked: counted, timed, and told to who watches.

use std::sync::MutexGuard;

use crate::address::Address;
use crate::counters::{Counters, add};
use crate::destination::PROBE;
use crate::health::Health;
use crate::latencies::Latencies;
use crate::pipeline::{Ear, Exchange, Sink, Ticket};
use crate::reply::Reply;
use proto::{Command, CommandClass};

/// What is to be known of the server, and when this is.
#[derive(Clone, Copy)]
pub(crate) struct Server<'a> {
    pub(crate) address: &'a Address,
    pub(crate) health: &'a Health,
    pub(crate) counters: &'a Counters,
    /// Somebody watches exchanges.
    pub(crate) is_watched: bool,
    pub(crate) now_us: u64,
}

/// Counts answers on their way.
pub(crate) struct Tally<'a> {
    sink: &'a mut dyn Sink,
    server: Server<'a>,
    latencies: MutexGuard<'a, Latencies>,
    /// The question whether the server is back has its answer.
    pub(crate) probe_answered: bool,
    /// The last answers, of one pool, that took equally long: pool, microseconds, how many. Those of one line do.
    alike: (u16, u64, u64),
}

impl<'a> Tally<'a> {
    pub(crate) fn new(server: Server<'a>, sink: &'a mut dyn Sink) -> Self {
        let latencies = server.counters.latencies();
        Self { sink, server, latencies, probe_answered: false, alike: (0, 0, 0) }
    }

    #[inline]
    fn took(&mut self, pool: u16, us: u64) {
        if (self.alike.0, self.alike.1) == (pool, us) {
            self.alike.2 += 1;
        } else {
            self.record_alike();
            self.alike = (pool, us, 1);
        }
    }

    fn record_alike(&mut self) {
        let (pool, us, count) = self.alike;
        if count > 0 {
            self.latencies.record(pool, us, count);
        }
    }
}

impl Drop for Tally<'_> {
    /// Nobody can look at the histograms before: they are locked.
    fn drop(&mut self) {
        self.record_alike();
    }
}

impl Ear for Tally<'_> {
    #[inline]
    fn hear(&mut self, op: Command, key: &[u8], pool: u16, asked_us: u64, reply: &Reply<'_>) {
        let took_us = self.server.now_us.saturating_sub(asked_us);
        if op != Command::Version {
            self.took(pool, took_us);
            let Counters { got, get_us, updated, update_us, .. } = self.server.counters;
            let is_get = op.class() == CommandClass::Get;
            let (count, us) = if is_get { (got, get_us) } else { (updated, update_us) };
            add(count, 1);
            add(us, took_us);
        }
        if self.server.is_watched {
            let pool = self.latencies.name(pool);
            let exchange = Exchange { op, key, pool, server: self.server.address, took_us };
            self.sink.exchanged(&exchange, reply);
        }
    }
}

impl Sink for Tally<'_> {
    #[inline]
    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        self.server.health.answered();
        if ticket == PROBE {
            self.probe_answered = true;
            return;
        }
        if reply.outcome.failure().is_some() {
            add(&self.server.counters.failed, 1);
        } else {
            add(&self.server.counters.answered, 1);
            add(&self.server.counters.found, u64::from(reply.outcome.is_hit()));
            add(&self.server.counters.not_found, u64::from(reply.outcome.is_miss()));
        }
        self.sink.answer(ticket, reply);
    }
}

/// Keeps failed probes to itself.
pub(crate) struct Failing<'a> {
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) server: Server<'a>,
}

impl Ear for Failing<'_> {
    fn hear(&mut self, op: Command, key: &[u8], pool: u16, asked_us: u64, reply: &Reply<'_>) {
        if self.server.is_watched && op != Command::Version {
            let took_us = self.server.now_us.saturating_sub(asked_us);
            let latencies = self.server.counters.latencies();
            let pool = latencies.name(pool);
            let exchange = Exchange { op, key, pool, server: self.server.address, took_us };
            self.sink.exchanged(&exchange, reply);
        }
    }
}

impl Sink for Failing<'_> {
    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        if ticket != PROBE {
            self.sink.answer(ticket, reply);
        }
    }
}
