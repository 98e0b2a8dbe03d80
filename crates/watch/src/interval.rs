//! Sums of an interval's events by operation, pool, server and key.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::line::Seen;

/// Maximum number of distinct keys counted in an interval, over all addresses; others count only in
/// sums.
const KEYS_MAX: usize = 50_000;

/// The sums of one interval, of one address or of all.
#[derive(Debug, Default)]
pub(crate) struct Interval {
    pub(crate) total: Sum,
    pub(crate) operations: BTreeMap<String, Sum>,
    pub(crate) pools: BTreeMap<String, Sum>,
    pub(crate) servers: BTreeMap<String, Sum>,
    pub(crate) keys: BTreeMap<String, Sum>,
    /// Lines that count for the total.
    pub(crate) seen: u64,
    /// Those, and the lines about requests that a watched server reports as well.
    read: u64,
    /// Lines lost in transit.
    pub(crate) skipped: u64,
    /// Maximum number of distinct keys.
    keys_max: usize,
    /// The last line of the address, if it is a lookup that the next line may explain.
    lookup: Option<Seen>,
}

/// Requests of one kind. Counts include the requests that sampled lines stand for, and in a sum of
/// all addresses an estimate of those whose lines were lost.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) requests: f64,
    pub(crate) hits: f64,
    pub(crate) misses: f64,
    pub(crate) errors: f64,
    times_us: Option<Histogram<u64>>,
}

impl Interval {
    /// The sums of one of this many addresses.
    pub(crate) fn of_one(addresses: usize) -> Self {
        Self { keys_max: KEYS_MAX / addresses.max(1), ..Self::default() }
    }

    /// A request reported by `from`. One that a proxy forwarded to a server that is also watched
    /// counts only for its pool, because that server reports it as well. A lookup counts only if it
    /// is not the first step of the server's next request.
    pub(crate) fn add(&mut self, seen: Seen, from: &str, is_told_by_server: bool) {
        match self.lookup.take() {
            Some(lookup) if seen.starts_with(&lookup) => {
                self.seen += 1;
                self.read += 1;
            }
            Some(lookup) => self.count(&lookup, from, false),
            None => {}
        }
        if seen.is_lookup {
            self.lookup = Some(seen);
        } else {
            self.count(&seen, from, is_told_by_server);
        }
    }

    /// The sums of all addresses, at the end of the interval. The lost lines of an address count
    /// like those that it delivered.
    pub(crate) fn of_all<A: AsRef<str>>(each: impl IntoIterator<Item = (A, Self)>) -> Self {
        let mut all = Self::default();
        for (from, mut one) in each {
            if let Some(lookup) = one.lookup.take() {
                one.count(&lookup, from.as_ref(), false);
            }
            all.merge(one);
        }
        all
    }

    fn merge(&mut self, one: Self) {
        let scale = one.scale();
        self.total.merge(&one.total, scale);
        if one.read == 0 {
            self.total.requests += one.skipped as f64;
        }
        self.seen += one.seen;
        self.skipped += one.skipped;
        for (sums, more) in [
            (&mut self.operations, one.operations),
            (&mut self.pools, one.pools),
            (&mut self.servers, one.servers),
            (&mut self.keys, one.keys),
        ] {
            for (name, more) in more {
                sums.entry(name).or_default().merge(&more, scale);
            }
        }
    }

    fn count(&mut self, seen: &Seen, from: &str, is_told_by_server: bool) {
        self.read += 1;
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
        if self.keys.len() < self.keys_max || self.keys.contains_key(&seen.key) {
            sum(&mut self.keys, &seen.key).add(seen);
        }
    }

