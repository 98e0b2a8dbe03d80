//! The servers of a program: their health, which workers share, and the counters of all workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hdrhistogram::Histogram;
use spans::Spans;

use crate::address::Address;
use crate::counters::{Counters, Totals};
use crate::latencies::Place;
use crate::settings::{Protocol, Settings};
use crate::tko::{FailOpen, Health, State};
use crate::traffic::{Snapshot, Traffic};

/// Shared by the workers.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    health: BTreeMap<Address, Arc<Health>>,
    used: BTreeMap<Use, Used>,
    /// The latencies of workers that no longer use a server, in the places that others still use.
    gone_times: BTreeMap<Place, Histogram<u64>>,
    /// One per worker.
    traffic: Vec<Arc<Traffic>>,
    /// Those that are in use.
    fail_open: Vec<Weak<FailOpen>>,
    /// The queue for spans of traced requests, if any.
    spans: Option<Arc<Spans>>,
}

/// A server with its settings.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Use {
    address: Address,
    timeout: Duration,
    protocol: Protocol,
    is_encrypted: bool,
}

/// The counts of one server with its settings.
#[derive(Debug, Default)]
struct Used {
    /// One for each worker that uses it.
    counters: Vec<Arc<Counters>>,
    /// The sum of those that used it. Without them, the totals would fall, and a reader of counters
    /// would take that for a restart and count all that remains as new.
    gone: Totals,
}

impl Use {
    fn new(address: &Address, settings: &Settings) -> Self {
        Self {
            address: address.clone(),
            timeout: settings.timeout,
            protocol: settings.protocol,
            is_encrypted: settings.tls.is_some(),
        }
    }
}

