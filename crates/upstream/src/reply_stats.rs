//! Counts and times the replies of one server, and reports exchanges to watchers.

use std::sync::MutexGuard;

use crate::address::Address;
use crate::counters::{Counters, add};
use crate::latencies::Latencies;
use crate::reply::Reply;
use crate::sink::PROBE;
use crate::sink::{Exchange, ReplyObserver, Sink, Ticket};
use crate::tko::Health;
use proto::{Command, CommandClass, Failure};

/// The server of the replies, and the current time.
#[derive(Clone, Copy)]
pub(crate) struct Server<'a> {
    pub(crate) address: &'a Address,
    pub(crate) health: &'a Health,
    pub(crate) counters: &'a Counters,
    /// Whether the sink receives exchanges.
    pub(crate) is_watched: bool,
    pub(crate) now_us: u64,
}

/// A sink that counts and times replies before it passes them on.
pub(crate) struct ReplyStats<'a> {
    sink: &'a mut dyn Sink,
    server: Server<'a>,
    latencies: MutexGuard<'a, Latencies>,
    /// Set once a probe was answered.
    pub(crate) probe_answered: bool,
    /// The latest replies of equal pool and duration, like those of one line: pool, microseconds,
    /// count.
    alike: (u16, u64, u64),
}

impl<'a> ReplyStats<'a> {
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

    #[cold]
    fn tell_watchers(
        &mut self,
        op: Command,
        key: &[u8],
        pool: u16,
        took_us: u64,
        reply: &Reply<'_>,
    ) {
        let pool = self.latencies.name(pool);
        let exchange = Exchange { op, key, pool, server: self.server.address, took_us };
        self.sink.exchanged(&exchange, reply);
    }
}

impl Drop for ReplyStats<'_> {
    /// No thread can read the histograms before, because they are locked.
    fn drop(&mut self) {
        self.record_alike();
    }
}

impl ReplyObserver for ReplyStats<'_> {
    #[inline]
    fn on_reply(&mut self, op: Command, key: &[u8], pool: u16, asked_us: u64, reply: &Reply<'_>) {
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
            self.tell_watchers(op, key, pool, took_us, reply);
        }
    }
}

impl Sink for ReplyStats<'_> {
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

/// Records the time of a request that waited in vain. Its client has waited that long, and a
/// stalled server has no other times. Earlier failures say nothing about latency.
pub(crate) fn record_wait(server: &Server<'_>, pool: u16, asked_us: u64, reply: &Reply<'_>) {
    if matches!(reply.outcome.failure(), Some(Failure::Timeout | Failure::ConnectTimeout)) {
        let waited_us = server.now_us.saturating_sub(asked_us);
        server.counters.latencies().record(pool, waited_us, 1);
    }
}

/// Times requests without an answer in time, and does not pass on failed probes.
pub(crate) struct Failing<'a> {
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) server: Server<'a>,
}

impl ReplyObserver for Failing<'_> {
    fn on_reply(&mut self, op: Command, key: &[u8], pool: u16, asked_us: u64, reply: &Reply<'_>) {
        if op == Command::Version {
            return;
        }
        record_wait(&self.server, pool, asked_us, reply);
        if self.server.is_watched {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Default)]
    struct Tickets(Vec<Ticket>);

    impl Sink for Tickets {
        fn answer(&mut self, ticket: Ticket, _: &Reply<'_>) {
            self.0.push(ticket);
        }
    }

    /// A latency objective is watched with the histograms, so they must contain timeouts.
    #[test]
    fn timeouts_are_timed_and_immediate_failures_are_not() {
        let address = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        let (health, counters) = (Health::default(), Counters::default());
        let pool = counters.latencies().pool("A");
        let mut tickets = Tickets::default();
        let server = Server {
            address: &address,
            health: &health,
            counters: &counters,
            is_watched: false,
            now_us: 1_000_000,
        };
        let mut failing = Failing { sink: &mut tickets, server };
        for (op, failure, asked_us) in [
            (Command::Get, Failure::Timeout, 0),
            (Command::Set, Failure::ConnectTimeout, 500_000),
            (Command::Get, Failure::RemoteError, 100),
            (Command::Version, Failure::Timeout, 0),
        ] {
            let reply = Reply::failed(failure, b"");
            failing.on_reply(op, b"k", pool, asked_us, &reply);
            failing.answer(if op == Command::Version { PROBE } else { 7 }, &reply);
        }
        assert_eq!(tickets.0, [7, 7, 7]);
        let mut sums = BTreeMap::new();
        counters.latencies().add_to(&address, &mut sums);
        let times_us = sums.into_values().next().unwrap();
        assert_eq!(times_us.len(), 2);
        assert!((500_000..510_000).contains(&times_us.value_at_quantile(0.5)));
        assert!((1_000_000..1_010_000).contains(&times_us.max()));
    }
}
