//! Latencies of requests: a histogram for each server and pool.
//!
//! A server in two pools has two histograms, so that the sum over a pool's servers is the pool's,
//! and the sum over a server's pools is the server's. Times run from the turn in which a request
//! was sent to the turn in which its answer came, in microseconds. A request that timed out counts
//! with the time that it waited; other failures are counted, but are in no histogram.

use std::collections::BTreeMap;
use std::sync::Arc;

use hdrhistogram::Histogram;

use crate::address::Address;

/// Significant digits of a time: buckets are at most one percent wide.
const DIGITS: u8 = 2;

/// The longest distinguishable time, in microseconds: a minute.
const US_MAX: u64 = 60_000_000;

/// One worker's histograms of one server, by the server's pools.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    pools: Vec<OfPool>,
}

#[derive(Debug)]
struct OfPool {
    name: Arc<str>,
    /// Created with the first answer; a pool without requests costs nothing.
    times_us: Option<Histogram<u64>>,
}

impl Latencies {
    /// The number of a pool in this list.
    pub(crate) fn pool(&mut self, name: &str) -> u16 {
        let place = self.pools.iter().position(|pool| &*pool.name == name);
        let place = place.unwrap_or_else(|| {
            self.pools.push(OfPool { name: name.into(), times_us: None });
            self.pools.len() - 1
        });
        u16::try_from(place).unwrap_or(u16::MAX)
    }

    /// Returns true if the server is in the pool.
    pub(crate) fn has(&self, pool: &str) -> bool {
        self.pools.iter().any(|one| &*one.name == pool)
    }

    /// The name of the pool with this number.
    pub(crate) fn name(&self, pool: u16) -> &str {
        self.pools.get(usize::from(pool)).map_or("", |pool| &pool.name)
    }

    /// Records `count` answers of `us` microseconds each.
    pub(crate) fn record(&mut self, pool: u16, us: u64, count: u64) {
        let Some(pool) = self.pools.get_mut(usize::from(pool)) else { return };
        if pool.times_us.is_none() {
            pool.times_us = new_histogram();
        }
        if let Some(times_us) = &mut pool.times_us {
            // It grows up to the longest time, and receives at most that.
            let _ = times_us.record_n(us.min(US_MAX), count);
        }
    }

    /// Adds what was recorded to `sums`, by pool.
    pub(crate) fn add_to(&self, address: &Address, sums: &mut BTreeMap<Place, Histogram<u64>>) {
        for OfPool { name, times_us } in &self.pools {
            let Some(times_us) = times_us else { continue };
            let place = Place { pool: Arc::clone(name), server: address.clone() };
            match sums.get_mut(&place) {
                // Both accept every time up to the longest.
                Some(sum) => drop(sum.add(times_us)),
                None => drop(sums.insert(place, times_us.clone())),
            }
        }
    }
}

/// A server in a pool.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Place {
    /// The pool's name; empty for a server outside pools.
    pub pool: Arc<str>,
    /// The server's address.
    pub server: Address,
}

/// An empty histogram of microseconds that grows on demand.
fn new_histogram() -> Option<Histogram<u64>> {
    Histogram::new(DIGITS).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_no_histogram_before_its_first_reply() {
        let (mut latencies, mut sums) = (Latencies::default(), BTreeMap::new());
        let address = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        assert_eq!((latencies.pool("A"), latencies.pool("B"), latencies.pool("A")), (0, 1, 0));
        latencies.record(1, 150, 1);
        latencies.record(1, u64::MAX, 1);
        latencies.record(7, 1, 1);
        latencies.add_to(&address, &mut sums);
        latencies.add_to(&address, &mut sums);
        let (place, times_us) = sums.iter().next().unwrap();
        assert_eq!((sums.len(), &*place.pool, times_us.len()), (1, "B", 4));
        assert_eq!(times_us.value_at_quantile(0.5), 150);
        assert!(times_us.max() >= US_MAX && times_us.max() < US_MAX * 101 / 100);
    }
}
