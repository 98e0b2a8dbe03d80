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
    used: BTreeMap<Use, Vec<Arc<Counters>>>,
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
        self.lock().used.entry(key).or_default().push(Arc::clone(&counters));
        counters
    }

    /// Removes the counters of a worker that no longer uses the server.
    pub(crate) fn forget(&self, address: &Address, settings: &Settings, counters: &Arc<Counters>) {
        let mut inner = self.lock();
        let key = Use::new(address, settings);
        if let Some(used) = inner.used.get_mut(&key) {
            used.retain(|other| !Arc::ptr_eq(other, counters));
            if used.is_empty() {
                inner.used.remove(&key);
            }
        }
        if !inner.used.keys().any(|other| other.address == *address) {
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
        let mut sums = BTreeMap::new();
        for (key, used) in &inner.used {
            let of_clients = used.iter().filter(|counters| !counters.is_background);
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
            used.iter().for_each(|counters| totals.add(counters));
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