/// The settings and state of one server.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its address.
    pub address: Address,
    /// The maximum time of an answer.
    pub timeout: Duration,
    /// The protocol of its connections.
    pub protocol: Protocol,
    /// Connections are encrypted.
    pub is_encrypted: bool,
    /// Its state.
    pub state: State,
    /// Knockouts so far.
    pub tko_count: u64,
    /// The reason of the last one; empty without any.
    pub tko_reason: String,
    /// The totals of all workers.
    pub totals: Totals,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The health of the server at `address`.
    pub(crate) fn health(&self, address: &Address) -> Arc<Health> {
        Arc::clone(self.lock().health.entry(address.clone()).or_default())
    }

    /// Counters for one worker that starts to use a server.
    pub(crate) fn counters(
        &self,
        address: &Address,
        settings: &Settings,
        is_background: bool,
    ) -> Arc<Counters> {
        let counters = Arc::new(Counters::new(is_background));
        let key = Use::new(address, settings);
        self.lock().used.entry(key).or_default().counters.push(Arc::clone(&counters));
        counters
    }

    /// Removes the counters of a worker that no longer uses the server. Their counts stay in the
    /// totals until nothing uses the server in this way.
    pub(crate) fn forget(&self, address: &Address, settings: &Settings, counters: &Arc<Counters>) {
        let inner = &mut *self.lock();
        let key = Use::new(address, settings);
        if let Some(used) = inner.used.get_mut(&key) {
            used.counters.retain(|other| !Arc::ptr_eq(other, counters));
            used.gone.add_gone(counters);
            if used.counters.is_empty() {
                inner.used.remove(&key);
            }
        }
        if !counters.is_background {
            counters.latencies().add_to(address, &mut inner.gone_times);
        }
        let left: Vec<_> = { inner.used.iter() }
            .filter(|(key, _)| key.address == *address)
            .flat_map(|(_, used)| &used.counters)
            .collect();
        let is_used = |pool: &str| left.iter().any(|one| one.latencies().has(pool));
        inner.gone_times.retain(|place, _| place.server != *address || is_used(&place.pool));
        if left.is_empty() {
            inner.health.remove(address);
        }
    }

    /// Sets the queue for spans of traced requests, for workers created from now on.
    pub fn set_spans(&self, spans: &Arc<Spans>) {
        self.lock().spans = Some(Arc::clone(spans));
    }

    /// The queue for spans of traced requests, if there is one.
    #[must_use]
    pub fn spans(&self) -> Option<Arc<Spans>> {
        self.lock().spans.clone()
    }

    /// Counters for one more worker.
    pub(crate) fn add_worker(&self) -> Arc<Traffic> {
        let traffic = Arc::new(Traffic::default());
        self.lock().traffic.push(Arc::clone(&traffic));
        traffic
    }

    /// Counts of all workers' requests and work, since the start.
    #[must_use]
    pub fn traffic(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        self.lock().traffic.iter().for_each(|traffic| sum.add(traffic));
        sum
    }

    /// The state that decides when the pool of these servers fails open: the same for all workers.
    pub(crate) fn fail_open(&self, pool: &[Address], lower: u32, upper: u32) -> Arc<FailOpen> {
        let health: Vec<_> = pool.iter().map(|address| self.health(address)).collect();
        let known = &mut self.lock().fail_open;
        known.retain(|one| one.strong_count() > 0);
        let same = known.iter().filter_map(Weak::upgrade);
        if let Some(found) = { same }.find(|one| one.is_of(&health, lower, upper)) {
            return found;
        }
        let made = Arc::new(FailOpen::new(health, lower, upper));
        known.push(Arc::downgrade(&made));
        made
    }

    /// The latencies of each server in each pool, in microseconds, since its first use.
    #[must_use]
    pub fn latencies(&self) -> BTreeMap<Place, Histogram<u64>> {
        let inner = self.lock();
        let mut sums = inner.gone_times.clone();
        for (key, used) in &inner.used {
            let of_clients = used.counters.iter().filter(|counters| !counters.is_background);
            of_clients.for_each(|one| one.latencies().add_to(&key.address, &mut sums));
        }
        sums
    }

    /// The servers in use.
    #[must_use]
    pub fn report(&self) -> Vec<Report> {
        let inner = self.lock();
        let reports = inner.used.iter().map(|(key, used)| {
            let Use { address, timeout, protocol, is_encrypted } = key.clone();
            let health = inner.health.get(&address);
            let mut totals = Totals::default();
            used.counters.iter().for_each(|counters| totals.add(counters));
            // The mean is that of workers that still use it.
            let latency_us = totals.latency_us;
            totals.add_totals(&used.gone);
            totals.latency_us = latency_us;
            Report {
                address,
                timeout,
                protocol,
                is_encrypted,
                state: health.map_or(State::New, |health| health.state()),
                tko_count: health.map_or(0, |health| health.tko_count()),
                tko_reason: health.map_or_else(String::new, |health| health.why()),
                totals,
            }
        });
        reports.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{add, set};

    /// A worker's counters of a server in a pool after some requests.
    fn counted(registry: &Registry, address: &Address, settings: &Settings) -> Arc<Counters> {
        let counters = registry.counters(address, settings, false);
        add(&counters.asked, 10);
        add(&counters.answered, 8);
        set(&counters.latency_ns, 5_000);
        set(&counters.connected, 1);
        set(&counters.pending, 2);
        let pool = counters.latencies().pool("A");
        counters.latencies().record(pool, 150, 8);
        counters
    }

    #[test]
    fn counts_stay_while_the_server_is_in_use() {
        let (registry, settings) = (Registry::default(), Settings::default());
        let address = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        let [first, second, last] = [(); 3].map(|()| counted(&registry, &address, &settings));
        let binary = Settings { protocol: Protocol::Binary, ..settings.clone() };
        let other = counted(&registry, &address, &binary);
        let answers = || registry.latencies().values().map(Histogram::len).collect::<Vec<_>>();
        registry.forget(&address, &settings, &first);
        registry.forget(&address, &settings, &second);
        let totals: Vec<_> = registry.report().iter().map(|report| report.totals).collect();
        let one = Totals { connected: 1, pending: 2, latency_us: 5.0, ..Totals::default() };
        assert_eq!(totals[0], Totals { asked: 10, answered: 8, ..one });
        assert_eq!(totals[1], Totals { asked: 30, answered: 24, ..one });
        assert_eq!(answers(), [32]);
        registry.forget(&address, &settings, &last);
        assert_eq!((registry.report().len(), answers()), (1, vec![32]));
        registry.forget(&address, &binary, &other);
        assert_eq!((registry.report().len(), answers()), (0, vec![]));
        assert!(registry.lock().gone_times.is_empty());
    }
}