    /// The weight of a received request, because some were lost.
    fn scale(&self) -> f64 {
        if self.read == 0 {
            return 1.0;
        }
        (self.read + self.skipped) as f64 / self.read as f64
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, from factors of at least 0"
)]
fn weighted(count: u64, scale: f64) -> u64 {
    (count as f64 * scale).round() as u64
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
        let weight = seen.weight as f64;
        self.requests += weight;
        match seen.hit {
            Some(true) => self.hits += weight,
            Some(false) => self.misses += weight,
            None => {}
        }
        self.errors += if seen.is_error { weight } else { 0.0 };
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

    /// Adds another sum, each request of which counts this often.
    fn merge(&mut self, more: &Self, scale: f64) {
        self.requests += more.requests * scale;
        self.hits += more.hits * scale;
        self.misses += more.misses * scale;
        self.errors += more.errors * scale;
        let Some(times_us) = &more.times_us else { return };
        if self.times_us.is_none() {
            self.times_us = Histogram::new(2).ok();
        }
        let Some(all_us) = &mut self.times_us else { return };
        for step in times_us.iter_recorded() {
            let count = weighted(step.count_since_last_iteration(), scale);
            // Both histograms have the same range.
            let _ = all_us.record_n(step.value_iterated_to(), count);
        }
    }

    /// Share of hits in all reads; `None` without reads.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        let reads = self.hits + self.misses;
        (reads > 0.0).then(|| self.hits / reads)
    }

    /// The time within which this share of the answers came; `None` without reported times.
    pub(crate) fn quantile_us(&self, quantile: f64) -> Option<u64> {
        self.times_us.as_ref().map(|times_us| times_us.value_at_quantile(quantile))
    }
}

/// The largest sums, greatest first.
pub(crate) fn largest(sums: &BTreeMap<String, Sum>, count: usize) -> Vec<(&str, &Sum)> {
    let mut all: Vec<(&str, &Sum)> = sums.iter().map(|(name, sum)| (&**name, sum)).collect();
    all.sort_by(|(_, a), (_, b)| b.requests.total_cmp(&a.requests));
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_requests_count_by_their_weight() {
        let mut interval = Interval::of_one(1);
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
        assert_eq!(interval.total.requests, 4.0);
        assert_eq!(interval.total.hit_ratio(), Some(0.75));
        assert_eq!(interval.pools["A"].quantile_us(0.99), Some(100));
        assert_eq!(largest(&interval.keys, 1)[0].0, "one");
        assert!(interval.servers.contains_key("here"));
        // The server will report this one.
        interval.add(get("one", true, 1), "here", true);
        assert_eq!((interval.total.requests, interval.seen), (4.0, 2));
        assert_eq!((interval.pools["A"].requests, interval.keys["one"].requests), (5.0, 3.0));
    }

    /// A busy server that drops lines says nothing about the others.
    #[test]
    fn lost_lines_count_for_the_address_that_lost_them() {
        let get = |key: &str, took_us| Seen {
            operation: "get".into(),
            key: key.into(),
            hit: Some(true),
            took_us: Some(took_us),
            weight: 1,
            ..Seen::default()
        };
        let [mut calm, mut busy, mut proxy] = [(); 3].map(|()| Interval::of_one(4));
        for _ in 0..10 {
            calm.add(get("calm", 100), "one", false);
        }
        busy.add(get("hot", 900), "two", false);
        busy.skipped = 99;
        let silent = Interval { skipped: 5, ..Interval::default() };
        // Half of the lines were lost. Only one in ten of the others is not told by a server, too.
        for number in 0..10 {
            let (pool, server) = ("A".to_owned(), "three".to_owned());
            proxy.add(Seen { pool, server, ..get("front", 100) }, "proxy", number > 0);
        }
        proxy.skipped = 10;
        let each = [("one", calm), ("two", busy), ("silent", silent), ("proxy", proxy)];
        let all = Interval::of_all(each);
        assert_eq!((all.seen, all.skipped, all.total.requests), (12, 114, 117.0));
        assert_eq!((all.pools["A"].requests, all.servers["three"].requests), (20.0, 2.0));
        assert_eq!((all.servers["one"].requests, all.servers["two"].requests), (10.0, 100.0));
        assert_eq!((all.keys["calm"].requests, all.keys["hot"].requests), (10.0, 100.0));
        assert!(all.total.quantile_us(0.5).unwrap() > 800);
    }

    #[test]
    fn lookups_of_memcached_count_unless_they_begin_a_store_or_a_delete() {
        let mut interval = Interval::of_one(1);
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
        let interval = Interval::of_all([("memcached", interval)]);
        let requests = |operation: &str| interval.operations[operation].requests;
        assert_eq!(["get", "set", "delete"].map(requests), [3.0, 2.0, 1.0]);
        assert_eq!((interval.total.hits, interval.total.misses), (2.0, 1.0));
        // Lost lines may have been lookups of stores, too.
        assert_eq!(interval.seen, 8);
    }
}
