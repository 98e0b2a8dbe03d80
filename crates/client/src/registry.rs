//! The servers of a program: their health, which workers share, and the counters of all workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::address::Address;
use crate::counters::{Counters, Totals};
use crate::health::{Health, State};
use crate::latencies::Place;

/// Shared by the workers.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    health: BTreeMap<Address, Arc<Health>>,
    used: BTreeMap<(Address, Duration), Vec<Arc<Counters>>>,
}

/// What is known of one server.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where it is.
    pub address: Address,
    /// How long an answer may take.
    pub timeout: Duration,
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
    pub(crate) fn counters(&self, address: &Address, timeout: Duration) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        let mut inner = self.lock();
        inner.used.entry((address.clone(), timeout)).or_default().push(Arc::clone(&counters));
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
        let reports = inner.used.iter().map(|((address, timeout), used)| {
            let health = inner.health.get(address);
            let mut totals = Totals::default();
            used.iter().for_each(|counters| totals.add(counters));
            Report {
                address: address.clone(),
                timeout: *timeout,
                state: health.map_or(State::New, |health| health.state()),
                tko_count: health.map_or(0, |health| health.tko_count()),
                totals,
            }
        });
        reports.collect()
    }
}
