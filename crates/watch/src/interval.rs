//! Sums of an interval's events by operation, pool, server and key.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::line::Seen;

/// Maximum number of distinct keys counted in an interval; others count only in sums.
const KEYS_MAX: usize = 50_000;

/// The sums of one interval.
#[derive(Debug, Default)]
pub(crate) struct Interval {
    pub(crate) total: Sum,
    pub(crate) operations: BTreeMap<String, Sum>,
    pub(crate) pools: BTreeMap<String, Sum>,
    pub(crate) servers: BTreeMap<String, Sum>,
    pub(crate) keys: BTreeMap<String, Sum>,
    /// Lines read.
    pub(crate) seen: u64,
    /// Lines lost in transit.
    pub(crate) skipped: u64,
    /// The last line of each server, if it is a lookup that the next line may explain.
    lookups: BTreeMap<String, Seen>,
}

/// Requests of one kind. Counts include the requests that sampled lines stand for.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) requests: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) errors: u64,
    times_us: Option<Histogram<u64>>,
}

impl Interval {
    /// A request reported by `from`. One that a proxy forwarded to a server that is also watched
    /// counts only for its pool, because that server reports it as well. A lookup counts only if it
    /// is not the first step of the server's next request.
    pub(crate) fn add(&mut self, seen: Seen, from: &str, is_told_by_server: bool) {
        match self.lookups.remove(from) {
            Some(lookup) if seen.starts_with(&lookup) => self.seen += 1,
            Some(lookup) => self.count(&lookup, from, false),
            None => {}
        }
        if seen.is_lookup {
            self.lookups.insert(from.to_owned(), seen);
        } else {
            self.count(&seen, from, is_told_by_server);
        }
    }

    /// Counts the last lookups at the end of the interval.
    pub(crate) fn end(&mut self) {
        for (from, lookup) in std::mem::take(&mut self.lookups) {
            self.count(&lookup, &from, false);
        }
    }

    fn count(&mut self, seen: &Seen, from: &str, is_told_by_server: bool) {
        if !seen.pool.is_empty() {
            sum(&mut self.pools, &seen.pool).add(seen);
        }
        if is_told_by_server {
            return;
        }
        self.seen += 1;
        self.total.add(seen);
        sum(&mut self.operations, &seen.operation).add(seen);
        let server = if seen.server.is_empty() { from } else { &seen.server };
        sum(&mut self.servers, server).add(seen);
        if self.keys.len() < KEYS_MAX || self.keys.contains_key(&seen.key) {
            sum(&mut self.keys, &seen.key).add(seen);
        }
    }

    /// Estimated number of requests: lost lines count like the received ones.
    pub(crate) fn requests(&self) -> f64 {
        self.total.requests as f64 * self.scale()
    }

    /// The weight of a received request, because some were lost.
    pub(crate) fn scale(&self) -> f64 {
        if self.seen == 0 {
            return 1.0;
        }
        (self.seen + self.skipped) as f64 / self.seen as f64
    }
}

/// The sum of this name, created on demand.
fn sum<'a>(sums: &'a mut BTreeMap<String, Sum>, name: &str) -> &'a mut Sum {
    if !sums.contains_key(name) {
        sums.insert(name.to_owned(), Sum::default());
    }
    sums.entry(name.to_owned()).or_default()
}

impl Sum {
    fn add(&mut self, seen: &Seen) {
        self.requests += seen.weight;
        match seen.hit {
            Some(true) => self.hits += seen.weight,
            Some(false) => self.misses += seen.weight,
            None => {}
        }
        self.errors += if seen.is_error { seen.weight } else { 0 };
        if let Some(us) = seen.took_us {
            if self.times_us.is_none() {
                self.times_us = Histogram::new(2).ok();
            }
            if let Some(times_us) = &mut self.times_us {
                // At most an hour: a line's value must not take unbounded memory.
                let _ = times_us.record_n(us.min(3_600_000_000), seen.weight);
            }
        }
    }

    /// Share of hits in all reads; `None` without reads.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        let reads = self.hits + self.misses;
        (reads > 0).then(|| self.hits as f64 / reads as f64)
    }

    /// The time within which this share of the answers came; `None` without reported times.
    pub(crate) fn quantile_us(&self, quantile: f64) -> Option<u64> {
        self.times_us.as_ref().map(|times_us| times_us.value_at_quantile(quantile))
    }
}

/// The largest sums, greatest first.
pub(crate) fn largest(sums: &BTreeMap<String, Sum>, count: usize) -> Vec<(&str, &Sum)> {
    let mut all: Vec<(&str, &Sum)> = sums.iter().map(|(name, sum)| (&**name, sum)).collect();
    all.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.requests));
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_requests_count_by_their_weight() {
        let mut interval = Interval::default();
        let get = |key: &str, hit, weight| Seen {
            operation: "get".into(),
            key: key.into(),
            pool: "A".into(),
            hit: Some(hit),
            took_us: Some(100),
            weight,
            ..Seen::default()
        };
        interval.add(get("one", true, 3), "here", false);
        interval.add(get("two", false, 1), "here", false);
        interval.skipped = 2;
        assert_eq!((interval.total.requests, interval.requests()), (4, 8.0));
        assert_eq!(interval.total.hit_ratio(), Some(0.75));
        assert_eq!(interval.pools["A"].quantile_us(0.99), Some(100));
        assert_eq!(largest(&interval.keys, 1)[0].0, "one");
        assert!(interval.servers.contains_key("here"));
        // The server will report this one.
        interval.add(get("one", true, 1), "proxy", true);
        assert_eq!((interval.total.requests, interval.seen), (4, 2));
        assert_eq!((interval.pools["A"].requests, interval.keys["one"].requests), (5, 3));
    }

    #[test]
    fn lookups_of_memcached_count_unless_they_begin_a_store_or_a_delete() {
        let mut interval = Interval::default();
        let lines = [
            // A get, and a store of the missed item.
            "type=item_get key=a status=not_found clsid=0 cfd=5 size=0",
            "type=item_get key=a status=not_found clsid=0 cfd=5 size=0",
            "type=item_store key=a status=stored cmd=set ttl=0 clsid=1 cfd=5 size=1",
            // A get, and a store by another client.
            "type=item_get key=a status=found clsid=1 cfd=5 size=1",
            "type=item_store key=a status=stored cmd=set ttl=0 clsid=1 cfd=6 size=1",
            "type=item_get key=a status=found clsid=1 cfd=5 size=1",
            "type=deleted key=a cmd=delete clsid=1 size=1",
            "type=item_get key=b status=found clsid=1 cfd=5 size=1",
        ];
        for line in lines {
            let crate::line::Line::Request(seen) = crate::line::read(line, true) else {
                panic!("{line} is no request")
            };
            interval.add(*seen, "memcached", false);
        }
        interval.end();
        let requests = |operation: &str| interval.operations[operation].requests;
        assert_eq!(["get", "set", "delete"].map(requests), [3, 2, 1]);
        assert_eq!((interval.total.hits, interval.total.misses), (2, 1));
        // Lost lines may have been lookups of stores, too.
        assert_eq!(interval.seen, 8);
    }
}
