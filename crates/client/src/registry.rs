//! The servers of a program: their health, which workers share, and the counters of all workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::address::Address;
use crate::counters::{Counters, Totals};
use crate::health::{Health, State};
use crate::latencies::Place;
use crate::settings::{Protocol, Settings};

/// Shared by the workers.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    health: BTreeMap<Address, Arc<Health>>,
    used: BTreeMap<(Address, Duration), Vec<Arc<Counters>>>,
    /// How they are spoken to: by what, and whether by TLS.
    spoken: BTreeMap<(Address, Duration), (Protocol, bool)>,
}

/// What is known of one server.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where it is.
    pub address: Address,
    /// How long an answer may take.
    pub timeout: Duration,
    /// What is spoken.
    pub protocol: Protocol,
    /// Connections are encrypted.
    pub is_encrypted: bool,
    /// How it stands.
    pub state: State,
    /// Knockouts so far.
    pub tko_count: u64,
    /// Of all workers.
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

    /// Counters for one worker that begins to use a server.
    pub(crate) fn counters(&self, address: &Address, settings: &Settings) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        let mut inner = self.lock();
        let key = (address.clone(), settings.timeout);
        inner.spoken.insert(key.clone(), (settings.protocol, settings.tls.is_some()));
        inner.used.entry(key).or_default().push(Arc::clone(&counters));
        counters
    }

    /// The worker whose counters these are does not use the server any more.
    pub(crate) fn forget(&self, address: &Address, timeout: Duration, counters: &Arc<Counters>) {
        let mut inner = self.lock();
        let key = (address.clone(), timeout);
        if let Some(used) = inner.used.get_mut(&key) {
            used.retain(|other| !Arc::ptr_eq(other, counters));
            if used.is_empty() {
                inner.used.remove(&key);
                inner.spoken.remove(&key);
            }
        }
        if !inner.used.keys().any(|(other, _)| other == address) {
            inner.health.remove(address);
        }
    }

    /// How long the answers of each server in each pool took, in microseconds, since it is used.
    #[must_use]
    pub fn latencies(&self) -> BTreeMap<Place, Histogram<u64>> {
        let inner = self.lock();
        let mut sums = BTreeMap::new();
        for ((address, _), used) in &inner.used {
            used.iter().for_each(|counters| counters.latencies().add_to(address, &mut sums));
        }
        sums
    }

    /// The servers in use.
    #[must_use]
    pub fn report(&self) -> Vec<Report> {
        let inner = self.lock();
        let reports = inner.used.iter().map(|(key, used)| {
            let (address, timeout) = key;
            let (protocol, is_encrypted) = inner.spoken.get(key).copied().unwrap_or_default();
            let health = inner.health.get(address);
            let mut totals = Totals::default();
            used.iter().for_each(|counters| totals.add(counters));
            Report {
                address: address.clone(),
                timeout: *timeout,
                protocol,
                is_encrypted,
                state: health.map_or(State::New, |health| health.state()),
                tko_count: health.map_or(0, |health| health.tko_count()),
                totals,
            }
        });
        reports.collect()
    }
}
